"""Originals as they are read again: copies in the object store, and those that were not copied (`ingest --reference`).

The latter lie where they were listed, and are the user's: nothing here writes or deletes there. What comes from either
place is the very bytes that the version was made of, or an error that says what became of them: a changed file or a
damaged object must not pass for what was cited.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import BinaryIO

from rag_cluster.domain import keys
from rag_cluster.domain.documents import Document, DocumentVersion, SourceFile
from rag_cluster.domain.ports import InputFiles, ObjectStore
from rag_cluster.errors import (
    CorruptObjectError,
    NotFoundError,
    OriginalChangedError,
    OriginalGoneError,
    SourceUnavailableError,
)

_COPY_BYTES = 1024 * 1024
_GONE = ("broken_link", "special_file")


def referenced_file(inputs: InputFiles, uri: str) -> SourceFile:
    """The file as its place tells it now, without reading it. OriginalGoneError; SourceUnavailableError when it is
    there but cannot be read."""
    try:
        found = next(iter(inputs.list(uri)), None)
    except NotFoundError as error:
        raise OriginalGoneError(f"the original {uri} is not there any more") from error
    if isinstance(found, SourceFile) and found.uri == uri:
        return found
    if found is None or isinstance(found, SourceFile) or found.error_type in _GONE:
        raise OriginalGoneError(f"the original {uri} is not there any more")
    raise SourceUnavailableError(f"the original {uri} cannot be read: {found.message}")


def fetch_referenced(inputs: InputFiles, uri: str, sha256: str | None, path: str) -> tuple[str, int]:
    """Copy the original to a local path: (sha256 hex, bytes). OriginalGoneError; OriginalChangedError when other bytes
    lie there than `sha256` says (None: any will do); SourceUnavailableError."""
    try:
        found, size = inputs.fetch(uri, path)
    except NotFoundError as error:
        raise OriginalGoneError(f"the original {uri} is not there any more") from error
    if sha256 is not None and found != sha256:
        raise changed(uri)
    return found, size


def changed(uri: str) -> OriginalChangedError:
    """The error of a place that holds other bytes by now."""
    return OriginalChangedError(f"the original {uri} has changed since it was ingested; ingest it again")


def fetch_stored(objects: ObjectStore, key: str, sha256: str | None, path: str) -> tuple[str, int]:
    """Copy a stored original to a local path: (sha256 hex, bytes). NotFoundError; CorruptObjectError when it is not
    what `sha256` says (None: any will do)."""
    digest, size = hashlib.sha256(), 0
    with objects.open(key) as original, Path(path).open("wb") as copy:
        while block := original.read(_COPY_BYTES):
            digest.update(block)
            copy.write(block)
            size += len(block)
    found = digest.hexdigest()
    if sha256 is not None and found != sha256:
        raise CorruptObjectError(f"the stored original {key} is damaged; ingest or upload its document again")
    return found, size


def open_original(
    inputs: InputFiles, objects: ObjectStore, document: Document, version: DocumentVersion
) -> tuple[BinaryIO, int]:
    """A version's original as an open stream, and its bytes, wherever it lies. It is read whole before its first byte
    is given, to know that it is the one. NotFoundError; errors of `fetch_stored` or `fetch_referenced`."""
    with tempfile.NamedTemporaryFile(prefix="rag-cluster-") as copy:
        if version.referenced:
            _, size = fetch_referenced(inputs, document.uri, version.sha256, copy.name)
        else:
            key = keys.source_key(document.knowledge_base_id, document.id, version.version, document.filename)
            _, size = fetch_stored(objects, key, version.sha256, copy.name)
        return Path(copy.name).open("rb"), size  # without its name it goes when it is closed
