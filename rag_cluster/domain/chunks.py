"""Chunks (indexed children) and parents (the text that an answer reads): design section 3, seed 001."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rag_cluster.domain.blocks import Block, SourceLocator
from rag_cluster.domain.locators import merge_locators


@dataclass(frozen=True, slots=True)
class Chunk:
    """A retrievable piece of text.

    content is what is embedded and BM25-indexed: `prefix + text`, the prefix being the heading path and a line break
    ("" without headings). Offsets, quotes and merges work on `text`. start and end are character offsets of `text`
    in the parent's text (-1 when the text is not a literal slice, as for a table part whose header is repeated).
    """

    id: str
    knowledge_base_id: str
    document_id: str
    version: int
    index: int
    content: str
    prefix_length: int = 0
    token_count: int = 0
    locator: SourceLocator = SourceLocator()
    parent_id: str | None = None
    start: int = -1
    end: int = -1
    block_ids: tuple[str, ...] = ()
    content_types: tuple[str, ...] = ()
    asset_ids: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """"chunking_strategy" is always here (seed 002), and "filename"; "places" where the text lies in several; the rest
    is the strategy's."""

    @property
    def text(self) -> str:
        """The content without its heading prefix."""
        return self.content[self.prefix_length :]

    def locator_of(self, start: int, end: int) -> SourceLocator:
        """Where `text[start:end]` lies: as exactly as the chunk's pieces know ("places" of the metadata)."""
        met = [
            SourceLocator.from_dict(locator)
            for begin, stop, locator in self.metadata.get("places", ())
            if begin < end and start < stop
        ]
        return merge_locators(met, self.locator.heading_path) if met else self.locator


def chunk_facts(chunk: Chunk) -> dict[str, Any]:
    """What a filter may ask of a chunk: page, sheet, slide, heading_path, content_types and its metadata, of which
    "places" is left out. Only what is there."""
    locator = chunk.locator
    facts: dict[str, Any] = {"page": locator.page, "sheet": locator.sheet, "slide": locator.slide}
    facts["heading_path"] = list(locator.heading_path) or None
    facts["content_types"] = list(chunk.content_types)
    facts |= chunk.metadata
    return {name: value for name, value in facts.items() if value is not None and name != "places"}


@dataclass(frozen=True, slots=True)
class Parent:
    """The larger unit that children are merged back into (Small2Big). text carries no heading prefix."""

    id: str
    document_id: str
    version: int
    index: int
    text: str
    token_count: int = 0
    locator: SourceLocator = SourceLocator()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChunkedDocument:
    """A chunker's output. Children of one parent are consecutive in `chunks`; indexes run 0, 1, 2 ..."""

    chunks: tuple[Chunk, ...]
    parents: tuple[Parent, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A slice [start, end) of a version's chunks, at most 256, ending at a parent boundary where one fits."""

    document_id: str
    version: int
    index: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class MissingPart:
    """A part of a published version that an index lacks."""

    knowledge_base_id: str
    uri: str
    part: Part


MAX_PART_CHUNKS = 256


def part_boundaries(chunked: ChunkedDocument, document_id: str, version: int) -> tuple[Part, ...]:
    """Cut chunks into parts of at most `MAX_PART_CHUNKS`, between parents (inside only a parent that is larger)."""
    parts: list[Part] = []
    start, last_boundary = 0, 0
    chunks = chunked.chunks
    for position in range(1, len(chunks) + 1):
        at_boundary = position == len(chunks) or chunks[position].parent_id != chunks[position - 1].parent_id
        if at_boundary and position - start <= MAX_PART_CHUNKS:
            last_boundary = position
        if position - start == MAX_PART_CHUNKS or position == len(chunks):
            end = last_boundary if last_boundary > start else position
            parts.append(Part(document_id, version, len(parts), start, end))
            start = end
    if start < len(chunks):
        parts.append(Part(document_id, version, len(parts), start, len(chunks)))
    return tuple(parts)


@dataclass(frozen=True, slots=True)
class IndexRow:
    """A chunk with the document facts that its index row carries for push-down filters."""

    chunk: Chunk
    source_id: str
    access_key: int
    document_metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartContent:
    """What one part needs to be indexed: its chunks and the parents that they name."""

    part: Part
    chunks: tuple[Chunk, ...]
    parents: tuple[Parent, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that parsing and chunking made of one version, stored before any embedding.

    From it a version is indexed, resumed, re-embedded and reviewed without its original.
    """

    knowledge_base_id: str
    document_id: str
    version: int
    filename: str
    sha256: str
    content_fingerprint: str
    parser_name: str
    parser_version: str
    chunking_strategy: str
    blocks: tuple[Block, ...]
    chunked: ChunkedDocument
    parts: tuple[Part, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
