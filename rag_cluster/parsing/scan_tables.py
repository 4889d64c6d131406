"""Tables among recognised lines: rows one below the other whose pieces stand in the same columns.

    rows of pieces -> runs of rows with several pieces -> columns (where the ink of most rows is) -> grid, if it holds

Nothing but boxes and texts is looked at, so that tables with and without rules are found alike. Running text set in
columns also stands in columns: it is told by lines that fill their column and go on in the next one. Heights and gaps
are measured in units of the line height.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from rag_cluster.domain.ports import RecognizedLine

Row = Sequence[RecognizedLine]
"""Pieces at the same height, left to right."""
Span = tuple[float, float]

MIN_ROWS = 3
GUTTER = 0.6
"""Free width between two columns, at least."""
NARROW_GUTTER = 0.25
"""The same where most rows leave it free at the same place."""
ROW_GAP = 3.0
"""Free height between two rows of a table, at most."""
WIDE_GAP = 0.8
"""Free height that may part two tables, or a table from something else."""
OVERLAP = 0.7
"""Height that two rows may share on a page that is not quite straight, at most."""
UNEVEN = 1.7
"""Large pieces over small ones (ninth over first decile of heights): more than that is no table."""
PROSE_WIDTH = 8.0
"""Median width from which the pieces of a column may be lines of running text."""
_MARKER = re.compile(r"^(?:[-•·●○▪◦*–—]|\(?\d{1,4}[.)、．:]?|[（(]?[一二三四五六七八九十]{1,3}[)）、.]|[a-zA-Z][.)])$")
_NUMBER = re.compile(r"^[-+(]?[\d.,\s]*\d[\d.,\s]*[%)]?$")
_SENTENCE = re.compile(r"[。！？]|[a-zäöüß]{3}[.!?](?:\s+[A-ZÄÖÜ]|$)")
_LEADER = re.compile(r"(?:[.·…]\s?){4,}|\s[.·…]+$|[.·…]{2}$|^[.·…]+\s")
_BAR = re.compile(r"\s*[|｜│¦]\s*")


@dataclass(frozen=True, slots=True)
class ScanTable:
    """Rows [start, end) of the given ones are a table; cells[row][column] are the texts of a cell's lines."""

    start: int
    end: int
    cells: tuple[tuple[tuple[str, ...], ...], ...]


def find_tables(rows: Sequence[Row]) -> list[ScanTable]:
    """The tables among rows that follow each other from top to bottom, in order."""
    pieces = [piece for row in rows for piece in row]
    if not pieces:
        return []
    unit = median(_height(piece) for piece in pieces)
    out: list[ScanTable] = []
    for start, end in _runs(rows, unit):
        out += _tables(rows, start, end, unit)
    return out


def header_rows(cells: Sequence[Sequence[str]]) -> int:
    """Rows before the first one with numbers where the most rows have them, 3 at most; 1 in a table of words."""
    if len(cells) < 2:
        return 0
    numeric = [
        column
        for column in range(len(cells[0]))
        if sum(bool(_NUMBER.match(row[column])) for row in cells) > 0.5 * len(cells)
    ]
    if not numeric:
        return 1
    for index, row in enumerate(cells[:3]):
        values = [row[column] for column in numeric if row[column]]
        if sum(bool(_NUMBER.match(value)) for value in values) > 0.5 * len(values):
            return index
    return 1


def _height(piece: RecognizedLine) -> float:
    return max(piece.bbox[3] - piece.bbox[1], 1.0)


def _gap(above: Row, row: Row) -> float:
    return min(piece.bbox[1] for piece in row) - max(piece.bbox[3] for piece in above)


def _several(row: Row, unit: float) -> bool:
    return any(b.bbox[0] - a.bbox[2] >= GUTTER * unit for a, b in pairwise(row))


def _runs(rows: Sequence[Row], unit: float) -> list[tuple[int, int]]:
    """[start, end) of rows close together, with several pieces in all but few rows between."""
    out: list[tuple[int, int]] = []
    start: int | None = None
    last = 0
    for index, row in enumerate(rows):
        if start is not None and (_gap(rows[index - 1], row) > ROW_GAP * unit or index - last > 2):
            out.append((start, last + 1))
            start = None
        if _several(row, unit):
            start = index if start is None else start
            last = index
    if start is not None:
        out.append((start, last + 1))
    return [(a, b) for a, b in out if b - a >= MIN_ROWS]


