"""The snapshot file itself: readable by any Parquet reader, never torn, cheap."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rag_cluster.errors import CorruptSnapshotError, StoreUnavailableError
from rag_cluster.stores.objects import FsspecObjectStore
from rag_cluster.stores.snapshots import ParquetSnapshotStore
from tests.contracts.test_snapshot_store import DOC, KB, VERSION, simple


def file_of(tmp_path: Path) -> Path:
    return tmp_path / KB / DOC / str(VERSION) / "snapshot/snapshot.parquet"


def test_a_snapshot_is_one_compressed_parquet_file_with_a_row_group_per_part(tmp_path: Path) -> None:
    snapshot = simple(chunks=600, per_parent=3)
    ParquetSnapshotStore(FsspecObjectStore(str(tmp_path))).save(snapshot)
    file = pq.ParquetFile(file_of(tmp_path))
    assert file.num_row_groups == len(snapshot.parts) + 1
    columns = [file.metadata.row_group(0).column(number) for number in range(file.metadata.num_columns)]
    assert {column.compression for column in columns if column.path_in_schema != "text"} == {"LZ4"}
    assert {column.compression for column in columns if column.path_in_schema == "text"} == {"ZSTD"}
    header = json.loads(file.schema_arrow.metadata[b"snapshot"])
    assert header["filename"] == "报告.pdf"
    assert header["warnings"] == ["page 3 could not be read"]


@pytest.mark.parametrize("damage", ["cut", "page"])
def test_a_damaged_snapshot_is_told_as_such_and_not_as_an_outage(tmp_path: Path, damage: str) -> None:
    store = ParquetSnapshotStore(FsspecObjectStore(str(tmp_path)))
    store.save(simple())
    content = file_of(tmp_path).read_bytes()
    torn = content[:200] + bytes(byte ^ 255 for byte in content[200:400]) + content[400:]
    file_of(tmp_path).write_bytes(content[:-20] if damage == "cut" else torn)
    with pytest.raises(CorruptSnapshotError):
        store.read_part(KB, simple().parts[0])


def test_a_snapshot_that_cannot_be_read_at_this_moment_is_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ParquetSnapshotStore(FsspecObjectStore(str(tmp_path)))
    store.save(simple())

    def hiccup(*_: Any) -> None:
        raise OSError("connection reset")

    monkeypatch.setattr("rag_cluster.stores.snapshots._read_header", hiccup)
    monkeypatch.setattr(store, "verify", lambda *_: [])
    with pytest.raises(StoreUnavailableError):
        store.read_part(KB, simple().parts[0])


def test_a_document_without_chunks_keeps_its_blocks(tmp_path: Path) -> None:
    store = ParquetSnapshotStore(FsspecObjectStore(str(tmp_path)))
    store.save(simple(chunks=0))
    assert store.load(KB, DOC, VERSION) == simple(chunks=0)
