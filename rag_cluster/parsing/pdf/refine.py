"""Grids with fewer rules than rows or columns: text that stands side by side in a cell makes cells of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rag_cluster.parsing.pdf.lines import Segment, rows, segments
from rag_cluster.parsing.pdf.rules import Grid, slot
from rag_cluster.parsing.pdf.shapes import Rule
from rag_cluster.parsing.pdf.text import Word

_NUMBER = re.compile(r"^[^\w]*\d[\d.,%\s*()-]*$|^[-–—]$")


def refine(grid: Grid, words: Sequence[Word]) -> None:
    """Add the missing boundaries to `grid`, in place, with rules where cells are to be kept apart."""
    cells = _cells(grid, words)
    columns = len(grid.xs)
    for column in reversed(range(len(grid.xs) - 1)):
        _split_column(grid, column, [cells.get((r, column), []) for r in range(len(grid.ys) - 1)])
    _separate(grid, words)
    if len(grid.xs) > columns:
        cells = _cells(grid, words)
    for band in reversed(range(len(grid.ys) - 1)):
        _split_band(grid, band, [cells.get((band, c), []) for c in range(len(grid.xs) - 1)])


def _cells(grid: Grid, words: Sequence[Word]) -> dict[tuple[int, int], list[list[Segment]]]:
    """(row, column) -> text lines, each a list of segments."""
    held: dict[tuple[int, int], list[Word]] = {}
    for word in words:
        place = (slot(grid.ys, (word.y0 + word.y1) / 2), slot(grid.xs, (word.x0 + word.x1) / 2))
        held.setdefault(place, []).append(word)
    return {
        place: rows(segments(content)) if len(content) > 1 else [[Segment(content)]] for place, content in held.items()
    }


def _split_column(grid: Grid, column: int, bands: Sequence[list[list[Segment]]]) -> None:
    """Where nearly every line of a column has a gap at the same place, there are two columns."""
    lines = [line for band in bands for line in band]
    if len(lines) < 4:
        return
    broken = [line for line in lines if len(line) > 1]
    if len(broken) < 0.85 * len(lines):
        return
    left = max(line[0].x1 for line in broken)
    right = min(line[1].x0 for line in broken)
    if right - left < 3:
        return
    x = (left + right) / 2
    grid.xs.insert(column + 1, x)
    for band, content in enumerate(bands):
        if all(p.x1 <= x or p.x0 >= x for line in content for p in line):
            grid.vertical.append(Rule(x, grid.ys[band], grid.ys[band + 1]))


def _separate(grid: Grid, words: Sequence[Word]) -> None:
    """In bands without vertical rules (striped rows, a filled header) text on both sides of a boundary, that no piece
    crosses, stands in two cells."""
    for band in range(len(grid.ys) - 1):
        top, bottom = grid.ys[band], grid.ys[band + 1]
        middle = (top + bottom) / 2
        if any(r.start <= middle <= r.end and grid.xs[0] + 3 < r.at < grid.xs[-1] - 3 for r in grid.vertical):
            continue
        pieces = segments([w for w in words if top <= (w.y0 + w.y1) / 2 < bottom])
        filled = {slot(grid.xs, (p.x0 + p.x1) / 2) for p in pieces}
        if len(pieces) < 2 or len(filled) < 2:
            continue
        for column in range(1, len(grid.xs) - 1):
            x = grid.xs[column]
            if not any(p.x0 < x - 1 and p.x1 > x + 1 for p in pieces) and {column - 1, column} & filled:
                grid.vertical.append(Rule(x, top, bottom))


def _split_band(grid: Grid, band: int, cells: Sequence[list[list[Segment]]]) -> None:
    """Where several cells of a band hold the same number of aligned lines, each line is a row."""
    filled = [cell for cell in cells if cell]
    count = max((len(cell) for cell in filled), default=0)
    full = [cell for cell in filled if len(cell) == count]
    if count < 2 or len(full) < 2 or any(1 < len(cell) < count for cell in filled):
        return
    middles = [[(line[0].y0 + line[0].y1) / 2 for line in cell] for cell in full]
    size = full[0][0][0].size
    if any(max(column) - min(column) > 0.4 * size for column in zip(*middles, strict=True)) or not _row_like(
        full, filled
    ):
        return
    bounds = [(a + b) / 2 for a, b in zip(middles[0], middles[0][1:], strict=False)]
    if not all(grid.ys[band] < y < grid.ys[band + 1] for y in bounds):
        return
    grid.ys[band + 1 : band + 1] = bounds
    for column, cell in enumerate(cells):
        # A cell with one line beside several rows is merged over them.
        if len(cell) == count or not cell:
            grid.horizontal += [Rule(y, grid.xs[column], grid.xs[column + 1]) for y in bounds]


def _row_like(full: Sequence[list[list[Segment]]], filled: Sequence[list[list[Segment]]]) -> bool:
    texts = [" ".join(p.text for p in line) for cell in full for line in cell]
    numeric = sum(_NUMBER.match(text) is not None for text in texts)
    if numeric >= 0.5 * len(texts):
        return True
    short = all(len(text) <= 16 and not text[:1].islower() for text in texts)
    return len(full) == len(filled) >= 4 and short
