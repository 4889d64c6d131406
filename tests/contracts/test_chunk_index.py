"""What every ChunkIndex promises, shown on Milvus Lite and on the one in memory."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rag_cluster.domain.access import AccessFilter
from rag_cluster.domain.chunks import Chunk, IndexRow
from rag_cluster.domain.documents import IndexRecord
from rag_cluster.domain.filters import Condition, Operator, parse_filter
from rag_cluster.domain.inventory import StoredRow
from rag_cluster.domain.ports import ChunkIndex
from rag_cluster.errors import IndexMismatchError, InvalidFilterError
from rag_cluster.stores.fakes import MemoryChunkIndex

DIMENSION = 8
KB = "kb-1"


@pytest.fixture(params=["memory", "milvus"])
def index(request: pytest.FixtureRequest) -> ChunkIndex:
    if request.param == "memory":
        return MemoryChunkIndex()
    return request.getfixturevalue("milvus_index")


@pytest.fixture
def record() -> IndexRecord:
    return IndexRecord(1, f"chunks_{uuid.uuid4().hex[:16]}", "fingerprint-a", DIMENSION, "active")


@pytest.fixture
def collection(index: ChunkIndex, record: IndexRecord) -> str:
    index.ensure(record)
    return record.collection


def row(
    chunk_id: str,
    text: str = "text",
    *,
    document: str = "doc-1",
    kb: str = KB,
    source: str = "source-1",
    version: int = 1,
    access_key: int = 1,
    **metadata: Any,
) -> IndexRow:
    chunk = Chunk(chunk_id, kb, document, version, 0, text)
    return IndexRow(chunk, source, access_key, metadata)


def unit(*positions: int) -> np.ndarray:
    """Rows of the identity matrix."""
    return np.eye(DIMENSION, dtype=np.float32)[list(positions)]


def access(metadata: Any = None, **changes: Any) -> AccessFilter:
    return replace(AccessFilter(KB, (1,), metadata=parse_filter(metadata or {})), **changes)


async def dense(index: ChunkIndex, collection: str, filter: AccessFilter, axis: int = 0, limit: int = 10) -> list[str]:
    return [hit.chunk_id for hit in await index.search_dense(collection, unit(axis)[0].tolist(), filter, limit)]


async def sparse(index: ChunkIndex, collection: str, text: str, filter: AccessFilter | None = None) -> list[str]:
    return [hit.chunk_id for hit in await index.search_sparse(collection, text, filter or access(), 10)]


def test_ensure_is_idempotent(index: ChunkIndex, record: IndexRecord) -> None:
    assert not index.exists(record.collection)
    index.ensure(record)
    index.ensure(record)
    assert index.exists(record.collection)


def test_ensure_refuses_a_collection_of_another_dimension(index: ChunkIndex, record: IndexRecord) -> None:
    index.ensure(record)
    with pytest.raises(IndexMismatchError):
        index.ensure(replace(record, dimension=DIMENSION + 1))


async def test_dense_search_returns_the_nearest_first_with_its_cosine(index: ChunkIndex, collection: str) -> None:
    vectors = np.array([[1, 0, 0, 0, 0, 0, 0, 0], [0.6, 0.8, 0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0, 0]], np.float32)
    index.upsert(collection, [row("a", version=3), row("b"), row("c")], vectors)
    hits = await index.search_dense(collection, vectors[0].tolist(), access(), 2)
    assert [hit.chunk_id for hit in hits] == ["a", "b"]
    assert hits[0].score == pytest.approx(1.0, abs=1e-5)
    assert hits[1].score == pytest.approx(0.6, abs=1e-5)
    assert (hits[0].document_id, hits[0].version) == ("doc-1", 3)


async def test_sparse_search_matches_words_of_both_languages_whatever_their_case(
    index: ChunkIndex, collection: str
) -> None:
    rows = [
        row("en", "The Harbour Crane lifts containers."),
        row("zh", "岸桥设备每月维护一次。"),
        row("no", "unrelated"),
    ]
    index.upsert(collection, rows, unit(0, 1, 2))
    assert await sparse(index, collection, "harbour CRANE") == ["en"]
    assert await sparse(index, collection, "设备维护") == ["zh"]
    assert await sparse(index, collection, "nothing-like-it") == []


async def test_sparse_search_ranks_the_row_with_more_query_words_first_with_falling_positive_scores(
    index: ChunkIndex, collection: str
) -> None:
    rows = [row("one", "red apple and pear"), row("two", "red green apple"), row("none", "blue sky over water")]
    index.upsert(collection, rows, unit(0, 1, 2))
    hits = await index.search_sparse(collection, "red green", access(), 10)
    assert [hit.chunk_id for hit in hits] == ["two", "one"]
    assert hits[0].score > hits[1].score > 0


@pytest.mark.parametrize("text", ["", "   ", "？！", "\n"])
async def test_a_query_without_words_finds_nothing_by_bm25(index: ChunkIndex, collection: str, text: str) -> None:
    index.upsert(collection, [row("a", "some text")], unit(0))
    assert await sparse(index, collection, text) == []


async def test_rows_are_found_at_once_without_flush(index: ChunkIndex, collection: str) -> None:
    for number in range(5):
        index.upsert(collection, [row(f"c{number}")], unit(number))
        assert f"c{number}" in await dense(index, collection, access(), axis=number)


async def test_flush_changes_no_result(index: ChunkIndex, collection: str) -> None:
    index.upsert(collection, [row(f"c{i}", f"word{i} shared") for i in range(5)], unit(*range(5)))
    before = await sparse(index, collection, "word3 shared")
    index.flush(collection)
    assert await sparse(index, collection, "word3") == ["c3"]
    assert set(await sparse(index, collection, "word3 shared")) == set(before)
    assert (await dense(index, collection, access(), axis=2))[0] == "c2"


async def test_writing_an_id_again_replaces_its_row(index: ChunkIndex, collection: str) -> None:
    index.upsert(collection, [row("a", "old words")], unit(0))
    index.upsert(collection, [row("a", "new words", access_key=2)], unit(1))
    assert await dense(index, collection, access()) == []
    assert await dense(index, collection, access(access_keys=(2,))) == ["a"]
    assert await sparse(index, collection, "old", access(access_keys=(1, 2))) == []
    assert index.chunk_ids(collection, "doc-1") == {"a": 1}


async def test_one_id_twice_in_a_batch_leaves_the_last(index: ChunkIndex, collection: str) -> None:
    index.upsert(collection, [row("a", "first"), row("a", "second")], unit(0, 1))
    assert await sparse(index, collection, "second") == ["a"]
    assert await sparse(index, collection, "first") == []


async def test_only_rows_that_pass_every_part_of_the_filter_are_found(index: ChunkIndex, collection: str) -> None:
    rows = [
        row("ok", lang="zh"),
        row("other-kb", kb="kb-2", lang="zh"),
        row("other-key", access_key=2, lang="zh"),
        row("other-source", source="source-2", lang="zh"),
        row("other-document", document="doc-2", lang="zh"),
        row("other-metadata", lang="en"),
        row("no-metadata"),
    ]
    index.upsert(collection, rows, np.repeat(unit(0), len(rows), axis=0))
    filter = access(source_ids=("source-1", "source-9"), document_ids=("doc-1",), metadata={"lang": "zh"})
    assert await dense(index, collection, filter) == ["ok"]
    assert await sparse(index, collection, "text", filter) == ["ok"]
    assert set(await dense(index, collection, access(access_keys=(1, 2)))) == {r.chunk.id for r in rows} - {"other-kb"}


@pytest.mark.parametrize(
    "empty", [{"access_keys": ()}, {"source_ids": ()}, {"document_ids": ()}, {"metadata": {"lang": []}}]
)
async def test_an_empty_filter_finds_nothing(index: ChunkIndex, collection: str, empty: dict[str, Any]) -> None:
    index.upsert(collection, [row("a", lang="zh")], unit(0))
    assert await dense(index, collection, access(**empty)) == []
    assert await sparse(index, collection, "text", access(**empty)) == []


async def test_a_list_in_a_metadata_filter_means_any_of_its_values(index: ChunkIndex, collection: str) -> None:
    index.upsert(collection, [row("a", n=1), row("b", n=2.5), row("c", n="1"), row("d")], unit(0, 0, 0, 0))
    assert set(await dense(index, collection, access(metadata={"n": [1, 2.5]}))) == {"a", "b"}
    assert await dense(index, collection, access(metadata={"n": "1"})) == ["c"]
    assert await dense(index, collection, access(metadata={"absent": 1})) == []


@pytest.mark.parametrize("value", [None, {"a": 1}, [[1]], float("nan"), 2**70, "\ud800"])
async def test_a_metadata_filter_that_cannot_be_compared_is_refused(
    index: ChunkIndex, collection: str, value: Any
) -> None:
    with pytest.raises(InvalidFilterError):
        unchecked = Condition("key", Operator.EQ, value)
        await dense(index, collection, replace(access(), metadata=unchecked))


async def test_thousands_of_ids_in_a_filter_work(index: ChunkIndex, collection: str) -> None:
    index.upsert(collection, [row("a", document="doc-4999")], unit(0))
    filter = access(document_ids=tuple(f"doc-{i}" for i in range(5000)), access_keys=tuple(range(2000)))
    assert await dense(index, collection, filter) == ["a"]


async def test_delete_takes_a_version_or_all_up_to_one_or_the_whole_document(
    index: ChunkIndex, collection: str
) -> None:
    rows = [row(f"v{version}", version=version) for version in (1, 2, 3, 4)] + [row("other", document="doc-2")]
    index.upsert(collection, rows, unit(0, 1, 2, 3, 4))
    index.delete(collection, "doc-1", max_version=2)
    assert index.chunk_ids(collection, "doc-1") == {"v3": 3, "v4": 4}
    index.delete(collection, "doc-1", version=4)
    assert index.chunk_ids(collection, "doc-1") == {"v3": 3}
    index.delete(collection, "doc-1")
    index.delete(collection, "doc-1")
    assert index.chunk_ids(collection, "doc-1") == {}
    assert await dense(index, collection, access()) == ["other"]


async def test_update_access_changes_what_a_filter_sees_and_nothing_else(index: ChunkIndex, collection: str) -> None:
    rows = [row("a", "crane"), row("b", "crane", version=2), row("other", "crane", document="doc-2")]
    index.upsert(collection, rows, unit(0, 1, 2))
    index.flush(collection)
    index.update_access(collection, "doc-1", access_key=7, metadata={"team": "海事"})
    seven = access(access_keys=(7,), metadata={"team": "海事"})
    assert set(await dense(index, collection, seven)) == {"a", "b"}
    assert set(await sparse(index, collection, "crane", seven)) == {"a", "b"}
    assert (await dense(index, collection, seven, axis=1))[0] == "b"
    assert await dense(index, collection, access()) == ["other"]
    assert index.chunk_ids(collection, "doc-1") == {"a": 1, "b": 2}


async def test_a_query_vector_of_another_dimension_is_refused(index: ChunkIndex, collection: str) -> None:
    with pytest.raises(IndexMismatchError):
        await index.search_dense(collection, [0.0] * (DIMENSION + 1), access(), 5)


def test_vectors_of_another_shape_are_refused(index: ChunkIndex, collection: str) -> None:
    with pytest.raises(IndexMismatchError):
        index.upsert(collection, [row("a")], np.zeros((1, DIMENSION + 1), np.float32))
    with pytest.raises(IndexMismatchError):
        index.upsert(collection, [row("a")], np.zeros((2, DIMENSION), np.float32))


async def test_a_dropped_collection_is_gone_and_can_be_made_anew_with_another_dimension(index: ChunkIndex) -> None:
    record = IndexRecord(9, f"chunks_{uuid.uuid4().hex}", "to_be_dropped", DIMENSION, "retired")
    index.ensure(record)
    index.upsert(record.collection, [row("a")], unit(0))
    for _ in range(2):
        index.drop(record.collection)
    assert index.chunk_ids(record.collection, "doc-1") == {}
    index.ensure(replace(record, dimension=2 * DIMENSION))
    index.upsert(record.collection, [row("a")], np.eye(1, 2 * DIMENSION, dtype=np.float32))
    assert set(index.chunk_ids(record.collection, "doc-1")) == {"a"}
    index.drop(record.collection)


def test_writing_nothing_is_no_error(index: ChunkIndex, collection: str) -> None:
    index.upsert(collection, [], np.zeros((0, DIMENSION), np.float32))


async def test_a_missing_collection_has_nothing_to_delete_and_cannot_be_searched(index: ChunkIndex) -> None:
    index.delete("chunks_never_made", "doc-1")
    index.update_access("chunks_never_made", "doc-1", access_key=1, metadata={})
    index.flush("chunks_never_made")
    assert index.chunk_ids("chunks_never_made", "doc-1") == {}
    with pytest.raises(IndexMismatchError):
        await dense(index, "chunks_never_made", access())
    with pytest.raises(IndexMismatchError):
        await sparse(index, "chunks_never_made", "text")


async def test_a_text_longer_than_the_store_takes_is_still_written(index: ChunkIndex, collection: str) -> None:
    index.upsert(collection, [row("long", "港口 harbour " * 20_000 + "tail")], unit(0))
    assert await dense(index, collection, access()) == ["long"]
    assert await sparse(index, collection, "harbour") == ["long"]


async def test_searches_run_concurrently_and_can_be_cancelled(index: ChunkIndex, collection: str) -> None:
    index.upsert(collection, [row(f"c{i}", f"word{i}") for i in range(DIMENSION)], unit(*range(DIMENSION)))
    results = await asyncio.gather(*(dense(index, collection, access(), axis=i) for i in range(DIMENSION)))
    assert [result[0] for result in results] == [f"c{i}" for i in range(DIMENSION)]
    task = asyncio.create_task(dense(index, collection, access()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await dense(index, collection, access()))[0] == "c0"


def test_the_rows_of_a_knowledge_base_come_by_id_for_a_range_of_documents(index: ChunkIndex, collection: str) -> None:
    rows = [row(f"c{n}", document=f"doc-{n % 3}", version=n, access_key=n, place="quay") for n in (2, 0, 1, 4, 3)]
    index.upsert(collection, [*rows, row("other", kb="kb-2", document="doc-1")], unit(0, 1, 2, 3, 4, 5))
    found = list(index.rows(collection, KB))
    assert [entry.id for entry in found] == ["c0", "c1", "c2", "c3", "c4"]
    assert found[1] == StoredRow("c1", KB, "doc-1", "source-1", 1, 1, {"place": "quay"})
    assert [entry.id for entry in index.rows(collection, KB, after="doc-0", last="doc-1")] == ["c1", "c4"]
    assert [entry.id for entry in index.rows(collection, KB, after="doc-1")] == ["c2"]
    assert list(index.rows(collection, KB, after="doc-2")) == []
    assert [entry.id for entry in index.rows(collection, KB, document_id="doc-0")] == ["c0", "c3"]


def test_rows_of_no_known_knowledge_base_are_found(index: ChunkIndex, collection: str) -> None:
    index.upsert(collection, [row("a"), row("b", kb="kb-2"), row("c", kb='kb "3"')], unit(0, 1, 2))
    assert [entry.id for entry in index.foreign_rows(collection, [KB])] == ["b", "c"]
    assert [entry.id for entry in index.foreign_rows(collection, [KB, "kb-2", 'kb "3"'])] == []
    assert [entry.id for entry in index.foreign_rows(collection, [])] == ["a", "b", "c"]


def test_many_rows_come_page_by_page_each_once(
    index: ChunkIndex, collection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag_cluster.stores.milvus._ROWS_PER_PAGE", 7)
    ids = [f"c{n:03}" for n in range(28)]
    index.upsert(collection, [row(name) for name in ids], unit(*[0] * 28))
    assert [entry.id for entry in index.rows(collection, KB)] == ids


def test_rows_are_deleted_by_id_inside_their_knowledge_base_only(index: ChunkIndex, collection: str) -> None:
    index.upsert(collection, [row("a"), row("b"), row("c", kb="kb-2")], unit(0, 1, 2))
    index.delete_rows(collection, KB, ["a", "c", "never there"])
    assert [entry.id for entry in index.foreign_rows(collection, [])] == ["b", "c"]
    index.delete_rows(collection, KB, [])


def test_without_the_collection_there_are_no_rows_and_nothing_to_delete(index: ChunkIndex) -> None:
    assert list(index.rows("chunks_never_made", KB)) == []
    assert list(index.foreign_rows("chunks_never_made", [])) == []
    index.delete_rows("chunks_never_made", KB, ["a"])
