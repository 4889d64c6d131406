"""Originals that were not copied (`ingest --reference`): they lie where they were listed, and are the user's.

Nothing here writes or deletes there. What comes from there is either the very bytes that the version was made of, or an
error that says what became of them: a changed file must not pass for what was cited.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import BinaryIO

from rag_cluster.domain import keys
from rag_cluster.domain.documents import Document, DocumentVersion, SourceFile
from rag_cluster.domain.ports import InputFiles, ObjectStore
from rag_cluster.errors import NotFoundError, OriginalChangedError, OriginalGoneError, SourceUnavailableError

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


def open_original(
    inputs: InputFiles, objects: ObjectStore, document: Document, version: DocumentVersion
) -> tuple[BinaryIO, int]:
    """A version's original as an open stream, and its bytes, wherever it lies. NotFoundError, and for a referenced one
    as `fetch_referenced`. A referenced one is read whole before its first byte is given, to know that it is the one."""
    if not version.referenced:
        key = keys.source_key(document.knowledge_base_id, document.id, version.version, document.filename)
        return objects.open(key), objects.size(key)
    with tempfile.NamedTemporaryFile(prefix="rag-cluster-") as copy:
        _, size = fetch_referenced(inputs, document.uri, version.sha256, copy.name)
        return Path(copy.name).open("rb"), size  # without its name it goes when it is closed
