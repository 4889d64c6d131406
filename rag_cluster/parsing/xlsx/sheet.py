"""Streams a worksheet's visible rows, with merged cells filled, in bounded memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rag_cluster.domain.locators import column_number
from rag_cluster.errors import CorruptDocumentError
from rag_cluster.parsing.ooxml import Package, local_name
from rag_cluster.parsing.xlsx.workbook import Workbook, stream_elements, string_item, unescaped

MAX_COLUMNS = 16_384
WIDE_MERGE = 64
"""A merge over more columns than this is decoration: it is filled only as far as the sheet is used."""
TALL_MERGE = 1000
"""A merge is continued over absent rows only so far."""
MERGE_BUDGET = 2_000_000
_MERGE = re.compile(rb'<(?:\w+:)?mergeCell\s[^>]*?ref="([A-Z]+)(\d+):([A-Z]+)(\d+)"')
_SCAN = 1 << 20
_MEMO = 200_000


@dataclass(slots=True)
class Row:
    """A visible row: 1-based number and columns. Which columns hold numbers, dates, bold text, a merge's copy."""

    number: int
    cells: dict[int, str] = field(default_factory=dict)
    numbers: set[int] = field(default_factory=set)
    dates: set[int] = field(default_factory=set)
    bold: set[int] = field(default_factory=set)
    copies: set[int] = field(default_factory=set)
    """Columns filled from the left by a merge."""
    follows: bool = False
    """Whether only hidden rows lie between this row and the one before."""


@dataclass(slots=True)
class Merge:
    """A merged range and, once its first row was read, its text."""

    top: int
    left: int
    bottom: int
    right: int
    text: str = ""
    kind: str = ""


def read_merges(package: Package, part: str) -> list[Merge]:
    """Merged ranges, which stand behind the rows that need them: a scan of the bytes, without parsing."""
    merges: list[Merge] = []
    try:
        merges += _scan_merges(package, part)
    except CorruptDocumentError as error:
        package.damaged(f"Merged cells may be missing: {error.message}")
    return sorted(merges, key=lambda merge: (merge.top, merge.left))


def _scan_merges(package: Package, part: str) -> Iterator[Merge]:
    rest = b""
    with package.open(part) as stream:
        while chunk := stream.read(_SCAN):
            window = rest + chunk
            end = 0
            for match in _MERGE.finditer(window):
                left, top, right, bottom = match.groups()
                yield Merge(int(top), column_number(left.decode()), int(bottom), column_number(right.decode()))
                end = match.end()
            rest = window[max(end, len(window) - 200) :]


