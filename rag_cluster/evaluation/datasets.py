"""Questions with known answers, and the documents that hold them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rag_cluster.errors import InvalidRequestError
from rag_cluster.parsing.detection import EXPECTED
from rag_cluster.parsing.encoding import decode_text


@dataclass(frozen=True)
class SourceDocument:
    """A document to ingest: a text, or a file of any format that can be parsed."""

    name: str
    """File name: it has an extension, and no word that a question could match where it is ours to choose."""
    text: str = ""
    path: Path | None = None

    def read(self) -> bytes:
        """Its bytes."""
        return self.path.read_bytes() if self.path else self.text.encode()

    def characters(self) -> str:
        """What spans count, decoded as the parser of plain text does. InvalidRequestError where it is no text."""
        if self.path is None:
            return self.text
        if EXPECTED.get(self.path.suffix.lower()) != "text":
            raise InvalidRequestError(f"Spans count the characters of a text; {self.name} is none.")
        return decode_text(self.read())[0]


@dataclass(frozen=True, slots=True)
class Span:
    """A relevant excerpt: characters [start, end) of a document's text."""

    document: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Question:
    """One question and what is known of its answer."""

    id: str
    text: str
    documents: tuple[str, ...]
    """Names of the documents that answer it; one suffices."""
    answers: tuple[str, ...] = ()
    """Gold strings."""
    spans: tuple[Span, ...] = ()
    locator: Mapping[str, Any] = field(default_factory=dict)
    """Where in the document: page, slide, sheet, cell (A1), heading."""
    group: str = ""
    """Of which figures of their own are wanted: a language, a corpus."""


@dataclass(frozen=True)
class Dataset:
    """Documents without repetition, and their questions."""

    name: str
    documents: tuple[SourceDocument, ...]
    questions: tuple[Question, ...]

    @cached_property
    def fingerprint(self) -> str:
        """12 hex digits of the documents: names the knowledge base, so that a second run embeds nothing."""
        digest = hashlib.sha256()
        for document in self.documents:
            digest.update(document.name.encode() + b"\x00" + document.read() + b"\x00")
        return digest.hexdigest()[:12]

    @property
    def groups(self) -> dict[str, list[int]]:
        """Name -> numbers of its questions."""
        found: dict[str, list[int]] = {}
        for number, question in enumerate(self.questions):
            if question.group:
                found.setdefault(question.group, []).append(number)
        return found

    def sample(self, count: int | None) -> Dataset:
        """The same documents with every n-th question, `count` in all; None keeps all."""
        if count is None or count >= len(self.questions):
            return self
        step = len(self.questions) / count
        return replace(self, questions=tuple(self.questions[int(i * step)] for i in range(count)))


def kinds() -> Mapping[str, Callable[[str], Dataset]]:
    """What stands before the colon of a data set -> its reader."""
    from rag_cluster.evaluation import question_files, squad

    return {
        "squad": squad.paragraphs,
        "xquad": squad.paragraphs,
        "articles": squad.articles,
        "cross": squad.cross_language,
        "mixed": squad.mixed_languages,
        "spans": question_files.spans,
        "jsonl": question_files.own,
    }


def load(spec: str) -> Dataset:
    """A data set by its specification, KIND:PATH, or "golden". InvalidRequestError says what is wrong with it."""
    from rag_cluster.evaluation import question_files

    if spec == "golden":
        return question_files.golden()
    kind, _, location = spec.partition(":")
    reader = kinds().get(kind)
    if reader is None or not location:
        known = ", ".join(f"{name}:PATH" for name in kinds())
        raise InvalidRequestError(f"A data set is golden or one of {known}; not {spec!r}.")
    try:
        dataset = reader(location)
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise InvalidRequestError(f"{location} cannot be read as {kind}: {error!r}") from None
    if not dataset.questions:
        raise InvalidRequestError(f"{location} holds no questions.")
    _check(dataset)
    return dataset


def _check(dataset: Dataset) -> None:
    """Names and ids tell documents and questions apart, in the scores and between two runs."""
    named = Counter(document.name for document in dataset.documents)
    if doubled := [name for name, count in named.items() if count > 1]:
        raise InvalidRequestError(
            f"{dataset.name}: {named[doubled[0]]} documents are named {doubled[0]!r}; a name is to mean one."
        )
    asked = Counter(question.id for question in dataset.questions)
    for question in dataset.questions:
        if asked[question.id] > 1:
            raise InvalidRequestError(
                f"{dataset.name}: {asked[question.id]} questions have the id {question.id!r}; one is {question.text!r}."
            )
        if absent := [name for name in question.documents if name not in named]:
            raise InvalidRequestError(f"{dataset.name}: {question.text!r} expects {absent[0]!r}, which is not there.")


def off_topic_questions() -> tuple[str, ...]:
    """Our own questions about everyday things, Chinese and English, that an encyclopedia paragraph does not answer."""
    from rag_cluster.evaluation.question_files import packaged_lines

    return tuple(line["question"] for line in packaged_lines("off_topic.jsonl"))
