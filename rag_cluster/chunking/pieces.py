"""The smallest things that strategies move: pieces of blocks, and how pieces become text, tokens and a locator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rag_cluster.domain.blocks import Block, BlockType, SourceLocator
from rag_cluster.domain.locators import merge_locators


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
        body = piece.body if not embedded or piece.embedded is None else piece.embedded
        if not body and embedded and piece.embedded is not None:
            spans.append((length, length))
            continue
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
    """One locator for what lies in several places."""
    return merge_locators([piece.locator or piece.block.locator for piece in pieces], heading_path)


def places(pieces: Sequence[Piece], spans: Sequence[tuple[int, int]], length: int, origin: int = 0) -> list[list[Any]]:
    """Where each stretch of a chunk's text lies: [start, end, locator without its path] (`Chunk.locator_of`).

    spans: of the pieces, in a text in which the chunk's begins at `origin` and has `length` characters. Empty when
    everything lies in one place, which the chunk's own locator then tells.
    """
    runs: list[tuple[int, int, SourceLocator]] = []
    last: SourceLocator | None = None
    for piece, (start, end) in zip(pieces, spans, strict=True):
        if piece.embedded == "" or start - origin >= length:
            continue
        locator = piece.locator or piece.block.locator
        stop = min(end - origin, length)
        if locator is last:
            runs[-1] = (runs[-1][0], stop, locator)
        else:
            runs.append((max(start - origin, 0), stop, locator))
            last = locator
    if len(runs) < 2:
        return []
    found: list[list[Any]] = []
    for start, end, locator in runs:
        place = locator.to_dict()
        place.pop("heading_path", None)
        if found and found[-1][2] == place:
            found[-1][1] = end
        else:
            found.append([start, end, place])
    return found if len(found) > 1 else []


def block_facts(pieces: Sequence[Piece]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """(block ids, content types, asset ids) of pieces, each once, in order."""
    blocks: dict[str, None] = {}
    kinds: list[BlockType] = []  # few, and found by identity: hashing an enum's members takes longer
    assets: dict[str, None] = {}
    for piece in pieces:
        block = piece.block
        blocks[block.id] = None
        if piece.embedded != "" and block.type not in kinds:
            kinds.append(block.type)
        if block.type is BlockType.IMAGE and block.metadata.get("asset_id"):
            assets[str(block.metadata["asset_id"])] = None
    return tuple(blocks), tuple(kind.value for kind in kinds), tuple(assets)
