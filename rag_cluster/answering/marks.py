"""Citation marks and image references in an answer: only those that stand for something real are kept.

A mark is `[来源 N](citation://N)` or `[Source N](citation://N)`, an image `![caption](asset://ID)`. A generator's text
is not trusted: marks outside 1..N and unknown assets are removed, also when a mark is split over several deltas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rag_cluster.chunking.boundaries import sentences
from rag_cluster.domain.answers import CutShort
from rag_cluster.domain.marks import LABEL, MARK, MAX_DIGITS, mark, named_sources

_OWN = r"\[(?:来源|Source) \d+\]\(citation://\d+\)"
_LINKED = r"(?:\[\[[^\[\]\n]*\]\]|\[[^\[\]\n]*\]|【[^【】\n]*】)\s?[(（]\s*citation://(?P<link>[^()（）\s]*)\s*[)）]"
_MARK = re.compile(
    _LINKED + rf"|(?P<bare>{LABEL})"
    r"|(?P<image>!?\[[^\[\]\n]*\])\s?[(（]\s*asset://(?P<asset>[^()（）\s]*)\s*[)）]"
    r"|asset://(?P<loose>[A-Za-z0-9_-]+)"
    r"|citation://[A-Za-z0-9_-]*",
    re.IGNORECASE,
)
_RUN = re.compile(rf"{_OWN}(?:[\s,;，；、]*(?:(?:and\b|[和与及&])\s*)?{_OWN})*")
"""Marks with what joins them."""
_CLOSES = re.compile(r"[.,;:!?)。，；：！？、）]")
_OPEN = re.compile(
    r"(?:!?(?:\[{1,2}[^\[\]\n]{0,200}(?:\]{1,2}|$)|【[^【】\n]{0,200}(?:】|$))(?:\s?(?:[(（][^()（）\n]{0,200})?)?"
    r"|!"
    r"|(?:asset|citation):/{0,2}[A-Za-z0-9_-]{0,80}"
    r"|a|as|ass|asse|asset|c|ci|cit|cita|citat|citati|citatio|citation)$",
    re.IGNORECASE,
)
_TORN_LINK = re.compile(
    r"(?<=[\]】])\s?[(（]\s*(?:c|ci|cit|cita|citat|citati|citatio|citation(?::[^()（）\s]*)?)?\s*$", re.I
)
_TORN = re.compile(
    r"[\[【]{1,2}\s*(?:来源?|So?u?r?c?e?s?)[\s\d,，、;；&和与及~～至到–—-]*$|!\[[^\[\]\n]*\]\s?[(（][^()（）\n]*$"
    r"|(?:asset|citation):/{0,2}$",
    re.IGNORECASE,
)
"""The beginning of a mark or image with which a text ends; of a mark whose number is there, the rest alone is torn."""


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
        if _CLOSES.match(answer, found.end()):
            text = text.rstrip(" ")  # which stands between a sentence and its mark, not before its end
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
        self.cut_short = False
        """Whether the generator would have said more."""

    def feed(self, delta: str) -> str:
        """Text that is safe to show now."""
        self.cut_short = self.cut_short or isinstance(delta, CutShort)
        self._held += delta
        unfinished = _OPEN.search(self._held)
        cut = unfinished.start() if unfinished else len(self._held)
        ready, self._held = self._held[:cut], self._held[cut:]
        return self._clean(ready)

    def flush(self) -> str:
        """What was held back, at the end of the stream, without the beginning of a mark."""
        ready, self._held = self._held, ""
        return self._clean(_TORN.sub(self._drop, _TORN_LINK.sub("", ready)))

    def _clean(self, text: str) -> str:
        return _MARK.sub(self._judge, text)

    def _judge(self, found: re.Match[str]) -> str:
        link = found["link"] or ""
        numbers = [int(link[:MAX_DIGITS])] if link.isdecimal() else named_sources(found["bare"] or "", self._sources)
        if kept := [mark(number, self._language) for number in numbers if 1 <= number <= self._sources]:
            if len(kept) < len(numbers):
                self.removed.append(found[0])
            return "".join(kept)
        if found["asset"] is not None and found["asset"] in self._assets:
            return f"{found['image']}(asset://{found['asset']})"
        if found["loose"] is not None and found["loose"] in self._assets:
            return found[0]
        return self._drop(found)

    def _drop(self, found: re.Match[str]) -> str:
        self.removed.append(found[0])
        return ""
