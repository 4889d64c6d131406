"""Citation marks and image references in an answer: only those that stand for something real are kept.

A mark is `[来源 N](citation://N)` or `[Source N](citation://N)`, an image `![caption](asset://ID)`. A generator's text
is not trusted: marks outside 1..N and unknown assets are removed, also when a mark is split over several deltas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rag_cluster.chunking.boundaries import sentences
from rag_cluster.domain.marks import MARK, mark

_OWN = r"\[(?:来源|Source) \d+\]\(citation://\d+\)"
_MARK = re.compile(
    r"\[(?P<label>[^\[\]\n]*)\]\(\s*citation://(?P<link>[^()\s]*)\s*\)"
    r"|\[\s*(?:来源|Source)\s*(?P<bare>\d+)\s*\](?!\()"
    r"|(?P<image>!?\[[^\[\]\n]*\])\(\s*asset://(?P<asset>[^()\s]*)\s*\)"
    r"|asset://(?P<loose>[\w-]+)"
    r"|citation://[\w-]*",
    re.IGNORECASE,
)
_RUN = re.compile(rf"{_OWN}(?:[\s,;，；、]*(?:and\b|[和与及&])?\s*{_OWN})*")
"""Marks with what joins them."""
_OPEN = re.compile(
    r"(?:!?\[[^\[\]\n]{0,200}(?:\](?:\([^()\n]{0,200})?)?"
    r"|!"
    r"|\b(?:asset|citation):/{0,2}[\w-]{0,80}"
    r"|\b(?:a|as|ass|asse|asset|c|ci|cit|cita|citat|citati|citatio|citation))$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Cited:
    """Sentences of an answer and the sources that their marks name; () at the end of an answer without marks."""

    text: str
    numbers: tuple[int, ...]


def stretches(answer: str) -> Iterator[Cited]:
    """Split a cleaned answer behind each sentence that holds marks, or is followed by them; the text has none of them.

    A mark is of its whole sentence and of those before it that have none.
    """
    text, marked = _without_own(answer)
    spans = sentences(text) or [(0, 0)]
    begin = at = 0
    for sentence in range(len(spans)):
        end = spans[sentence + 1][0] if sentence + 1 < len(spans) else len(text)
        numbers: list[int] = []
        while at < len(marked) and marked[at][0] <= end:
            numbers.extend(marked[at][1])
            at += 1
        if numbers:
            yield Cited(text[begin:end], tuple(dict.fromkeys(numbers)))
            begin = end
    if text[begin:].strip(" \t\n.,;，。；、"):
        yield Cited(text[begin:], ())


def _without_own(answer: str) -> tuple[str, list[tuple[int, list[int]]]]:
    """The text, and where in it which numbers were."""
    text, marked = "", list[tuple[int, list[int]]]()
    position = 0
    for found in _RUN.finditer(answer):
        text += answer[position : found.start()]
        marked.append((len(text), [int(number) for number in MARK.findall(found[0])]))
        position = found.end()
    return text + answer[position:], marked


class MarkFilter:
    """Cleans a stream of deltas. What might be the beginning of a mark is held back until it is complete."""

    def __init__(self, sources: int, assets: frozenset[str], language: str) -> None:
        self._sources = sources
        self._assets = assets
        self._language = language
        self._held = ""
        self.removed: list[str] = []
        """Marks that stood for nothing, as written."""

    def feed(self, delta: str) -> str:
        """Text that is safe to show now."""
        self._held += delta
        unfinished = _OPEN.search(self._held)
        cut = unfinished.start() if unfinished else len(self._held)
        ready, self._held = self._held[:cut], self._held[cut:]
        return self._clean(ready)

    def flush(self) -> str:
        """What was held back, at the end of the stream."""
        ready, self._held = self._held, ""
        return self._clean(ready)

    def _clean(self, text: str) -> str:
        return _MARK.sub(self._judge, text)

    def _judge(self, found: re.Match[str]) -> str:
        number = found["link"] if found["link"] is not None else found["bare"]
        if number is not None and number.isascii() and number.isdigit() and 1 <= int(number) <= self._sources:
            return mark(int(number), self._language)
        if found["asset"] is not None and found["asset"] in self._assets:
            return f"{found['image']}(asset://{found['asset']})"
        if found["loose"] is not None and found["loose"] in self._assets:
            return found[0]
        self.removed.append(found[0])
        return ""
