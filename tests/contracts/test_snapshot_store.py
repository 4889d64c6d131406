"""What every SnapshotStore promises, shown on Parquet below a local folder and on a real S3 server."""

from __future__ import annotations

import math
import pickle
import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_cluster.domain.blocks import Block, BlockType, SourceLocator
from rag_cluster.domain.chunks import Chunk, ChunkedDocument, Parent, Part, Snapshot, part_boundaries
from rag_cluster.errors import CorruptSnapshotError, NotFoundError
from rag_cluster.stores.objects import FsspecObjectStore
from rag_cluster.stores.snapshots import ParquetSnapshotStore
from tests.contracts.test_object_store import s3_store

KB, DOC, VERSION = "kb", "doc", 3

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
numbers = st.integers(0, 2**31 - 1)
coordinates = st.floats(allow_nan=False, allow_infinity=False, width=64)
boxes = st.tuples(coordinates, coordinates, coordinates, coordinates)
locators = st.builds(
    SourceLocator,
    heading_path=st.lists(texts, max_size=3).map(tuple),
    page=st.none() | numbers,
    bbox=st.none() | boxes,
    spans=st.lists(st.tuples(numbers, boxes), max_size=2).map(tuple),
    sheet=st.none() | texts,
    cell_range=st.none() | texts,
    slide=st.none() | numbers,
    line_start=st.none() | numbers,
    line_end=st.none() | numbers,
)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
metadata = st.dictionaries(texts, json_values, max_size=3)
strings = st.lists(texts, max_size=3).map(tuple)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    parents = tuple(
        Parent(f"p{i}", DOC, VERSION, i, draw(texts), draw(numbers), draw(locators), draw(metadata))
        for i in range(draw(st.integers(0, 4)))
    )
    owners = sorted(draw(st.lists(st.integers(0, max(len(parents) - 1, 0)), max_size=8)))
    chunks = tuple(
        Chunk(
            id=f"c{i}",
            knowledge_base_id=KB,
            document_id=DOC,
            version=VERSION,
            index=i,
            content=draw(texts),
            prefix_length=draw(st.integers(0, 5)),
            token_count=draw(numbers),
            locator=draw(locators),
            parent_id=f"p{owner}" if parents else None,
            start=draw(st.integers(-1, 10**6)),
            end=draw(st.integers(-1, 10**6)),
            block_ids=draw(strings),
            content_types=draw(strings),
            asset_ids=draw(strings),
            metadata=draw(metadata),
        )
        for i, owner in enumerate(owners)
    )
    cuts = sorted(draw(st.sets(st.integers(1, max(len(chunks) - 1, 1)), max_size=3)) - {len(chunks)}) if chunks else []
    edges = [0, *[cut for cut in cuts if cut < len(chunks)], len(chunks)] if chunks else []
    parts = tuple(Part(DOC, VERSION, i, a, b) for i, (a, b) in enumerate(pairwise(edges)))
    blocks = tuple(
        Block(f"b{i}", draw(st.sampled_from(BlockType)), draw(texts), draw(locators), draw(metadata))
        for i in range(draw(st.integers(0, 4)))
    )
    return Snapshot(
        knowledge_base_id=KB,
        document_id=DOC,
        version=VERSION,
        filename=draw(texts),
        sha256="0" * 64,
        content_fingerprint=draw(texts),
        parser_name=draw(texts),
        parser_version=draw(texts),
        chunking_strategy=draw(texts),
        blocks=blocks,
        chunked=ChunkedDocument(chunks, parents),
        parts=parts,
        metadata=draw(metadata),
        warnings=draw(strings),
    )


def simple(chunks: int = 3, per_parent: int = 2, version: int = VERSION) -> Snapshot:
    parents = tuple(Parent(f"p{i}", DOC, version, i, f"母文本 {i}") for i in range(math.ceil(chunks / per_parent)))
    children = tuple(
        Chunk(f"c{i}", KB, DOC, version, i, f"标题\ntext {i}", prefix_length=3, parent_id=f"p{i // per_parent}")
        for i in range(chunks)
    )
    chunked = ChunkedDocument(children, parents)
    block = Block("b0", BlockType.TABLE, "| a |", SourceLocator(page=2), {"rows": [["a"]], "header_rows": 1})
    return Snapshot(
        KB, DOC, version, "报告.pdf", "0" * 64, "fp", "pdf", "1", "structured",
        (block,), chunked, part_boundaries(chunked, DOC, version), {"pages": 2}, ("page 3 could not be read",),
    )  # fmt: skip


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ParquetSnapshotStore:
    if request.param == "local":
        return ParquetSnapshotStore(FsspecObjectStore(f"file://{tmp_path}"))
    return ParquetSnapshotStore(s3_store(request.getfixturevalue("s3_server")))


