"""Finds the tables, titles and loose cells of a sheet: rows between blank rows, cut at blank columns."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import zip_longest

from rag_cluster.domain.blocks import BlockType, SourceLocator
from rag_cluster.domain.locators import format_range
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.xlsx.sheet import Row

ROWS_PER_TABLE = 2000
CELLS_PER_TABLE = 100_000
MAX_HEADER_ROWS = 5
MAX_CUTS = 12
"""Of a band, one inside the other."""
SPARSE = 20
"""Grid cells per filled one, above which a region is listed cell by cell instead of being drawn as a table."""
_HEADER = 0
"""Number of the row that stands for what is above a band; a sheet's rows begin with 1."""
_NOTE = re.compile(r"^(?:\(?[a-z0-9]{1,2}\)|\*|注|备注|说明|资料来源|来源|note|source)", re.IGNORECASE)
_YEAR = re.compile(r"^(?:19|20)\d\d$")


@dataclass(slots=True)
class _Region:
    rows: list[Row]
    left: int
    right: int


@dataclass(slots=True)
class SheetTables:
    """Collects a sheet's rows into bands and writes each band's blocks; long bands are written piece by piece."""

    builder: BlockBuilder
    sheet: str
    hidden: Set[int] = frozenset()
    """Columns that a table's width does not count."""
    _band: list[Row] = field(default_factory=list)
    _cells: int = 0
    _open: dict[int, list[str]] = field(default_factory=dict)
    """Column -> its header in a table whose next rows are still to come."""

    def add(self, row: Row) -> None:
        """The next visible row."""
        if self._band and not row.follows and not self._continues(row):
            self.close()
        self._band.append(row)
        self._cells += len(row.cells)
        if len(self._band) >= ROWS_PER_TABLE or self._cells >= CELLS_PER_TABLE:
            self._write(last=False)

    def close(self) -> None:
        """Write what is left of the band."""
        self._write(last=True)
        self._open = {}

    def close_above(self, number: int) -> None:
        """Close the band if all of it lies above a row."""
        if self._band and self._band[-1].number < number:
            self.close()

    def write_rows(
        self,
        rows: Sequence[Row],
        columns: tuple[int, int],
        header_rows: int,
        header: list[list[str]] | None,
        **metadata: str,
    ) -> list[list[str]]:
        """Rows of a table of known columns; header: of its earlier pieces. Returns the header for the later ones."""
        shown = _visible(*columns, self.hidden)
        if _is_sparse(rows, len(shown)):
            for row in rows:
                self._write_cells(row)
            return []
        grid = _grid(rows, shown)
        locator = self._locator(rows[0].number, columns[0], rows[-1].number, columns[1])
        if header is None:
            self.builder.table(grid, header_rows, locator, **metadata)
            return grid[:header_rows]
        self.builder.table([*header, *grid], len(header), locator, continued=True, **metadata)
        return header

    def _continues(self, row: Row) -> bool:
        """Whether a row after one blank row belongs to the table or the header above: figures below its columns."""
        above = self._band[-50:]
        if row.number - above[-1].number != 2 or len(row.cells) < 2 or not row.numbers - _years(row):
            return False
        columns = set().union(*(other.cells for other in above))
        is_header = not any(_figures(other) for other in above) and _distinct(above[-1]) > 1
        return set(row.cells) <= columns and (is_header or (len(above) > 2 and not set(row.cells) <= row.bold))

    def _write(self, last: bool) -> None:
        band, self._band, self._cells = self._band, [], 0
        opened, self._open = self._open, {}
        if not band:
            return
        # Above the band stands the header of what goes on: a column is no gap where only this piece leaves it blank.
        above = Row(_HEADER, dict.fromkeys(opened, "-"))
        for region in _regions([above, *band] if opened else band, self.hidden):
            shown = _visible(region.left, region.right, self.hidden)
            if region.rows[0].number == _HEADER:
                header = self._continue_table(region, [opened.get(column, []) for column in shown])
            else:
                header = self._write_region(region)
            if not last and region.rows[-1].number == band[-1].number:
                self._open |= {column: [row[at] for row in header] for at, column in enumerate(shown)}

    def _locator(self, top: int, left: int, bottom: int, right: int) -> SourceLocator:
        return SourceLocator(sheet=self.sheet, cell_range=format_range((top, left, bottom, right)))

    def _write_region(self, region: _Region) -> list[list[str]]:
        """Blocks of a region; returns its header, for the pieces that follow."""
        tops, rows, notes = _peeled(region)
        for row in tops:
            self._write_cells(row)
        header: list[list[str]] = []
        if rows:
            header = self._write_table(_trimmed(rows, self.hidden))
        for row in notes:
            self._write_cells(row)
        return header

    def _continue_table(self, region: _Region, names: Sequence[list[str]]) -> list[list[str]]:
        """names: each column's header."""
        header = [list(row) for row in zip_longest(*names, fillvalue="")]
        if rows := region.rows[1:]:
            self.write_rows(rows, (region.left, region.right), 0, header)
        return header

    def _write_table(self, region: _Region) -> list[list[str]]:
        if not _is_prose(region.rows, region):
            columns = (region.left, region.right)
            return self.write_rows(region.rows, columns, _header_rows(region.rows, region.left), None)
        for row in region.rows:
            self._write_cells(row)
        return []

    def _write_cells(self, row: Row) -> None:
        """A row outside tables: its distinct texts, each with its cells."""
        columns = sorted(row.cells)
        at = 0
        while at < len(columns):
            end = at
            while end + 1 < len(columns) and columns[end + 1] in row.copies and columns[end + 1] == columns[end] + 1:
                end += 1
            locator = self._locator(row.number, columns[at], row.number, columns[end])
            self.builder.add(BlockType.TEXT, row.cells[columns[at]], locator)
            at = end + 1


