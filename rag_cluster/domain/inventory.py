"""What the stores hold of a document, side by side, and the faults that a comparison may find (`lifecycle.fsck`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from rag_cluster.domain.chunks import Part
from rag_cluster.domain.documents import DocumentAsset, DocumentStatus


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object as a listing tells it."""

    key: str
    size: int
    """Bytes."""
    modified_at: datetime
    """With a time zone, by the object store's clock."""


@dataclass(frozen=True, slots=True)
class StoredRow:
    """One index row without its text and vectors."""

    id: str
    knowledge_base_id: str
    document_id: str
    source_id: str
    version: int
    access_key: int
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """A version in PostgreSQL, with its parts and the content that stands there."""

    version: int
    status: DocumentStatus
    sha256: str | None
    size: int
    content_fingerprint: str
    error_permanent: bool
    parts_total: int | None
    parts: tuple[Part, ...]
    parts_done: int
    claim_token: int
    live: bool
    """Somebody holds a live claim."""
    lapsed_seconds: float | None
    """Seconds since a claim lapsed that nobody gave back; None without one."""
    referenced: bool = False
    """Its original lies where it was listed (`Document.uri`), not in the object store."""

    @property
    def resumable(self) -> bool:
        """The next run or worker goes on with it: its rows and objects are neither missing nor left over."""
        return self.status is not DocumentStatus.READY and not self.error_permanent


@dataclass(frozen=True, slots=True)
class DocumentFacts:
    """All that PostgreSQL says of one document, read in one snapshot."""

    id: str
    knowledge_base_id: str
    source_id: str
    uri: str
    filename: str
    access_key: int
    metadata: Mapping[str, Any]
    published_version: int | None
    next_version: int
    deleted: bool
    purged: bool
    owed: int
    """Outbox entries of the document."""
    versions: Mapping[int, VersionFacts]
    content: Mapping[int, int]
    """version -> rows in `chunks` and `parents`."""
    chunk_ids: frozenset[str]
    """Of the published version."""
    parentless: int
    """Chunks of the published version whose parent is not there."""
    assets: tuple[DocumentAsset, ...]
    losses: frozenset[tuple[int, str, str]]
    """(version, kind, subject) of what an earlier repair found lost for good."""
    held_by: frozenset[str] = frozenset()
    """Collections of which PostgreSQL says that they hold the whole published version."""

    @property
    def published(self) -> VersionFacts | None:
        """The version that queries see; None where there is none, or its row is lost."""
        return None if self.published_version is None else self.versions.get(self.published_version)

    @property
    def live(self) -> bool:
        """Whether somebody works on a version now."""
        return any(version.live for version in self.versions.values())


class Fault(StrEnum):
    """What can be wrong between the stores."""

    MISSING_ROW = "missing_row"
    """A chunk of the published version is not in the active index, or in another one that is said to hold it."""
    ORPHAN_ROW = "orphan_row"
    """An index row of a document that is deleted or that PostgreSQL does not know."""
    DUPLICATE_ROW = "duplicate_row"
    """One chunk twice: under a second id, or in the partition of another knowledge base."""
    STALE_ROW = "stale_row"
    """An index row of an old version, or of one that failed for good: what a zombie writer leaves."""
    WRONG_FIELDS = "wrong_fields"
    """access_key, metadata or source_id of an index row differ from the document's."""
    SNAPSHOT_LOST = "snapshot_lost"
    SNAPSHOT_CORRUPT = "snapshot_corrupt"
    """Torn, damaged, or of other chunks than PostgreSQL's."""
    ORIGINAL_LOST = "original_lost"
    """Absent, or of another size (with deep: another hash)."""
    ASSET_LOST = "asset_lost"
    ORPHAN_OBJECT = "orphan_object"
    """An object of no document, of a deleted one, or of a version that is over."""
    STRAY_ASSET = "stray_asset"
    """A stored image that no asset row of its version names."""
    COUNT_MISMATCH = "count_mismatch"
    """A published version whose row, parts, chunks or parents do not add up."""
    UNVERSIONED_CHUNKS = "unversioned_chunks"
    """chunks or parents rows of a version that is not there or over."""
    UNFINISHED_DELETE = "unfinished_delete"
    """A tombstone whose purge nobody owes any more."""
    STUCK_CLAIM = "stuck_claim"
    """A claim that lapsed long ago."""
    STUCK_OUTBOX = "stuck_outbox"
    """An effect that is long overdue or failed many times."""
    STUCK_RUN = "stuck_run"
    """A bulk run that says RUNNING and gave no sign for long."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault."""

    fault: Fault
    knowledge_base_id: str
    document_id: str
    version: int
    """0 where no version is concerned."""
    subject: str
    """Chunk id, object key, asset id ...: what names the fault within the document."""
    store: str
    """postgres, objects, or the index's collection."""
    detail: str = ""
    """For people."""

    @property
    def identity(self) -> tuple[Fault, str, str, int, str]:
        """The same fault, seen twice, has the same identity, whatever its details say."""
        return self.fault, self.store, self.document_id, self.version, self.subject


class Outcome(StrEnum):
    """What became of a finding."""

    FOUND = "found"
    """Nothing was tried."""
    REPAIRED = "repaired"
    """Looked at again afterwards and gone; of what no document owns, deleted."""
    LOST = "lost"
    """Nothing is left to repair it from; noted in PostgreSQL, so that later runs do not report it again."""
    FAILED = "failed"
    """Not repaired this time; the message says why."""


@dataclass(frozen=True, slots=True)
class StuckEntry:
    """An outbox entry that does not get done."""

    id: int
    kind: str
    document_id: str
    knowledge_base_id: str
    attempts: int
    message: str
