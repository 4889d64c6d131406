"""retrieve_and_format: evidence as one text, for a language model of the caller's."""

from __future__ import annotations

import pytest

from rag_cluster.answering.answerer import Answerer
from rag_cluster.chunking.boundaries import sentences
from rag_cluster.domain.access import LOCAL
from rag_cluster.engines.extractive import ExtractiveGenerator
from rag_cluster.retrieval.retriever import Retriever
from tests.retrieval.memory import KB, Library, MemoryConversations


@pytest.fixture
def library() -> Library:
    library = Library()
    library.add("tariff", "Storage costs 12 euros a day from the fourth day.")
    library.add("cranes", "The quay crane is inspected every 200 hours.")
    return library


@pytest.fixture
def conversations() -> MemoryConversations:
    return MemoryConversations()


@pytest.fixture
def answerer(library: Library, conversations: MemoryConversations) -> Answerer:
    retriever = Retriever(library.evidence, library.index, library.embedder)
    return Answerer(retriever, ExtractiveGenerator(library.embedder, sentences), conversations)


async def test_sources_come_numbered_with_document_and_place(answerer: Answerer) -> None:
    text = await answerer.retrieve_and_format(LOCAL, KB, "storage costs")
    assert text.startswith("[来源 1]\n文档：tariff.md\n位置：")
    assert "Storage costs 12 euros" in text and "\n\n---\n\n[来源 2]" in text


async def test_without_metadata_only_the_texts_are_left(answerer: Answerer) -> None:
    text = await answerer.retrieve_and_format(LOCAL, KB, "storage costs", include_metadata=False)
    assert text.startswith("Storage costs 12 euros") and "来源" not in text and ".md" not in text


@pytest.mark.parametrize("length", [1, 40, 60, 100, 200])
async def test_the_text_is_never_longer_than_allowed(answerer: Answerer, length: int) -> None:
    for metadata in (True, False):
        text = await answerer.retrieve_and_format(
            LOCAL, KB, "storage costs", max_context_length=length, include_metadata=metadata
        )
        assert len(text) <= length


async def test_no_result_is_an_empty_text(answerer: Answerer, library: Library) -> None:
    library.evidence.hidden_documents = {"tariff", "cranes"}
    assert await answerer.retrieve_and_format(LOCAL, KB, "storage costs") == ""


async def test_a_hidden_name_is_missing_in_the_text_and_stands_in_the_record(
    answerer: Answerer, library: Library, conversations: MemoryConversations
) -> None:
    library.evidence.hide_source_filename = True
    text = await answerer.retrieve_and_format(LOCAL, KB, "storage costs")
    assert "tariff" not in text and text.startswith("[来源 1]\n文档：（已隐藏）")
    (record,) = conversations.records
    assert record.outcome == "retrieved" and record.results[0]["filename"] == "tariff.md"