def _visible(left: int, right: int, hidden: Set[int]) -> list[int]:
    return [column for column in range(left, right + 1) if column not in hidden]


def _is_sparse(rows: Sequence[Row], width: int) -> bool:
    return len(rows) * width > SPARSE * sum(len(row.cells) for row in rows) + 2000


def _grid(rows: Sequence[Row], columns: Sequence[int]) -> list[list[str]]:
    return [[row.cells.get(column, "") for column in columns] for row in rows]


def _regions(rows: list[Row], hidden: Set[int], depth: int = 0) -> Iterator[_Region]:
    """Cuts rows at blank columns, then at rows that are blank in those columns, until nothing is left to cut."""
    groups = _column_groups(rows, hidden)
    if len(groups) == 1 or depth >= MAX_CUTS:
        yield _Region(rows, groups[0][0], groups[-1][-1])
        return
    for group, pieces in zip(groups, _pieces(rows, groups), strict=True):
        for piece in pieces:
            if len(piece) == len(rows):
                yield _Region(piece, group[0], group[-1])
            else:
                yield from _regions(piece, hidden, depth + 1)


def _pieces(rows: Sequence[Row], groups: Sequence[Sequence[int]]) -> list[list[list[Row]]]:
    """For each group of columns, runs of rows that are filled there. Each row is looked at once."""
    starts = [group[0] for group in groups]
    pieces: list[list[list[Row]]] = [[] for _ in groups]
    ends = [-2] * len(groups)
    for position, row in enumerate(rows):
        columns: dict[int, list[int]] = {}
        for column in row.cells:
            columns.setdefault(bisect_right(starts, column) - 1, []).append(column)
        for group, inside in columns.items():
            if ends[group] != position - 1:
                pieces[group].append([])
            pieces[group][-1].append(part_of(row, inside))
            ends[group] = position
    return pieces


def part_of(row: Row, columns: Sequence[int]) -> Row:
    """The row with some of its columns alone."""
    cells = {column: row.cells[column] for column in columns}
    kept = cells.keys()
    return Row(row.number, cells, row.numbers & kept, row.dates & kept, row.bold & kept, row.copies & kept, row.follows)


