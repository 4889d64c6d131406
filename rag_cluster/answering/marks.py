"""Citation marks and image references in an answer: only those that stand for something real are kept.

A mark is `[来源 N](citation://N)` or `[Source N](citation://N)`, an image `![caption](asset://ID)`. A generator's text
is not trusted: marks outside 1..N and unknown assets are removed, also when a mark is split over several deltas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rag_cluster.domain.marks import MARK, mark

_MARK = re.compile(
    r"\[(?P<label>[^\[\]\n]*)\]\(\s*citation://(?P<link>[^()\s]*)\s*\)"
    r"|\[\s*(?:来源|Source)\s*(?P<bare>\d+)\s*\](?!\()"
    r"|(?P<image>!?\[[^\[\]\n]*\])\(\s*asset://(?P<asset>[^()\s]*)\s*\)"
    r"|asset://(?P<loose>[\w-]+)"
    r"|citation://[\w-]*",
    re.IGNORECASE,
)
_OPEN = re.compile(
    r"(?:!?\[[^\[\]\n]{0,200}(?:\](?:\([^()\n]{0,200})?)?"
    r"|!"
    r"|\b(?:asset|citation):/{0,2}[\w-]{0,80}"
    r"|\b(?:a|as|ass|asse|asset|c|ci|cit|cita|citat|citati|citatio|citation))$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Cited:
    """A stretch of an answer and the sources that its closing marks name; () at the end of an answer without marks."""

    text: str
    numbers: tuple[int, ...]


def stretches(answer: str) -> Iterator[Cited]:
    """Split a cleaned answer at its runs of marks."""
    text, numbers = "", list[int]()
    position = 0
    for found in MARK.finditer(answer):
        between = answer[position : found.start()]
        if between.strip(" \t.,;，。；、") and numbers:
            yield Cited(text, tuple(numbers))
            text, numbers = "", []
        if not numbers:
            text += between
        numbers.append(int(found[1]))
        position = found.end()
    if numbers:
        yield Cited(text, tuple(numbers))
        text = ""
    rest = answer[position:]
    if rest.strip(" \t\n.,;，。；、"):
        yield Cited(text + rest, ())


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
