"""The read path on a real PostgreSQL and a real Milvus Lite: what is asked there is answered from both."""

from __future__ import annotations

import asyncio

import pytest

from rag_cluster.answering.answerer import Answerer
from rag_cluster.chunking.boundaries import sentences
from rag_cluster.domain.access import LOCAL, AccessAttributes, Principal
from rag_cluster.domain.chunks import IndexRow
from rag_cluster.domain.documents import Claim
from rag_cluster.engines.extractive import ExtractiveGenerator
from rag_cluster.engines.hashing import HashEmbedder
from rag_cluster.engines.threaded import ThreadedEmbedder
from rag_cluster.retrieval.retriever import Retriever
from rag_cluster.stores.milvus import MilvusChunkIndex
from rag_cluster.stores.postgres.catalog import PostgresCatalog
from rag_cluster.stores.postgres.conversations import PostgresConversations
from rag_cluster.stores.postgres.database import Database
from rag_cluster.stores.postgres.evidence import PostgresEvidence
from rag_cluster.stores.postgres.ledger import PostgresLedger
from tests.contracts.ledger_steps import Ingest, listed, part_content, parts

CRANE = "The quay crane lifts 65 tonnes"
TYPHOON = "台风红色预警时岸桥必须停止作业"


class Port:
    """A knowledge base on real stores, with whatever a test puts into it."""

    def __init__(self, database: Database, index: MilvusChunkIndex) -> None:
        self.catalog, self.index, self.database = PostgresCatalog(database), index, database
        self.ingest = Ingest(self.catalog, PostgresLedger(database))
        self.engine = HashEmbedder(128)
        self.record = self.catalog.ensure_index(self.engine.fingerprint, self.engine.dimension)
        index.ensure(self.record)
        embedder = ThreadedEmbedder(self.engine)
        self.conversations = PostgresConversations(database)
        retriever = Retriever(PostgresEvidence(database), index, embedder)
        self.answerer = Answerer(retriever, ExtractiveGenerator(embedder, sentences), self.conversations)

    @property
    def base(self) -> str:
        return self.ingest.knowledge_base_id

    def add(self, uri: str, text: str, *, access: AccessAttributes | None = None, etag: str = "1") -> Claim:
        """Publish a document of two chunks, in facts and in the index."""
        file = listed(f"file:///{uri}", access=access or AccessAttributes(acl=()), etag=etag)
        claim = self.ingest.ready(file, text=text, sha256=text)
        chunks = part_content(claim, self.base, parts(claim)[0], text).chunks
        facts = self.catalog.index_row_facts(claim.document_id)
        assert facts is not None
        rows = [IndexRow(chunk, facts[0], facts[1], facts[2]) for chunk in chunks]
        self.index.upsert(
            self.record.collection, rows, self.engine.embed_documents([chunk.content for chunk in chunks])
        )
        return claim


@pytest.fixture
def port(async_database: Database, milvus_index: MilvusChunkIndex) -> Port:
    return Port(async_database, milvus_index)


async def test_chinese_and_english_questions_are_answered_from_both_channels(port: Port) -> None:
    port.add("crane.md", CRANE)
    port.add("typhoon.md", TYPHOON)
    english = await port.answerer.answer(LOCAL, port.base, "How many tonnes does the quay crane lift?")
    assert CRANE in english.text and english.citations[0].filename == "crane.md"
    assert english.citations[0].locator.page in (1, 2)
    chinese = await port.answerer.answer(LOCAL, port.base, "台风红色预警时岸桥怎样？")
    assert TYPHOON in chinese.text and chinese.results[0].retrieval_sources == ("dense", "sparse")


async def test_children_of_one_parent_are_one_result_with_the_parents_text(port: Port) -> None:
    port.add("crane.md", CRANE)
    run = await port.answerer.retrieve(LOCAL, port.base, "quay crane")
    (result,) = run.results
    assert result.content == f"{CRANE} parent 0" and len(result.matches) == 2


async def test_what_was_forbidden_after_indexing_is_not_found(port: Port) -> None:
    claim = port.add("crane.md", CRANE)
    guest = Principal("guest", frozenset({port.base}), frozenset({"guests"}))
    assert (await port.answerer.retrieve(guest, port.base, "quay crane")).results
    # Milvus still says that everyone may read it: the outbox was not drained.
    port.catalog.update_document(claim.document_id, access=AccessAttributes(acl=("engineers",)))
    run = await port.answerer.retrieve(guest, port.base, "quay crane")
    assert run.results == ()


async def test_what_was_deleted_is_not_found_although_the_index_still_holds_it(port: Port) -> None:
    claim = port.add("crane.md", CRANE)
    port.catalog.tombstone(claim.document_id)
    assert (await port.answerer.answer(LOCAL, port.base, "quay crane")).refused


async def test_rows_of_an_older_version_are_dropped(port: Port) -> None:
    port.add("crane.md", CRANE)
    port.add("crane.md", "The quay crane lifts 70 tonnes", etag="2")
    answer = await port.answerer.answer(LOCAL, port.base, "How many tonnes does the quay crane lift?")
    assert "70 tonnes" in answer.text and "65 tonnes" not in answer.text


async def test_message_evidence_and_record_are_stored(port: Port) -> None:
    port.add("crane.md", CRANE)
    answer = await port.answerer.answer(LOCAL, port.base, "How many tonnes does the quay crane lift?", request_id="r1")
    assert answer.session_id is not None and answer.warnings == ()
    asked, told = await port.conversations.messages(answer.session_id, LOCAL)
    assert (asked.role, told.role, told.content) == ("user", "assistant", answer.text)
    assert told.evidence is not None and told.evidence.citations == answer.citations
    with port.database.connection() as connection:
        row = connection.execute("SELECT outcome, results, metadata FROM retrieval_records").fetchone()
    assert row is not None and row["outcome"] == "answered" and row["results"] and row["metadata"]["citations"]


async def test_a_cancelled_question_is_recorded_and_leaves_the_stores_usable(port: Port) -> None:
    port.add("crane.md", CRANE)
    for delay in (0.0, 0.002, 0.005, 0.01):
        task = asyncio.create_task(port.answerer.answer(LOCAL, port.base, "quay crane"))
        await asyncio.sleep(delay)
        task.cancel()
        await asyncio.wait([task])
    assert not (await port.answerer.answer(LOCAL, port.base, "quay crane")).refused