def _tables(rows: Sequence[Row], start: int, end: int, unit: float) -> list[ScanTable]:
    """The tables of a run: one, or more where a gap parts what has finer columns by itself."""
    if end - start < MIN_ROWS:
        return []
    whole = _best(rows, start, end, unit)
    gap, at = max((_gap(rows[i - 1], rows[i]), i) for i in range(start + 1, end))
    if gap > WIDE_GAP * unit:
        parts = _tables(rows, start, at, unit) + _tables(rows, at, end, unit)
        if whole is None or any(len(part.cells[0]) > len(whole.cells[0]) for part in parts):
            return parts
    return [whole] if whole else []


def _best(rows: Sequence[Row], start: int, end: int, unit: float) -> ScanTable | None:
    """The longest table of a run; a title or note that stands in two pieces may have joined it at either end."""
    if _are_authors(rows[start:end]):
        return None
    for cut in range(4):
        for head in range(cut + 1):
            first, last = start + head, end - (cut - head)
            while last > first and not _several(rows[last - 1], unit):
                last -= 1
            while first < last and not _several(rows[first], unit):
                first += 1
            if last - first >= MIN_ROWS and (cells := _grid(rows[first:last], unit)):
                return ScanTable(first, last, cells)
    return None


def _grid(rows: Sequence[Row], unit: float) -> tuple[tuple[tuple[str, ...], ...], ...] | None:
    """Cells of rows that are a table, None when they are not."""
    columns = _columns([row for row in rows if _several(row, unit)], unit)
    if len(columns) < 2 or not _even(rows, unit):
        return None
    grid = [_cells(row, columns, unit) for row in rows]
    if any(cells is None for cells in grid):
        return None
    placed = [cells for cells in grid if cells is not None]
    if not _holds(placed, rows, columns, unit):
        return None
    texts = [[tuple(text for text, _ in cell) for cell in cells] for cells in placed]
    return tuple(tuple(row) for row in _with_continuations(texts, rows, unit))


