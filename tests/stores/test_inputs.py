"""Inputs: every file of a listing is accounted for, and what is fetched is what was listed."""

from __future__ import annotations

import hashlib
import os
import pickle
import socket
from pathlib import Path
from typing import Any

import pytest

from rag_cluster.domain.documents import SourceFile
from rag_cluster.domain.ports import InputProblem
from rag_cluster.errors import InvalidRequestError, NotFoundError, SourceUnavailableError
from rag_cluster.stores import inputs as module
from rag_cluster.stores.inputs import FsspecInputFiles
from rag_cluster.stores.s3 import S3Options
from tests.fixtures.s3 import S3Server


@pytest.fixture
def inputs() -> FsspecInputFiles:
    return FsspecInputFiles()


def write(path: Path, content: bytes = b"content") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def names(inputs: FsspecInputFiles, location: object) -> list[str]:
    """filename of files, error_type of problems, in order."""
    return [row.filename if isinstance(row, SourceFile) else row.error_type for row in inputs.list(str(location))]


def problems(inputs: FsspecInputFiles, location: object) -> dict[str, str]:
    return {
        row.uri.rpartition("/")[2]: row.error_type
        for row in inputs.list(str(location))
        if isinstance(row, InputProblem)
    }


def test_a_file_is_listed_with_uri_size_and_modification_time(inputs: FsspecInputFiles, tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"12345")
    os.utime(path, ns=(1, 1_700_000_000_123_456_789))
    assert list(inputs.list(str(path))) == [SourceFile(f"file://{path}", "a.txt", 5, "1700000000123456789")]


def test_a_folder_is_listed_recursively_in_a_fixed_order(inputs: FsspecInputFiles, tmp_path: Path) -> None:
    for name in ("b/2.txt", "b/1.txt", "c.txt", "a/x/y.txt", "a.txt"):
        write(tmp_path / name)
    assert names(inputs, tmp_path) == ["y.txt", "a.txt", "1.txt", "2.txt", "c.txt"]


def test_a_relative_path_gives_absolute_uris(
    inputs: FsspecInputFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "docs/a.txt")
    monkeypatch.chdir(tmp_path)
    assert [row.uri for row in inputs.list("docs")] == [f"file://{tmp_path}/docs/a.txt"]
    assert [row.uri for row in inputs.list("./docs/../docs/a.txt")] == [f"file://{tmp_path}/docs/a.txt"]


