"""Running headers, footers, page numbers, margin stamps: found by repetition at one place over pages.

Two lines are the same when their texts are equal, or equal but for numbers that count with the pages. A line that
occurs once is never removed, whatever it looks like, nor is the only text of a page.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rag_cluster.parsing.pdf.lines import Line

if TYPE_CHECKING:
    from rag_cluster.parsing.pdf.page import Item, PageContent

ZONE = 0.125
"""Share of the page's height, at the top and at the foot, where headers and footers stand."""
NEAR = 9.0
"""Points by which a running line may move from page to page."""
_NUMBER = re.compile(r"\d+")
_ROMAN = re.compile(r"^[ivxlc]{1,7}$", re.IGNORECASE)
_Key = tuple[str, tuple[int, ...], int | None]


def remove(pages: Sequence[PageContent]) -> None:
    """Drop repeated margin lines from `items` of every page, in place."""
    margins = {page.number: _margin_lines(page) for page in pages}
    places: dict[_Key, list[tuple[int, float]]] = defaultdict(list)
    keys: dict[tuple[str, int], list[_Key]] = {}
    for page in pages:
        for line in margins[page.number]:
            place = _place(page, line)
            for text in {line.text, *line.parts}:
                for key in keys.setdefault((text, page.number), list(_keys(text, page.number))):
                    places[key].append((page.number, place))
    enough = 2 if len(pages) < 8 else 3
    counted = _page_numbering(places)
    repeated = {
        key: sorted((place, number) for number, place in marks)
        for key, marks in places.items()
        if len({number for number, _ in marks}) >= (2 if key[2] in counted else enough)
    }
    for page in pages:
        drop = {id(line) for line in margins[page.number] if _is_running(page, line, repeated, keys)}
        drop -= _inside_paragraphs(page, drop)
        if drop and len(drop) < sum(isinstance(item, Line) for item in page.items) + _other(page):
            page.items = [item for item in page.items if id(item) not in drop]


def _inside_paragraphs(page: PageContent, running: set[int]) -> set[int]:
    """Of running lines, those with unique lines of the same kind close above and below: running text repeats itself."""
    return {
        id(line)
        for above, line, below in zip(page.items, page.items[1:], page.items[2:], strict=False)
        if id(line) in running and _adjoins(above, line, running) and _adjoins(below, line, running)
    }


def _adjoins(other: Item, line: Item, running: set[int]) -> bool:
    if not isinstance(other, Line) or not isinstance(line, Line) or id(other) in running:
        return False
    gap = max(other.box[1], line.box[1]) - min(other.box[3], line.box[3])
    start = abs(other.box[0] - line.box[0])
    alike = other.region == line.region and other.font == line.font and abs(other.size - line.size) < 0.2
    return alike and start < 0.5 * line.size and -0.5 * line.size < gap < 0.5 * line.size


def _page_numbering(places: dict[_Key, list[tuple[int, float]]]) -> set[int]:
    """Differences between printed and physical page numbers that hold on three pages or more."""
    pages: dict[int, set[int]] = defaultdict(set)
    for (_, _, offset), marks in places.items():
        if offset is not None:
            pages[offset].update(number for number, _ in marks)
    return {offset for offset, numbers in pages.items() if len(numbers) >= 3}


def _other(page: PageContent) -> int:
    return sum(not isinstance(item, Line) for item in page.items)


def _keys(text: str, page: int) -> Iterator[_Key]:
    """The text itself, and for each number in it the text without that number and how far it is from the page's."""
    text = "".join(text.lower().split())
    numbers = [int(n) for n in _NUMBER.findall(text)[:12] if len(n) < 12]
    letters = "".join(sorted(_NUMBER.sub("", text)))
    yield (letters, tuple(sorted(numbers)), None)
    for number in _candidates(text, numbers, letters):
        others = sorted(numbers)
        others.remove(number)
        yield (letters, tuple(others), number - page)
    if _ROMAN.match(text):
        yield ("roman numeral", (), None)


def _candidates(text: str, numbers: list[int], letters: str) -> set[int]:
    """Numbers that can be the page's: any of a line of little else ("Page 3 of 9"), else the first or last thing."""
    if len(letters) <= 12:
        return set(numbers)
    ends = set(numbers[:1]) if text[0].isdigit() else set()
    return ends | (set(numbers[-1:]) if text[-1].isdigit() else set())


def _is_running(
    page: PageContent,
    line: Line,
    repeated: dict[_Key, list[tuple[float, int]]],
    keys: dict[tuple[str, int], list[_Key]],
) -> bool:
    """Whether the line repeats, or most of the pieces that make it up (a footer beside a page number)."""
    place = _place(page, line)

    def repeats(text: str) -> bool:
        return any(_on_two_pages(repeated[key], place) for key in keys[text, page.number] if key in repeated)

    if repeats(line.text):
        return True
    found = sum(len(part) for part in line.parts if repeats(part))
    return found > 0.45 * len(line.text)


def _on_two_pages(marks: Sequence[tuple[float, int]], place: float) -> bool:
    """Whether marks near a place, sorted by place, come from several pages."""
    first = None
    for index in range(bisect_right(marks, (place - NEAR, sys.maxsize)), len(marks)):
        other, number = marks[index]
        if other >= place + NEAR:
            return False
        if first is not None and number != first:
            return True
        first = number
    return False


def _margin_lines(page: PageContent) -> list[Line]:
    """Lines in the zones at the top and the foot, and lines that run along the sides."""
    out = []
    head, foot = ZONE * page.height, (1 - ZONE) * page.height
    for item in page.items:
        if not isinstance(item, Line):
            continue
        x0, y0, x1, y1 = item.frame.leave(item.box)
        edge = y1 < head or y0 > foot
        turned = item.frame.turn != page.turn or page.turn % 2 == 1
        if edge or (turned and (x1 < ZONE * page.width or x0 > (1 - ZONE) * page.width)):
            out.append(item)
    return out


def _place(page: PageContent, line: Line) -> float:
    """Where it stands across its reading direction, from the nearer end, so that pages of several heights match."""
    x0, y0, _, y1 = line.frame.leave(line.box)
    if line.frame.turn % 2:
        return x0
    return y0 if y1 < page.height / 2 else y0 - page.height
