"""Tables that a workbook defines as such: they say where they begin, where they end and whether they have a header."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rag_cluster.domain.locators import column_number
from rag_cluster.parsing.ooxml import Package
from rag_cluster.parsing.xlsx.regions import CELLS_PER_TABLE, ROWS_PER_TABLE, SheetTables, part_of
from rag_cluster.parsing.xlsx.sheet import MAX_COLUMNS, Row

_RANGE = re.compile(r"\$?([A-Z]{1,3})\$?(\d{1,7}):\$?([A-Z]{1,3})\$?(\d{1,7})")


@dataclass(frozen=True, slots=True)
class DefinedTable:
    """A range of cells, 1-based and inclusive, and how many rows of it are the header (0 or 1)."""

    name: str
    top: int
    left: int
    bottom: int
    right: int
    header_rows: int


def defined_tables(package: Package, sheet_part: str) -> Iterator[DefinedTable]:
    """Tables that a sheet's relationships name. What is no range is left to the search for tables."""
    for part in package.all_related(sheet_part, "table"):
        root = package.optional_xml(part)
        found = None if root is None else _RANGE.fullmatch(root.get("ref", ""))
        if found is None:
            continue
        left, right = (min(column_number(letters), MAX_COLUMNS) for letters in (found[1], found[3]))
        name = root.get("displayName") or root.get("name") or ""
        header_rows = 0 if root.get("headerRowCount") == "0" else 1
        yield DefinedTable(name, int(found[2]), left, int(found[4]), right, header_rows)


@dataclass(slots=True)
class _Open:
    table: DefinedTable
    rows: list[Row] = field(default_factory=list)
    cells: int = 0
    header: list[list[str]] | None = None
    """Of the pieces that are written already; None before the first."""


class DefinedTables:
    """Takes the cells of defined tables out of the rows; the rest of a sheet goes on to the search for tables."""

    def __init__(self, sheet: SheetTables, tables: Sequence[DefinedTable]) -> None:
        self._sheet = sheet
        self._waiting = sorted(tables, key=lambda table: (table.top, table.left), reverse=True)
        self._open: list[_Open] = []
        self._gap = False
        """Whether the row before had no cells outside defined tables."""

    def add(self, row: Row) -> None:
        """The next visible row."""
        self._finish(row.number)
        while self._waiting and self._waiting[-1].top <= row.number:
            self._open.append(_Open(self._waiting.pop()))
        for entry in self._open:
            row = self._take(entry, row)
        if row.cells:
            row.follows = row.follows and not self._gap
            self._sheet.add(row)
        self._gap = not row.cells

    def close(self) -> None:
        """Write what is left."""
        self._finish(None)
        self._sheet.close()

    def _take(self, entry: _Open, row: Row) -> Row:
        """Move a table's cells from the row to the table; returns the rest."""
        table = entry.table
        inside = [column for column in row.cells if table.left <= column <= table.right]
        if not inside or row.number > table.bottom:
            return row
        entry.rows.append(part_of(row, inside))
        entry.cells += len(inside)
        if len(entry.rows) >= ROWS_PER_TABLE or entry.cells >= CELLS_PER_TABLE:
            self._write(entry)
        return part_of(row, [column for column in row.cells if not table.left <= column <= table.right])

    def _finish(self, number: int | None) -> None:
        """Write the tables that end above a row; None: all."""
        for entry in self._open:
            if number is None or entry.table.bottom < number:
                self._write(entry)
        self._open = [entry for entry in self._open if number is not None and entry.table.bottom >= number]

    def _write(self, entry: _Open) -> None:
        rows, entry.rows, entry.cells = entry.rows, [], 0
        if not rows:
            return
        table = entry.table
        self._sheet.close_above(table.top)
        header_rows = sum(row.number < table.top + table.header_rows for row in rows)
        columns = (table.left, table.right)
        entry.header = self._sheet.write_rows(rows, columns, header_rows, entry.header, table=table.name)
