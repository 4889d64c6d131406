"""What is special about Milvus: escaping, outages, restarts, pickling, concurrent processes."""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_cluster.domain.access import AccessFilter
from rag_cluster.domain.documents import IndexRecord
from rag_cluster.domain.filters import parse_filter
from rag_cluster.errors import StoreUnavailableError
from rag_cluster.stores.embedded import EmbeddedStores
from rag_cluster.stores.fakes import MemoryChunkIndex
from rag_cluster.stores.milvus import MilvusChunkIndex
from rag_cluster.stores.milvus_filters import compile_filter, matches_nothing
from rag_cluster.stores.milvus_schema import MAX_TEXT_BYTES, bounded_text
from tests.contracts.test_chunk_index import DIMENSION, KB, dense, row, sparse, unit


def new_record() -> IndexRecord:
    return IndexRecord(1, f"chunks_{uuid.uuid4().hex[:16]}", "fingerprint", DIMENSION, "active")


@pytest.fixture
def collection(milvus_index: MilvusChunkIndex) -> str:
    record = new_record()
    milvus_index.ensure(record)
    return record.collection


@pytest.fixture
def own_stores() -> Iterator[EmbeddedStores]:
    """A Milvus Lite that a test may kill."""
    home = Path(tempfile.mkdtemp(prefix="rag-"))
    stores = EmbeddedStores(home)
    yield stores
    stores.down()
    shutil.rmtree(home, ignore_errors=True)


def kill_milvus(stores: EmbeddedStores) -> None:
    pid = next(server.pid for server in stores.status().servers if server.name == "milvus")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.1)


# -- filters ----------------------------------------------------------------------------------------------------------

NASTY = [
    '"',
    "'",
    "\\",
    '\\"',
    "\n",
    "\r\n",
    "\t",
    "\x00",
    "\x07",
    "\u2028",
    '" or 1 == 1 or "',
    "%",
    "_",
    "{x}",
    "中文",
    "🙂",
]
words = st.text(st.sampled_from(sorted(set("".join(NASTY)) | set("ab \\\"'"))), max_size=8) | st.sampled_from(NASTY)
values = words.filter(lambda word: "\x00" not in word)  # which no metadata holds
scalars = values | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)


def test_a_filter_names_every_part() -> None:
    access = AccessFilter(
        'kb"1',
        (3, 1),
        source_ids=("s",),
        document_ids=("d1", "d\\2"),
        metadata=parse_filter({'k"\n': ["a", 1, True, -2.5]}),
    )
    assert compile_filter(access) == (
        'knowledge_base_id == "kb\\"1"'
        ' and (metadata["k\\"\\n"] == "a" or metadata["k\\"\\n"] == 1 or metadata["k\\"\\n"] == true'
        ' or metadata["k\\"\\n"] == -2.5)'
        ' and access_key in [3,1] and source_id in ["s"] and document_id in ["d1","d\\\\2"]'
    )


def test_a_filter_without_alternatives_matches_nothing() -> None:
    assert matches_nothing(AccessFilter(KB, (1,), metadata=parse_filter({"k": ()})))
    assert not matches_nothing(AccessFilter(KB, (1,), metadata=parse_filter({"k": ""})))


@given(stored=scalars, asked=scalars, name=values.filter(bool), document=words.filter(bool))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_milvus_and_memory_agree_on_every_value(
    milvus_index: MilvusChunkIndex, stored: Any, asked: Any, name: str, document: str
) -> None:
    memory = MemoryChunkIndex()
    record = _shared_record(milvus_index)
    memory.ensure(record)
    kb = f"kb {document}"
    entry = row(uuid.uuid4().hex, kb=kb, document=document, source=document)
    entry = type(entry)(entry.chunk, document, 1, {name: stored})
    for index in (milvus_index, memory):
        index.upsert(record.collection, [entry], unit(0))

    async def compare() -> None:
        for metadata in ({name: stored}, {name: asked}, {name: [asked, stored]}, {name + "x": stored}):
            filter = parse_filter(metadata)
            access = AccessFilter(kb, (1,), source_ids=(document,), document_ids=(document,), metadata=filter)
            expected = entry.chunk.id in await dense(memory, record.collection, access)
            assert (entry.chunk.id in await dense(milvus_index, record.collection, access)) is expected, metadata

    asyncio.run(compare())
    milvus_index.delete(record.collection, document)
    assert milvus_index.chunk_ids(record.collection, document) == {}


_RECORDS: dict[str, IndexRecord] = {}


def _shared_record(index: MilvusChunkIndex) -> IndexRecord:
    if "record" not in _RECORDS:
        _RECORDS["record"] = new_record()
        index.ensure(_RECORDS["record"])
    return _RECORDS["record"]


# -- outages ----------------------------------------------------------------------------------------------------------


async def test_a_killed_server_is_revived_by_the_next_call_and_nothing_is_lost(own_stores: EmbeddedStores) -> None:
    index = MilvusChunkIndex("", timeout=20, revive=own_stores.ensure_milvus)
    record = new_record()
    index.ensure(record)
    index.upsert(record.collection, [row("flushed", "crane")], unit(0))
    index.flush(record.collection)
    index.upsert(record.collection, [row("unflushed", "crane")], unit(1))
    access = AccessFilter(KB, (1,))
    assert len(await dense(index, record.collection, access)) == 2

    kill_milvus(own_stores)
    assert set(await dense(index, record.collection, access)) == {"flushed", "unflushed"}

    kill_milvus(own_stores)
    assert set(await sparse(index, record.collection, "crane", access)) == {"flushed", "unflushed"}

    kill_milvus(own_stores)
    index.upsert(record.collection, [row("later", "crane")], unit(2))
    assert index.chunk_ids(record.collection, "doc-1") == {"flushed": 1, "unflushed": 1, "later": 1}

    kill_milvus(own_stores)
    index.delete(record.collection, "doc-1")
    index.flush(record.collection)
    assert await dense(index, record.collection, access) == []


