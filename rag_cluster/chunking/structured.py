"""The default strategy: sections, children of about 120 tokens inside parents of about 360 (Small2Big).

    blocks -> sections (one heading path, one sheet or slide)
           -> groups of pieces (a paragraph, a table, a list, code; cut only where a child cannot hold it)
           -> children, evenly filled, none across a heading
           -> parents: the children of one section, or of several small ones beside each other
           -> chunks (heading path + text) and parents (text), with offsets and locators

token_count adds up what the pieces count: exact where they meet at blanks and line breaks, and at most one too high
for each sentence boundary inside a Chinese paragraph with a tokenizer that marks beginnings of words.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rag_cluster.chunking.packing import pack, pack_pieces
from rag_cluster.chunking.pieces import Piece, assemble, block_facts, cost, merged_locator, places
from rag_cluster.chunking.rendering import Budget, heading_piece, render
from rag_cluster.chunking.sections import Place, Section, sections
from rag_cluster.domain import ids
from rag_cluster.domain.blocks import BlockType, ParsedDocument
from rag_cluster.domain.chunks import Chunk, ChunkedDocument, Parent
from rag_cluster.domain.ports import Tokenizer
from rag_cluster.errors import InvalidSettingError

PREFIX_SHARE = 4
"""The heading path takes at most this part (a quarter) of a child: the outermost headings go first."""


@dataclass(slots=True)
class _Child:
    """Pieces of one chunk, silent ones included, under one path."""

    pieces: list[Piece]
    path: tuple[str, ...]
    place: Place
    prefix: str
    prefix_tokens: int
    size: int
    """Tokens in the parent's text."""


class StructuredChunker:
    """See the module. Parameters: parent_tokens, child_tokens, max_tokens (what the embedder takes)."""

    name = "structured"

    def __init__(
        self, tokenizer: Tokenizer, *, parent_tokens: int = 360, child_tokens: int = 120, max_tokens: int = 508
    ) -> None:
        if not 1 <= child_tokens <= parent_tokens:
            raise InvalidSettingError(
                f"child_tokens ({child_tokens}) must be at least 1 and not exceed parent_tokens ({parent_tokens})"
            )
        self.parameters: Mapping[str, Any] = {
            "parent_tokens": parent_tokens,
            "child_tokens": child_tokens,
            "max_tokens": max_tokens,
        }
        self._tokenizer = tokenizer
        self._parent_tokens = parent_tokens
        self._child_tokens = child_tokens
        self._max_tokens = max(max_tokens, child_tokens)

    def split(self, document: ParsedDocument, *, knowledge_base_id: str, fingerprint: str) -> ChunkedDocument:
        """Children in reading order with their parents; nothing when no block holds words."""
        prefixes: dict[tuple[str, ...], tuple[str, int, int]] = {}
        children = [self._children(section, prefixes) for section in sections(document.blocks)]
        chunks: list[Chunk] = []
        parents: list[Parent] = []
        for members in self._parents(children):
            if not any(_audible(child.pieces) for child in members):
                continue
            parent, spans = _parent(document, members, fingerprint, len(parents))
            parents.append(parent)
            for child, piece_spans in zip(members, spans, strict=True):
                if not _audible(child.pieces):
                    continue
                text, own_spans, start, end = _text_in_parent(child, piece_spans, parent.text)
                content = child.prefix + text
                pieces = [piece for piece in child.pieces if not _only_in_prefix(piece)]
                block_ids, content_types, asset_ids = block_facts(pieces)
                chunks.append(
                    Chunk(
                        id=ids.chunk_id(document.document_id, document.version, fingerprint, len(chunks), content),
                        knowledge_base_id=knowledge_base_id,
                        document_id=document.document_id,
                        version=document.version,
                        index=len(chunks),
                        content=content,
                        prefix_length=len(child.prefix),
                        token_count=child.prefix_tokens + cost(child.pieces),
                        locator=merged_locator([piece for piece in pieces if not piece.silent], child.path),
                        parent_id=parent.id,
                        start=start,
                        end=end,
                        block_ids=block_ids,
                        content_types=content_types,
                        asset_ids=asset_ids,
                        metadata={"chunking_strategy": self.name, **_places(child, own_spans, len(text))},
                    )
                )
        return ChunkedDocument(tuple(chunks), tuple(parents))

    def _children(self, section: Section, prefixes: dict[tuple[str, ...], tuple[str, int, int]]) -> list[_Child]:
        path = section.path
        prefix, prefix_tokens, shown = self._prefix(path, prefixes)
        budget = self._budget(prefix_tokens)
        groups = render(section.blocks, budget, self._tokenizer)
        if section.blocks and section.headings and not any(_audible(group) for group in groups):
            # Pictures without words: their heading is all that can be found, so that it is the text.
            path = path[:-1]
            prefix, prefix_tokens, shown = self._prefix(path, prefixes)
            budget = self._budget(prefix_tokens)
        silent, spoken = [], []
        for heading in section.headings:
            depth = len(heading.locator.heading_path)
            if len(path) - shown < depth <= len(path):
                silent.append(heading_piece(heading, self._tokenizer))
            else:
                spoken.append(heading)
        groups = [*render(spoken, budget, self._tokenizer), *groups]
        packed = pack_pieces(groups, budget.child)
        packed[0] = [*silent, *packed[0]]
        return [
            _Child(pieces, path, section.place, prefix, prefix_tokens, cost(pieces, embedded=False))
            for pieces in packed
        ]

    def _budget(self, prefix_tokens: int) -> Budget:
        return Budget(self._child_tokens - prefix_tokens, self._max_tokens - prefix_tokens)

    def _prefix(
        self, path: tuple[str, ...], prefixes: dict[tuple[str, ...], tuple[str, int, int]]
    ) -> tuple[str, int, int]:
        """(heading path and line break, its tokens, how many of the innermost headings it shows)."""
        if path not in prefixes:
            shown, prefix, tokens = len(path), "", 0
            while shown:
                prefix = " > ".join(path[len(path) - shown :]) + "\n"
                tokens = self._tokenizer.count(prefix)
                if tokens <= self._child_tokens // PREFIX_SHARE:
                    break
                shown -= 1
            prefixes[path] = (prefix, tokens, shown) if shown else ("", 0, 0)
        return prefixes[path]

    def _parents(self, children: Sequence[list[_Child]]) -> Iterator[list[_Child]]:
        """Sections in parents. A section that fits is not cut; small ones share with their neighbours."""
        small = self._parent_tokens // 4
        current: list[_Child] = []
        filled = 0
        for section in children:
            size = sum(child.size for child in section)
            shares = bool(current) and current[-1].place == section[0].place and (filled < small or size < small)
            if shares and filled + size <= self._parent_tokens:
                current.extend(section)
                filled += size
                continue
            if current:
                yield current
            *whole, current = pack(section, lambda child, _: child.size, self._parent_tokens)
            yield from whole
            filled = sum(child.size for child in current)
        if current:
            yield current