def _column_groups(rows: Sequence[Row], hidden: Set[int]) -> list[list[int]]:
    """Used columns, separated where two or more are blank, or one is and an own table starts behind it."""
    used = sorted(set().union(*(row.cells for row in rows)))
    groups: list[list[int]] = []
    for column in used:
        gap = column - groups[-1][-1] - 1 - sum(c in hidden for c in range(groups[-1][-1] + 1, column)) if groups else 0
        if not groups or gap >= 2 or (gap == 1 and len(groups[-1]) > 1 and _starts_table(rows, column, used)):
            groups.append([column])
        else:
            groups[-1].append(column)
    return groups or [[1]]


def _starts_table(rows: Sequence[Row], column: int, used: Sequence[int]) -> bool:
    """Whether a column behind a blank one holds labels, with values at its right."""
    if column + 1 not in used:
        return False
    filled = [row for row in rows if column in row.cells]
    labels = [row for row in filled[1:] if column not in _figures(row) and any(map(str.isalpha, row.cells[column]))]
    return bool(filled[1:]) and len(labels) * 2 > len(filled[1:])


def _distinct(row: Row) -> int:
    return sum(column not in row.copies for column in row.cells)


def _peeled(region: _Region) -> tuple[list[Row], list[Row], list[Row]]:
    """(title rows, table, note rows)."""
    rows = list(region.rows)
    tops: list[Row] = []
    notes: list[Row] = []
    if region.left == region.right:
        return tops, rows, notes
    while len(rows) > 1 and _is_title(rows[0], region, rows[1:]):
        tops.append(rows.pop(0))
        while rows and not rows[0].cells:
            rows.pop(0)
    while len(rows) > 1 and _is_note(rows[-1], region):
        notes.insert(0, rows.pop())
    return tops, rows, notes


def _is_title(row: Row, region: _Region, below: Sequence[Row]) -> bool:
    if _distinct(row) != 1 or row.numbers or row.dates:
        return False
    first = min(row.cells)
    whole = first == region.left and (len(row.cells) == 1 or max(row.cells) == region.right)
    return whole and any(_distinct(other) > 1 for other in below[:3])


def _is_note(row: Row, region: _Region) -> bool:
    if not row.cells:
        return True
    if _distinct(row) != 1 or row.numbers or row.dates or min(row.cells) != region.left:
        return False
    text = row.cells[region.left]
    return len(text) > 40 or _NOTE.match(text) is not None


def _is_prose(rows: Sequence[Row], region: _Region) -> bool:
    """Rows of one text each are lines, not a table, unless they are a column of some length."""
    if any(_distinct(row) > 1 or _figures(row) for row in rows):
        return len(rows) == 1 and _distinct(rows[0]) == 1
    return region.left != region.right or len(rows) <= 3


def _trimmed(rows: list[Row], hidden: Set[int]) -> _Region:
    used = set().union(*(row.cells for row in rows))
    return _Region(rows, min(used), max(used)) if used else _Region(rows, 1, 1)


def _header_rows(rows: Sequence[Row], left: int) -> int:
    """How many leading rows name the columns."""
    if len(rows) < 2:
        return 0
    first = rows[0]
    depth = 1
    while depth < min(MAX_HEADER_ROWS, len(rows) - 1) and _names_columns(rows, depth, left):
        depth += 1
    if not _figures(first):
        return depth
    bold = set(first.cells) <= first.bold and not set(rows[depth].cells) <= rows[depth].bold
    dated = not (first.numbers - _years(first)) and bool(first.dates) and bool(rows[1].numbers & first.dates)
    return depth if bold or dated else 0


def _names_columns(rows: Sequence[Row], depth: int, left: int) -> bool:
    """Whether a row goes on with the header: it names columns that the row above groups, or it has no label itself."""
    above, row = rows[depth - 1], rows[depth]
    if _figures(row):
        return False
    if any(row.cells.get(c) != above.cells[c] and c in row.cells for c in above.copies):
        return True
    unlabelled = row.cells.get(left) in (None, above.cells.get(left)) and bool(row.cells)
    return unlabelled and any(_figures(other) for other in rows[depth + 1 : depth + 3])


def _years(row: Row) -> set[int]:
    return {column for column in row.numbers if _YEAR.match(row.cells.get(column, ""))}


def _figures(row: Row) -> set[int]:
    return (row.numbers - _years(row)) | row.dates
