"""Ruled tables: rules -> connected grids -> cells (merged where a rule is missing) -> rows of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rag_cluster.domain.blocks import BBox
from rag_cluster.parsing.pdf.lines import Segment, join_words, normalise, rows
from rag_cluster.parsing.pdf.refine import refine
from rag_cluster.parsing.pdf.rules import Grid, slot
from rag_cluster.parsing.pdf.shapes import Rule
from rag_cluster.parsing.pdf.text import Word

NEAR = 2.6
"""Points by which a rule may miss the boundary that it draws."""


@dataclass(slots=True)
class Table:
    """A grid. rows: equal length, a merged cell's text in every cell that it covers. box: frame coordinates."""

    rows: list[list[str]]
    box: BBox
    header_rows: int = 1
    columns: list[tuple[float, float]] = field(default_factory=list)
    """From where to where each column reaches: its boundaries, or its text where none are drawn."""
    ruled: bool = False
    """The columns are boundaries."""
    order: int = 0
    """Its place in the structure tree; 0 when it is not from there."""
    bold_head: bool = False
    """The first row is bold."""
    bold_body: bool = False
    """A row below the header is bold."""
    before: list[list[Word]] = field(default_factory=list)
    """Full-width rows above the grid proper (a title inside the frame), as words."""
    after: list[list[Word]] = field(default_factory=list)
    """Full-width rows below it (notes)."""


def read_grid(grid: Grid, words: Sequence[Word]) -> Table | None:
    """The table of a grid from the words inside it; None when it is no table (a chart, an empty form, a frame)."""
    refine(grid, words)
    columns, lines = len(grid.xs) - 1, len(grid.ys) - 1
    cell_of = _merged_cells(grid)
    held: dict[int, list[Word]] = {}
    for word in words:
        x, y = (word.x0 + word.x1) / 2, (word.y0 + word.y1) / 2
        column, row = slot(grid.xs, x), slot(grid.ys, y)
        if 0 <= column < columns and 0 <= row < lines:
            held.setdefault(cell_of[row * columns + column], []).append(word)
    texts = {cell: cell_text(content) for cell, content in held.items()}
    matrix = [[cell_of[r * columns + c] for c in range(columns)] for r in range(lines)]
    return _table(grid, matrix, texts, held)


def _table(grid: Grid, matrix: list[list[int]], texts: dict[int, str], held: dict[int, list[Word]]) -> Table | None:
    kept, ys, columns = _drop_empty(matrix, texts, grid.ys)
    before: list[list[Word]] = []
    after: list[list[Word]] = []
    while len(kept) > 1 and len(kept[-1]) > 1 and len(set(kept[-1])) == 1 and _notes(texts.get(kept[-1][0], "")):
        after.insert(0, held.get(kept[-1][0], []))
        kept, ys = kept[:-1], ys[:-1]
    while len(kept) > 2 and len(kept[0]) > 1 and len(set(kept[0])) == 1 and _title(texts.get(kept[0][0], "")):
        before.append(held.get(kept[0][0], []))
        kept, ys = kept[1:], ys[1:]
    body = [[texts.get(cell, "") for cell in row] for row in kept]
    if not body or len({cell for row in kept for cell in row}) < 2 or (len(body[0]) < 2 and len(body) < 2):
        return None
    filled = [cell for row in body for cell in row if cell]
    if len(filled) < 2 or is_frame(body, filled):
        return None
    header = _header_rows(kept)
    bold = [all(word.style.bold for cell in row for word in held.get(cell, ())) for row in kept]
    return Table(
        body,
        (grid.xs[0], ys[0], grid.xs[-1], ys[-1]),
        header,
        columns=[(grid.xs[c], grid.xs[c + 1]) for c in columns],
        ruled=True,
        bold_head=bold[0],
        bold_body=any(bold[header:]),
        before=before,
        after=after,
    )