async def test_concurrent_searches_all_survive_a_kill(own_stores: EmbeddedStores) -> None:
    index = MilvusChunkIndex("", timeout=20, revive=own_stores.ensure_milvus)
    record = new_record()
    index.ensure(record)
    index.upsert(record.collection, [row("a")], unit(0))
    await dense(index, record.collection, AccessFilter(KB, (1,)))
    kill_milvus(own_stores)
    results = await asyncio.gather(*(dense(index, record.collection, AccessFilter(KB, (1,))) for _ in range(8)))
    assert results == [["a"]] * 8


async def test_without_a_way_to_revive_an_outage_is_told_within_seconds(tmp_path: Path) -> None:
    index = MilvusChunkIndex(f"unix:{tmp_path}/none:1", timeout=5)
    start = time.monotonic()
    with pytest.raises(StoreUnavailableError):
        index.chunk_ids("chunks_x", "doc")
    with pytest.raises(StoreUnavailableError):
        await dense(index, "chunks_x", AccessFilter(KB, (1,)))
    assert time.monotonic() - start < 30


# -- connections ------------------------------------------------------------------------------------------------------


async def test_an_index_can_be_pickled_before_and_after_use(milvus_index: MilvusChunkIndex, collection: str) -> None:
    milvus_index.upsert(collection, [row("a")], unit(0))
    copy = pickle.loads(pickle.dumps(milvus_index))
    assert await dense(copy, collection, AccessFilter(KB, (1,))) == ["a"]
    again = pickle.loads(pickle.dumps(copy))
    assert again.chunk_ids(collection, "doc-1") == {"a": 1}


def test_one_index_serves_several_event_loops_one_after_the_other(
    milvus_index: MilvusChunkIndex, collection: str
) -> None:
    milvus_index.upsert(collection, [row("a")], unit(0))
    for _ in range(3):
        assert asyncio.run(dense(milvus_index, collection, AccessFilter(KB, (1,)))) == ["a"]


def test_concurrent_writers_lose_nothing(milvus_index: MilvusChunkIndex, collection: str) -> None:
    def write(worker: int) -> None:
        for batch in range(10):
            rows = [row(f"{worker}-{batch}-{n}", document=f"doc-{worker}") for n in range(20)]
            milvus_index.upsert(collection, rows, np.tile(unit(worker), (20, 1)))
        milvus_index.flush(collection)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
    for worker in range(6):
        assert len(milvus_index.chunk_ids(collection, f"doc-{worker}")) == 200


def test_a_document_of_thousands_of_chunks_is_listed_whole(milvus_index: MilvusChunkIndex, collection: str) -> None:
    rows = [row(f"c{number}") for number in range(2500)]
    milvus_index.upsert(collection, rows, np.tile(unit(0), (2500, 1)))
    assert len(milvus_index.chunk_ids(collection, "doc-1")) == 2500
    milvus_index.update_access(collection, "doc-1", access_key=9, metadata={"a": 1})
    found = asyncio.run(
        dense(milvus_index, collection, AccessFilter(KB, (9,), metadata=parse_filter({"a": 1})), limit=5000)
    )
    assert len(set(found)) == 2500


def test_ensure_completes_a_collection_whose_maker_died_before_its_indexes(
    milvus_index: MilvusChunkIndex, milvus_uri: str
) -> None:
    from pymilvus import MilvusClient

    from rag_cluster.stores.milvus_schema import collection_schema

    record = new_record()
    MilvusClient(milvus_uri).create_collection(record.collection, schema=collection_schema(DIMENSION, "fingerprint"))
    milvus_index.ensure(record)
    milvus_index.upsert(record.collection, [row("a", "crane")], unit(0))
    assert asyncio.run(sparse(milvus_index, record.collection, "crane")) == ["a"]


def test_many_that_ensure_one_collection_at_once_all_succeed(milvus_stores: EmbeddedStores) -> None:
    record = new_record()
    indexes = [MilvusChunkIndex("", revive=milvus_stores.ensure_milvus) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda index: index.ensure(record), indexes))


@pytest.mark.parametrize("text", ["", "short", "汉" * 30_000, "a" * 70_000, "🙂" * 20_000, "broken \ud800 half"])
def test_an_index_text_is_cut_between_characters(text: str) -> None:
    cut = bounded_text(text)
    assert len(cut.encode()) <= MAX_TEXT_BYTES
    assert text.encode("utf-8", "replace").decode().startswith(cut)


async def test_the_analyzers_tokens_are_those_that_bm25_compares(milvus_index: MilvusChunkIndex) -> None:
    chinese, english = await milvus_index.analyze(["岸桥制动器，间隙！", "The Quay-Crane's gap: 1.2 mm"])
    assert "制动器" in chinese and "，" not in chinese
    assert "quay" in english and "crane" in english and "-" not in english
