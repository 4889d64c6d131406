"""HTML tables -> grids, with rowspan and colspan written out into every cell that they cover."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rag_cluster.errors import DocumentTooLargeError
from rag_cluster.parsing.boilerplate import text_length

MAX_SPAN = 1000
MAX_CELLS = 2_000_000
LONGEST_CELL = 200
"""Characters of a cell that, beside headings or tables in cells, is a part of the page rather than a value."""
_BLOCKS = ("p", "ul", "ol", "dl", "div", "table", "pre", "blockquote", "section", "article", "form", "figure")
_STRUCTURE = ("h1", "h2", "h3", "h4", "h5", "h6", "table")


def table_grid(table: Any, cell_text: Callable[[Any], str]) -> tuple[list[list[str]], int]:
    """(rows, header rows). Rows of thead come first, of tfoot last; rows of nested tables are not looked at."""
    grid: list[list[str]] = []
    carried: dict[int, tuple[int, str]] = {}
    current: Any = None
    header_rows = 0
    only_headers = True
    cells = 0
    for group, row in _table_rows(table):
        if row.getparent() is not current:
            # A cell ends with its group of rows, whatever its rowspan says.
            current, carried = row.getparent(), {}
        line, carried = _expand(row, carried, cell_text)
        cells += len(line)
        if cells > MAX_CELLS:
            raise DocumentTooLargeError(f"A table has more than {MAX_CELLS} cells")
        if not line:
            continue
        grid.append(line)
        own = [cell for cell in row if cell.tag in ("td", "th")]
        header = group == "thead" or (bool(own) and all(cell.tag == "th" for cell in own))
        only_headers = only_headers and header
        header_rows += only_headers
    width = max(map(len, grid), default=0)
    return [line + [""] * (width - len(line)) for line in grid], min(header_rows, max(len(grid) - 1, 0))


def is_layout(table: Any) -> bool:
    """Whether the table only places things: it is then read as running content.

    Headings and tables in cells tell it beside a long cell, or where they hold most of the text, unless the rows are as
    regular as those of data.
    """
    if table.get("role") in ("presentation", "none"):
        return True
    rows = [[cell for cell in row if cell.tag in ("td", "th")] for _, row in _table_rows(table)]
    own_cells = [cell for row in rows for cell in row]
    if any(cell.tag == "th" for cell in own_cells) or table.find("caption") is not None:
        return False
    parts = [text_length(cell) for cell in own_cells if next(cell.iter(*_STRUCTURE), None) is not None]
    if parts:
        lengths = [text_length(cell) for cell in own_cells]
        regular = len(rows) > 1 and len(rows[0]) > 1 and all(len(row) == len(rows[0]) for row in rows)
        if max(lengths) > LONGEST_CELL or (sum(parts) * 2 > sum(lengths) and not regular):
            return True
    if len(own_cells) <= 1:
        return True
    single = len(rows) <= 1 or all(len(row) <= 1 for row in rows)
    return single and any(next(cell.iter(*_BLOCKS), None) is not None for cell in own_cells)


def _table_rows(table: Any) -> Iterator[tuple[str, Any]]:
    """(group, tr) in the order in which they are shown."""
    groups: dict[str, list[tuple[str, Any]]] = {"thead": [], "tbody": [], "tfoot": []}
    for child in table:
        if child.tag == "tr":
            groups["tbody"].append(("tbody", child))
        elif child.tag in groups:
            groups[child.tag].extend((child.tag, row) for row in child if row.tag == "tr")
    yield from groups["thead"]
    yield from groups["tbody"]
    yield from groups["tfoot"]


def _expand(
    row: Any, carried: dict[int, tuple[int, str]], cell_text: Callable[[Any], str]
) -> tuple[list[str], dict[int, tuple[int, str]]]:
    """One row as a line of cells, and what its and earlier cells carry down: column -> (rows left, text)."""
    line: list[str] = []
    down: dict[int, tuple[int, str]] = {}

    def take_carried() -> None:
        while (held := carried.get(len(line))) is not None:
            column = len(line)
            line.append(held[1])
            if held[0] > 1:
                down[column] = (held[0] - 1, held[1])

    for cell in row:
        if cell.tag not in ("td", "th"):
            continue
        take_carried()
        text = cell_text(cell)
        rows = _span(cell.get("rowspan"), zero=MAX_SPAN)
        for _ in range(_span(cell.get("colspan"), zero=1)):
            below = carried.get(len(line))
            if rows > 1:
                down[len(line)] = (rows - 1, text)
            elif below is not None and below[0] > 1:
                # A cell that lies over one from above hides it in this row alone.
                down[len(line)] = (below[0] - 1, below[1])
            line.append(text)
    take_carried()
    beyond = [column for column in carried if column >= len(line)]
    while beyond and len(line) <= max(beyond):
        take_carried()
        if len(line) <= max(beyond):
            line.append("")
    return line, down


def _span(value: str | None, *, zero: int) -> int:
    digits = (value or "1").strip()
    if not digits.isascii() or not digits.isdigit():
        return 1
    return min(int(digits) or zero, MAX_SPAN)
