"""The user's files where they lie: a file, a folder, a glob, or s3://bucket/prefix.

Listing streams in a fixed order (names sorted within each folder; S3 in key order) and holds one folder's names at a
time. What cannot be ingested is a row with its reason, so that every file is accounted for:

    unreadable       a file or folder that may not be read            special_file   a device, pipe or socket
    broken_link      a symbolic link to nothing                       skipped_hidden a name starting with "." or "~$"
    skipped_link     a link to a folder that is listed under its own name, or that leads back to where it came from
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from fsspec.utils import glob_translate

from rag_cluster.domain.documents import SourceFile
from rag_cluster.domain.ports import InputProblem
from rag_cluster.errors import InvalidRequestError, NotFoundError, SourceUnavailableError
from rag_cluster.stores.s3 import S3Options, list_pages, split_bucket, translated_errors

_COPY_BYTES = 1024 * 1024
_WILDCARD = re.compile(r"[*?\[]")
Listed = SourceFile | InputProblem


class FsspecInputFiles:
    """`InputFiles` on local paths, file:// URIs and s3:// URIs. Connects at first use, so that it can be pickled.

    A local file's URI is absolute and percent-encoded (`Path.as_uri`), its etag the modification time in nanoseconds;
    an S3 object's URI is s3://bucket/key with the key as it is, its etag the store's.
    """

    def __init__(self, s3: S3Options = S3Options()) -> None:
        self._options = s3
        self._connected: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the connection."""
        return {**vars(self), "_connected": None}

    def list(self, location: str) -> Iterator[Listed]:
        """Stream what a location holds. NotFoundError (at once) when there is nothing of that name.

        A path that exists is taken literally, even if it has wildcard signs in it. In a glob, `**` crosses folders.
        """
        if location.startswith("s3://"):
            return self._list_s3(location)
        path = _local_path(location)
        if os.path.lexists(path):
            return _LocalListing(path).rows()
        if _WILDCARD.search(str(path)):
            return _at_least_one(_list_glob(path), location)
        raise NotFoundError(f"{location} does not exist")

    def fetch(self, uri: str, path: str) -> tuple[str, int]:
        """Copy one listed file to a local path; (sha256 hex, bytes).

        NotFoundError when it is gone; SourceUnavailableError when it cannot be read, or changed while it was.
        """
        with translated_errors(uri, SourceUnavailableError):
            if uri.startswith("s3://"):
                return self._fetch_s3(uri, Path(path))
            return _fetch_local(_local_path(uri), Path(path))

    def covers(self, location: str) -> Callable[[str], bool]:
        """Whether a file of a URI would be listed by a location, if it were there. InvalidRequestError as in `list`."""
        if location.startswith("s3://"):
            bucket, key = split_bucket(location.removeprefix("s3://"))
            if _WILDCARD.search(key):
                matches = re.compile(re.escape(f"s3://{bucket}/") + glob_translate(key)).match
                return lambda uri: bool(matches(uri))
            exact = f"s3://{bucket}/{key.rstrip('/')}".rstrip("/")
        else:
            path = _local_path(location)
            if _WILDCARD.search(str(path)) and not os.path.lexists(path):
                matches = re.compile(glob_translate(str(path))).match
                return lambda uri: uri.startswith("file:") and bool(matches(str(_local_path(uri))))
            exact = path.as_uri().rstrip("/")
        return lambda uri: uri == exact or uri.startswith(f"{exact}/")

    @property
    def _files(self) -> Any:
        if self._connected is None:
            self._connected = self._options.connect()
        return self._connected

    def _list_s3(self, location: str) -> Iterator[Listed]:
        bucket, key = split_bucket(location.removeprefix("s3://"))
        if not bucket:
            raise InvalidRequestError(f"{location!r} names no bucket")
        with translated_errors(location, SourceUnavailableError):
            if key and not key.endswith("/"):
                # An object of exactly this name wins over a glob and over a folder.
                entry = next(iter(list_pages(self._files, bucket, key)), None)
                if entry and entry["Key"] == key:
                    return iter([_s3_file(bucket, entry)])
        return _at_least_one(self._s3_rows(bucket, key, location), location)

    def _s3_rows(self, bucket: str, key: str, location: str) -> Iterator[Listed]:
        wildcard = _WILDCARD.search(key)
        pattern = re.compile(glob_translate(key)) if wildcard else None
        prefix = key[: wildcard.start()].rpartition("/")[0] if wildcard else key.rstrip("/")
        prefix = f"{prefix}/" if prefix else ""
        with translated_errors(location, SourceUnavailableError):
            for entry in list_pages(self._files, bucket, prefix):
                name: str = entry["Key"]
                if name.endswith("/") or (pattern and not pattern.match(name)):
                    continue
                if any(_hidden(part) for part in name[len(prefix) :].split("/")):
                    yield InputProblem(f"s3://{bucket}/{name}", "skipped_hidden", "Hidden and lock files are not read")
                else:
                    yield _s3_file(bucket, entry)

    def _fetch_s3(self, uri: str, target: Path) -> tuple[str, int]:
        remote = uri.removeprefix("s3://")
        size = int(self._files.info(remote)["size"])
        self._files.get_file(remote, str(target))
        digest = hashlib.sha256()
        count = 0
        with target.open("rb") as copy:
            while block := copy.read(_COPY_BYTES):
                digest.update(block)
                count += len(block)
        if count != size:
            raise SourceUnavailableError(f"{uri}: {count} of {size} bytes arrived")
        return digest.hexdigest(), count


