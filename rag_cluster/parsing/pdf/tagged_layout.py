"""What a structure tree does to a page's layout: texts that stand for others, tables, the order of reading."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import TypeVar

from rag_cluster.domain.blocks import BBox
from rag_cluster.parsing.pdf.geometry import area, overlap, union
from rag_cluster.parsing.pdf.lines import Line
from rag_cluster.parsing.pdf.tables import Table, cell_text, is_frame
from rag_cluster.parsing.pdf.tagged import Cell, TaggedTable, Tags
from rag_cluster.parsing.pdf.text import Word

MAX_CELLS = 20_000
MAX_REPLACED = 40
"""Runs for which one actual text stands; more are a block, whose own text says more."""
_T = TypeVar("_T")


def replace_texts(words: list[Word], tags: Tags) -> list[Word]:
    """Actual texts instead of what is drawn for them."""
    by_id = _by_id(words)
    gone: set[int] = set()
    for text, mcids in tags.actual:
        group = [word for mcid in mcids for word in by_id.get(mcid, ())]
        if not 0 < len(group) <= MAX_REPLACED:
            continue
        first = group[0]
        first.text, first.members = text, (0, 0)
        first.x0, first.y0, first.x1, first.y1 = union((w.x0, w.y0, w.x1, w.y1) for w in group)
        gone.update(id(word) for word in group[1:])
    return [word for word in words if id(word) not in gone] if gone else words


def _by_id(words: Sequence[Word]) -> dict[int, list[Word]]:
    out: dict[int, list[Word]] = {}
    for word in words:
        out.setdefault(word.style.mcid, []).append(word)
    return out


def tables(words: list[Word], tags: Tags) -> tuple[list[Word], list[Table]]:
    """(words outside of the tree's tables, those tables), in one frame. A table that does not fit what is drawn is left
    to the eye."""
    out: list[Table] = []
    by_id = _by_id(words) if tags.tables else {}
    for tagged in tags.tables:
        grid = None if tagged.nested else _grid(tagged)
        held = {id(cell): [w for m in cell.mcids for w in by_id.get(m, ())] for row in tagged.rows for cell in row}
        if grid is None or not _fits(tagged, grid, held, words):
            continue
        table = _table(tagged, grid, held)
        if table is not None:
            taken = {id(word) for content in held.values() for word in content}
            words = [word for word in words if id(word) not in taken]
            out.append(table)
    return words, out


def _grid(tagged: TaggedTable) -> list[list[Cell]] | None:
    """Every grid place with the cell that covers it; None unless all rows are equally long."""
    rows = [row for row in tagged.rows if row]
    places: dict[tuple[int, int], Cell] = {}
    for r, row in enumerate(rows):
        column = 0
        for cell in row:
            while (r, column) in places:
                column += 1
            for dr in range(min(cell.rows, len(rows) - r)):
                for dc in range(cell.columns):
                    places[r + dr, column + dc] = cell
            column += cell.columns
            if len(places) > MAX_CELLS:
                return None
    width = max((column for _, column in places), default=-1) + 1
    if len(rows) < 2 or width < 2 or len(places) != len(rows) * width:
        return None
    return [[places[r, column] for column in range(width)] for r in range(len(rows))]


def _fits(
    tagged: TaggedTable, grid: Sequence[Sequence[Cell]], held: dict[int, list[Word]], words: Sequence[Word]
) -> bool:
    """Whether the rows stand below each other, the columns beside each other, and no other text lies between."""
    content = [word for group in held.values() for word in group]
    if sum(bool(group) for group in held.values()) < 2:
        return False
    middles = [
        median((w.y0 + w.y1) / 2 for w in group)
        for row in tagged.rows
        if (group := [w for cell in row if cell.rows == 1 for w in held[id(cell)]])
    ]
    falls = sum(b < a - 1 for a, b in pairwise(middles))
    sides = [
        (held[id(a)][0].x0, held[id(b)][0].x0)
        for row in grid
        for a, b in pairwise(row)
        if a is not b and held[id(a)] and held[id(b)]
    ]
    backs = sum(b < a - 1 for a, b in sides)
    if falls > 0.1 * len(middles) or backs > 0.1 * len(sides):
        return False
    box = union((w.x0, w.y0, w.x1, w.y1) for w in content)
    within = sum(overlap(box, (w.x0, w.y0, w.x1, w.y1)) > 0.5 * area((w.x0, w.y0, w.x1, w.y1)) for w in words)
    return within <= 1.05 * len(content) + 1


def _table(tagged: TaggedTable, grid: Sequence[Sequence[Cell]], held: dict[int, list[Word]]) -> Table | None:
    texts = {cell: cell_text(content) if content else "" for cell, content in held.items()}
    body = [[texts[id(cell)] for cell in row] for row in grid]
    if is_frame(body, [text for row in body for text in row if text]):
        return None
    header = next((r for r, row in enumerate(grid) if not all(cell.header for cell in row)), len(grid))
    if not any(cell.header for row in grid for cell in row):
        header = 1
    table = Table(body, union((w.x0, w.y0, w.x1, w.y1) for group in held.values() for w in group), header)
    table.order = tagged.block.order
    for column in range(len(grid[0])):
        own = [w for row in grid for w in held[id(row[column])] if row.count(row[column]) == 1]
        table.columns.append((min(w.x0 for w in own), max(w.x1 for w in own)) if own else (0.0, 0.0))
    return table


def frame_by(box: BBox, known: Sequence[Table]) -> None:
    """Give a table that fills a ruled grid the grid's box."""
    for table in known:
        if overlap(box, table.box) > 0.95 * area(table.box) and area(box) < 3 * area(table.box):
            table.box = box


def ordered(items: Sequence[_T], orders: Sequence[int | None]) -> list[_T]:
    """Items in the order of the tree; what it does not hold follows what stood before it."""
    known = [order for order in orders if order is not None]
    if not known:
        return list(items)
    place = next(order for order in orders if order is not None) - 0.5
    keys: list[float] = []
    for order in orders:
        place = place if order is None else float(order)
        keys.append(place)
    return [items[index] for index in sorted(range(len(items)), key=keys.__getitem__)]


def line_order(line: Line, tags: Tags) -> int | None:
    """Where the tree has a line."""
    block = tags.blocks.get(line.mcid)
    return block.order if block is not None else None
