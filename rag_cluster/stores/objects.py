"""Our own objects: originals, assets, snapshots, on a local folder or S3. Keys come from `rag_cluster.domain.keys`.

A write is seen whole or not at all: locally by a temporary file, fsync and rename, on S3 by the protocol itself.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from rag_cluster.domain.inventory import StoredObject
from rag_cluster.errors import InvalidRequestError, InvalidSettingError, NotFoundError, StoreUnavailableError
from rag_cluster.stores.s3 import S3Options, list_pages, split_bucket, translated_errors

_SEGMENT = re.compile(r"[^/\\\x00-\x1f\x7f]+")
_UNFINISHED = ".unfinished"
_UNFINISHED_SECONDS = 24 * 3600
_COPY_BYTES = 1024 * 1024
_FOLDERS = threading.Lock()
"""Making a folder for an object and taking an empty one away exclude each other inside a process."""
_RENAME_ATTEMPTS = 50
_PART_BYTES = 8 * 1024 * 1024
_PARTS_AT_ONCE = 4
"""Of a multipart upload to S3: what a process holds of a file, however large that is."""
_DELETE_BATCH = 1000  # what S3 takes in one request


def checked_key(key: str) -> str:
    """The key itself. InvalidRequestError when it could leave the store or name a directory."""
    segments = key.split("/")
    if (
        len(key.encode("utf-8", "replace")) > 1024
        or segments[0] == _UNFINISHED
        or any(part in (".", "..") or not _SEGMENT.fullmatch(part) for part in segments)
    ):
        raise InvalidRequestError(f"Not an object key: {key[:200]!r}")
    return key


class _Backend(Protocol):
    """Keys are checked and prefixes end in "/" (or are "", for listing only) when they arrive here."""

    def put(self, key: str, content: bytes) -> None: ...

    def put_file(self, key: str, path: str) -> None: ...

    def get(self, key: str) -> bytes: ...

    def open(self, key: str) -> BinaryIO: ...

    def size(self, key: str) -> int: ...

    def delete(self, key: str) -> None: ...

    def delete_prefix(self, prefix: str) -> int: ...

    def entries(self, prefix: str) -> Iterator[StoredObject]: ...


class FsspecObjectStore:
    """`ObjectStore` on file:///folder (taken literally, without percent-decoding), a plain path, or s3://bucket/prefix.

    Connects at first use, so that it can be pickled. Every call raises StoreUnavailableError on an outage.
    """

    def __init__(self, url: str, s3: S3Options = S3Options()) -> None:
        self.url = url
        scheme, separator, rest = url.partition("://")
        if separator and scheme == "s3":
            if not split_bucket(rest)[0]:
                raise InvalidSettingError(f"RAG_OBJECT_URL names no bucket: {url!r}")
            self._backend: _Backend = _S3Folder(rest.strip("/"), s3)
        elif not separator or scheme == "file":
            self._backend = _LocalFolder(Path(rest if separator else url).expanduser().absolute())
        else:
            raise InvalidSettingError(f"RAG_OBJECT_URL takes file:// and s3://, not {scheme}://")

    def put(self, key: str, content: bytes) -> None:
        """Write an object, replacing what is there."""
        checked_key(key)
        with translated_errors(f"Object {key}", StoreUnavailableError):
            self._backend.put(key, content)

    def put_file(self, key: str, path: str) -> None:
        """Write an object from a local file, without holding it in memory."""
        checked_key(key)
        with translated_errors(f"Object {key} from {path}", StoreUnavailableError):
            self._backend.put_file(key, path)

    def get(self, key: str) -> bytes:
        """The whole object. NotFoundError."""
        checked_key(key)
        with translated_errors(f"Object {key}", StoreUnavailableError):
            return self._backend.get(key)

    def open(self, key: str) -> BinaryIO:
        """A seekable stream that reads what is asked for. NotFoundError, at once."""
        checked_key(key)
        with translated_errors(f"Object {key}", StoreUnavailableError):
            return self._backend.open(key)

    def exists(self, key: str) -> bool:
        """Whether there is an object of exactly this key."""
        checked_key(key)
        try:
            with translated_errors(f"Object {key}", StoreUnavailableError):
                self._backend.size(key)
        except NotFoundError:
            return False
        return True

    def size(self, key: str) -> int:
        """Bytes of an object. NotFoundError."""
        checked_key(key)
        with translated_errors(f"Object {key}", StoreUnavailableError):
            return self._backend.size(key)

    def delete(self, key: str) -> None:
        """Delete an object; deleting what is absent is no error."""
        checked_key(key)
        with translated_errors(f"Object {key}", StoreUnavailableError):
            self._backend.delete(key)

    def delete_prefix(self, prefix: str) -> int:
        """Delete everything below a prefix, taken as a folder ("a/b" never touches "a/bc"); how many objects."""
        folder = checked_key(prefix.rstrip("/")) + "/"
        with translated_errors(f"Objects below {folder}", StoreUnavailableError):
            return self._backend.delete_prefix(folder)

    def list(self, prefix: str) -> Iterator[str]:
        """Keys below a prefix, taken as a folder; "" lists all."""
        return (entry.key for entry in self.entries(prefix))

    def entries(self, prefix: str) -> Iterator[StoredObject]:
        """Keys with sizes and times, as `list`, folder by folder in the order of their names."""
        folder = checked_key(prefix.rstrip("/")) + "/" if prefix else ""
        with translated_errors(f"Objects below {folder or self.url}", StoreUnavailableError):
            yield from self._backend.entries(folder)


class _LocalFolder:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._swept = False

    def put(self, key: str, content: bytes) -> None:
        self._write(key, lambda target: target.write(content))

    def put_file(self, key: str, path: str) -> None:
        with Path(path).open("rb") as source:
            self._write(key, lambda target: shutil.copyfileobj(source, target, _COPY_BYTES))

    def get(self, key: str) -> bytes:
        return (self._root / key).read_bytes()

    def open(self, key: str) -> BinaryIO:
        return (self._root / key).open("rb")

    def size(self, key: str) -> int:
        path = self._root / key
        if path.is_dir():
            raise IsADirectoryError(key)
        return path.stat().st_size

    def delete(self, key: str) -> None:
        path = self._root / key
        path.unlink(missing_ok=True)
        self._remove_empty(path.parent)

    def delete_prefix(self, prefix: str) -> int:
        folder = self._root / prefix
        count = 0
        for parent, _, names in os.walk(folder, topdown=False):
            for name in names:
                (Path(parent) / name).unlink(missing_ok=True)
                count += 1
            self._remove_empty(Path(parent))
        return count

    def entries(self, prefix: str) -> Iterator[StoredObject]:
        folder = self._root / prefix
        for parent, folders, names in os.walk(folder):
            folders.sort()
            if Path(parent) == self._root and _UNFINISHED in folders:
                folders.remove(_UNFINISHED)
            for name in sorted(names):
                path = Path(parent) / name
                try:
                    state = path.stat()
                except FileNotFoundError:
                    continue  # deleted since
                modified = datetime.fromtimestamp(state.st_mtime, UTC)
                yield StoredObject(path.relative_to(self._root).as_posix(), state.st_size, modified)

    def _write(self, key: str, fill: Callable[[BinaryIO], Any]) -> None:
        target = self._root / key
        unfinished = self._unfinished() / uuid.uuid4().hex
        try:
            with unfinished.open("xb") as file:
                fill(file)
                file.flush()
                os.fsync(file.fileno())
            self._rename(unfinished, target)
        finally:
            unfinished.unlink(missing_ok=True)

    def _rename(self, unfinished: Path, target: Path) -> None:
        for attempt in itertools.count(1):
            try:
                with _FOLDERS:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    unfinished.replace(target)
                break
            except FileNotFoundError:
                # A delete in another process found the folder empty and took it away.
                if attempt == _RENAME_ATTEMPTS:
                    raise
                time.sleep(random.uniform(0, 0.002 * attempt))  # noqa: S311 - two processes in step must part
        # Without this the new name may be lost by a power failure.
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _unfinished(self) -> Path:
        folder = self._root / _UNFINISHED
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._swept:
            self._swept = True
            for path in folder.iterdir():  # of writers that were killed
                try:
                    if time.time() - path.stat().st_mtime > _UNFINISHED_SECONDS:
                        path.unlink()
                except FileNotFoundError:
                    continue
        return folder

    def _remove_empty(self, folder: Path) -> None:
        while folder != self._root and self._root in folder.parents:
            try:
                with _FOLDERS:
                    folder.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                return  # not empty
            folder = folder.parent


class _S3Folder:
    def __init__(self, root: str, options: S3Options) -> None:
        self._root = root
        self._options = options
        self._connected: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_connected": None}

    @property
    def _files(self) -> Any:
        if self._connected is None:
            self._connected = self._options.connect()
        return self._connected

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    def put(self, key: str, content: bytes) -> None:
        self._files.pipe_file(self._path(key), content, chunksize=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE)

    def put_file(self, key: str, path: str) -> None:
        # Twice a part and more goes up in parts: seen when the last one is there, or never.
        self._files.put_file(path, self._path(key), chunksize=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE)

    def get(self, key: str) -> bytes:
        content: bytes = self._files.cat_file(self._path(key))
        return content

    def open(self, key: str) -> BinaryIO:
        self.size(key)
        stream: BinaryIO = self._files.open(self._path(key), "rb", block_size=_COPY_BYTES)
        return stream

    def size(self, key: str) -> int:
        info = self._files.info(self._path(key))
        if info["type"] != "file":
            raise IsADirectoryError(key)
        return int(info["size"])

    def delete(self, key: str) -> None:
        bucket, path = split_bucket(self._path(key))
        self._files.call_s3("delete_object", Bucket=bucket, Key=path)

    def delete_prefix(self, prefix: str) -> int:
        bucket, folder = split_bucket(self._path(prefix))
        entries = list_pages(self._files, bucket, folder)
        count = 0
        while batch := [{"Key": entry["Key"]} for entry in itertools.islice(entries, _DELETE_BATCH)]:
            reply = self._files.call_s3("delete_objects", Bucket=bucket, Delete={"Objects": batch, "Quiet": True})
            if failed := reply.get("Errors"):
                raise OSError(f"{len(failed)} objects were not deleted, the first: {failed[0]}")
            count += len(batch)
        return count

    def entries(self, prefix: str) -> Iterator[StoredObject]:
        bucket, folder = split_bucket(self._path(prefix))
        skip = len(split_bucket(self._root)[1])
        for entry in list_pages(self._files, bucket, folder):
            key: str = entry["Key"]
            if not key.endswith("/"):
                yield StoredObject(key[skip:].lstrip("/"), int(entry["Size"]), entry["LastModified"])
