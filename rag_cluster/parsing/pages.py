"""Pages one by one, announced to whoever watches, so that a page that breaks the parser is known and can be left out.

parser: for number in each_page(source, count): ...  ->  PageMark  ->  child -> pipe -> isolation
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from rag_cluster.domain.blocks import DocumentSource


@dataclass(frozen=True, slots=True)
class PageMark:
    """Where a parser stands."""

    number: int
    """1-based; 0 when all pages were read and the document as a whole is worked on."""
    count: int
    """Pages of the document."""
    label: str
    """What a person calls the page begun last: "Page 3", "Sheet 'Costs'"."""


_watcher: ContextVar[Callable[[PageMark], None] | None] = ContextVar("page watcher", default=None)
_begun: ContextVar[PageMark | None] = ContextVar("page begun last", default=None)


@contextmanager
def watched(watcher: Callable[[PageMark], None]) -> Iterator[None]:
    """Every page that a parser begins inside goes to `watcher`."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)
        _begun.set(None)


def each_page(source: DocumentSource, count: int, label: Callable[[int], str] = "Page {}".format) -> Iterator[int]:
    """1-based numbers of the pages to read: all but source.skip_pages, each announced before it is given out.

    What breaks in the loop's body is thereby known to be that page's.
    """
    begun = ""
    for number in range(1, count + 1):
        if number not in source.skip_pages:
            begun = label(number)
            _announce(PageMark(number, count, begun))
            yield number
    _announce(PageMark(0, count, begun))


def still_there() -> None:
    """A sign of life from inside a page that may take long, such as a sheet of a million rows."""
    if mark := _begun.get():
        _announce(mark)


def _announce(mark: PageMark) -> None:
    _begun.set(mark)
    if watcher := _watcher.get():
        watcher(mark)
