"""Running headers, footers, page numbers, margin stamps: found by repetition at one place over pages.

Two lines are the same when their texts are equal, or equal but for a page's number: one that counts with the pages
beside "page" or a bar, alone, at the end of a long line, or in a short one of pages without another number. A line that
occurs once is never removed, whatever it looks like, nor is the only text of a page; of a title, clearly larger than
the text, the first occurrence stays.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rag_cluster.parsing.pdf.lines import Line, body_style

if TYPE_CHECKING:
    from rag_cluster.parsing.pdf.page import Item, PageContent

ZONE = 0.125
"""Share of the page's height, at the top and at the foot, where headers and footers stand."""
NEAR = 9.0
"""Points by which a running line may move from page to page."""
SHORT = 12
"""Columns; longer text in the margin is no title or label of the number beside it."""
_NUMBER = re.compile(r"\d+")
_PAGE = "page|pg|pag|página|pagina|pág|sheet|slide|seite|blatt|folha|sida|side|strona|strana|str|trang|стр|страница"
_PAGE_AFTER = "页|頁|ページ|페이지|쪽"
_PAGE_WORDS = re.compile(f"(?:{_PAGE}|{_PAGE_AFTER}|of|p|s|von|sur|de|di|da|fl|av|z|из|第|共|总|總)*")
"""What may stand beside a page's number, letters alone."""
_PAGE_NUMBER = re.compile(
    rf"(?:(?<![^\W\d_])(?:(?:{_PAGE})[.:]?|[ps]\.)\s*(\d{{1,11}})|(\d{{1,11}})\s*(?:{_PAGE_AFTER}))(?:\D{{0,4}}\d+\D?)?$"
    r"|[|•·]\s*(\d{1,11})$|^(\d{1,11})\s*[|•·]"
)
"""A page's number in a lower-case line of more: "Acme Page 3 of 8", "员工手册 第3页", "Acme | 3", "3 • Acme"."""
CLOSE = 30
"""Most between the number that a short line prints, with no word for it, and the page's: "Invoice 1001" is a title."""
_ROMAN = re.compile(r"^[ivxlc]{1,7}$", re.IGNORECASE)
_Key = tuple[str, tuple[int, ...], int | None, bool]
"""Characters, numbers other than the page's, the page's printed one minus its physical one, whether that is a guess."""


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
    numbered = set().union(*counted.values())
    repeated = {}
    for key, marks in places.items():
        on = {number for number, _ in marks}
        _, _, offset, guessed = key
        if (len(on) >= 4 and on.isdisjoint(numbered)) if guessed else len(on) >= (2 if offset in counted else enough):
            repeated[key] = sorted((place, number) for number, place in marks)
    body = body_style([item for page in pages for item in page.items if isinstance(item, Line)])
    titles: set[str] = set()
    for page in pages:
        running = [line for line in margins[page.number] if _is_running(page, line, repeated, keys)]
        drop = {id(line) for line in running if not _is_new_title(line, body, titles)}
        drop -= _inside_paragraphs(page, drop)
        if drop and len(drop) < sum(isinstance(item, Line) for item in page.items) + _other(page):
            page.items = [item for item in page.items if id(item) not in drop]


def _is_new_title(line: Line, body: tuple[float, bool], titles: set[str]) -> bool:
    """Whether a line is clearly larger than the body, no page number, and new; it is added to the titles."""
    size, bold = body
    if line.size <= (1.05 if line.bold and not bold else 1.2) * size or _is_page_number(line.text):
        return False
    # "Exhibit 1" and "Exhibit 2" are two titles, "Exhibits   page 1" and "Exhibits   page 2" are one.
    title = _NUMBER.sub("", line.text) if any(map(_is_page_number, line.parts)) else line.text
    if title in titles:
        return False
    titles.add(title)
    return True


def _is_page_number(text: str) -> bool:
    return _NUMBER.search(text) is not None and _PAGE_WORDS.fullmatch(_letters(text)) is not None


def _letters(text: str) -> str:
    return "".join(filter(str.isalpha, text.lower()))


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


def _page_numbering(places: dict[_Key, list[tuple[int, float]]]) -> dict[int, set[int]]:
    """Differences between printed and physical page numbers that hold on three pages or more, and those pages."""
    pages: dict[int, set[int]] = defaultdict(set)
    for (_, _, offset, guessed), marks in places.items():
        if offset is not None and not guessed:
            pages[offset].update(number for number, _ in marks)
    return {offset: numbers for offset, numbers in pages.items() if len(numbers) >= 3}


def _other(page: PageContent) -> int:
    return sum(not isinstance(item, Line) for item in page.items)


def _keys(text: str, page: int) -> Iterator[_Key]:
    """The text itself, and for each number in it the text without that number and how far it is from the page's."""
    text = text.lower()
    tight = "".join(text.split())
    numbers = [int(n) for n in _NUMBER.findall(tight)[:12] if len(n) < 12]
    letters = "".join(sorted(_NUMBER.sub("", tight)))
    yield (letters, tuple(sorted(numbers)), None, False)
    certain = _page_numbers(text, numbers)
    short = _columns(_letters(text)) <= SHORT
    for number in set(numbers) if short else certain.intersection(numbers):
        guessed = number not in certain
        if not guessed or abs(number - page) <= CLOSE:
            others = sorted(numbers)
            others.remove(number)
            yield (letters, tuple(others), number - page, guessed)
    if _ROMAN.match(tight):
        yield ("roman numeral", (), None, False)


def _page_numbers(text: str, numbers: list[int]) -> set[int]:
    """Numbers that are the page's if they count with the pages: any of a line of little else ("Page 3 of 9"), one
    beside a page's word or a bar, the first or last thing of a long line; never that of a short title ("Day 3")."""
    letters = _letters(text)
    if _PAGE_WORDS.fullmatch(letters):
        return set(numbers)
    beside = {int(next(filter(None, found.groups()))) for found in _PAGE_NUMBER.finditer(text)}
    if _columns(letters) <= SHORT:
        return beside
    ends = set(numbers[:1]) if text[0].isdigit() else set()
    return beside | ends | (set(numbers[-1:]) if text[-1].isdigit() else set())


def _columns(letters: str) -> int:
    return len(letters) + sum(letter > "\u2e7f" for letter in letters)


def _is_running(
    page: PageContent,
    line: Line,
    repeated: dict[_Key, list[tuple[float, int]]],
    keys: dict[tuple[str, int], list[_Key]],
) -> bool:
    """Whether the line repeats, or most of the pieces that make it up (a footer beside a page number or a chapter's
    title, but not "Total" beside a sum)."""
    place = _place(page, line)

    def repeats(text: str) -> bool:
        return any(_on_two_pages(repeated[key], place) for key in keys[text, page.number] if key in repeated)

    if repeats(line.text):
        return True
    others = [part for part in line.parts if not repeats(part)]
    found = sum(map(len, line.parts)) - sum(map(len, others))
    labelled = found <= SHORT and any(_NUMBER.search(part) and not _letters(part) for part in others)
    return found > 0.45 * len(line.text) and not labelled


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