def test_what_was_saved_is_read_back_part_by_part(store: ParquetSnapshotStore) -> None:
    snapshot = simple(chunks=600, per_parent=3)
    store.save(snapshot)
    assert len(snapshot.parts) == 3
    contents = [store.read_part(KB, part) for part in snapshot.parts]
    assert [content.part for content in contents] == list(snapshot.parts)
    assert tuple(chunk for content in contents for chunk in content.chunks) == snapshot.chunked.chunks
    assert tuple(parent for content in contents for parent in content.parents) == snapshot.chunked.parents
    assert store.read_blocks(KB, DOC, VERSION) == list(snapshot.blocks)
    assert store.load(KB, DOC, VERSION) == snapshot


def test_a_parent_that_a_part_boundary_cuts_is_in_both_parts(store: ParquetSnapshotStore) -> None:
    snapshot = simple(chunks=300, per_parent=300)
    store.save(snapshot)
    first, second = (store.read_part(KB, part) for part in snapshot.parts)
    assert first.parents == second.parents == snapshot.chunked.parents
    assert (len(first.chunks), len(second.chunks)) == (256, 44)


def test_saving_again_replaces_the_snapshot(store: ParquetSnapshotStore) -> None:
    store.save(simple(chunks=5))
    store.save(simple(chunks=2))
    assert store.load(KB, DOC, VERSION) == simple(chunks=2)


def test_versions_are_kept_apart(store: ParquetSnapshotStore) -> None:
    store.save(simple(version=1))
    store.save(simple(version=11))
    store.delete(KB, DOC, 1)
    assert not store.exists(KB, DOC, 1)
    assert store.exists(KB, DOC, 11)


def test_what_is_absent_is_not_found_and_can_be_deleted(store: ParquetSnapshotStore) -> None:
    assert not store.exists(KB, DOC, VERSION)
    store.delete(KB, DOC, VERSION)
    with pytest.raises(NotFoundError):
        store.read_part(KB, Part(DOC, VERSION, 0, 0, 1))
    with pytest.raises(NotFoundError):
        store.read_blocks(KB, DOC, VERSION)


def test_a_part_of_other_boundaries_is_not_found(store: ParquetSnapshotStore) -> None:
    snapshot = simple()
    store.save(snapshot)
    for wrong in (replace(snapshot.parts[0], end=2), replace(snapshot.parts[0], index=1)):
        with pytest.raises(NotFoundError):
            store.read_part(KB, wrong)


def test_a_store_can_be_pickled(store: ParquetSnapshotStore) -> None:
    pickle.loads(pickle.dumps(store)).save(simple())
    assert store.load(KB, DOC, VERSION) == simple()


@given(snapshots())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_snapshot_comes_back_exactly(snapshot: Snapshot) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = ParquetSnapshotStore(FsspecObjectStore(folder))
        store.save(snapshot)
        assert store.load(KB, DOC, VERSION) == snapshot
        parts = [store.read_part(KB, part) for part in snapshot.parts]
    assert tuple(chunk for part in parts for chunk in part.chunks) == snapshot.chunked.chunks
    for part in parts:
        named = {chunk.parent_id for chunk in part.chunks}
        assert part.parents == tuple(parent for parent in snapshot.chunked.parents if parent.id in named)


def test_verifying_reads_everything_and_tells_the_chunks(store: ParquetSnapshotStore) -> None:
    store.save(simple())
    assert store.verify(KB, DOC, VERSION) == [chunk.id for chunk in simple().chunked.chunks]
    with pytest.raises(NotFoundError):
        store.verify(KB, DOC, VERSION + 1)


def test_a_snapshot_of_another_document_is_corrupt(store: ParquetSnapshotStore) -> None:
    store.save(simple())
    objects = store._objects
    key = "{}/{}/{}/snapshot/snapshot.parquet"
    objects.put(key.format(KB, "other", VERSION), objects.get(key.format(KB, DOC, VERSION)))
    with pytest.raises(CorruptSnapshotError):
        store.verify(KB, "other", VERSION)


def test_every_damage_to_a_snapshot_is_noticed(tmp_path: Path) -> None:
    objects = FsspecObjectStore(str(tmp_path))
    store = ParquetSnapshotStore(objects)
    store.save(simple())
    (entry,) = objects.entries("")
    whole = objects.get(entry.key)
    ids = store.verify(KB, DOC, VERSION)
    for length in (0, 4, 100, len(whole) // 2, len(whole) - 1):
        objects.put(entry.key, whole[:length])
        with pytest.raises(CorruptSnapshotError):
            store.verify(KB, DOC, VERSION)
    for position in range(0, len(whole), 37):
        objects.put(entry.key, whole[:position] + bytes([whole[position] ^ 0x08]) + whole[position + 1 :])
        try:
            assert store.verify(KB, DOC, VERSION) == ids
        except CorruptSnapshotError:
            continue
        assert store.load(KB, DOC, VERSION) == simple(), f"byte {position} changes what is read, unnoticed"
