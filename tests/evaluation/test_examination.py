"""What scoring reads of a data set, and what it makes of results that no excerpt knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from rag_cluster.domain.retrieval import RetrievalResult
from rag_cluster.engines.tokenizers import RegexTokenizer
from rag_cluster.errors import InvalidRequestError
from rag_cluster.evaluation.datasets import Dataset, Question, SourceDocument, Span
from rag_cluster.evaluation.runner import Examination

TOKENIZER = RegexTokenizer()
TEXT = "收费标准如下。堆存费每天六十元。其余费用另行计算。"


def spanned(path: Path, start: int = 7, end: int = 16) -> Dataset:
    question = Question("q", "堆存费多少？", (path.name,), spans=(Span(path.name, start, end),))
    files = sorted(path.parent.iterdir())
    return Dataset("set", tuple(SourceDocument(file.name, path=file) for file in files), (question,))


def found(document: str, content: str) -> RetrievalResult:
    return RetrievalResult(f"c-{document}", document, 1, "base", document, content, content, 1.0)


def test_only_documents_with_excerpts_are_read_and_in_the_encoding_that_they_have(tmp_path: Path) -> None:
    (tmp_path / "scan.pdf").write_bytes(b"%PDF-1.7\n\xe2\xe3\xcf\xd3")
    (tmp_path / "tariff.txt").write_bytes(TEXT.encode("gbk"))
    examination = Examination.of(spanned(tmp_path / "tariff.txt"), TOKENIZER)
    assert {name: source.text for name, source in examination.sources.items()} == {"tariff.txt": TEXT}


def test_results_of_documents_without_excerpts_cost_tokens_and_hold_nothing(tmp_path: Path) -> None:
    (tmp_path / "tariff.txt").write_text(TEXT, encoding="utf-8")
    dataset = spanned(tmp_path / "tariff.txt")
    examination = Examination.of(dataset, TOKENIZER)
    answer, other = found("1", "堆存费每天六十元。"), found("2", "one two three four five six seven eight nine")
    names = {"1": "tariff.txt"}  # the other one is no document of the data set
    alone, both = (examination.score(names, dataset.questions[0], results) for results in ([answer], [other, answer]))
    assert (alone["token_recall@250"], both["token_recall@250"]) == (1.0, 1.0)
    tokens, others = alone["first_5_tokens"], TOKENIZER.count(other.content)
    assert both["first_5_tokens"] == pytest.approx(tokens + others)
    assert both["token_precision@250"] == pytest.approx(tokens / (tokens + others))
    assert (alone["recall@1"], both["recall@1"]) == (1.0, 0.0)


def test_excerpts_of_what_is_no_text_or_beyond_its_end_are_refused(tmp_path: Path) -> None:
    (tmp_path / "scan.pdf").write_bytes(b"%PDF-1.7")
    (tmp_path / "tariff.txt").write_text(TEXT, encoding="utf-8")
    with pytest.raises(InvalidRequestError, match=r"scan\.pdf is none"):
        Examination.of(spanned(tmp_path / "scan.pdf"), TOKENIZER)
    with pytest.raises(InvalidRequestError, match=r"has 25 characters; there is no excerpt \[7, 99\)"):
        Examination.of(spanned(tmp_path / "tariff.txt", end=99), TOKENIZER)
