"""Every chunking strategy keeps the port's promises."""

from __future__ import annotations

import pickle

import pytest

from rag_cluster.chunking.registry import CHUNKERS, create_chunker
from rag_cluster.domain.blocks import BlockType, ParsedDocument, SourceLocator
from rag_cluster.domain.ports import Chunker
from rag_cluster.engines.hashing import HashEmbedder
from rag_cluster.engines.tokenizers import RegexTokenizer
from tests.chunking.documents import builder


@pytest.fixture(params=sorted(CHUNKERS))
def chunker(request: pytest.FixtureRequest) -> Chunker:
    return create_chunker(request.param, {}, RegexTokenizer(), HashEmbedder())


@pytest.fixture
def document() -> ParsedDocument:
    parts = builder()
    parts.heading("手册 Manual", 1, SourceLocator(page=1))
    for page in range(1, 30):
        parts.add(
            BlockType.TEXT,
            f"第{page}页说明泵的用法。" * 8 + f"Page {page} is about pumps. " * 8,
            SourceLocator(page=page),
        )
    parts.table([["a", "b"], ["1", "2"]], 1)
    return parts.build()


def test_chunks_name_their_document_strategy_and_blocks(chunker: Chunker, document: ParsedDocument) -> None:
    result = chunker.split(document, knowledge_base_id="kb", fingerprint="fp")
    blocks = {block.id for block in document.blocks}
    assert len(result.chunks) > 3
    for index, chunk in enumerate(result.chunks):
        assert (chunk.knowledge_base_id, chunk.document_id, chunk.version, chunk.index) == ("kb", "doc", 1, index)
        assert chunk.metadata["chunking_strategy"] == chunker.name
        assert chunk.block_ids
        assert blocks.issuperset(chunk.block_ids)
        assert chunk.content_types
        assert chunk.token_count > 0
        assert chunk.text.strip()


def test_splitting_is_deterministic_and_the_fingerprint_is_in_the_ids(
    chunker: Chunker, document: ParsedDocument
) -> None:
    first = chunker.split(document, knowledge_base_id="kb", fingerprint="fp")
    again = pickle.loads(pickle.dumps(chunker))
    assert again.split(document, knowledge_base_id="kb", fingerprint="fp") == first
    other = chunker.split(document, knowledge_base_id="kb", fingerprint="other")
    assert {c.id for c in other.chunks}.isdisjoint(c.id for c in first.chunks)


def test_parents_are_named_by_their_chunks(chunker: Chunker, document: ParsedDocument) -> None:
    result = chunker.split(document, knowledge_base_id="kb", fingerprint="fp")
    assert {c.parent_id for c in result.chunks} - {None} == {p.id for p in result.parents}
    for chunk in result.chunks:
        if chunk.start >= 0:
            parent = next(p for p in result.parents if p.id == chunk.parent_id)
            assert parent.text[chunk.start : chunk.end] == chunk.text


def test_a_document_of_blank_blocks_gives_nothing(chunker: Chunker) -> None:
    parts = builder()
    parts.image(b"x", "image/png")
    result = chunker.split(parts.build(), knowledge_base_id="kb", fingerprint="fp")
    assert (result.chunks, result.parents) == ((), ())


def test_parameters_are_plain_values(chunker: Chunker) -> None:
    assert all(isinstance(value, int | float | str) for value in chunker.parameters.values())
