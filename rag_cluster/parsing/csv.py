"""CSV and TSV: encoding and dialect detected, one TABLE with places in cells and lines."""

from __future__ import annotations

import csv
import io
import re
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rag_cluster.domain.blocks import DocumentSource, ParsedDocument, SourceLocator
from rag_cluster.domain.locators import column_letters
from rag_cluster.errors import CorruptDocumentError
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.encoding import decode_text
from rag_cluster.parsing.limits import ParseLimits

ROWS_PER_BLOCK = 1000
DELIMITERS = (",", ";", "\t", "|")
_NUMERIC = re.compile(r"[-+]?[$€£¥￥]?\s*\d[\d.,\s]*(?:e[-+]?\d+)?\s*%?", re.IGNORECASE)
_DATE = re.compile(r"\d{4}[-/.年]\d{1,2}(?:[-/.月]\d{1,2}日?(?:[ T]\d{1,2}:\d\d.*)?|月)")
_YEAR = re.compile(r"(?:19|20)\d\d年?")


class CsvParser:
    """Delimited text. Rows are filled to the longest one's width; a long file makes several blocks with its header."""

    name = "csv"
    version = "4"
    extensions = frozenset({".csv", ".tsv", ".tab"})

    def __init__(self, *, limits: ParseLimits = ParseLimits()) -> None:
        self._limits = limits

    def parse(self, source: DocumentSource) -> ParsedDocument:
        """EmptyDocumentError when no cell holds text."""
        text, encoding = decode_text(Path(source.path).read_bytes())
        text, offset, delimiter = _dialect(text.replace("\x00", ""), source.filename)
        rows, ends = _read(text, delimiter)
        filled = [position for position, row in enumerate(rows) if row]
        width = max(map(len, rows), default=0)
        table = _grid([rows[position] for position in filled[:50]], width)
        header = table[: 1 if _has_header(table) else 0]
        builder = BlockBuilder(source)
        for positions in _blocks(filled, len(header)):
            first, last = positions[0], positions[-1] + 1
            # Blank rows that would fill the chunks are left out; the block is then cited as a whole.
            sparse = len(positions) * 3 < (last - first) * 2
            body = [rows[position] for position in positions] if sparse else rows[first:last]
            continued = {} if first == filled[0] else {"continued": True}
            locator = SourceLocator(
                cell_range=f"A{first + 1}:{column_letters(width)}{last}",
                line_start=offset + (ends[first - 1] if first else 0) + 1,
                line_end=offset + ends[last - 1],
            )
            builder.table((header if continued else []) + _grid(body, width), len(header), locator, **continued)
        return builder.build({"encoding": encoding, "delimiter": delimiter, "rows": len(filled), "columns": width})


def _dialect(text: str, filename: str) -> tuple[str, int, str]:
    """(text, lines taken from its beginning, delimiter)."""
    if stated := re.match(r"sep=(.)\r?\n", text):
        # Excel's own way of naming the delimiter.
        return text[stated.end() :], 1, stated[1]
    if filename.lower().endswith((".tsv", ".tab")):
        return text, 0, "\t"
    sample = text[: 256 * 1024]
    return text, 0, max(DELIMITERS, key=lambda delimiter: _consistency(sample, delimiter))


def _consistency(sample: str, delimiter: str) -> float:
    """How regular the rows are under a delimiter: share of rows of the usual width, wider is a little better."""
    reader = csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter)
    widths: Counter[int] = Counter()
    try:
        for row in reader:
            if row:
                widths[len(row)] += 1
            if reader.line_num > 500:
                break
    except csv.Error:
        return -1.0
    if not widths:
        return 0.0
    width, count = max(widths.items(), key=lambda item: (item[1] if item[0] > 1 else 0, item[0]))
    return 0.0 if width < 2 else count / widths.total() + min(width, 10) * 0.01


def _read(text: str, delimiter: str) -> tuple[list[list[str]], list[int]]:
    """All rows, as a spreadsheet counts them (blank ones are []), and the physical line on which each ends."""
    csv.field_size_limit(max(len(text), 131072))
    reader = _reader(text, delimiter)
    rows: list[list[str]] = []
    ends: list[int] = []
    try:
        for row in reader:
            rows.append([cell.replace("\r\n", "\n") for cell in row] if any(map(str.strip, row)) else [])
            ends.append(reader.line_num)
    except csv.Error as error:
        raise CorruptDocumentError(f"Line {reader.line_num} is not readable as delimited text: {error}") from error
    return rows, ends


def _reader(text: str, delimiter: str) -> Any:
    """Quotes inside cells are doubled or, where that does not read, escaped by a backslash, as Spark and MySQL do."""
    if '\\"' in text and not _is_readable(text, delimiter):
        # Where a cell begins behind it, the quote ends one, whatever stands before: "C:\dir\","x".
        begins = rf'(?:{re.escape(delimiter)}|\r?\n)"[^{re.escape(delimiter)}\r\n]'
        doubled = re.sub(rf'(?<!\\)(\\+)"(?=({begins})?)', _doubled, text)
        text = doubled if _is_readable(doubled, delimiter) else text
    return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)


def _doubled(found: re.Match[str]) -> str:
    """Backslashes before a quote escape each other and then, if one is left, the quote; others escape nothing."""
    pairs, escapes = divmod(len(found[1]), 2)
    return found[0] if escapes and found[2] else "\\" * pairs + '"' * (1 + escapes)


def _is_readable(text: str, delimiter: str) -> bool:
    """Whether every quote is where doubled quotes have one."""
    try:
        deque(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True), maxlen=0)
    except csv.Error:
        return False
    return True


def _has_header(rows: list[list[str]]) -> bool:
    """Names in the first row: no cell is a value, unless it is a year above figures that are none."""
    if len(rows) < 2:
        return False
    return all(not _is_value(cell) or _is_year_above(rows, column) for column, cell in enumerate(rows[0]))


def _is_value(cell: str) -> bool:
    cell = cell.strip()
    return _NUMERIC.fullmatch(cell) is not None or _DATE.fullmatch(cell) is not None


def _is_year_above(rows: list[list[str]], column: int) -> bool:
    below = [row[column].strip() for row in rows[1:50] if row[column].strip()]
    return _YEAR.fullmatch(rows[0][column].strip()) is not None and any(not _YEAR.fullmatch(cell) for cell in below)


def _blocks(filled: Sequence[int], header_rows: int) -> Iterator[Sequence[int]]:
    """The filled rows of each block; the first one holds the header as well."""
    at = 0
    while at < len(filled):
        first, limit = at, filled[at] + ROWS_PER_BLOCK + (header_rows if at == 0 else 0)
        at = bisect_left(filled, limit)
        yield filled[first:at]


def _grid(rows: Sequence[list[str]], width: int) -> list[list[str]]:
    return [row + [""] * (width - len(row)) for row in rows]
