"""Returned text against the relevant excerpts of a document, in tokens: recall, precision and IoU at equal length.

A chunk's text is found again in the document that it stems from; from then on everything is character ranges, weighed
by the tokens that the characters stand for. What is returned twice costs twice and counts once.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate

from rag_cluster.chunking.boundaries import sentences
from rag_cluster.domain.ports import Tokenizer
from rag_cluster.evaluation.datasets import Span

Range = tuple[int, int]

BUDGETS = (250, 500, 1000, 2000, 4000)
"""Tokens that are returned."""
SHOWN = 5
"""Results of which recall and length are told, too: what a caller sees who asks for no more than the default."""
_WORD = re.compile(r"\w")
_PIECE = re.compile(r"[^\S\n]*(?:[\u3400-\u9fff]|[^\W\u3400-\u9fff]+|[^\w\s])")
_SHORTEST = 12
"""Letters and digits below which a text may stand in several places, so that it is looked for near the one before."""


class SourceText:
    """A document's text, in which parts of it are found again."""

    def __init__(self, text: str, tokenizer: Tokenizer) -> None:
        self.text = text
        self._tokenizer = tokenizer
        self._letters = [match.start() for match in _WORD.finditer(text)]
        self._squeezed = "".join(text[at] for at in self._letters)

    @cached_property
    def _weight(self) -> list[float]:
        """Tokens of text[:n], for every n: each line's count, shared among its words by what they count alone."""
        weights = [0.0] * len(self.text)
        start = 0
        for line in self.text.splitlines(keepends=True):
            pieces = [match.span() for match in _PIECE.finditer(line)]
            alone = self._tokenizer.count_many([line[first:last] for first, last in pieces])
            scale = self._tokenizer.count(line) / (sum(alone) or 1)
            for (first, last), tokens in zip(pieces, alone, strict=True):
                for at in range(start + first, start + last):
                    weights[at] = tokens * scale / (last - first)
            start += len(line)
        return list(accumulate(weights, initial=0.0))

    def tokens(self, ranges: Iterable[Range]) -> float:
        """Tokens of ranges."""
        return sum(self._weight[end] - self._weight[start] for start, end in ranges)

    def cut(self, extent: Range, budget: float) -> Range:
        """The beginning of a range that has so many tokens."""
        start, end = extent
        return start, bisect_left(self._weight, self._weight[start] + budget, start, end)

    def find(self, text: str) -> list[Range]:
        """Where a chunk's text stands, letters and digits compared; part by part where it is no literal slice."""
        found: list[Range] = []
        self._find(text, found)
        return found

    def _find(self, text: str, found: list[Range]) -> None:
        squeezed = "".join(_WORD.findall(text))
        if not squeezed:
            return
        near = bisect_left(self._letters, found[-1][1]) if found and len(squeezed) < _SHORTEST else 0
        at = self._squeezed.find(squeezed, near)
        if at >= 0:
            found.append((self._letters[at], self._until(self._letters[at + len(squeezed) - 1] + 1)))
            return
        parts = [text[start:end] for start, end in sentences(text)]
        if len(parts) < 2:
            parts = text.split("\n") if "\n" in text.strip() else []
        for part in parts:
            self._find(part, found)

    def _until(self, end: int) -> int:
        """With the punctuation that follows."""
        while end < len(self.text) and not self.text[end].isspace() and not _WORD.match(self.text[end]):
            end += 1
        return end


def excerpt_measures(
    sources: Mapping[str, SourceText],
    relevant: Sequence[Span],
    returned: Iterable[tuple[SourceText, Sequence[Range]]],
    budgets: Sequence[int] = BUDGETS,
) -> dict[str, float]:
    """token_recall@B, token_precision@B and token_iou@B of the first B tokens of what was returned, best first; and of
    the first results, whole, first_5_recall and first_5_tokens.

    sources: of the documents that excerpts lie in. returned: (document, ranges) of each result, of any document.
    """
    wanted: dict[SourceText, list[Range]] = {}
    for span in relevant:
        wanted.setdefault(sources[span.document], []).append((span.start, span.end))
    total = sum(source.tokens(union(ranges)) for source, ranges in wanted.items())
    results = list(returned)
    flat = [(source, extent) for source, ranges in results for extent in ranges]
    measured: dict[str, float] = {}
    for budget in budgets:
        kept, spent = _first(flat, budget)
        met = _met(wanted, kept)
        measured[f"token_recall@{budget}"] = met / total if total else 0.0
        measured[f"token_precision@{budget}"] = met / spent if spent else 0.0
        measured[f"token_iou@{budget}"] = met / (total + spent - met) if total + spent > met else 0.0
    shown: dict[SourceText, list[Range]] = {}
    for source, ranges in results[:SHOWN]:
        shown.setdefault(source, []).extend(ranges)
    measured[f"first_{SHOWN}_recall"] = _met(wanted, shown) / total if total else 0.0
    measured[f"first_{SHOWN}_tokens"] = sum(source.tokens(ranges) for source, ranges in shown.items())
    return measured


def _met(wanted: Mapping[SourceText, Sequence[Range]], given: Mapping[SourceText, Sequence[Range]]) -> float:
    """Tokens that are in both."""
    return sum(
        source.tokens(intersection(union(ranges), union(given.get(source, ())))) for source, ranges in wanted.items()
    )


def _first(returned: Iterable[tuple[SourceText, Range]], budget: float) -> tuple[dict[SourceText, list[Range]], float]:
    """(ranges by document, their tokens) of the first `budget` tokens; the last range is cut."""
    kept: dict[SourceText, list[Range]] = {}
    spent = 0.0
    for source, extent in returned:
        if spent + source.tokens([extent]) > budget:
            extent = source.cut(extent, budget - spent)
        kept.setdefault(source, []).append(extent)
        spent += source.tokens([extent])
        if spent >= budget - 1:
            break
    return kept, spent


def union(ranges: Iterable[Range]) -> list[Range]:
    """The same characters, each once, in order."""
    merged: list[Range] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def intersection(one: Sequence[Range], other: Sequence[Range]) -> list[Range]:
    """Characters that are in both of two lists without overlaps."""
    return [(max(a, c), min(b, d)) for a, b in one for c, d in other if max(a, c) < min(b, d)]
