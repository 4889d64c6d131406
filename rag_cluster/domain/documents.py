"""Knowledge bases, sources, documents, versions, and the work done on them (design section 3, seeds 000/001/004)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from rag_cluster.domain import keys
from rag_cluster.domain.access import AccessAttributes
from rag_cluster.domain.blocks import ParsedAsset, SourceLocator


class DocumentStatus(StrEnum):
    """Status of a document version, written before the action that it names starts. READY is the commit mark."""

    PENDING = "PENDING"
    PARSING = "PARSING"
    CHUNKING = "CHUNKING"
    EMBEDDING = "EMBEDDING"
    INDEXING = "INDEXING"
    READY = "READY"
    FAILED = "FAILED"

    @property
    def finished(self) -> bool:
        """READY or FAILED: nobody works on the version any more."""
        return self in (DocumentStatus.READY, DocumentStatus.FAILED)


class JobStatus(StrEnum):
    """Status of an upload job (scheduling, not content)."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


class RunStatus(StrEnum):
    """Status of a bulk run."""

    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class SourceKind(StrEnum):
    """Where a source's documents come from. A managed_correction outranks every other source (seed 004)."""

    UPLOAD = "upload"
    BULK = "bulk"
    MANAGED_CORRECTION = "managed_correction"


UPLOAD_SOURCE = "uploads"
"""Name of the source that uploads belong to."""


@dataclass(frozen=True, slots=True)
class KnowledgeBase:
    """Top container of documents and of retrieval."""

    id: str
    name: str
    description: str = ""
    default_acl: tuple[str, ...] | None = None
    """acl of documents that state none. None: closed. (): everyone to whom the knowledge base is granted."""
    created_at: datetime | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A named origin of documents inside a knowledge base."""

    id: str
    knowledge_base_id: str
    kind: SourceKind
    name: str
    enabled: bool = True
    priority: int = 0
    default_chunking_strategy: str | None = None


@dataclass(frozen=True, slots=True)
class Agent:
    """A consumer with its own mounted sources (seed 004)."""

    id: str
    knowledge_base_id: str
    name: str
    hide_source_filename: bool = False


@dataclass(frozen=True, slots=True)
class SourceMount:
    """A source that an agent may search; a higher priority sorts first."""

    agent_id: str
    source_id: str
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Document:
    """A document and its newest version's status. Visible = published_version set and deleted_at None."""

    id: str
    knowledge_base_id: str
    source_id: str
    uri: str
    filename: str
    mime_type: str = ""
    access: AccessAttributes = field(default_factory=AccessAttributes)
    access_key: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    published_version: int | None = None
    deleted_at: datetime | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    status: DocumentStatus = DocumentStatus.PENDING
    """Status of the newest version."""
    version: int = 0
    """Newest version number; 0 before the first."""
    error_type: str | None = None
    error_message: str | None = None

    @property
    def visible(self) -> bool:
        """Whether queries may see the document."""
        return self.published_version is not None and self.deleted_at is None


@dataclass(frozen=True, slots=True)
class DocumentVersion:
    """One processing of one content of a document."""

    document_id: str
    version: int
    status: DocumentStatus
    sha256: str | None = None
    size: int = 0
    etag: str = ""
    content_fingerprint: str = ""
    attempts: int = 0
    error_type: str | None = None
    error_message: str | None = None
    error_permanent: bool = False
    error_stage: str | None = None
    parts_total: int | None = None
    """Set together with the snapshot; after that nobody re-parses this version."""
    referenced: bool = False
    """Its original was not copied: it lies where it was listed, and is the user's."""


@dataclass(frozen=True, slots=True)
class IngestionJob:
    """An upload's background job."""

    id: str
    document_id: str
    version: int
    knowledge_base_id: str
    status: JobStatus
    attempts: int = 0
    max_attempts: int = 4
    stage: str = ""
    percent: int = 0
    error_type: str | None = None
    error_message: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    claim_token: int = 0
    chunking_strategy: str | None = None
    """None: the configured default."""
    queue_position: int | None = None
    """Jobs that are due before it, of documents that the caller may read, while it waits and was asked for alone."""