def is_frame(body: list[list[str]], filled: list[str]) -> bool:
    """Boxes around running text, not a table: one column of paragraphs, or a few cells that hold most of a page."""
    if len(body[0]) == 1:
        return max(map(len, filled)) > 60
    return len(set(filled)) <= 4 and sum(map(len, set(filled))) > 400 * len(set(filled))


def _title(text: str) -> bool:
    return len(text) > 40 or text.lower().startswith(("table", "exhibit", "表"))


def _notes(text: str) -> bool:
    return len(text) > 60 or text.lower().startswith(("note", "source", "注"))


def _header_rows(matrix: list[list[int]]) -> int:
    """Rows that the topmost cells reach into, or whose cells span columns: a grouped header has two or more."""
    if len(matrix) < 2:
        return min(len(matrix), 1)
    depth = 1
    while depth < min(len(matrix) - 1, 4) and any(
        a == b for a, b in zip(matrix[depth - 1], matrix[depth], strict=True)
    ):
        depth += 1
    if (
        depth == 1
        and len(matrix) > 2
        and len(set(matrix[0])) < len(matrix[0])
        and len(set(matrix[1])) > len(set(matrix[0]))
    ):
        depth = 2
    return depth


def _drop_empty(
    matrix: list[list[int]], texts: dict[int, str], ys: list[float]
) -> tuple[list[list[int]], list[float], list[int]]:
    """(rows, their boundaries, columns kept): bands between double rules are no rows, and no columns."""
    rows_kept = [r for r in range(len(matrix)) if ys[r + 1] - ys[r] > 4 or any(texts.get(c) for c in matrix[r])]
    matrix = [matrix[r] for r in rows_kept]
    columns = [
        c
        for c in range(len(matrix[0]) if matrix else 0)
        if any(texts.get(row[c]) and (c == 0 or row[c] != row[c - 1]) for row in matrix)
        or any(c > 0 and texts.get(row[c]) == "" for row in matrix)
        or _real_column(matrix, c)
    ]
    kept_ys = [ys[rows_kept[0]], *[ys[r + 1] for r in rows_kept]] if rows_kept else ys[:1]
    return [[row[c] for c in columns] for row in matrix], kept_ys, columns


def _real_column(matrix: list[list[int]], column: int) -> bool:
    """Whether any row has a cell of its own here."""
    return any(row.count(row[column]) == 1 for row in matrix)


def _merged_cells(grid: Grid) -> list[int]:
    """For every grid cell the number of the merged cell that it belongs to."""
    columns, lines = len(grid.xs) - 1, len(grid.ys) - 1
    parent = list(range(columns * lines))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    vertical = [[r for r in grid.vertical if abs(r.at - x) <= NEAR] for x in grid.xs]
    horizontal = [[r for r in grid.horizontal if abs(r.at - y) <= NEAR] for y in grid.ys]
    for r in range(lines):
        for c in range(columns):
            if c + 1 < columns and not _drawn(vertical[c + 1], grid.ys[r], grid.ys[r + 1]):
                parent[root(r * columns + c + 1)] = root(r * columns + c)
            if r + 1 < lines and not _drawn(horizontal[r + 1], grid.xs[c], grid.xs[c + 1]):
                parent[root((r + 1) * columns + c)] = root(r * columns + c)
    return [root(i) for i in range(columns * lines)]


def _drawn(rules: Sequence[Rule], start: float, end: float) -> bool:
    """Whether one of the rules on an edge covers its middle."""
    middle = (start + end) / 2
    return any(r.start - 1 <= middle <= r.end + 1 for r in rules)


def cell_text(words: Sequence[Word]) -> str:
    """A cell's lines joined as running text."""
    if len(words) == 1:
        return normalise(words[0].text)
    lines = [join_words([w for s in row for w in s.words]) for row in rows([Segment([w]) for w in words])]
    return join_cell_lines(lines)


def join_cell_lines(lines: Sequence[str]) -> str:
    """Lines of one cell; hyphenation undone where a small letter follows."""
    from rag_cluster.parsing.pdf.paragraphs import join_texts

    return join_texts([line for line in lines if line])