def _s3_file(bucket: str, entry: dict[str, Any]) -> SourceFile:
    key: str = entry["Key"]
    return SourceFile(
        uri=f"s3://{bucket}/{key}",
        filename=key.rpartition("/")[2],
        size=int(entry["Size"]),
        etag=str(entry["ETag"]).strip('"'),
    )


def _local_path(location: str) -> Path:
    """A local path or file:// URI as an absolute path; links are kept as they are named."""
    if location.startswith("file:"):
        parts = urlsplit(location)
        if parts.netloc not in ("", "localhost"):
            raise InvalidRequestError(f"{location!r} is on another machine")
        # Query and fragment are for the web; here they are signs that somebody did not encode.
        rest = location.partition("://")[2] or location.removeprefix("file:")
        path = os.fsdecode(unquote_to_bytes(rest.removeprefix("localhost")))
    elif re.match(r"[a-z][a-z0-9+.-]+://", location):
        raise InvalidRequestError(f"Inputs are local paths, file:// and s3://, not {location!r}")
    else:
        path = location
    if "\x00" in path or not path:
        raise InvalidRequestError("A path is neither empty nor holds NUL characters")
    return Path(os.path.abspath(os.path.expanduser(path)))  # noqa: PTH100, PTH111 -- resolve() would follow links


def _at_least_one(rows: Iterator[Listed], location: str) -> Iterator[Listed]:
    """The rows; NotFoundError now when there is none."""
    first = next(rows, None)
    if first is None:
        raise NotFoundError(f"{location} matches nothing")

    def chained() -> Iterator[Listed]:
        yield first
        yield from rows

    return chained()


def _hidden(name: str) -> bool:
    """A dot file, or the lock file that an office program keeps beside an open document."""
    return name.startswith((".", "~$"))


def _list_glob(pattern: Path) -> Iterator[Listed]:
    """Files that match a pattern. Folders that match are not entered: that takes `**`."""
    parts = pattern.parts
    fixed = next(i for i, part in enumerate(parts) if _WILDCARD.search(part))
    base = Path(*parts[:fixed])
    if not base.is_dir():
        return
    depth = None if "**" in parts else len(parts) - fixed
    matches = re.compile(glob_translate(str(pattern))).match
    # Only folders on the pattern's way are entered.
    yield from _LocalListing(
        base, depth=depth, enter=parts[fixed:-1], accept=lambda path: bool(matches(str(path)))
    ).rows()


