"""Questions with known answers: SQuAD-style JSON (XQuAD, CMRC 2018), paragraphs with questions and gold strings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from rag_cluster.errors import InvalidRequestError

KINDS = ("xquad", "squad")


@dataclass(frozen=True, slots=True)
class Question:
    """One question; paragraph is the index of the only paragraph that answers it."""

    id: str
    text: str
    paragraph: int
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dataset:
    """Paragraphs without repetition, and their questions."""

    name: str
    paragraphs: tuple[str, ...]
    questions: tuple[Question, ...]

    @property
    def fingerprint(self) -> str:
        """12 hex digits of the paragraphs: names the knowledge base, so that a second run embeds nothing."""
        return hashlib.sha256("\x00".join(self.paragraphs).encode()).hexdigest()[:12]

    def sample(self, count: int | None) -> Dataset:
        """The same paragraphs with every n-th question, `count` in all; None keeps all."""
        if count is None or count >= len(self.questions):
            return self
        step = len(self.questions) / count
        return Dataset(self.name, self.paragraphs, tuple(self.questions[int(i * step)] for i in range(count)))


def load(spec: str) -> Dataset:
    """`xquad:PATH` or `squad:PATH`. InvalidRequestError says what is wrong with it."""
    kind, _, location = spec.partition(":")
    if kind not in KINDS or not location:
        raise InvalidRequestError(f"A dataset is {' or '.join(f'{k}:PATH' for k in KINDS)}, not {spec!r}.")
    path = Path(location)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return _squad(path.name, content)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidRequestError(f"{location} cannot be read as SQuAD JSON: {error!r}") from None


def _squad(name: str, content: Mapping[str, Any]) -> Dataset:
    numbers: dict[str, int] = {}
    questions: list[Question] = []
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            number = numbers.setdefault(paragraph["context"], len(numbers))
            for item in paragraph["qas"]:
                answers = tuple(dict.fromkeys(answer["text"] for answer in item["answers"]))
                questions.append(Question(str(item["id"]), item["question"], number, answers))
    return Dataset(name, tuple(numbers), tuple(questions))


def off_topic_questions() -> tuple[str, ...]:
    """Our own questions about everyday things, Chinese and English, that an encyclopedia paragraph does not answer."""
    text = (resources.files("rag_cluster.evaluation") / "off_topic.jsonl").read_text(encoding="utf-8")
    return tuple(json.loads(line)["question"] for line in text.splitlines() if line.strip())
