"""The structure tree of a tagged page: what each marked piece of content is, in the order of reading.

tree -> `Tags` (block, list level, table cell of every marked content id) -> `sane` decides whether layout follows it.
Trees are often made by programs that guess; one that is incomplete, or contradicts the page, is left aside.
"""

from __future__ import annotations

import ctypes
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import pypdfium2.raw as pdfium_c

from rag_cluster.parsing.pdf import native
from rag_cluster.parsing.pdf.furniture import ZONE
from rag_cluster.parsing.pdf.lines import Line
from rag_cluster.parsing.pdf.paragraphs import goes_on

MAX_DEPTH = 60
MAX_ELEMENTS = 30_000
MAX_SPAN = 200
"""Rows or columns that one cell covers."""
_INLINE = frozenset({
    "Span", "Link", "Reference", "Em", "Strong", "NonStruct", "Quote", "StyleSpan", "Lbl", "LBody", "Annot", "Ruby",
    "Warichu", "BibEntry", "Private", "Sub",
})  # fmt: skip
_GROUPS = frozenset({"Document", "DocumentFragment", "Part", "Art", "Sect", "Div", "Aside", "Index", "TOC", "L"})
_TABLE = frozenset({"Table", "TR", "THead", "TBody", "TFoot"})
_HOLDERS = frozenset({"LI", "TD", "TH", "Caption", "Note", "FENote", "BlockQuote", "TOCI"})
"""A paragraph inside of these is a part of them."""
_SETTLED = _HOLDERS | {"Code", "Formula"}
_TYPE_BYTES = 128


@dataclass(slots=True)
class Block:
    """What a person sees as one piece. order: among the page's blocks; level: of a list item, from 0."""

    role: str
    order: int
    level: int = 0


@dataclass(slots=True)
class Cell:
    """A cell of a tagged table."""

    header: bool
    columns: int = 1
    rows: int = 1
    mcids: list[int] = field(default_factory=list)


@dataclass(slots=True)
class TaggedTable:
    """Rows of cells as the tree has them."""

    block: Block
    rows: list[list[Cell]] = field(default_factory=list)
    nested: bool = False


@dataclass(slots=True)
class Tags:
    """One page's tree, by marked content id."""

    blocks: dict[int, Block] = field(default_factory=dict)
    tables: list[TaggedTable] = field(default_factory=list)
    alternatives: dict[int, str] = field(default_factory=dict)
    """Alternative texts of figures."""
    actual: list[tuple[str, list[int]]] = field(default_factory=list)
    """Texts that stand for the content of some ids."""

    @property
    def settled(self) -> set[int]:
        """Ids in blocks that are no headings, however bold."""
        return {mcid for mcid, block in self.blocks.items() if block.role in _SETTLED}

    @property
    def heading_levels(self) -> dict[int, int]:
        """Of the ids in headings."""
        levels = {mcid: heading_level(block.role) for mcid, block in self.blocks.items()}
        return {mcid: level for mcid, level in levels.items() if level is not None}


def heading_level(role: str) -> int | None:
    """Level of a heading role, None for the others. "H" and "Title" are level 1."""
    if match := re.fullmatch(r"H([1-9])", role):
        return min(int(match[1]), 6)
    return 1 if role in ("H", "Title") else None


def read(document: Any, page: Any) -> Tags | None:
    """The tags of an open page; None without any."""
    if not pdfium_c.FPDFCatalog_IsTagged(document):
        return None
    tree = pdfium_c.FPDF_StructTree_GetForPage(page)
    if not tree:
        return None
    walk = _Walk()
    try:
        for i in range(max(pdfium_c.FPDF_StructTree_CountChildren(tree), 0)):
            root = native.address(pdfium_c.FPDF_StructTree_GetChildAtIndex(tree, i))
            walk.visit(root, _State(), 0)
    finally:
        pdfium_c.FPDF_StructTree_Close(tree)
    return walk.tags if walk.tags.blocks else None


@dataclass(slots=True)
class _State:
    """What stands above an element."""

    block: Block | None = None
    lists: int = 0
    table: TaggedTable | None = None
    row: list[Cell] | None = None
    """When right inside of it."""
    cell: Cell | None = None
    alternative: str = ""
    actual: list[int] | None = None