def _even(rows: Sequence[Row], unit: float) -> bool:
    """Whether the type is of one size and the rows stand clear of each other."""
    heights = sorted(_height(piece) for row in rows for piece in row)
    small, large = heights[len(heights) // 10], heights[-1 - len(heights) // 10]
    return large <= UNEVEN * small and all(_gap(a, b) > -OVERLAP * unit for a, b in pairwise(rows))


def _columns(rows: Sequence[Row], unit: float) -> list[Span]:
    """x-spans of the columns. One that a few bridging headers hold together is split where most rows leave a gutter."""
    stray = 0 if len(rows) <= MIN_ROWS else max(1, len(rows) // 10)
    out: list[Span] = []
    for span in _inked(rows, stray, GUTTER * unit):
        within = [[p for p in row if span[0] <= (p.bbox[0] + p.bbox[2]) / 2 <= span[1]] for row in rows]
        used = [row for row in within if row]
        parts = _inked(used, int(0.34 * len(used)), NARROW_GUTTER * unit)
        filled = [sum(any(a < (p.bbox[0] + p.bbox[2]) / 2 < b for p in row) for row in used) for a, b in parts]
        several = len(parts) > 1 and min(filled) >= 0.5 * len(used)
        out += parts if several else [span]
    return out


def _inked(rows: Sequence[Row], stray: int, gutter: float) -> list[Span]:
    """x-spans where more than `stray` rows have ink, apart by a gutter at least."""
    edges = sorted((x, step) for row in rows for p in row for x, step in ((p.bbox[0], 1), (p.bbox[2], -1)))
    spans: list[Span] = []
    depth = 0
    begin = 0.0
    for x, step in edges:
        if depth <= stray < depth + step:
            begin = x
        elif depth + step <= stray < depth:
            if spans and begin - spans[-1][1] < gutter:
                spans[-1] = (spans[-1][0], x)
            elif x - begin > 0.3 * gutter:
                spans.append((begin, x))
        depth += step
    return spans


_Piece = tuple[str, RecognizedLine | None]
"""Text in a cell, and its line where the line stands in that cell alone."""


def _cells(row: Row, columns: Sequence[Span], unit: float) -> list[list[_Piece]] | None:
    """The row's pieces by column; None when one fits nowhere. What covers several columns stands in each of them."""
    out: list[list[_Piece]] = [[] for _ in columns]
    for piece in row:
        x0, x1 = piece.bbox[0], piece.bbox[2]
        covered = [i for i, (a, b) in enumerate(columns) if min(b, x1) - max(a, x0) > min(0.4 * unit, 0.5 * (b - a))]
        if not covered:
            middle = (x0 + x1) / 2
            covered = [min(range(len(columns)), key=lambda i: abs((columns[i][0] + columns[i][1]) / 2 - middle))]
        if len(covered) == 1:
            out[covered[0]].append((piece.text, piece))
            continue
        # Vertical rules are read as bars.
        parts = [part for part in _BAR.split(piece.text) if part]
        if len(parts) != len(covered):
            parts = [piece.text] * len(covered)
        for column, part in zip(covered, parts, strict=True):
            out[column].append((part, None))
    return out


def _holds(grid: Sequence[list[list[_Piece]]], rows: Sequence[Row], columns: Sequence[Span], unit: float) -> bool:
    """Whether it is a table: enough full rows, columns that are used and aligned, and no running text."""
    full = [cells for cells in grid if sum(bool(cell) for cell in cells) >= 2]
    if len(full) < MIN_ROWS or len(full) < 0.6 * len(grid):
        return False
    spanning = sum(any(line is None for cell in cells for _, line in cell) for cells in grid)
    if spanning > max(1, len(grid) // 4) or _reads_as_text(
        [text for cells in full for cell in cells for text, _ in cell]
    ):
        return False
    filled = [sum(bool(cells[i]) for cells in full) for i in range(len(columns))]
    enough = 0.55 if len(full) > 5 else 0.7
    if min(filled) < 2 or sorted(filled)[-2] < 0.6 * len(full) or sum(filled) < enough * len(full) * len(columns):
        return False
    tight = median(_gap(a, b) for a, b in pairwise(rows)) < 0.7 * unit
    aligned = 0
    for index, span in enumerate(columns):
        lines = [line for cells in full for _, line in cells[index] if line is not None]
        if len(lines) >= MIN_ROWS and tight and _running(lines, span, unit):
            return False
        aligned += _aligned(lines, unit)
    if aligned < max(2, len(columns) - 1 - len(columns) // 4):
        return False
    return len(columns) > 2 or not _are_markers([text.strip() for cells in full for text, _ in cells[0]])


def _reads_as_text(texts: Sequence[str]) -> bool:
    """Whether sentences or a table of contents stand in columns by chance."""
    return sum(bool(_SENTENCE.search(text) or _LEADER.search(text)) for text in texts) >= 0.25 * len(texts)


def _are_authors(rows: Sequence[Row]) -> bool:
    """Whether it is the head of a paper: a row of addresses, one below each author. A table has them in a column."""
    return any(len(row) > 1 and all("@" in piece.text for piece in row) for row in rows)


def _are_markers(texts: Sequence[str]) -> bool:
    """Whether a first column numbers a list or the lines of a text, or is a bullet that was read as some letter."""
    if len(set(texts)) == 1 and len(texts[0]) <= 2:
        return True
    return sum(bool(_MARKER.match(text)) for text in texts) >= 0.6 * len(texts)


def _aligned(lines: Sequence[RecognizedLine], unit: float) -> bool:
    """Whether most share a left edge, a right edge or a middle."""
    if len(lines) < 2:
        return bool(lines)
    boxes = [line.bbox for line in lines]
    for values in ([b[0] for b in boxes], [b[2] for b in boxes], [(b[0] + b[2]) / 2 for b in boxes]):
        centre = median(values)
        if sum(abs(value - centre) < 0.8 * unit for value in values) >= 0.6 * len(values):
            return True
    return False


def _running(lines: Sequence[RecognizedLine], span: Span, unit: float) -> bool:
    """Whether a column is running text: most lines fill it and the next goes on in the middle of a sentence."""
    if median(line.bbox[2] - line.bbox[0] for line in lines) < PROSE_WIDTH * unit:
        return False
    filling = sum(line.bbox[0] - span[0] < unit and span[1] - line.bbox[2] < 1.5 * unit for line in lines)
    going_on = sum(line.text[:1].islower() for line in lines[1:])
    cased = sum(line.text[:1].lower() != line.text[:1].upper() for line in lines[1:])
    if cased < 0.5 * len(lines):
        return filling >= 0.7 * len(lines)
    return going_on >= 0.4 * cased


def _with_continuations(
    texts: Sequence[list[tuple[str, ...]]], rows: Sequence[Row], unit: float
) -> list[list[tuple[str, ...]]]:
    """Lines of a cell that go on below belong to the row above: its first cell is empty, and it stands close."""
    gaps = [_gap(a, b) for a, b in pairwise(rows)]
    out = [list(texts[0])]
    for gap, cells in zip(gaps, texts[1:], strict=True):
        used = [i for i, cell in enumerate(cells) if cell]
        goes_on = not cells[0] and len(used) <= max(1, len(cells) // 2) and all(out[-1][i] for i in used)
        if goes_on and gap < 0.6 * unit and gap <= median(gaps) + 0.1 * unit:
            for i in used:
                out[-1][i] += cells[i]
        else:
            out.append(list(cells))
    return out
