"""SQuAD-style JSON (SQuAD, XQuAD, CMRC 2018): paragraphs, questions, and where in the paragraph the answers stand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rag_cluster.chunking.boundaries import sentences
from rag_cluster.evaluation.datasets import Dataset, Question, SourceDocument, Span


def paragraphs(location: str) -> Dataset:
    """Every distinct paragraph is a document."""
    names: dict[str, str] = {}
    questions = []
    for _, paragraph in _paragraphs(location):
        name = names.setdefault(paragraph["context"], f"{len(names):05d}.txt")
        for item in _asked(paragraph):
            questions.append(Question(str(item["id"]), item["question"], (name,), _answers(item)))
    documents = tuple(SourceDocument(name, text) for text, name in names.items())
    return Dataset(Path(location).name, documents, tuple(questions))


def articles(location: str) -> Dataset:
    """Every article is a document, its paragraphs apart by blank lines; relevant is the sentence with the answer."""
    texts: dict[str, str] = {}
    starts: dict[tuple[str, str], int] = {}
    questions = []
    for number, paragraph in _paragraphs(location):
        name, context = f"{number:05d}.txt", paragraph["context"]
        if (name, context) not in starts:
            before = texts[name] + "\n\n" if name in texts else ""
            starts[name, context] = len(before)
            texts[name] = before + context
        start = starts[name, context]
        for item in _asked(paragraph):
            found = {_sentence(context, answer) for answer in item["answers"]}
            spans = tuple(Span(name, start + first, start + last) for first, last in sorted(found))
            questions.append(Question(str(item["id"]), item["question"], (name,), _answers(item), spans))
    documents = tuple(SourceDocument(name, text) for name, text in texts.items())
    return Dataset(f"articles of {Path(location).name}", documents, tuple(questions))


def cross_language(location: str) -> Dataset:
    """ASKED+HELD, two parallel files: the questions of the first, the paragraphs of the second alone."""
    asked, held = map(paragraphs, _pair(location))
    answering = {question.id: question for question in held.questions}
    questions = tuple(
        replace(answering[question.id], text=question.text) for question in asked.questions if question.id in answering
    )
    return Dataset(f"{asked.name} asked of {held.name}", held.documents, questions)


def mixed_languages(location: str) -> Dataset:
    """As `cross_language`, with the paragraphs of both files: the one in the question's language competes."""
    asked = paragraphs(_pair(location)[0])
    cross = cross_language(location)
    own = tuple(replace(document, name=f"a{document.name}") for document in asked.documents)
    return Dataset(f"{cross.name} in a mixed corpus", (*own, *cross.documents), cross.questions)


def _pair(location: str) -> tuple[str, str]:
    asked, plus, held = location.partition("+")
    if not plus:
        raise ValueError("two files are needed, ASKED+HELD")
    return asked, held


def _paragraphs(location: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(number of the article, paragraph); one without questions is there for the others to be told from."""
    content = json.loads(Path(location).read_text(encoding="utf-8"))
    for number, article in enumerate(content["data"]):
        for paragraph in article["paragraphs"]:
            yield number, paragraph


def _asked(paragraph: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Its questions. CMRC 2018 has a blank one, which nobody can ask."""
    return [item for item in paragraph["qas"] if item["question"].strip()]


def _answers(item: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(answer["text"] for answer in item["answers"]))


def _sentence(context: str, answer: Mapping[str, Any]) -> tuple[int, int]:
    """The sentence, or sentences, over which an answer lies."""
    start = int(answer["answer_start"])
    end = start + len(answer["text"])
    met = [(first, last) for first, last in sentences(context) if first < end and start < last]
    return (met[0][0], met[-1][1]) if met else (start, end)
