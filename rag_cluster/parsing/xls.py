"""XLS and XLSB by python-calamine: visible sheets, values without their number formats, merges filled.

What calamine does not tell is not there: percent and currency signs, hidden rows and columns, error values (blank).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rag_cluster.domain.blocks import DocumentSource, ParsedDocument, SourceLocator
from rag_cluster.errors import CorruptDocumentError, EncryptedDocumentError
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.number_format import general
from rag_cluster.parsing.pages import each_page, still_there
from rag_cluster.parsing.xlsx.regions import SheetTables
from rag_cluster.parsing.xlsx.sheet import Row

ROWS_PER_SIGN = 5000
Range = tuple[tuple[int, int], tuple[int, int]]
"""0-based (row, column) of a merge's first and last cell."""


class XlsParser:
    """Binary Excel workbooks: those before 2007 and XLSB. Formulas show their stored value; hidden sheets are out."""

    name = "xls"
    version = "3"
    extensions = frozenset({".xls", ".xlt", ".xlsb"})

    def parse(self, source: DocumentSource) -> ParsedDocument:
        """Blocks sheet by sheet; locators hold sheet and cells."""
        workbook = _open(source)
        from python_calamine import SheetTypeEnum, SheetVisibleEnum

        names = [
            sheet.name
            for sheet in workbook.sheets_metadata
            if sheet.visible == SheetVisibleEnum.Visible and sheet.typ == SheetTypeEnum.WorkSheet
        ]
        builder = BlockBuilder(source)
        for number in each_page(source, len(names), lambda number: f"Sheet {names[number - 1]!r}"):
            _read_sheet(builder, workbook, names[number - 1], source)
        return builder.build({"sheets": names})


def _open(source: DocumentSource) -> Any:
    from python_calamine import CalamineError, CalamineWorkbook, PasswordError

    try:
        with _no_panic(f"{source.filename!r} is not a readable workbook"):
            return CalamineWorkbook.from_path(source.path)
    except PasswordError as error:
        raise EncryptedDocumentError(f"{source.filename!r} is protected by a password") from error
    except (CalamineError, ValueError, OSError) as error:
        raise CorruptDocumentError(f"{source.filename!r} is not a readable workbook: {error}") from error


@contextmanager
def _no_panic(message: str) -> Iterator[None]:
    """CorruptDocumentError for a panic of calamine, which is no Exception: its kind is named only at run time."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise CorruptDocumentError(f"{message}: {error}") from error


def _read_sheet(builder: BlockBuilder, workbook: Any, name: str, source: DocumentSource) -> None:
    from python_calamine import CalamineError

    builder.reset_headings()
    try:
        with _no_panic(f"Sheet {name!r} of {source.filename!r} cannot be read"):
            sheet = workbook.get_sheet_by_name(name)
            merges: Sequence[Range] = sheet.merged_cell_ranges or ()
            rows = sheet.iter_rows()
    except (CalamineError, ValueError) as error:
        raise CorruptDocumentError(f"Sheet {name!r} of {source.filename!r} cannot be read: {error}") from error
    tables = SheetTables(builder, name)
    opened = False
    for row in _filled(map(_row, range(1, sheet.height + 1), rows), merges):
        if row.number % ROWS_PER_SIGN == 0:
            still_there()
        if not opened:
            builder.heading(name, 1, SourceLocator(sheet=name))
            opened = True
        tables.add(row)
    tables.close()


def _row(number: int, values: Sequence[Any]) -> Row:
    row = Row(number)
    for column, value in enumerate(values, 1):
        text = _shown(value)
        if not text:
            continue
        row.cells[column] = text
        if isinstance(value, dt.date | dt.time | dt.timedelta):
            row.dates.add(column)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            row.numbers.add(column)
    return row


def _shown(value: Any) -> str:
    """A value as a person reads it; dates ISO, as in XLSX."""
    match value:
        case bool():
            return str(value).upper()
        case int() | float():
            return general(repr(value))
        case dt.datetime():
            return value.isoformat(" ", "seconds")
        case dt.time():
            return value.isoformat("seconds")
        case dt.timedelta():
            minutes, seconds = divmod(round(value.total_seconds()), 60)
            return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
        case _:
            return str(value).strip()


def _filled(rows: Iterator[Row], merges: Sequence[Range]) -> Iterator[Row]:
    """Rows that show anything, a merge's text in every cell that it covers."""
    waiting = sorted(merges, reverse=True)
    active: list[tuple[Range, str]] = []
    last = 0
    for row in rows:
        active = [(merge, text) for merge, text in active if merge[1][0] >= row.number - 1]
        while waiting and waiting[-1][0][0] <= row.number - 1:
            merge = waiting.pop()
            if text := row.cells.get(merge[0][1] + 1, ""):
                active.append((merge, text))
        for ((_, left), (_, right)), text in active:
            for column in range(left + 1, right + 2):
                row.cells[column] = text
                if column > left + 1:
                    row.copies.add(column)
        if row.cells:
            row.follows = row.number == last + 1
            last = row.number
            yield row
