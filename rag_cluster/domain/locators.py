"""Arithmetic of places: one locator around several, and cell ranges in A1 notation. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from rag_cluster.domain.blocks import BBox, SourceLocator


def merge_locators(found: Sequence[SourceLocator], heading_path: tuple[str, ...]) -> SourceLocator:
    """One locator for what lies in several places: every span, the cells' bounding range, first to last line."""
    if not found:
        return SourceLocator(heading_path=heading_path)
    first = found[0]
    locators = [first] if all(locator is first for locator in found) else list(dict.fromkeys(found))
    if len(locators) == 1:
        (only,) = locators
        return only if only.heading_path == heading_path else replace(only, heading_path=heading_path)
    pages = [locator.page for locator in locators if locator.page is not None]
    spans: dict[tuple[int, BBox], None] = {}
    for locator in locators:
        if locator.spans:
            spans.update(dict.fromkeys(locator.spans))
        elif locator.page is not None and locator.bbox is not None:
            spans[(locator.page, locator.bbox)] = None
    page, bbox = next(iter(spans)) if spans else (min(pages, default=None), None)
    starts = [locator.line_start for locator in locators if locator.line_start is not None]
    ends = [locator.line_end for locator in locators if locator.line_end is not None]
    sheet = locators[0].sheet
    return SourceLocator(
        heading_path=heading_path,
        page=page,
        bbox=bbox,
        spans=tuple(spans) if len(spans) > 1 else (),
        sheet=sheet,
        cell_range=bounding_range(
            [locator.cell_range for locator in locators if locator.sheet == sheet and locator.cell_range]
        ),
        slide=next((locator.slide for locator in locators if locator.slide is not None), None),
        line_start=min(starts, default=None),
        line_end=max(ends, default=max(starts, default=None)),
    )


_CELL = re.compile(r"\$?([A-Za-z]{1,3})\$?(\d+)$")
Rectangle = tuple[int, int, int, int]
"""(first row, first column, last row, last column), 1-based, inclusive."""


def parse_range(cell_range: str) -> Rectangle | None:
    """ "B2:D9" -> (2, 2, 9, 4); None when it is no A1 range."""
    first, _, last = cell_range.partition(":")
    start, end = _CELL.match(first), _CELL.match(last or first)
    if not start or not end:
        return None
    return int(start[2]), column_number(start[1]), int(end[2]), column_number(end[1])


def format_range(rectangle: Rectangle) -> str:
    """(2, 2, 9, 4) -> "B2:D9"; a single cell -> "B2"."""
    top, left, bottom, right = rectangle
    first, last = f"{column_letters(left)}{top}", f"{column_letters(right)}{bottom}"
    return first if first == last else f"{first}:{last}"


def bounding_range(ranges: Sequence[str]) -> str | None:
    """The smallest range around all; None without any. A range that cannot be read leaves the first one standing."""
    if len(set(ranges)) <= 1:
        return ranges[0] if ranges else None
    found = [parse_range(cell_range) for cell_range in ranges]
    known = [rectangle for rectangle in found if rectangle is not None]
    if len(known) < len(found):
        return ranges[0]
    tops, lefts, bottoms, rights = zip(*known, strict=True)
    return format_range((min(tops), min(lefts), max(bottoms), max(rights)))


def column_number(letters: str) -> int:
    """ "A" -> 1, "XFD" -> 16384."""
    number = 0
    for letter in letters.upper():
        number = number * 26 + ord(letter) - 64
    return number


def column_letters(column: int) -> str:
    """1 -> "A", 27 -> "AA"; below 1 -> ""."""
    letters = ""
    while column > 0:
        column, digit = divmod(column - 1, 26)
        letters = chr(65 + digit) + letters
    return letters