def _audible(pieces: Sequence[Piece]) -> bool:
    return any(not piece.silent for piece in pieces)


def _only_in_prefix(piece: Piece) -> bool:
    return piece.silent and piece.block.type is BlockType.HEADING


def _parent(
    document: ParsedDocument, members: Sequence[_Child], fingerprint: str, index: int
) -> tuple[Parent, list[list[tuple[int, int]]]]:
    """The parent of consecutive children, and where each child's pieces lie in its text."""
    pieces = [piece for child in members for piece in child.pieces]
    text, flat = assemble(pieces, embedded=False)
    spans: list[list[tuple[int, int]]] = []
    for child in members:
        spans.append(flat[: len(child.pieces)])
        flat = flat[len(child.pieces) :]
    paths = list(dict.fromkeys(child.path for child in members))
    # The longest path that leads to all of them. (zip stops at the shortest.)
    shared = itertools.takewhile(lambda level: len(set(level)) == 1, zip(*paths, strict=False))
    common = tuple(level[0] for level in shared)
    parent = Parent(
        id=ids.parent_id(document.document_id, document.version, fingerprint, index),
        document_id=document.document_id,
        version=document.version,
        index=index,
        text=text,
        token_count=cost(pieces, embedded=False),
        # Headings lie where their parents say; only where there is nothing else do they count.
        locator=merged_locator([p for p in pieces if not _only_in_prefix(p)] or pieces, common),
    )
    return parent, spans


def _text_in_parent(
    child: _Child, spans: Sequence[tuple[int, int]], parent_text: str
) -> tuple[str, list[tuple[int, int]], int, int]:
    """(text, the pieces' spans in it, start, end): offsets where its parent has it literally, else -1."""
    text, own_spans = assemble(child.pieces, embedded=True)
    first = next(position for position, piece in enumerate(child.pieces) if not piece.silent)
    start = spans[first][0]
    if parent_text.startswith(text, start):
        return text, own_spans, start, start + len(text)
    return text, own_spans, -1, -1


def _places(child: _Child, spans: Sequence[tuple[int, int]], length: int) -> dict[str, Any]:
    found = places(child.pieces, spans, length)
    return {"places": found} if found else {}
