"""Blocks -> groups of pieces. A group stays in one chunk where it fits: a paragraph, a table, a list, code."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rag_cluster.chunking.pieces import Piece
from rag_cluster.chunking.splitting import fit, sentence_pieces
from rag_cluster.chunking.tables import cell_pieces, header_piece, table_pieces
from rag_cluster.domain.blocks import Block, BlockType, SourceLocator
from rag_cluster.domain.ports import Tokenizer

NOTES_MARK = "Notes: "
_IMAGE = re.compile(r"!\[([^\]]*)\]\([^)\s]*\)\s*")
_ORDERED = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class Budget:
    """Tokens that one chunk may hold beside its prefix: about `child`, in no case but one table row's `limit`."""

    child: int
    limit: int


_UNCUT = Budget(1 << 62, 1 << 62)
_PLAIN = (BlockType.TEXT, BlockType.HEADING, BlockType.QUOTE)


def render(blocks: Sequence[Block], budget: Budget, tokenizer: Tokenizer) -> list[list[Piece]]:
    """Groups of counted pieces, in order; none is longer than the budget but a table row, which has the limit."""
    pieces = [piece for block in blocks for piece in _pieces(block, budget)]
    count_pieces(pieces, tokenizer)
    fitted: list[Piece] = []
    for _, run in itertools.groupby(pieces, key=lambda piece: piece.block.id):
        parts = list(run)
        if parts[0].row is not None:
            fitted.extend(_fitted_rows(parts, budget, tokenizer))
        else:
            fitted.extend(piece for part in parts for piece in _fitted(part, budget, tokenizer))
    groups: list[list[Piece]] = []
    for piece in fitted:
        if groups and _together(groups[-1][-1], piece):
            groups[-1].append(piece)
        else:
            groups.append([piece])
    return groups


def whole_pieces(block: Block) -> list[Piece]:
    """A block without any cut: one piece, or two of a picture's reference and its words; uncounted."""
    if block.type not in _PLAIN:
        return list(_pieces(block, _UNCUT))
    text = block.content.rstrip()  # the same, for most blocks of most documents, without three generators
    return [Piece(block, text, head=_head(block), key=block.id)] if text else []


def heading_piece(block: Block, tokenizer: Tokenizer) -> Piece:
    """A heading as a line of the parent's text only: the chunk has it in its prefix."""
    piece = Piece(block, block.content, embedded="", key=block.id)
    count_pieces([piece], tokenizer)
    return piece


def count_pieces(pieces: Sequence[Piece], tokenizer: Tokenizer) -> None:
    """Fill in the token counts, in one call of the tokenizer; equal heads are counted once."""
    heads = dict.fromkeys(piece.head for piece in pieces if piece.head)
    others = [piece for piece in pieces if piece.embedded]
    texts = [piece.body for piece in pieces] + [piece.text for piece in others] + list(heads)
    counts = iter(tokenizer.count_many(texts))
    for piece in pieces:
        piece.body_tokens = next(counts)
        piece.tokens = piece.body_tokens if piece.embedded is None else 0
    for piece in others:
        piece.tokens = next(counts)
    head_tokens = dict(zip(heads, counts, strict=True))
    for piece in pieces:
        piece.head_tokens = head_tokens.get(piece.head, 0)


def _together(before: Piece, piece: Piece) -> bool:
    if before.block is piece.block:
        return True
    if before.block.type is BlockType.LIST and piece.block.type is BlockType.LIST:
        return True
    if before.block.type is BlockType.HEADING and piece.block.type is BlockType.HEADING:
        return True
    # A line that announces the next: "Steps:", "如下：".
    return before.body.rstrip()[-1:] in (":", "：") and piece.block.type in (BlockType.LIST, BlockType.TABLE)


def _fitted(piece: Piece, budget: Budget, tokenizer: Tokenizer) -> Iterator[Piece]:
    size = piece.tokens + piece.head_tokens
    if size <= budget.child or (piece.row is not None and size <= budget.limit):
        yield piece
        return
    room = max(1, budget.child - piece.head_tokens)
    for number, (text, tokens) in enumerate(fit(piece.text, piece.tokens, room, tokenizer)):
        glue = piece.glue if number == 0 else ""
        yield replace(piece, body=text, embedded=None, tokens=tokens, body_tokens=tokens, glue=glue)