class _LocalListing:
    """One walk through a folder."""

    def __init__(
        self,
        root: Path,
        *,
        depth: int | None = None,
        enter: tuple[str, ...] = (),
        accept: Callable[[Path], bool] | None = None,
    ) -> None:
        self._root = root
        self._depth = depth
        self._enter = enter
        self._accept = accept
        self._entered: set[tuple[int, int]] = set()
        """Folders outside the root that links led to; each is listed once."""

    def rows(self) -> Iterator[Listed]:
        if not self._root.is_dir():
            yield self._file(self._root)
            return
        real_root = Path(os.path.realpath(self._root))
        yield from self._folder(self._root, real_root, 0)

    def _folder(self, folder: Path, real_root: Path, level: int) -> Iterator[Listed]:
        try:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in entries)
        except OSError as error:
            yield _problem(folder, "unreadable", f"The folder cannot be read: {error.strerror}")
            return
        for name in names:
            path = folder / name
            if path.is_dir():
                if self._depth is None or (level + 1 < self._depth and fnmatch.fnmatchcase(name, self._enter[level])):
                    yield from self._subfolder(path, real_root, level)
            elif self._accept is None or self._accept(path):
                if _hidden(name):
                    yield _problem(path, "skipped_hidden", "Hidden and lock files are not read")
                else:
                    yield self._file(path)

    def _subfolder(self, path: Path, real_root: Path, level: int) -> Iterator[Listed]:
        if _hidden(path.name):
            yield _problem(path, "skipped_hidden", "Hidden folders are not entered")
            return
        if path.is_symlink():
            target = Path(os.path.realpath(path))
            if target == real_root or real_root in target.parents or target in real_root.parents:
                yield _problem(
                    path, "skipped_link", f"The link leads to {target}, which is listed or holds the listing"
                )
                return
            found = path.stat()
            if (found.st_dev, found.st_ino) in self._entered:
                yield _problem(path, "skipped_link", f"The link leads to {target}, which is already listed")
                return
            self._entered.add((found.st_dev, found.st_ino))
            yield from self._folder(path, real_root, level + 1)
            return
        yield from self._folder(path, real_root, level + 1)

    def _file(self, path: Path) -> Listed:
        try:
            found = path.stat()
        except FileNotFoundError:
            if path.is_symlink():
                return _problem(path, "broken_link", f"The link leads to nothing: {path.readlink()}")
            return _problem(path, "unreadable", "The file disappeared while it was listed")
        except OSError as error:
            return _problem(path, "broken_link" if path.is_symlink() else "unreadable", str(error.strerror))
        if not stat.S_ISREG(found.st_mode):
            return _problem(path, "special_file", "Not a regular file")
        if not os.access(path, os.R_OK):
            return _problem(path, "unreadable", "Permission denied")
        return SourceFile(path.as_uri(), _shown(path.name), found.st_size, str(found.st_mtime_ns))


def _problem(path: Path, error_type: str, message: str) -> InputProblem:
    return InputProblem(path.as_uri(), error_type, _shown(message))


def _shown(name: str) -> str:
    """A name that can be written anywhere: bytes that are not UTF-8 become replacement characters."""
    return os.fsencode(name).decode("utf-8", "replace")


def _fetch_local(source: Path, target: Path) -> tuple[str, int]:
    # O_NONBLOCK: opening a pipe that took the file's place would wait for its writer.
    descriptor = os.open(source, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb", buffering=0) as original, target.open("wb") as copy:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            raise SourceUnavailableError(f"{source} is not a regular file")
        digest = hashlib.sha256()
        count = 0
        while block := original.read(_COPY_BYTES):
            digest.update(block)
            copy.write(block)
            count += len(block)
        after = os.fstat(descriptor)
    if count != after.st_size or (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise SourceUnavailableError(f"{source} changed while it was read")
    return digest.hexdigest(), count
