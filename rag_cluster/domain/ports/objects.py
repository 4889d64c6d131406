"""Files and objects: the user's inputs, our objects, and the snapshots among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from rag_cluster.domain.blocks import Block
from rag_cluster.domain.chunks import Part, PartContent, Snapshot
from rag_cluster.domain.documents import SourceFile
from rag_cluster.domain.inventory import StoredObject


class InputFiles(Protocol):
    """The user's files where they lie (local folder, s3://...)."""

    def list(self, location: str) -> Iterator[SourceFile | InputProblem]:
        """Stream what a path, glob or prefix holds, in bounded memory; problems are rows, not exceptions."""
        ...

    def fetch(self, uri: str, path: str) -> tuple[str, int]:
        """Copy to a local path; (sha256 hex, bytes). SourceUnavailableError, NotFoundError."""
        ...

    def covers(self, location: str) -> Callable[[str], bool]:
        """Whether a file of a URI would be listed by a location, if it were there."""
        ...


@dataclass(frozen=True, slots=True)
class InputProblem:
    """An input that cannot be ingested, with the reason: unreadable, broken symlink, special file ..."""

    uri: str
    error_type: str
    message: str


class ObjectStore(Protocol):
    """Our own objects. Keys are relative, "/"-separated, made by `stores.objects` key functions. Writes are atomic."""

    def put(self, key: str, content: bytes) -> None: ...

    def put_file(self, key: str, path: str) -> None: ...

    def get(self, key: str) -> bytes:
        """NotFoundError when absent."""
        ...

    def open(self, key: str) -> BinaryIO: ...

    def exists(self, key: str) -> bool: ...

    def size(self, key: str) -> int: ...

    def delete(self, key: str) -> None:
        """Deleting what is absent is no error."""
        ...

    def delete_prefix(self, prefix: str) -> int:
        """Delete everything below; how many."""
        ...

    def list(self, prefix: str) -> Iterator[str]: ...

    def entries(self, prefix: str) -> Iterator[StoredObject]:
        """As `list`, with size and time; folder by folder in the order of their names, so that what one document owns
        comes together. One listing, in bounded memory."""
        ...


class SnapshotStore(Protocol):
    """Parquet snapshots of versions; a torn one is never seen."""

    def save(self, snapshot: Snapshot) -> None: ...

    def read_part(self, knowledge_base_id: str, part: Part) -> PartContent:
        """Chunks [start, end) of the version and their parents. NotFoundError without a snapshot."""
        ...

    def read_blocks(self, knowledge_base_id: str, document_id: str, version: int) -> list[Block]: ...

    def load(self, knowledge_base_id: str, document_id: str, version: int) -> Snapshot:
        """The whole snapshot. NotFoundError."""
        ...

    def verify(self, knowledge_base_id: str, document_id: str, version: int) -> list[str]:
        """Read every page against its checksum; the chunk ids in order. NotFoundError, CorruptSnapshotError."""
        ...

    def exists(self, knowledge_base_id: str, document_id: str, version: int) -> bool: ...

    def delete(self, knowledge_base_id: str, document_id: str, version: int) -> None: ...