def _fitted_rows(rows: Sequence[Piece], budget: Budget, tokenizer: Tokenizer) -> Iterator[Piece]:
    """Rows beyond the limit become cells. If the first row does, the header comes before it by itself."""
    if rows[0].head and rows[0].tokens + rows[0].head_tokens > budget.limit:
        yield from _counted_and_fitted([header_piece(rows[0])], budget, tokenizer)
    for row in rows:
        if row.row is None or row.tokens + row.head_tokens <= budget.limit:
            yield from _fitted(row, budget, tokenizer)
        else:
            yield from _counted_and_fitted(list(cell_pieces(row.block, row.row, budget.child)), budget, tokenizer)


def _counted_and_fitted(pieces: Sequence[Piece], budget: Budget, tokenizer: Tokenizer) -> Iterator[Piece]:
    count_pieces(pieces, tokenizer)
    for piece in pieces:
        yield from _fitted(piece, budget, tokenizer)


def _pieces(block: Block, budget: Budget) -> Iterator[Piece]:
    if block.type is BlockType.TABLE:
        yield from table_pieces(block, budget.child)
    elif block.type is BlockType.IMAGE:
        yield from _image(block, budget.child)
    elif block.type is BlockType.CODE:
        lines = [block.content] if len(block.content) <= budget.child else block.content.splitlines(keepends=True)
        yield from _sequence(block, lines, "\n\n")
    else:
        text = block.content
        glue = "\n\n"
        if block.type is BlockType.LIST:
            text = _list_item(block)
            glue = "\n"
        yield from _prose(block, text, glue, budget.child)


def _prose(block: Block, text: str, glue: str, child: int) -> Iterator[Piece]:
    # No text has more tokens than characters, but for rare ligatures: a short one needs no sentences.
    if len(text) <= child:
        yield from _sequence(block, [text.rstrip()], glue)
        return
    parts = sentence_pieces(text)
    if parts:
        parts[0] = text[: len(text) - len(text.lstrip())] + parts[0]
    yield from _sequence(block, parts, glue)


def _sequence(block: Block, parts: Sequence[str], glue: str) -> Iterator[Piece]:
    """Parts of one block that follow each other without anything between."""
    head = _head(block)
    line = block.locator.line_start
    for number, part in enumerate(parts):
        if not part:
            continue
        locator = _lines(block, line, part) if len(parts) > 1 else None
        yield Piece(block, part, glue=glue if number == 0 else "", head=head, key=block.id, locator=locator)
        line = line + part.count("\n") if line is not None else None


def _head(block: Block) -> str:
    return NOTES_MARK if block.metadata.get("notes") else ""


def _lines(block: Block, line: int | None, part: str) -> SourceLocator | None:
    """The part's own lines, when the block's content has just the lines that its locator says, and more than one."""
    start, end = block.locator.line_start, block.locator.line_end
    if line is None or start is None or end is None or start == end or block.content.count("\n") != end - start:
        return None
    return replace(block.locator, line_start=line, line_end=line + part.rstrip().count("\n"))


def _list_item(block: Block) -> str:
    marker = str(block.metadata.get("marker") or "-")
    if not _ORDERED.search(marker):
        marker = "-"
    level = block.metadata.get("level")
    return "  " * (level if isinstance(level, int) else 0) + f"{marker} {block.content}"


def _image(block: Block, child: int) -> Iterator[Piece]:
    """The reference stays in the parent's text; a chunk has the caption and the words of the picture."""
    match = _IMAGE.match(block.content)
    reference = match[0].strip() if match else ""
    caption = str(block.metadata.get("caption") or (match[1] if match else "")).strip()
    words = block.content[match.end() :] if match else block.content
    if words.strip().startswith(caption):
        caption = ""
    if len(caption) > child:
        caption, words = "", f"{caption}\n{words}"
    glue = "\n\n"
    if reference:
        yield Piece(block, reference, embedded=caption, key=block.id)
        glue = "\n"
    if words.strip():
        yield from _prose(block, words, glue, child)
