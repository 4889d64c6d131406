"""Tables that go on over pages become one: the same columns, at the foot of one page and the head of the next, with
nothing between them; a repeated header goes, and a row that the page's end breaks is made whole."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

from rag_cluster.parsing.pdf.figures import Figure
from rag_cluster.parsing.pdf.page import OcrText, PlacedTable
from rag_cluster.parsing.pdf.paragraphs import Paragraph, join_texts, unfinished
from rag_cluster.parsing.pdf.tables import Table

Part = Paragraph | PlacedTable | Figure | OcrText
HEAD, FOOT = 0.4, 0.5
"""Shares of the page's height: a continued table ends below FOOT, and goes on above HEAD."""
NEAR = 4.0
"""Points by which ruled columns may differ."""
_LABEL = re.compile(
    r"^(?:(?:table|exhibit|tab\.|tabelle)\s*[\w.\-]*[\s:.,\-–—]*)?[(\[]?\s*(?:cont(?:inued|['’]d|\.|d\.?)?|fortsetzung)"
    r"(?:\s+(?:on|from|overleaf)\b.{0,30})?\s*[)\]]?[.…]*$"
    r"|^(?:table|exhibit|tab\.)\s*[\w.\-]+.{0,120}[(\[,]\s*cont(?:inued|['’]d|\.|d\.?)\s*[)\]]?\.?$"
    r"|^[（(]?(?:续上?表|接上[页表]|下页续|转下页|续)\s*[\d.\-]{0,8}[）)]?$|^(?:续?表)\s*[\d.\-]+.{0,60}[（(]续[）)]$",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"^[^\w]*\d[\d.,\s%()*:/–-]*[a-z%*]{0,3}$|^[-–—.]{1,3}$", re.IGNORECASE)
_LOWER_START = re.compile(r"^[^\W\d_A-Z]|^[),;]")
_T = TypeVar("_T", bound=Part)


def is_label(text: str) -> bool:
    """Whether a line only says that a table goes on."""
    return _LABEL.match(text) is not None


def join(parts: Sequence[Part]) -> list[Part]:
    """The parts with continued tables joined into the first of them."""
    out: list[Part] = []
    for part in parts:
        before, labels = _open_table(out) if isinstance(part, PlacedTable) else (None, [])
        if before is not None and isinstance(part, PlacedTable) and _goes_on(before, part):
            drop = {id(label) for label in labels}
            out = [p for p in out if id(p) not in drop]
            _extend(before, part)
        else:
            out.append(part)
    return out


def _open_table(out: Sequence[Part]) -> tuple[PlacedTable | None, list[Paragraph]]:
    """The last table when only notes and "(continued)" follow it; those labels."""
    labels: list[Paragraph] = []
    for part in reversed(out):
        if isinstance(part, PlacedTable):
            return part, labels
        if not isinstance(part, Paragraph):
            break
        if is_label(part.text):
            labels.append(part)
        elif "footnote" not in part.metadata:
            break
    return None, []


def _goes_on(before: PlacedTable, after: PlacedTable) -> bool:
    last = before.spans[-1][0] if before.spans else before.page
    if after.page != last + 1 or before.reach[1] < FOOT or after.reach[0] > HEAD:
        return False
    if not _same_columns(before.table, after.table):
        return False
    return _repeated(before.table, after.table) > 0 or not _has_header(before.table, after.table)


def _same_columns(a: Table, b: Table) -> bool:
    """Equal numbers of columns at equal places; pages may be shifted as a whole (inner and outer margins)."""
    if len(a.columns) != len(b.columns) or len(a.columns) < 1 or a.ruled != b.ruled:
        return False
    shift = b.box[0] - a.box[0]
    if a.ruled:
        return all(
            abs(y0 - x0 - shift) <= NEAR and abs(y1 - x1 - shift) <= NEAR
            for (x0, x1), (y0, y1) in zip(a.columns, b.columns, strict=True)
        )
    moves = (0.0, shift) if abs(shift) < 60 else (0.0,)
    return any(
        all(
            i == j
            for i, (x0, x1) in enumerate(a.columns)
            for j, (y0, y1) in enumerate(b.columns)
            if min(x1, y1 - move) > max(x0, y0 - move)
        )
        and all(
            min(x1, y1 - move) > max(x0, y0 - move) for (x0, x1), (y0, y1) in zip(a.columns, b.columns, strict=True)
        )
        for move in moves
    )


def _repeated(a: Table, b: Table) -> int:
    """Leading rows of b that repeat the header of a."""
    for count in range(min(max(a.header_rows, 1), len(b.rows)), 0, -1):
        if [_squeezed(row) for row in a.rows[:count]] == [_squeezed(row) for row in b.rows[:count]]:
            return count
    return 0


def _squeezed(row: Sequence[str]) -> list[str]:
    return ["".join(cell.lower().split()) for cell in row]


def _has_header(a: Table, b: Table) -> bool:
    """Whether b begins with a header of its own: bold, or words where the column has numbers."""
    if b.bold_head and not a.bold_body:
        return True
    first, body = b.rows[0], [*a.rows[a.header_rows :], *b.rows[1:]]
    for column, cell in enumerate(first):
        others = [row[column] for row in body if row[column]]
        numbers = sum(_NUMBER.match(other) is not None for other in others)
        if cell and len(others) >= 2 and numbers > 0.7 * len(others) and not _NUMBER.match(cell):
            return True
    return False


def _extend(before: PlacedTable, after: PlacedTable) -> None:
    table = before.table
    rows = after.table.rows[_repeated(table, after.table) :]
    if rows and _broken(table, rows[0]):
        table.rows[-1] = [join_texts([above, below]) for above, below in zip(table.rows[-1], rows[0], strict=True)]
        rows = rows[1:]
    before.row_starts = [*(before.row_starts or [0]), len(table.rows)]
    table.rows += rows
    table.bold_body = table.bold_body or after.table.bold_body
    before.spans = (*(before.spans or ((before.page, before.box),)), (after.page, after.box))
    table.columns, table.box, before.reach = after.table.columns, after.table.box, after.reach
    before.caption = before.caption or after.caption


def _broken(table: Table, row: Sequence[str]) -> bool:
    """Whether a row is the rest of the table's last one: its cells go on in the middle of a sentence, and where it is
    the row's label that is missing, all other rows have one."""
    if len(table.rows) <= table.header_rows:
        return False
    pairs = [(above, below) for above, below in zip(table.rows[-1], row, strict=True) if below]
    going_on = [_LOWER_START.match(below) is not None and unfinished(above) for above, below in pairs]
    if not any(going_on) or any(not above or _NUMBER.match(below) for above, below in pairs):
        return False
    body = table.rows[table.header_rows :]
    if not row[0]:
        labelled = sum(bool(other[0]) for other in body) > 0.8 * len(body)
        return labelled and any(go and len(above) > 12 for go, (above, _) in zip(going_on, pairs, strict=True))
    lower = sum(_LOWER_START.match(other[0]) is not None for other in body)
    return all(going_on) and lower < 0.3 * len(body)