@pytest.mark.parametrize("name", ["带 空格 的.txt", "a#b?c%20d.txt", "quote'\"[1].txt", "new\nline.txt", "é\u0301.txt"])
def test_a_uri_with_any_name_leads_back_to_its_file(inputs: FsspecInputFiles, tmp_path: Path, name: str) -> None:
    write(tmp_path / "目录" / name, name.encode())
    (row,) = inputs.list(str(tmp_path))
    assert isinstance(row, SourceFile)
    assert row.filename == name
    assert row.uri.isascii()
    assert list(inputs.list(row.uri)) == [row]
    digest, size = inputs.fetch(row.uri, str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == name.encode()
    assert (digest, size) == (hashlib.sha256(name.encode()).hexdigest(), len(name.encode()))


def test_a_name_that_is_not_utf8_can_be_shown_and_fetched(inputs: FsspecInputFiles, tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/\xff.txt", "wb") as file:
        file.write(b"x")
    (row,) = inputs.list(str(tmp_path))
    assert row.filename == "\ufffd.txt"
    assert inputs.fetch(row.uri, str(tmp_path / "copy"))[1] == 1


def test_a_glob_lists_what_it_matches(inputs: FsspecInputFiles, tmp_path: Path) -> None:
    for name in ("a.pdf", "b.txt", "sub/c.pdf", "sub/deep/d.pdf", "other/e.pdf"):
        write(tmp_path / name)
    assert names(inputs, tmp_path / "*.pdf") == ["a.pdf"]
    assert names(inputs, tmp_path / "sub/*.pdf") == ["c.pdf"]
    assert names(inputs, tmp_path / "*/*.pdf") == ["e.pdf", "c.pdf"]
    assert names(inputs, tmp_path / "**/*.pdf") == ["a.pdf", "e.pdf", "c.pdf", "d.pdf"]
    assert names(inputs, tmp_path / "[ab].*") == ["a.pdf", "b.txt"]


def test_a_path_with_wildcard_signs_that_exists_is_taken_literally(inputs: FsspecInputFiles, tmp_path: Path) -> None:
    write(tmp_path / "[draft] a.txt")
    write(tmp_path / "d a.txt")
    assert names(inputs, tmp_path / "[draft] a.txt") == ["[draft] a.txt"]


@pytest.mark.parametrize("location", ["missing", "missing/*.pdf", "*.nothing"])
def test_what_is_not_there_is_not_found_at_once(inputs: FsspecInputFiles, tmp_path: Path, location: str) -> None:
    with pytest.raises(NotFoundError):
        inputs.list(str(tmp_path / location))


@pytest.mark.parametrize("location", ["", "a\x00b", "http://host/x", "file://other-host/x", "s3://"])
def test_a_location_of_no_known_form_is_refused(inputs: FsspecInputFiles, location: str) -> None:
    with pytest.raises(InvalidRequestError):
        inputs.list(location)


def test_an_empty_folder_lists_nothing(inputs: FsspecInputFiles, tmp_path: Path) -> None:
    assert list(inputs.list(str(tmp_path))) == []


def test_hidden_and_lock_files_are_reported_and_hidden_folders_not_entered(
    inputs: FsspecInputFiles, tmp_path: Path
) -> None:
    for name in (".hidden", "~$report.docx", ".git/config", "shown.txt"):
        write(tmp_path / name)
    assert problems(inputs, tmp_path) == dict.fromkeys([".hidden", "~%24report.docx", ".git"], "skipped_hidden")
    assert names(inputs, tmp_path / ".hidden") == [".hidden"]


def test_links_special_files_and_unreadable_files_are_rows(inputs: FsspecInputFiles, tmp_path: Path) -> None:
    write(tmp_path / "real.txt")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "good-link").symlink_to("real.txt")
    os.mkfifo(tmp_path / "pipe")
    server = socket.socket(socket.AF_UNIX)
    server.bind(os.path.relpath(tmp_path / "sock"))
    server.close()
    assert names(inputs, tmp_path) == [
        "broken_link",
        "good-link",
        "special_file",
        "real.txt",
        "broken_link",
        "special_file",
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_a_row(inputs: FsspecInputFiles, tmp_path: Path) -> None:
    write(tmp_path / "secret.txt").chmod(0)
    write(tmp_path / "closed/a.txt")
    (tmp_path / "closed").chmod(0)
    assert problems(inputs, tmp_path) == {"secret.txt": "unreadable", "closed": "unreadable"}


def test_an_unreadable_file_is_a_row(inputs: FsspecInputFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "open.txt")
    write(tmp_path / "机密.txt")
    monkeypatch.setattr(module.os, "access", lambda path, mode: Path(path).name == "open.txt")
    assert names(inputs, tmp_path) == ["open.txt", "unreadable"]


def test_an_unreadable_folder_is_a_row(
    inputs: FsspecInputFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "closed/a.txt")
    write(tmp_path / "open.txt")
    scandir = os.scandir

    def refusing(path: Path) -> object:
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(module.os, "scandir", refusing)
    assert names(inputs, tmp_path) == ["unreadable", "open.txt"]


def test_link_loops_end_and_a_linked_folder_outside_is_listed_once(inputs: FsspecInputFiles, tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    write(root / "a/file.txt")
    write(outside / "out.txt")
    (root / "a/up").symlink_to(root)
    (root / "a/above").symlink_to(tmp_path)
    (root / "inside").symlink_to(root / "a")
    (root / "link1").symlink_to(outside)
    (root / "link2").symlink_to(outside)
    (outside / "again").symlink_to(outside)
    assert names(inputs, root) == [
        "skipped_link",  # a/above
        "file.txt",
        "skipped_link",  # a/up
        "skipped_link",  # inside
        "skipped_link",  # link1/again
        "out.txt",
        "skipped_link",  # link2
    ]


def test_a_location_that_is_itself_a_link_is_followed(inputs: FsspecInputFiles, tmp_path: Path) -> None:
    write(tmp_path / "real/a.txt")
    (tmp_path / "link").symlink_to("real")
    assert [row.uri for row in inputs.list(str(tmp_path / "link"))] == [f"file://{tmp_path}/link/a.txt"]


def test_fetching_what_is_gone_or_no_file_fails_clearly(inputs: FsspecInputFiles, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        inputs.fetch(f"file://{tmp_path}/gone", str(tmp_path / "copy"))
    with pytest.raises(NotFoundError):
        (tmp_path / "folder").mkdir()
        inputs.fetch(f"file://{tmp_path}/folder/below", str(tmp_path / "copy"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceUnavailableError):
        inputs.fetch(f"file://{tmp_path}/pipe", str(tmp_path / "copy"))


def test_a_file_that_changes_while_it_is_read_is_refused(
    inputs: FsspecInputFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.bin", b"x" * 3_000_000)

    class Interrupted:
        """A digest during whose first block somebody appends to the file."""

        def __init__(self) -> None:
            self.blocks = 0

        def update(self, block: bytes) -> None:
            self.blocks += 1
            if self.blocks == 1:
                with path.open("ab") as file:
                    file.write(b"y")

        def hexdigest(self) -> str:
            return ""

    monkeypatch.setattr(module.hashlib, "sha256", Interrupted)
    with pytest.raises(SourceUnavailableError, match="changed"):
        inputs.fetch(path.as_uri(), str(tmp_path / "copy"))


def test_the_listing_streams(inputs: FsspecInputFiles, tmp_path: Path) -> None:
    for number in range(50):
        write(tmp_path / f"d{number:02}/a.txt")
    rows = inputs.list(str(tmp_path))
    next(rows)
    write(tmp_path / "d49/b.txt")
    assert sum(1 for _ in rows) == 50


# -- S3 --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    root = s3_server.new_prefix()
    files = s3_server.filesystem()
    for key in ("docs/b.pdf", "docs/中 文#?.txt", "docs/sub/c.pdf", "docs/.hidden", "docs/~$x.docx", "docs2/d.pdf"):
        files.pipe_file(f"{root}/{key}", key.encode())
    return root


@pytest.fixture
def s3(s3_server: S3Server) -> FsspecInputFiles:
    created = FsspecInputFiles(
        S3Options(
            endpoint_url=s3_server.endpoint_url,
            access_key=s3_server.access_key,
            secret_key=s3_server.secret_key,
            timeout=20,
        )
    )
    return pickle.loads(pickle.dumps(created))


@pytest.fixture
def s3_off() -> FsspecInputFiles:
    return FsspecInputFiles(S3Options(endpoint_url="http://127.0.0.1:9", access_key="a", secret_key="b"))


def test_an_s3_prefix_is_a_folder(s3: FsspecInputFiles, bucket: str) -> None:
    for location in (f"s3://{bucket}/docs", f"s3://{bucket}/docs/"):
        assert names(s3, location) == ["skipped_hidden", "b.pdf", "c.pdf", "skipped_hidden", "中 文#?.txt"]


def test_an_s3_object_has_uri_size_and_etag_and_is_fetched(s3: FsspecInputFiles, bucket: str, tmp_path: Path) -> None:
    content = "docs/中 文#?.txt".encode()
    (row,) = s3.list(f"s3://{bucket}/docs/中 文#?.txt")
    assert row == SourceFile(
        f"s3://{bucket}/docs/中 文#?.txt", "中 文#?.txt", len(content), hashlib.md5(content).hexdigest()
    )
    assert s3.fetch(row.uri, str(tmp_path / "copy")) == (hashlib.sha256(content).hexdigest(), len(content))
    assert (tmp_path / "copy").read_bytes() == content


def test_an_s3_glob_lists_what_it_matches(s3: FsspecInputFiles, bucket: str) -> None:
    assert names(s3, f"s3://{bucket}/docs/*.pdf") == ["b.pdf"]
    assert names(s3, f"s3://{bucket}/docs*/**/*.pdf") == ["b.pdf", "c.pdf", "d.pdf"]


@pytest.mark.parametrize("location", ["s3://no-such-bucket/x", "s3://{bucket}/nothing", "s3://{bucket}/*.none"])
def test_what_s3_does_not_hold_is_not_found_at_once(s3: FsspecInputFiles, bucket: str, location: str) -> None:
    with pytest.raises(NotFoundError):
        s3.list(location.format(bucket=bucket))


def test_fetching_an_absent_s3_object_is_not_found(s3: FsspecInputFiles, bucket: str, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        s3.fetch(f"s3://{bucket}/nothing", str(tmp_path / "copy"))


class Page(dict[str, Any]):
    """One page of a listing, which tells how many of its kind are held at once."""

    alive = 0

    def __init__(self, *values: Any, **more: Any) -> None:
        super().__init__(*values, **more)
        type(self).alive += 1

    def __del__(self) -> None:
        type(self).alive -= 1


class EndlessBucket:
    """What an s3fs filesystem is asked while a bucket with so many keys is listed."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.calls: list[str] = []
        self.most_alive = 0

    def call_s3(self, method: str, *, Bucket: str, Prefix: str, MaxKeys: int, ContinuationToken: str = "0") -> Page:
        self.calls.append(method)
        first = int(ContinuationToken)
        last = min(first + MaxKeys, self.count)
        keys = [{"Key": f"{Prefix}{n:09}.pdf", "Size": n, "ETag": f'"{n:x}"'} for n in range(first, last)]
        page = Page(Contents=keys, IsTruncated=last < self.count, NextContinuationToken=str(last))
        self.most_alive = max(self.most_alive, Page.alive)
        return page


def test_a_million_s3_keys_are_listed_page_by_page_and_two_pages_are_held_at_most(
    s3_off: FsspecInputFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 1_000_000 if os.environ.get("RAG_FULL_COUNTS") else 20_500
    bucket = EndlessBucket(count)
    monkeypatch.setattr(S3Options, "connect", lambda self: bucket)
    rows = s3_off.list("s3://bucket/docs/")
    assert len(bucket.calls) == 1, "nothing is listed ahead"
    seen = sum(1 for row in rows if isinstance(row, SourceFile))
    assert seen == count
    assert bucket.calls == ["list_objects_v2"] * -(-count // 1000)
    assert bucket.most_alive <= 2


def test_s3_listings_are_not_remembered(s3: FsspecInputFiles, s3_server: S3Server, bucket: str) -> None:
    before = names(s3, f"s3://{bucket}/docs/")
    s3_server.filesystem().pipe_file(f"{bucket}/docs/z.pdf", b"new")
    assert sorted(names(s3, f"s3://{bucket}/docs/")) == sorted([*before, "z.pdf"])


def test_an_s3_that_cannot_be_reached_is_an_outage(tmp_path: Path) -> None:
    files = FsspecInputFiles(S3Options(endpoint_url="http://127.0.0.1:9", access_key="a", secret_key="b", timeout=2))
    with pytest.raises(SourceUnavailableError):
        files.fetch("s3://bucket/key", str(tmp_path / "copy"))
