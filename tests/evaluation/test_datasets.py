"""Data sets: what files mean."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rag_cluster.errors import InvalidRequestError
from rag_cluster.evaluation.datasets import Span, load, off_topic_questions


def write_squad(path: Path, *contexts: str, start: int = 0, text: str = "P", ids: str = "q") -> Path:
    paragraphs = [
        {
            "context": context,
            "qas": [
                {
                    "id": f"{ids}{number}",
                    "question": f"{path.stem} {number}?",
                    "answers": [{"text": text, "answer_start": start}, {"text": text, "answer_start": start}],
                }
            ],
        }
        for number, context in enumerate(contexts)
    ]
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")
    return path


def test_a_paragraph_that_occurs_twice_is_one_document(tmp_path: Path) -> None:
    dataset = load(f"squad:{write_squad(tmp_path / 'set.json', 'P', 'P')}")
    assert [document.text for document in dataset.documents] == ["P"]
    assert [(question.documents, question.answers) for question in dataset.questions] == [(("00000.txt",), ("P",))] * 2


def test_a_paragraph_without_questions_is_there_to_be_told_from_the_others(tmp_path: Path) -> None:
    path = write_squad(tmp_path / "set.json", "P", "Q")
    content = json.loads(path.read_text())
    content["data"][0]["paragraphs"][1]["qas"] = []
    path.write_text(json.dumps(content))
    dataset = load(f"squad:{path}")
    assert [document.text for document in dataset.documents] == ["P", "Q"] and len(dataset.questions) == 1


def test_an_article_is_one_document_and_the_answers_sentence_is_what_is_relevant(tmp_path: Path) -> None:
    path = write_squad(tmp_path / "set.json", "First one. The answer is P here. Last.", "Second P.", start=25)
    dataset = load(f"articles:{path}")
    (document,) = dataset.documents
    spans = [question.spans for question in dataset.questions]
    assert document.text == "First one. The answer is P here. Last.\n\nSecond P."
    assert spans[0] == (Span("00000.txt", 11, 32),)


def test_a_cross_language_set_asks_one_file_about_the_other(tmp_path: Path) -> None:
    asked = write_squad(tmp_path / "zh.json", "甲", "乙")
    held = write_squad(tmp_path / "en.json", "A", "B")
    cross, mixed = load(f"cross:{asked}+{held}"), load(f"mixed:{asked}+{held}")
    assert [question.text for question in cross.questions] == ["zh 0?", "zh 1?"]
    texts = {document.name: document.text for document in mixed.documents}
    assert sorted(texts.values()) == ["A", "B", "乙", "甲"]
    assert [texts[question.documents[0]] for question in mixed.questions] == ["A", "B"]
    assert len(cross.documents) == 2


def test_spans_count_characters_of_the_corpora_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "corpus.md").write_text("Some *text* here.", encoding="utf-8")
    path = tmp_path / "questions.jsonl"
    path.write_text(json.dumps({"corpus": "corpus.md", "question": "?", "spans": [[5, 11]]}) + "\n")
    dataset = load(f"spans:{path}")
    assert dataset.documents[0].name == "corpus.txt"
    assert dataset.questions[0].spans == (Span("corpus.txt", 5, 11),)
    assert dataset.groups == {"corpus": [0]}


def test_ones_own_questions_name_files_beside_them_or_in_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    for name in ("a.md", "b.txt", "distractor.txt"):
        (folder / name).write_text(name)
    path = folder / "q.jsonl"
    path.write_text('{"question": "?", "document": ["a.md", "b.txt"], "locator": {"page": 2}, "group": "zh"}\n')
    assert [document.name for document in load(f"jsonl:{path}").documents] == ["a.md", "b.txt"]
    with_folder = load(f"jsonl:{path}+{folder}")
    assert [document.name for document in with_folder.documents] == ["a.md", "b.txt", "distractor.txt"]
    assert with_folder.questions[0].locator == {"page": 2}


def write_questions(path: Path, *lines: dict[str, object]) -> str:
    (path.parent / "a.md").write_text("a")
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"jsonl:{path}"


def test_a_question_is_the_same_one_wherever_it_stands_in_its_file(tmp_path: Path) -> None:
    lines = [{"question": f"{number}?", "document": "a.md"} for number in range(3)]
    before, after = (
        {question.text: question.id for question in load(write_questions(tmp_path / "q.jsonl", *chosen)).questions}
        for chosen in (lines[1:], lines)
    )
    assert before == {text: after[text] for text in before} and len(set(after.values())) == 3


@pytest.mark.parametrize("named", [{}, {"id": "7"}])
def test_a_question_that_comes_twice_is_refused(tmp_path: Path, named: dict[str, object]) -> None:
    spec = write_questions(tmp_path / "q.jsonl", *[{"question": "Why?", "document": "a.md", **named}] * 2)
    with pytest.raises(InvalidRequestError, match=r"2 questions have the id .* 'Why\?'"):
        load(spec)


def test_a_name_that_means_two_documents_is_refused(tmp_path: Path) -> None:
    for year in ("2024", "2025"):
        (tmp_path / "docs" / year).mkdir(parents=True)
        (tmp_path / "docs" / year / "report.md").write_text(year)
    spec = write_questions(tmp_path / "q.jsonl", {"question": "?", "document": "report.md"})
    with pytest.raises(InvalidRequestError, match=r"2 documents are named 'report\.md'"):
        load(f"{spec}+{tmp_path / 'docs'}")


def test_a_document_that_is_expected_and_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    spec = write_questions(tmp_path / "q.jsonl", {"question": "?", "document": "a.md"})
    with pytest.raises(InvalidRequestError, match=r"'a\.md', which is not there"):
        load(f"{spec}+{tmp_path / 'docs'}")


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text('\ufeff{"question": "a\u2028b\x85c", "document": "a.md"}\r\n', encoding="utf-8")
    assert [question.text for question in load(f"jsonl:{tmp_path / 'q.jsonl'}").questions] == ["a\u2028b\x85c"]


@pytest.mark.parametrize(
    "spec", ["xquad", "other:file.json", "squad:/nowhere.json", "mixed:one.json", "jsonl:no.jsonl"]
)
def test_an_unknown_dataset_is_an_error_that_says_so(spec: str) -> None:
    with pytest.raises(InvalidRequestError):
        load(spec)


def test_a_line_that_is_no_question_is_named(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "?", "document": "a.md"}\n{"question": "?"}\n')
    with pytest.raises(InvalidRequestError, match="line 2"):
        load(f"jsonl:{path}")


def test_a_sample_is_spread_evenly_and_keeps_all_documents(tmp_path: Path) -> None:
    sample = load(f"squad:{write_squad(tmp_path / 's.json', *(f'P{n}' for n in range(10)))}").sample(3)
    assert [question.id for question in sample.questions] == ["q0", "q3", "q6"]
    assert len(sample.documents) == 10


def test_our_off_topic_questions_are_in_both_languages() -> None:
    questions = off_topic_questions()
    assert len(questions) == 60 and sum(question.isascii() for question in questions) == 30


def test_the_golden_set_asks_of_every_sample_in_both_languages_and_across_them() -> None:
    golden = load("golden")
    expected = {name for question in golden.questions for name in question.documents}
    assert expected == {document.name for document in golden.documents}
    assert {group: len(rows) for group, rows in golden.groups.items()} == {"zh": 15, "en": 13, "cross": 10}
    assert all(question.answers for question in golden.questions)