class SheetReader:
    """Rows of one worksheet."""

    def __init__(self, workbook: Workbook, part: str) -> None:
        self._workbook = workbook
        self._part = part
        self._columns: dict[str, int] = {}
        self.hidden: set[int] = set()
        """Columns that are not shown; complete once the first row was read."""
        self._memo: dict[tuple[str | None, str], tuple[str, str]] = {}
        self._formulas: dict[str, tuple[str, str]] = {}
        self.formulas_without_value = 0

    def rows(self) -> Iterator[Row]:
        """Visible rows that show anything, top to bottom, merges filled, hidden columns left out."""
        merges = read_merges(self._workbook.package, self._part)
        filler = _MergeFiller(merges)
        last = 0
        for row, hidden in self._raw_rows():
            for absent in filler.rows_between(last, row.number):
                filler.fill(absent)
                if shown := self._shown(absent, last):
                    yield shown
                    last = absent.number
            filler.fill(row)
            if hidden:
                last = row.number if row.number == last + 1 else last
            elif shown := self._shown(row, last):
                yield shown
                last = row.number
        for absent in filler.rows_between(last, last + TALL_MERGE):
            filler.fill(absent)
            if shown := self._shown(absent, last):
                yield shown
                last = absent.number

    def _shown(self, row: Row, last: int) -> Row | None:
        if self.hidden:
            row.cells = {column: text for column, text in row.cells.items() if column not in self.hidden}
        row.follows = row.number == last + 1
        return row if row.cells else None

    def _raw_rows(self) -> Iterator[tuple[Row, bool]]:
        number = 0
        try:
            with self._workbook.package.open(self._part) as stream:
                for element in stream_elements(stream, "row", "col"):
                    if local_name(element) == "col":
                        self._read_column(element)
                        continue
                    text = element.get("r", "")
                    number = int(text) if text.isdecimal() else number + 1
                    yield self._read_row(element, number), _is_hidden(element)
                    element.clear()
        except CorruptDocumentError as error:
            self._workbook.package.damaged(f"{self._part} was read only as far as row {number}: {error.message}")

    def _read_column(self, element: Any) -> None:
        if element.get("hidden") in ("1", "true") or element.get("width") == "0":
            first, last = element.get("min", "0"), element.get("max", "0")
            if first.isdecimal() and last.isdecimal():
                self.hidden.update(range(int(first), min(int(last), MAX_COLUMNS) + 1))

    def _read_row(self, element: Any, number: int) -> Row:
        row = Row(number)
        column = 0
        space = element.tag[: -len("row")]
        value_tag, formula_tag, inline_tag = f"{space}v", f"{space}f", f"{space}is"
        for cell in element:
            column = self._column(cell.get("r"), column)
            raw = formula = inline = None
            for child in cell:
                tag = child.tag
                if tag == value_tag:
                    raw = child.text
                elif tag == formula_tag:
                    formula = child
                elif tag == inline_tag:
                    inline = child
            if raw is None and formula is None and inline is None:
                continue
            text, kind = self._value(cell, raw, formula, inline)
            if not text or text.isspace():
                continue
            row.cells[column] = text.strip()
            if kind == "number":
                row.numbers.add(column)
            elif kind == "date":
                row.dates.add(column)
            style = cell.get("s")
            if style and self._workbook.style(style).bold:
                row.bold.add(column)
        return row

    def _column(self, reference: str | None, before: int) -> int:
        if not reference:
            return before + 1
        letters = reference.rstrip("0123456789")
        column = self._columns.get(letters)
        if column is None:
            column = column_number(letters) if letters.isascii() and letters.isalpha() else before + 1
            column = min(column, MAX_COLUMNS)
            self._columns[letters] = column
        return column

    def _value(self, cell: Any, raw: str | None, formula: Any, inline: Any) -> tuple[str, str]:
        """(what is shown, kind): kind is number, date or text."""
        kind = cell.get("t", "n")
        if kind == "s":
            strings = self._workbook.strings
            return (strings[int(raw)] if raw and raw.isdecimal() and int(raw) < len(strings) else "", "text")
        if kind == "inlineStr":
            return (string_item(inline) if inline is not None else raw or "", "text")
        if kind in ("str", "e") and raw:
            return unescaped(raw), "text"
        if not raw:
            return (self._formula(cell, formula) if formula is not None and kind != "str" else "", "text")
        if kind == "b":
            return ("FALSE" if raw == "0" else "TRUE"), "text"
        if kind == "d":
            return raw.removesuffix("T00:00:00").removesuffix("Z").replace("T", " "), "date"
        key = (cell.get("s"), raw)
        known = self._memo.get(key)
        if known is None:
            shape = self._workbook.style(key[0]).format
            known = (shape.display(raw), "date" if shape.is_date else "number")
            if len(self._memo) >= _MEMO:
                self._memo.clear()
            self._memo[key] = known
        return known

    def _formula(self, cell: Any, formula: Any) -> str:
        """The formula itself, where no program has computed its value."""
        self.formulas_without_value += 1
        text, shared = formula.text or "", formula.get("si")
        reference = cell.get("r", "A1")
        if formula.get("t") == "shared" and shared:
            if text:
                self._formulas[shared] = (text, reference)
            elif shared in self._formulas:
                text = _translated(*self._formulas[shared], reference)
        return f"={text}" if text else ""


class _MergeFiller:
    """Writes a merge's text into every cell that it covers, row by row."""

    def __init__(self, merges: list[Merge]) -> None:
        self._waiting = merges[::-1]
        self._active: list[Merge] = []
        self._widest = 1
        self._budget = MERGE_BUDGET

    def rows_between(self, last: int, number: int) -> Iterator[Row]:
        """Rows that the file leaves out although a merge covers them."""
        for absent in range(last + 1, number):
            if not any(merge.top < absent <= min(merge.bottom, merge.top + TALL_MERGE) for merge in self._active):
                return
            yield Row(absent)

    def fill(self, row: Row) -> None:
        """Complete one row."""
        if row.cells:
            self._widest = max(self._widest, max(row.cells))
        while self._waiting and self._waiting[-1].top <= row.number:
            self._active.append(self._waiting.pop())
        if not self._active:
            return
        self._active = [merge for merge in self._active if merge.bottom >= row.number]
        for merge in self._active:
            self._fill(row, merge)

    def _fill(self, row: Row, merge: Merge) -> None:
        if merge.top == row.number:
            merge.text = row.cells.get(merge.left, "")
            merge.kind = "bold" if merge.left in row.bold else ""
        if not merge.text:
            return
        right = merge.right if merge.right - merge.left < WIDE_MERGE else min(merge.right, self._widest)
        self._budget -= right - merge.left + 1
        if self._budget < 0:
            return
        for column in range(merge.left, right + 1):
            row.cells[column] = merge.text
            if merge.kind:
                row.bold.add(column)
            if column > merge.left:
                row.copies.add(column)


def _is_hidden(element: Any) -> bool:
    return element.get("hidden") in ("1", "true") or (
        element.get("ht") == "0" and element.get("customHeight") in ("1", "true")
    )


def _translated(formula: str, origin: str, target: str) -> str:
    from openpyxl.formula.translate import Translator, TranslatorError

    try:
        return str(Translator(f"={formula}", origin=origin).translate_formula(target))[1:]
    except (TranslatorError, ValueError):
        return formula
