"""What the character strategies of seed 002 share: the document as one text, chunks as spans of it, no parents.

Sizes are characters. Headings are lines of the text, so that there is no prefix; a chunk's heading path is that of its
first block. Offsets are -1: there is no parent whose text they could name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from rag_cluster.chunking.pieces import assemble, block_facts, merged_locator, places
from rag_cluster.chunking.rendering import whole_pieces
from rag_cluster.chunking.splitting import sentence_spans
from rag_cluster.domain import ids
from rag_cluster.domain.blocks import ParsedDocument
from rag_cluster.domain.chunks import Chunk, ChunkedDocument
from rag_cluster.domain.ports import Tokenizer
from rag_cluster.errors import InvalidSettingError

Span = tuple[int, int]


class FlatChunker(ABC):
    """A strategy that only says where to cut."""

    name: str

    def __init__(self, tokenizer: Tokenizer, parameters: Mapping[str, Any]) -> None:
        self.parameters: Mapping[str, Any] = dict(parameters)
        self._tokenizer = tokenizer
        for parameter, value in self.parameters.items():
            if value < (0 if parameter in ("overlap", "threshold") else 1):
                raise InvalidSettingError(f"Chunking strategy {self.name!r}: {parameter} cannot be {value}")
        if self.parameters.get("overlap", 0) >= self.parameters.get("size", 1 << 62):
            raise InvalidSettingError(f"Chunking strategy {self.name!r}: overlap must be smaller than size")

    @abstractmethod
    def spans(self, text: str) -> list[Span]:
        """Character spans of the chunks, in order; they may overlap; together they hold all that is not blank."""

    def split(self, document: ParsedDocument, *, knowledge_base_id: str, fingerprint: str) -> ChunkedDocument:
        """One chunk per span that is not blank."""
        pieces = [piece for block in document.blocks for piece in whole_pieces(block)]
        text, lies = assemble(pieces, embedded=True)
        starts, ends = [start for start, _ in lies], [end for _, end in lies]
        found = [(start, end) for start, end in (_stripped(text, *span) for span in self.spans(text)) if start < end]
        contents = [text[start:end] for start, end in found]
        chunks: list[Chunk] = []
        counts = self._tokenizer.count_many(contents)
        for (start, end), content, tokens in zip(found, contents, counts, strict=True):
            within = slice(bisect_right(ends, start), bisect_left(starts, end))
            inside = pieces[within]
            known = places(inside, lies[within], end - start, start)
            block_ids, content_types, asset_ids = block_facts(inside)
            chunks.append(
                Chunk(
                    id=ids.chunk_id(document.document_id, document.version, fingerprint, len(chunks), content),
                    knowledge_base_id=knowledge_base_id,
                    document_id=document.document_id,
                    version=document.version,
                    index=len(chunks),
                    content=content,
                    token_count=tokens,
                    locator=merged_locator(inside, inside[0].block.locator.heading_path),
                    block_ids=block_ids,
                    content_types=content_types,
                    asset_ids=asset_ids,
                    metadata={"chunking_strategy": self.name, **({"places": known} if known else {})},
                )
            )
        return ChunkedDocument(tuple(chunks), ())


def _stripped(text: str, start: int, end: int) -> Span:
    """Without blanks at its ends; empty when there is nothing else."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


def windows(start: int, end: int, size: int) -> list[Span]:
    """Consecutive spans of `size` characters."""
    return [(at, min(at + size, end)) for at in range(start, end, size)]


def sentence_units(text: str, size: int, start: int = 0, end: int | None = None) -> list[Span]:
    """Spans of the sentences of text[start:end]; one longer than `size` comes in windows."""
    units: list[Span] = []
    for first, last in sentence_spans(text[start:end]):
        units.extend(windows(start + first, start + last, size))
    return units


def merge(units: Sequence[Span], size: int, overlap: int = 0, most: int | None = None) -> list[Span]:
    """Consecutive units in chunks of at most `size` characters and `most` units.

    A chunk begins with the last units of the one before it that together are within `overlap` and leave it room.
    """
    chunks: list[Span] = []
    first = 0
    for position, (_, end) in enumerate(units):
        if position == first or (end - units[first][0] <= size and (most is None or position - first < most)):
            continue
        last_end = units[position - 1][1]
        chunks.append((units[first][0], last_end))
        first = position
        while (
            first > 0
            and last_end - units[first - 1][0] <= overlap
            and end - units[first - 1][0] <= size
            and units[first - 1][0] > chunks[-1][0]
        ):
            first -= 1
    if units:
        chunks.append((units[first][0], units[-1][1]))
    return chunks
