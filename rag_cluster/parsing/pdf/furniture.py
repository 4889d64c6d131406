"""Running headers, footers, page numbers, margin stamps: found by repetition at one place over pages.

A line that occurs once is never removed, whatever it looks like.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rag_cluster.parsing.pdf.lines import Line

if TYPE_CHECKING:
    from rag_cluster.parsing.pdf.page import PageContent

ZONE = 0.125
"""Share of the page's height, at the top and at the foot, where headers and footers stand."""
_DIGITS = re.compile(r"\d+|\b[ivxlc]+\b", re.IGNORECASE)


def remove(pages: Sequence[PageContent]) -> None:
    """Drop repeated margin lines from `items` of every page, in place."""
    places: dict[str, list[tuple[int, float, float]]] = defaultdict(list)
    for page in pages:
        for line in _margin_lines(page):
            x, y = _place(page, line)
            places[_key(line)].append((page.number, x, y))
    enough = _needed(len(pages))
    repeated = {key: marks for key, marks in places.items() if len({p for p, _, _ in marks}) >= enough}
    for page in pages:
        drop = {id(line) for line in _margin_lines(page) if _is_running(page, line, repeated, enough)}
        if drop:
            page.items = [item for item in page.items if id(item) not in drop]


def _needed(pages: int) -> int:
    return 2 if pages < 8 else 3


def _is_running(
    page: PageContent, line: Line, repeated: dict[str, list[tuple[int, float, float]]], enough: int
) -> bool:
    marks = repeated.get(_key(line))
    if marks is None:
        return False
    _, y = _place(page, line)
    return len({number for number, _, other in marks if abs(other - y) < 9}) >= enough


def _margin_lines(page: PageContent) -> list[Line]:
    """Lines in the top and bottom zones that have no body text beyond them, and lines turned against the page."""
    out = []
    for item in page.items:
        if not isinstance(item, Line):
            continue
        x0, y0, x1, y1 = item.frame.leave(item.box)
        edge = y1 < ZONE * page.height or y0 > (1 - ZONE) * page.height
        side = item.frame.turn != page.turn and (x1 < ZONE * page.width or x0 > (1 - ZONE) * page.width)
        sideways = page.turn % 2 == 1 and (x1 < ZONE * page.width or x0 > (1 - ZONE) * page.width)
        if edge or side or sideways:
            out.append(item)
    return out


def _place(page: PageContent, line: Line) -> tuple[float, float]:
    """(x, y) measured from the nearer end of the page, so that pages of several heights match."""
    x0, y0, x1, y1 = line.frame.leave(line.box)
    if line.frame.turn % 2:
        return (y0, x0)
    return (x0, y0 if y1 < page.height / 2 else y0 - page.height)


def _key(line: Line) -> str:
    """Text with every number as #, so that page numbers and dates of issue repeat."""
    return _DIGITS.sub("#", re.sub(r"\s+", "", line.text.lower()))