@dataclass(frozen=True, slots=True)
class DocumentAsset:
    """A stored image of a document version. The API shows a content_url, never the object key."""

    id: str
    document_id: str
    version: int
    object_key: str
    media_type: str
    sha256: str
    size: int
    width: int | None = None
    height: int | None = None
    caption: str = ""
    locator: SourceLocator = SourceLocator()

    @classmethod
    def of(cls, parsed: ParsedAsset, knowledge_base_id: str, document_id: str, version: int) -> DocumentAsset:
        """The facts of an image that was parsed, with the key that it is stored under."""
        return cls(
            parsed.id,
            document_id,
            version,
            keys.asset_key(knowledge_base_id, document_id, version, parsed.id),
            parsed.media_type,
            parsed.sha256,
            len(parsed.content),
            parsed.width,
            parsed.height,
            parsed.caption,
            parsed.locator,
        )


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One listed input of a bulk run: what a listing tells without reading a byte."""

    uri: str
    filename: str
    size: int
    etag: str
    """ETag of the store, or the mtime in nanoseconds of a local file, as a string."""
    access: AccessAttributes = field(default_factory=AccessAttributes)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    keeps_access: bool = False
    """True: nothing was said about access; a document that exists keeps its own."""
    keeps_metadata: bool = False
    """The same for metadata."""
    chunking_strategy: str | None = None
    """Its own, before the run's and the source's."""
    referenced: bool = False
    """The original stays where it lies; no copy is made."""


class PlanAction(StrEnum):
    """What the ledger says about one listed file."""

    PREPARE = "prepare"
    """New or changed: fetch, parse, chunk, snapshot, then index."""
    INDEX = "index"
    """Its snapshot is committed but parts are missing: enter at index."""
    RECOGNIZE = "recognize"
    """Only text recognition is left to do, or comes first: enter at the OCR stage."""
    UNCHANGED = "unchanged"
    ATTRIBUTES = "attributes"
    """Only access or metadata changed: applied without parsing or embedding."""
    SKIP_FAILED = "skip_failed"
    """Failed permanently on the same bytes and parser version."""


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A listed file with the ledger's verdict."""

    file: SourceFile
    document_id: str
    action: PlanAction
    content_fingerprint: str
    reason: str = ""
    error_type: str | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to process one version until the lease ends. Every write under it checks the fencing token."""

    document_id: str
    version: int
    owner: str
    token: int
    resumed: bool = False
    """True when the version's snapshot is already committed: go straight to index."""
    content_fingerprint: str = ""
    """As the version has it: it may hold the document's text only (`ids.awaiting_recognition`)."""
    referenced: bool = False
    """The version's original is not copied."""


class PartOutcome(StrEnum):
    """What became of one part that was to be completed."""

    WRITTEN = "written"
    PUBLISHED = "published"
    """Written as its version's last one, which is READY with it."""
    LOST = "lost"
    """Not written: the claim is lost, or the document was deleted."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What happened to one input of a run: one row per document and outcome."""

    uri: str
    document_id: str
    outcome: str
    """ready | unchanged | attributes | failed | skipped | busy."""
    version: int = 0
    chunks: int = 0
    pages: int = 0
    bytes: int = 0
    tokens: int = 0
    seconds: float = 0.0
    stage: str = ""
    error_type: str | None = None
    message: str = ""
    duplicate_of: str | None = None
    warnings: tuple[str, ...] = ()
    recognized: int = 0
    """Pages and pictures whose text was recognised."""


@dataclass(frozen=True, slots=True)
class IngestionRun:
    """A bulk run, as watched from any machine."""

    id: str
    knowledge_base_id: str
    status: RunStatus
    inputs: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    """By outcome, plus "listed", "chunks", "embedded_chunks", "bytes_read"."""
    started_at: datetime | None = None
    updated_at: datetime | None = None
    finished_at: datetime | None = None
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class IndexRecord:
    """One vector index: a collection and the embedder that fills and queries it, read as a pair."""

    id: int
    collection: str
    embedder_fingerprint: str
    dimension: int
    state: str
    """building | active | retired | dropping. Queries and publishing use the active one; deletes and access changes
    reach all; a retired one is queried by servers that still have its embedder."""


class OutboxKind(StrEnum):
    """Effects owed to stores outside PostgreSQL; each is idempotent."""

    INDEX_DELETE = "index_delete"
    """payload {"max_version": int} or {"version": int}: delete rows of document_id from every index."""
    INDEX_ACCESS = "index_access"
    """Re-read access_key and metadata of document_id and write them to its index rows."""
    PURGE_VERSION = "purge_version"
    """payload {"version": int}: delete the version's snapshot, assets and original."""
    PURGE_DOCUMENT = "purge_document"
    """payload {"max_version": int}: the whole delete of a tombstoned document up to that version, for it may be
    ingested again before the delete is through: Milvus -> snapshots -> assets and originals -> facts."""


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """One owed effect, claimed for a while."""

    id: int
    kind: OutboxKind
    document_id: str
    knowledge_base_id: str
    payload: Mapping[str, Any]
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class DeleteReceipt:
    """What a delete verified gone, store by store. pending is True while the outbox still owes a step."""

    document_id: str
    stores: Mapping[str, str]
    """"postgres", "milvus", "snapshots", "objects" -> "gone" or why not yet."""
    pending: bool = False
