"""The smallest things that strategies move: pieces of blocks, and how pieces become text, tokens and a locator."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rag_cluster.domain.blocks import BBox, Block, BlockType, SourceLocator


@dataclass(slots=True)
class Piece:
    """A part of one block that stays whole.

    body stands in the parent's text, embedded (when it differs) in the chunk's; an embedded of "" is silent there: a
    heading, which the chunk carries in its prefix, or a picture without words. glue goes before the piece when
    something stands before it. head is repeated where a text begins with this piece, or comes to it from another key:
    a table's header rows, the mark of notes.
    """

    block: Block
    body: str
    glue: str = "\n\n"
    embedded: str | None = None
    head: str = ""
    key: str = ""
    tokens: int = 0
    """Of the embedded text, without head."""
    body_tokens: int = 0
    head_tokens: int = 0
    row: int | None = None
    """The table's grid row (0-based) that this piece is."""
    locator: SourceLocator | None = None
    """Where the piece itself lies, when that is known more exactly than the block's place."""

    @property
    def text(self) -> str:
        """What is embedded, without head."""
        return self.body if self.embedded is None else self.embedded

    @property
    def silent(self) -> bool:
        """Whether a chunk shows nothing of it."""
        return self.embedded == ""


def assemble(pieces: Sequence[Piece], *, embedded: bool) -> tuple[str, list[tuple[int, int]]]:
    """The text of consecutive pieces, and the span of each in it (its head included). Trailing blanks are dropped."""
    parts: list[str] = []
    spans: list[tuple[int, int]] = []
    length = 0
    previous: str | None = None
    for piece in pieces:
        if embedded and piece.silent:
            spans.append((length, length))
            continue
        body = piece.text if embedded else piece.body
        if previous != piece.key:
            body = piece.head + body
        if length:
            parts.append(piece.glue)
            length += len(piece.glue)
        parts.append(body)
        spans.append((length, length + len(body)))
        length += len(body)
        previous = piece.key
    return "".join(parts).rstrip(), spans


def cost(pieces: Iterable[Piece], previous: str | None = None, *, embedded: bool = True) -> int:
    """Tokens of consecutive pieces that follow a piece of the key `previous` (None: that begin a text)."""
    total = 0
    for piece in pieces:
        if embedded and piece.silent:
            continue
        total += piece.tokens if embedded else piece.body_tokens
        if previous != piece.key:
            total += piece.head_tokens
        previous = piece.key
    return total


def merged_locator(pieces: Sequence[Piece], heading_path: tuple[str, ...]) -> SourceLocator:
    """One locator for what lies in several places: every span, the cells' bounding range, first to last line."""
    locators = list(dict.fromkeys(piece.locator or piece.block.locator for piece in pieces))
    if not locators:
        return SourceLocator(heading_path=heading_path)
    if len(locators) == 1:
        return replace(locators[0], heading_path=heading_path)
    pages = [locator.page for locator in locators if locator.page is not None]
    spans: dict[tuple[int, BBox], None] = {}
    for locator in locators:
        if locator.spans:
            spans.update(dict.fromkeys(locator.spans))
        elif locator.page is not None and locator.bbox is not None:
            spans[(locator.page, locator.bbox)] = None
    page, bbox = next(iter(spans)) if spans else (min(pages, default=None), None)
    starts = [locator.line_start for locator in locators if locator.line_start is not None]
    sheet = locators[0].sheet
    ends = [locator.line_end for locator in locators if locator.line_end is not None]
    return SourceLocator(
        heading_path=heading_path,
        page=page,
        bbox=bbox,
        spans=tuple(spans) if len(spans) > 1 else (),
        sheet=sheet,
        cell_range=bounding_range(
            [found.cell_range for found in locators if found.sheet == sheet and found.cell_range]
        ),
        slide=next((locator.slide for locator in locators if locator.slide is not None), None),
        line_start=min(starts, default=None),
        line_end=max(ends, default=max(starts, default=None)),
    )


def block_facts(pieces: Sequence[Piece]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """(block ids, content types, asset ids) of pieces, each once, in order."""
    blocks = list(dict.fromkeys(piece.block.id for piece in pieces))
    kinds = dict.fromkeys(piece.block.type.value for piece in pieces if not piece.silent)
    images = (piece.block for piece in pieces if piece.block.type is BlockType.IMAGE)
    assets = dict.fromkeys(str(image.metadata["asset_id"]) for image in images if image.metadata.get("asset_id"))
    return tuple(blocks), tuple(kinds), tuple(assets)


# -- A1 notation -----------------------------------------------------------------------------------------------------

_CELL = re.compile(r"\$?([A-Za-z]{1,3})\$?(\d+)$")
Rectangle = tuple[int, int, int, int]
"""(first row, first column, last row, last column), 1-based, inclusive."""


def parse_range(cell_range: str) -> Rectangle | None:
    """ "B2:D9" -> (2, 2, 9, 4); None when it is no A1 range."""
    first, _, last = cell_range.partition(":")
    start, end = _CELL.match(first), _CELL.match(last or first)
    if not start or not end:
        return None
    return int(start[2]), _column(start[1]), int(end[2]), _column(end[1])


def format_range(rectangle: Rectangle) -> str:
    """(2, 2, 9, 4) -> "B2:D9"; a single cell -> "B2"."""
    top, left, bottom, right = rectangle
    first, last = f"{_letters(left)}{top}", f"{_letters(right)}{bottom}"
    return first if first == last else f"{first}:{last}"


def bounding_range(ranges: Sequence[str]) -> str | None:
    """The smallest range around all; None without any. A range that cannot be read leaves the first one standing."""
    if len(set(ranges)) <= 1:
        return ranges[0] if ranges else None
    found = [parse_range(cell_range) for cell_range in ranges]
    known = [rectangle for rectangle in found if rectangle is not None]
    if len(known) < len(found):
        return ranges[0]
    tops, lefts, bottoms, rights = zip(*known, strict=True)
    return format_range((min(tops), min(lefts), max(bottoms), max(rights)))


def _column(letters: str) -> int:
    number = 0
    for letter in letters.upper():
        number = number * 26 + ord(letter) - 64
    return number


def _letters(column: int) -> str:
    letters = ""
    while column:
        column, digit = divmod(column - 1, 26)
        letters = chr(65 + digit) + letters
    return letters
