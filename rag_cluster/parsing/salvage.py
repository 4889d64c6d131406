"""One page that breaks the parser costs that page, not the document.

A page that a parser announced before it broke is the culprit, when every try broke there. Otherwise the pages are
halved, each half being parsed alone, until one page is left. What is found is left out, the rest is parsed again, and a
warning names it. Tries, pages and time are bounded; beyond them the document fails as it did at first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rag_cluster.domain.blocks import DocumentSource, ParsedDocument
from rag_cluster.errors import RagClusterError
from rag_cluster.parsing.pages import PageMark

MAX_PAGES_LOST = 10
MAX_PARSES = 60
"""Of one document: enough for ten pages found by halving 20,000, mostly on ever smaller pieces."""
MAX_TIMEOUTS = 4
"""Times the limit of one document, all tries together."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A parse that ended without a document, after as many tries as its kind deserves."""

    error: RagClusterError
    """What the caller gets when nothing can be saved."""
    reason: str
    """Why, in words that follow "Page 3 was left out: "."""
    marks: tuple[PageMark, ...] = ()
    """Where each try stood. Empty when no page can be at fault."""
    adds_up: bool = False
    """Pages before may share the fault, as they do in what memory is used up by."""

    @property
    def agreed(self) -> PageMark | None:
        """The page where every try stood."""
        alike = len({mark.number for mark in self.marks}) == 1
        return self.marks[0] if alike and self.marks[0].number else None


Parse = Callable[[DocumentSource], ParsedDocument | Failure]


class Salvage:
    """The search in one document."""

    def __init__(self, parse: Parse, source: DocumentSource, timeout: float) -> None:
        self._parse = parse
        self._source = source
        self._parses = 0
        self._deadline = time.monotonic() + MAX_TIMEOUTS * timeout

    def run(self) -> ParsedDocument:
        """The document without the pages that break the parser. Raises the first failure's error when that fails."""
        lost: dict[int, str] = {}
        result = self._without(lost)
        first: Failure | None = None
        while isinstance(result, Failure):
            first = first or result
            page = self._culprit(result, frozenset(lost)) if len(lost) < MAX_PAGES_LOST else None
            if page is None or self._spent():
                raise first.error
            lost[page.number] = f"{page.label} was left out: {result.reason}"
            result = self._without(lost)
        return result

    def _without(self, lost: dict[int, str]) -> ParsedDocument | Failure:
        result = self._attempt(frozenset(lost))
        if isinstance(result, Failure) or not lost:
            return result
        return replace(
            result,
            metadata={**result.metadata, "pages_left_out": sorted(lost)},
            warnings=(*(lost[page] for page in sorted(lost)), *result.warnings),
        )

    def _attempt(self, skipped: frozenset[int]) -> ParsedDocument | Failure:
        self._parses += 1
        return self._parse(replace(self._source, skip_pages=skipped))

    def _spent(self) -> bool:
        return self._parses >= MAX_PARSES or time.monotonic() > self._deadline

    def _culprit(self, failure: Failure, lost: frozenset[int]) -> PageMark | None:
        """The page at fault, or None when there is no such page, or no time to find it."""
        count = failure.marks[0].count if failure.marks else 0
        if count <= len(lost) + 1:
            # Nothing would be left.
            return None
        if failure.agreed is None:
            return self._halved([page for page in range(1, count + 1) if page not in lost], count)
        if failure.adds_up:
            return self._halved([failure.agreed.number], count)
        return failure.agreed

    def _halved(self, pages: Sequence[int], count: int) -> PageMark | None:
        """The culprit among pages that break the parser together; None when each half of them is harmless alone."""
        halves = [pages] if len(pages) == 1 else [pages[: len(pages) // 2], pages[len(pages) // 2 :]]
        for half in halves:
            if self._spent():
                return None
            result = self._attempt(frozenset(range(1, count + 1)).difference(half))
            if isinstance(result, Failure) and result.marks:
                if len(half) == 1:
                    return replace(result.marks[0], number=half[0])
                return result.agreed or self._halved(half, count)
        return None
