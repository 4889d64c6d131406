"""What every ObjectStore promises, shown on a local folder and on a real S3 server."""

from __future__ import annotations

import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rag_cluster.domain import keys
from rag_cluster.domain.ports import ObjectStore
from rag_cluster.errors import InvalidRequestError, NotFoundError
from rag_cluster.stores.objects import FsspecObjectStore
from rag_cluster.stores.s3 import S3Options
from tests.fixtures.s3 import S3Server


def s3_store(server: S3Server) -> FsspecObjectStore:
    return FsspecObjectStore(
        f"s3://{server.new_prefix()}/some/prefix",
        S3Options(
            endpoint_url=server.endpoint_url, access_key=server.access_key, secret_key=server.secret_key, timeout=20
        ),
    )


@pytest.fixture(params=["local", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "local":
        return FsspecObjectStore(f"file://{tmp_path}/带 空格 & 100%/objects")
    return s3_store(request.getfixturevalue("s3_server"))


@pytest.mark.parametrize("content", [b"", b"x", os.urandom(3_000_000)])
def test_what_was_put_is_read_back(objects: ObjectStore, content: bytes) -> None:
    objects.put("kb/doc/1/source.pdf", content)
    assert objects.get("kb/doc/1/source.pdf") == content
    assert objects.size("kb/doc/1/source.pdf") == len(content)
    assert objects.exists("kb/doc/1/source.pdf")


def test_a_put_replaces_what_is_there(objects: ObjectStore) -> None:
    objects.put("a", b"long old content")
    objects.put("a", b"new")
    assert objects.get("a") == b"new"


def test_a_file_is_put_and_read_as_a_stream(objects: ObjectStore, tmp_path: Path) -> None:
    content = os.urandom(2_500_000)
    (tmp_path / "原件.bin").write_bytes(content)
    objects.put_file("kb/file", str(tmp_path / "原件.bin"))
    with objects.open("kb/file") as stream:
        assert stream.read(10) == content[:10]
        stream.seek(2_000_000)
        assert stream.read() == content[2_000_000:]


def test_names_in_any_script_and_with_signs_are_kept(objects: ObjectStore) -> None:
    key = "kb/文档 一/a+b & c#d?e%20f.pdf"
    objects.put(key, b"x")
    assert objects.get(key) == b"x"
    assert list(objects.list("kb")) == [key]


def test_what_is_absent_raises_not_found(objects: ObjectStore) -> None:
    objects.put("kb/doc/file", b"x")
    for key in ("nope", "kb/doc/other", "kb/doc", "kb/doc/file/below"):
        assert not objects.exists(key)
        for read in (objects.get, objects.open, objects.size):
            with pytest.raises(NotFoundError):
                read(key)


def test_deleting_what_is_absent_is_no_error(objects: ObjectStore) -> None:
    objects.delete("kb/none")
    assert objects.delete_prefix("kb/none/") == 0


def test_a_prefix_is_a_folder(objects: ObjectStore) -> None:
    for key in ("kb/doc/1/a", "kb/doc/1/b/c", "kb/doc/10/a", "kb/doc2/1/a", "other"):
        objects.put(key, b"x")
    assert list(objects.list("kb/doc/1")) == list(objects.list("kb/doc/1/")) == ["kb/doc/1/a", "kb/doc/1/b/c"]
    assert objects.delete_prefix("kb/doc/1") == 2
    assert sorted(objects.list("")) == ["kb/doc/10/a", "kb/doc2/1/a", "other"]
    assert objects.delete_prefix("kb/doc") == 1
    assert sorted(objects.list("")) == ["kb/doc2/1/a", "other"]


def test_more_objects_than_a_page_are_listed_and_deleted(objects: ObjectStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: objects.put(f"many/{number:05}", b""), range(1100)))
    assert len(list(objects.list("many"))) == 1100
    assert objects.delete_prefix("many") == 1100
    assert list(objects.list("")) == []


@pytest.mark.parametrize(
    "key",
    ["", "/", "/etc/passwd", "../x", "a/../../x", "a/..", "./a", "a//b", "a/", "a\\b", "a\x00b", "a\nb", "x" * 2000],
)
def test_a_key_that_could_leave_the_store_is_refused(objects: ObjectStore, key: str) -> None:
    for call in (objects.get, objects.open, objects.exists, objects.delete, objects.size):
        with pytest.raises(InvalidRequestError):
            call(key)
    with pytest.raises(InvalidRequestError):
        objects.put(key, b"x")


@pytest.mark.parametrize("prefix", ["", "/", "..", "a/../..", "//"])
def test_a_prefix_that_could_reach_beyond_a_folder_is_refused(objects: ObjectStore, prefix: str) -> None:
    objects.put("kb/a", b"x")
    with pytest.raises(InvalidRequestError):
        objects.delete_prefix(prefix)
    assert objects.exists("kb/a")


def test_a_store_can_be_pickled_before_and_after_use(objects: ObjectStore) -> None:
    copy = pickle.loads(pickle.dumps(objects))
    copy.put("a", b"x")
    assert pickle.loads(pickle.dumps(copy)).get("a") == objects.get("a") == b"x"


def test_the_keys_of_the_domain_are_accepted(objects: ObjectStore) -> None:
    objects.put(keys.source_key("kb", "doc", 1, "../../报告 final.PDF"), b"x")
    objects.put(keys.asset_key("kb", "doc", 1, "asset"), b"x")
    objects.put(keys.snapshot_prefix("kb", "doc", 1) + "snapshot.parquet", b"x")
    assert objects.delete_prefix(keys.document_prefix("kb", "doc")) == 3


def test_writers_of_one_key_leave_one_whole_object(objects: ObjectStore) -> None:
    contents = [bytes([number]) * 200_000 for number in range(6)]
    threads = [threading.Thread(target=objects.put, args=("shared", content)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert objects.get("shared") in contents


def test_a_listing_tells_size_and_time_and_keeps_what_a_folder_holds_together(objects: ObjectStore) -> None:
    before = datetime.now(UTC) - timedelta(seconds=5)
    for key in ("b/2/x", "a/1/assets/p", "b/1/source.pdf", "a/1/source.pdf", "a/1/snapshot/s.parquet"):
        objects.put(key, key.encode())
    found = list(objects.entries(""))
    assert {entry.key: entry.size for entry in found} == {entry.key: len(entry.key) for entry in found}
    assert [entry.key.split("/")[0] for entry in found] == ["a", "a", "a", "b", "b"]
    assert all(before < entry.modified_at < before + timedelta(minutes=5) for entry in found)
    assert [entry.key for entry in objects.entries("b/1")] == ["b/1/source.pdf"]
    assert list(objects.entries("nothing")) == []
