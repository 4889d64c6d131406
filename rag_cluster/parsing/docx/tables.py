"""DOCX tables as full grids: spans written into every covered cell, nested tables and pictures handed out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from rag_cluster.parsing.docx.inline import Inline
from rag_cluster.parsing.ooxml import find, local_name, on_off, qn

MAX_COLUMNS = 1000
_WRAPPERS = frozenset({"sdt", "sdtContent", "ins", "moveTo", "customXml", "smartTag"})


@dataclass(slots=True)
class Grid:
    """A table's cells and what must be shown after it."""

    rows: list[list[str]] = field(default_factory=list)
    header_rows: int = 1
    paragraphs: list[Inline] = field(default_factory=list)
    """Of the cells, for their drawings and notes."""
    nested: list[Any] = field(default_factory=list)
    """Tables and embedded documents inside cells."""


@dataclass(slots=True)
class _Cell:
    text: str
    merge: str
    """"", "restart" or "continue" (vertical)."""
    bold: bool
    first: bool
    """Whether this is the leftmost grid column of its cell."""


def unwrapped(element: Any, name: str) -> Iterator[Any]:
    """Children of one name, also inside content controls, insertions and custom XML."""
    for child in element:
        tag = local_name(child)
        if tag == name:
            yield child
        elif tag in _WRAPPERS:
            yield from unwrapped(child, name)


def only_cell(table: Any) -> Any:
    """The cell of a table that has but one and serves as a frame; None for a real table."""
    rows = list(unwrapped(table, "tr"))
    cells = list(unwrapped(rows[0], "tc")) if len(rows) == 1 else []
    return cells[0] if len(cells) == 1 else None


def read_grid(table: Any, paragraph: Callable[[Any], tuple[str, Inline]]) -> Grid:
    """A w:tbl. `paragraph` gives a w:p's text (with its list marker) and its inline content."""
    grid = Grid()
    rows: list[list[_Cell]] = []
    marked = 0
    for row in unwrapped(table, "tr"):
        properties = find(row, "w:trPr")
        if find(properties, "w:del") is not None or on_off(find(properties, "w:hidden")):
            continue
        if on_off(find(properties, "w:tblHeader")) and marked == len(rows):
            marked += 1
        rows.append(_read_row(row, properties, grid, paragraph))
    _fill_down(rows)
    grid.rows = [[cell.text for cell in row] for row in rows]
    grid.header_rows = marked if 0 < marked < len(rows) else _header_rows(rows, table)
    return grid


def _read_row(row: Any, properties: Any, grid: Grid, paragraph: Callable[[Any], tuple[str, Inline]]) -> list[_Cell]:
    cells = [_Cell("", "", True, True) for _ in range(_count(find(properties, "w:gridBefore"), 0))]
    for cell in unwrapped(row, "tc"):
        cell_properties = find(cell, "w:tcPr")
        if find(cell_properties, "w:cellDel") is not None:
            continue
        text, bold = _read_cell(cell, grid, paragraph)
        if _merge(cell_properties, "w:hMerge") == "continue" and cells:
            cells.append(_Cell(cells[-1].text, cells[-1].merge, cells[-1].bold, False))
            continue
        merge = _merge(cell_properties, "w:vMerge")
        span = _count(find(cell_properties, "w:gridSpan"), 1)
        cells += [_Cell(text, merge, bold, index == 0) for index in range(max(span, 1))]
    cells += [_Cell("", "", True, True) for _ in range(_count(find(properties, "w:gridAfter"), 0))]
    return cells[:MAX_COLUMNS]


def _read_cell(cell: Any, grid: Grid, paragraph: Callable[[Any], tuple[str, Inline]]) -> tuple[str, bool]:
    lines: list[str] = []
    regular = 0
    for child in _blocks(cell):
        if local_name(child) != "p":
            grid.nested.append(child)
            continue
        text, inline = paragraph(child)
        grid.paragraphs.append(inline)
        regular += inline.regular
        lines += [text] if text else []
    return "\n".join(lines), regular == 0


def _blocks(element: Any) -> Iterator[Any]:
    for child in element:
        name = local_name(child)
        if name in ("p", "tbl", "altChunk"):
            yield child
        elif name in _WRAPPERS:
            yield from _blocks(child)


def _fill_down(rows: list[list[_Cell]]) -> None:
    for above, row in pairwise(rows):
        for column, cell in enumerate(row):
            if cell.merge == "continue" and column < len(above) and above[column].merge:
                cell.text = above[column].text
                cell.bold = above[column].bold


def _header_rows(rows: list[list[_Cell]], table: Any) -> int:
    """How many rows are a header where none is marked: the first one, and those that it is merged into."""
    if len(rows) < 2:
        return 0
    first = rows[0]
    bold = all(cell.bold for cell in first) and any(cell.text for cell in first)
    look = find(table, "w:tblPr/w:tblLook")
    styled = look is not None and look.get(qn("w:firstRow")) in ("0", "false")
    if styled and not bold and find(table, "w:tblPr/w:tblStyle") is not None:
        return 0
    depth = 1
    if any(not cell.first for cell in first):
        while depth < len(rows) - 1 and (_goes_on(rows[depth]) or (depth == 1 and _unlabelled(first, rows[1]))):
            depth += 1
    return depth


def _goes_on(row: list[_Cell]) -> bool:
    return bool(row) and row[0].merge == "continue"


def _unlabelled(first: list[_Cell], second: list[_Cell]) -> bool:
    return bool(first and second) and not first[0].text and not second[0].text


def _merge(properties: Any, name: str) -> str:
    mark = find(properties, name)
    return "" if mark is None else "restart" if mark.get(qn("w:val")) == "restart" else "continue"


def _count(element: Any, default: int) -> int:
    text = "" if element is None else element.get(qn("w:val"), "")
    return min(int(text), MAX_COLUMNS) if text.isdecimal() else default
