"""Reading order of what lies on a slide, by position: rows from top to bottom, columns from left to right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 30


@dataclass(slots=True)
class Item:
    """A shape with its box on the slide (x0, y0, x1, y1 in EMU); a group holds items of its own."""

    element: Any
    box: tuple[float, float, float, float]
    children: list[Item] | None = None
    mark: Any = None
    """The p:ph of a placeholder."""


def in_reading_order(items: Sequence[Item], depth: int = 0) -> list[Item]:
    """Items sorted by an XY cut; shapes that overlap go by their top, then their left edge. Groups stay together."""
    if len(items) < 2:
        return list(items)
    if depth < MAX_DEPTH:
        rows = _cut(items, 1)
        if len(rows) > 1:
            if columns := _headed_columns(rows, items):
                rows = columns
            return [item for row in rows for item in in_reading_order(row, depth + 1)]
        columns = _cut(items, 0)
        if len(columns) > 1:
            return [item for column in columns for item in in_reading_order(column, depth + 1)]
    return sorted(items, key=lambda item: (item.box[1], item.box[0]))


def _cut(items: Sequence[Item], axis: int) -> list[list[Item]]:
    """Groups that no line across the other axis connects. A little overlap (a tenth of the smaller) is none."""
    ordered = sorted(items, key=lambda item: (item.box[axis], item.box[1 - axis]))
    groups = [[ordered[0]]]
    end = ordered[0].box[axis + 2]
    smallest = end - ordered[0].box[axis]
    for item in ordered[1:]:
        start, stop = item.box[axis], item.box[axis + 2]
        if start >= end - 0.1 * max(min(smallest, stop - start), 0):
            groups.append([item])
            end, smallest = stop, stop - start
        else:
            groups[-1].append(item)
            end, smallest = max(end, stop), min(smallest, stop - start)
    return groups


def _headed_columns(rows: list[list[Item]], items: Sequence[Item]) -> list[list[Item]] | None:
    """Two rows that are columns with a heading each: flat boxes above tall ones of the same width."""
    if len(rows) != 2 or len(rows[0]) != len(rows[1]) or len(rows[0]) < 2:
        return None
    height: Callable[[Item], float] = lambda item: item.box[3] - item.box[1]  # noqa: E731
    columns = _cut(items, 0)
    flat = max(map(height, rows[0])) * 3 <= min(map(height, rows[1]))
    return columns if flat and len(columns) == len(rows[0]) and all(len(column) == 2 for column in columns) else None