class _Walk:
    """Bounded in depth and number, since damaged trees refer to themselves."""

    def __init__(self) -> None:
        self.tags = Tags()
        self._left = MAX_ELEMENTS
        self._orders = 0
        self._buffer = ctypes.create_string_buffer(_TYPE_BYTES)
        self._address = ctypes.addressof(self._buffer)

    def visit(self, element: int, above: _State, depth: int) -> None:
        self._left -= 1
        if not element or depth > MAX_DEPTH or self._left < 0:
            return
        state = self._enter(element, above)
        for i in range(max(native.tag_child_count(element), 0)):
            child = native.tag_child(element, i)
            if child:
                self.visit(child, state, depth + 1)
            else:
                mcid = native.tag_child_mcid(element, i)
                if mcid >= 0:
                    self._add(mcid, state)
                elif state.row is not None:
                    state.row.append(Cell(False))  # pdfium leaves out elements without content

    def _enter(self, element: int, above: _State) -> _State:
        role = self._type(element)
        state = replace(above, row=None)
        if role == "L":
            state.lists += 1
        if role == "Table":
            if above.table is not None:
                above.table.nested = True
            state.block = self._block(role, state.lists)
            state.table, state.cell = TaggedTable(state.block), None
            self.tags.tables.append(state.table)
        elif role == "TR" and state.table is not None:
            state.row = []
            state.table.rows.append(state.row)
        elif role in ("TD", "TH") and state.table is not None and state.table.rows:
            state.cell = Cell(role == "TH", _span(element, b"ColSpan"), _span(element, b"RowSpan"))
            state.table.rows[-1].append(state.cell)
        elif role and role not in _INLINE and role not in _TABLE:
            held = above.block is not None and above.block.role in _HOLDERS and role == "P"
            if role in _GROUPS:
                # Text right inside a group, before or after its paragraphs, is no piece of another one.
                state.block = above.block if above.cell is not None or role == "L" else None
            elif not held and above.cell is None:
                state.block = self._block(role, max(state.lists - 1, 0))
        if role in ("Figure", "Formula"):
            state.alternative = _string(pdfium_c.FPDF_StructElement_GetAltText, element)
        if state.actual is None and (actual := _string(pdfium_c.FPDF_StructElement_GetActualText, element)):
            state.actual = []
            self.tags.actual.append((actual, state.actual))
        return state

    def _block(self, role: str, level: int) -> Block:
        self._orders += 1
        return Block(role, self._orders, level)

    def _add(self, mcid: int, state: _State) -> None:
        if state.block is None:
            state.block = self._block("", 0)
        self.tags.blocks[mcid] = state.block
        if state.cell is not None:
            state.cell.mcids.append(mcid)
        if state.alternative:
            self.tags.alternatives[mcid] = state.alternative
        if state.actual is not None:
            state.actual.append(mcid)

    def _type(self, element: int) -> str:
        size = native.tag_type(element, self._address, _TYPE_BYTES)
        if not 2 < size <= _TYPE_BYTES:
            return ""
        return _role(ctypes.string_at(self._address, size - 2))


@lru_cache(maxsize=256)
def _role(name: bytes) -> str:
    return name.decode("utf-16-le", "replace")


def _string(read_text: Any, element: int) -> str:
    handle = ctypes.cast(element, pdfium_c.FPDF_STRUCTELEMENT)
    size = read_text(handle, None, 0)
    if not 2 < size < 20_000:
        return ""
    buffer = ctypes.create_string_buffer(size)
    read_text(handle, buffer, size)
    return buffer.raw[: size - 2].decode("utf-16-le", "replace").replace("\x00", "").strip()


def _span(element: int, name: bytes) -> int:
    handle = ctypes.cast(element, pdfium_c.FPDF_STRUCTELEMENT)
    number = ctypes.c_float()
    for index in range(min(max(pdfium_c.FPDF_StructElement_GetAttributeCount(handle), 0), 20)):
        attribute = pdfium_c.FPDF_StructElement_GetAttributeAtIndex(handle, index)
        value = pdfium_c.FPDF_StructElement_Attr_GetValue(attribute, name) if attribute else None
        if value and pdfium_c.FPDF_StructElement_Attr_GetNumberValue(value, number):
            return min(max(int(number.value), 1), MAX_SPAN)
    return 1


COMPLETE = 0.9
"""Least share of a page's text that a usable tree holds."""


def sane(tags: Tags, lines: Sequence[Line], height: float) -> bool:
    """Whether the tree tells what the page shows: it holds nearly all text outside of the margins, in pieces neither
    too large nor broken inside of sentences, and mostly from top to bottom."""
    chars: Counter[int] = Counter()
    missing = 0
    for line in lines:
        block = tags.blocks.get(line.mcid)
        if block is not None and block.role:
            chars[block.order] += line.chars
        elif not _in_margin(line, height):
            missing += line.chars
    total = sum(chars.values())
    if len(chars) < 2 or total < COMPLETE * (total + missing):
        return False
    if max(chars.values()) > max(0.6 * total, 1500):
        return False
    titles = {block.order for block in tags.blocks.values() if heading_level(block.role) is not None}
    if sum(chars[order] for order in titles) > 0.5 * total:
        return False
    return _in_order(tags, lines)


def _in_margin(line: Line, height: float) -> bool:
    _, y0, _, y1 = line.frame.leave(line.box)
    return y1 < ZONE * height or y0 > (1 - ZONE) * height


def _in_order(tags: Tags, lines: Sequence[Line]) -> bool:
    """Whether blocks mostly follow each other downwards in their columns, and do not break sentences."""
    known = [(block, line) for line in lines if (block := tags.blocks.get(line.mcid)) is not None]
    known.sort(key=lambda pair: pair[0].order)
    upwards = broken = pairs = 0
    for (block, line), (following, after) in itertools.pairwise(known):
        if block is following:
            continue
        pairs += 1
        upwards += line.region == after.region and after.box[3] < line.box[1]
        broken += block.role == following.role == "P" and goes_on(line.text, after.text)
    return upwards <= 0.2 * pairs and broken <= 0.25 * pairs
