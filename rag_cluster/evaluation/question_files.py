"""Questions as JSON lines: one's own, those with excerpts, and the golden set of our samples."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from rag_cluster.evaluation.datasets import Dataset, Question, SourceDocument, Span

NOT_DOCUMENTS = frozenset({".jsonl", ".py", ".pyc"})


def own(location: str) -> Dataset:
    """QUESTIONS.jsonl, or QUESTIONS.jsonl+FOLDER: what lies in the folder is the corpus.

    A line: {"question", "document": name or names} and, as far as known, "id", "answers", "spans" ([start, end) of the
    first document's text), "locator" ({"page", "slide", "sheet", "cell", "heading"}), "group". A document is named by
    its file name; without a folder it lies beside the questions. Without "id" a question has that of its words and
    documents, wherever in the file it stands.
    """
    questions_at, _, folder = location.partition("+")
    path = Path(questions_at)
    questions = tuple(_question(line, number) for number, line in _lines(path.read_text(encoding="utf-8-sig")))
    if folder:
        files = sorted(one for one in Path(folder).rglob("*") if one.is_file() and one.suffix not in NOT_DOCUMENTS)
    else:
        files = [path.parent / name for name in dict.fromkeys(n for one in questions for n in one.documents)]
    return Dataset(path.name, tuple(SourceDocument(file.name, path=file) for file in files), questions)


def spans(location: str) -> Dataset:
    """Lines {"corpus", "question", "spans"}; the corpora lie beside the file and are read as plain text.

    Whatever their names say: spans count characters of the text as it is, of which Markdown would leave some out.
    """
    path = Path(location)
    corpora: dict[str, SourceDocument] = {}
    questions = []
    for _, line in _lines(path.read_text(encoding="utf-8-sig")):
        corpus = line["corpus"]
        if corpus not in corpora:
            text = (path.parent / corpus).read_text(encoding="utf-8")
            corpora[corpus] = SourceDocument(f"{Path(corpus).stem}.txt", text)
        name = corpora[corpus].name
        excerpts = tuple(Span(name, int(start), int(end)) for start, end in line["spans"])
        text = line["question"]
        questions.append(Question(_id(text, [name]), text, (name,), spans=excerpts, group=Path(corpus).stem))
    return Dataset(path.name, tuple(corpora.values()), tuple(questions))


def golden() -> Dataset:
    """Our own questions about the samples: Chinese, English, and in one language about a document in the other."""
    samples = resources.files("rag_cluster") / "samples"
    files = sorted((Path(str(one)) for one in samples.iterdir()), key=lambda file: file.name)
    documents = tuple(
        SourceDocument(file.name, path=file) for file in files if file.is_file() and file.suffix not in NOT_DOCUMENTS
    )
    questions = tuple(_question(line, number) for number, line in enumerate(packaged_lines("golden.jsonl"), start=1))
    return Dataset("golden", documents, questions)


def packaged_lines(name: str) -> list[dict[str, Any]]:
    """The lines of one of our own files."""
    text = (resources.files("rag_cluster.evaluation") / name).read_text(encoding="utf-8")
    return [line for _, line in _lines(text)]


def _lines(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(text.split("\n"), start=1):  # other separators may stand inside a JSON string
        if line.strip():
            try:
                item = json.loads(line)
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None
            if not isinstance(item, dict):
                raise TypeError(f"line {number}: a question is an object")
            yield number, item


def _question(line: Mapping[str, Any], number: int) -> Question:
    text, documents = line.get("question"), _texts(line.get("document"))
    if not isinstance(text, str) or not text.strip() or not documents:
        raise ValueError(f"line {number}: question and document are needed")
    excerpts = tuple(Span(documents[0], int(start), int(end)) for start, end in line.get("spans") or ())
    return Question(
        str(line.get("id") or _id(text, documents)),
        text,
        documents,
        _texts(line.get("answers")),
        excerpts,
        dict(line.get("locator") or {}),
        str(line.get("group") or ""),
    )


def _id(text: str, documents: Sequence[str]) -> str:
    """The same in every file that asks the same of the same documents, so that two runs can be compared."""
    return hashlib.sha256("\x00".join((text, *documents)).encode()).hexdigest()[:16]


def _texts(value: Any) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value] if value else []
    if not all(isinstance(one, str) for one in values):
        raise TypeError(f"{value!r} is neither a text nor a list of texts")
    return tuple(values)
