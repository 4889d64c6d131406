"""What is special about each kind of object store."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.client import AioBaseClient
from botocore.exceptions import ClientError

from rag_cluster.errors import InvalidSettingError, StoreUnavailableError
from rag_cluster.stores.objects import FsspecObjectStore
from rag_cluster.stores.s3 import S3Options
from tests.fixtures.s3 import S3Server


def local(tmp_path: Path) -> FsspecObjectStore:
    return FsspecObjectStore(f"file://{tmp_path}/objects")


def test_empty_folders_disappear_with_their_last_object(tmp_path: Path) -> None:
    store = local(tmp_path)
    store.put("kb/doc/1/a", b"x")
    store.put("kb/doc/2/a", b"x")
    store.delete("kb/doc/1/a")
    assert not (tmp_path / "objects/kb/doc/1").exists()
    store.delete_prefix("kb/doc")
    assert not (tmp_path / "objects/kb").exists()
    assert (tmp_path / "objects").exists()


def test_a_write_that_fails_leaves_the_old_object_and_no_litter(tmp_path: Path) -> None:
    store = local(tmp_path)
    store.put("a", b"old")
    with pytest.raises(Exception, match="does not exist"):
        store.put_file("a", str(tmp_path / "missing"))
    assert store.get("a") == b"old"
    assert list(store.list("")) == ["a"]
    assert list((tmp_path / "objects/.unfinished").iterdir()) == []


def test_what_a_killed_writer_left_is_never_listed_and_swept_after_a_day(tmp_path: Path) -> None:
    local(tmp_path).put("a", b"x")
    left = tmp_path / "objects/.unfinished/left"
    left.write_bytes(b"half")
    assert list(local(tmp_path).list("")) == ["a"]
    os.utime(left, (time.time() - 90_000,) * 2)
    local(tmp_path).put("b", b"x")
    assert not left.exists()


def test_a_put_beside_a_delete_of_its_folder_succeeds(tmp_path: Path) -> None:
    store = local(tmp_path)
    stop = threading.Event()

    def delete_again_and_again() -> None:
        while not stop.is_set():
            store.delete("kb/doc/other")

    thread = threading.Thread(target=delete_again_and_again)
    thread.start()
    try:
        for number in range(100):
            store.put("kb/doc/a", str(number).encode())
            assert store.get("kb/doc/a") == str(number).encode()
            store.delete("kb/doc/a")
    finally:
        stop.set()
        thread.join()


def test_a_link_inside_the_folder_is_removed_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/keep").write_bytes(b"x")
    store = local(tmp_path)
    store.put("kb/a", b"x")
    (tmp_path / "objects/kb/link").symlink_to(tmp_path / "outside")
    store.delete_prefix("kb")
    assert (tmp_path / "outside/keep").read_bytes() == b"x"


@pytest.mark.parametrize("url", ["ftp://host/x", "s3://", "s3:///key"])
def test_a_url_that_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(InvalidSettingError):
        FsspecObjectStore(url)


def test_an_unreachable_s3_server_is_an_outage_within_seconds() -> None:
    store = FsspecObjectStore(
        "s3://bucket/x", S3Options(endpoint_url="http://127.0.0.1:9", access_key="a", secret_key="b", timeout=2)
    )
    start = time.monotonic()
    with pytest.raises(StoreUnavailableError):
        store.get("a")
    with pytest.raises(StoreUnavailableError):
        list(store.list(""))
    assert time.monotonic() - start < 20


def test_wrong_credentials_are_an_outage_not_a_missing_object(s3_server: object) -> None:
    store = FsspecObjectStore(
        "s3://bucket/x", S3Options(endpoint_url=s3_server.endpoint_url, access_key="wrong", secret_key="wrong")
    )
    with pytest.raises(StoreUnavailableError):
        store.exists("a")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """S3 operation -> how often it was asked for. The second UploadPart fails where "fail" is set."""
    counts: Counter[str] = Counter()
    call = AioBaseClient._make_api_call

    async def counted(self: Any, operation: str, parameters: Any) -> Any:
        counts[operation] += 1
        if counts["fail"] and operation == "UploadPart" and counts[operation] == 2:
            raise ClientError({"Error": {"Code": "InvalidPart", "Message": "no room"}}, operation)
        return await call(self, operation, parameters)

    monkeypatch.setattr(AioBaseClient, "_make_api_call", counted)
    yield counts


def test_a_large_object_goes_to_s3_in_parts_and_is_seen_whole_or_not_at_all(
    s3_server: S3Server, tmp_path: Path, asked: Counter[str]
) -> None:
    store = FsspecObjectStore(
        f"s3://{s3_server.new_prefix()}",
        S3Options(
            endpoint_url=s3_server.endpoint_url, access_key=s3_server.access_key, secret_key=s3_server.secret_key
        ),
    )
    content = os.urandom(1024) * (17 * 1024)
    (tmp_path / "large").write_bytes(content)
    store.put_file("kb/large", str(tmp_path / "large"))
    assert (asked["UploadPart"], asked["CompleteMultipartUpload"]) == (3, 1)
    assert store.get("kb/large") == content
    asked.clear()
    asked["fail"] = 1
    for put in (lambda: store.put_file("kb/large", str(tmp_path / "large")), lambda: store.put("kb/large", content)):
        asked["UploadPart"] = 0
        with pytest.raises(StoreUnavailableError, match="no room"):
            put()
    assert (asked["CompleteMultipartUpload"], asked["AbortMultipartUpload"]) == (0, 2), "no parts are left behind"
    assert store.get("kb/large") == content, "the old one is still there, whole"
