"""The seams: what each capability needs from the outside, and promises to it.

Write ports are synchronous (Ray actors and worker loops call them), read ports are asynchronous so that cancelling a
request cancels its calls. Every implementation, fakes included, passes the port's contract suite in tests/contracts.
Each call has a timeout; an outage raises StoreUnavailableError or ModelUnavailableError.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, runtime_checkable

from rag_cluster.domain.access import AccessAttributes, AccessFilter, ApiKey, Principal
from rag_cluster.domain.answers import ChatEvidence, ChatMessage, GenerationRequest, RetrievalRecord
from rag_cluster.domain.blocks import Block, DocumentSource, ParsedDocument
from rag_cluster.domain.chunks import ChunkedDocument, IndexRow, MissingPart, Part, PartContent, Snapshot
from rag_cluster.domain.documents import (
    Agent,
    Claim,
    Document,
    DocumentAsset,
    DocumentStatus,
    DocumentVersion,
    IndexRecord,
    IngestionJob,
    IngestionRun,
    KnowledgeBase,
    OutboxEntry,
    OutboxKind,
    PartOutcome,
    PlannedFile,
    Receipt,
    RunStatus,
    Source,
    SourceFile,
    SourceKind,
    SourceMount,
)
from rag_cluster.domain.inventory import DocumentFacts, StoredObject, StoredRow, StuckEntry
from rag_cluster.domain.retrieval import EvidenceRow, Hit, Located, ReadScope, RetrievalOptions

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Matrix = npt.NDArray[np.float32]
    """float32, shape (n, dimension), rows of unit norm."""


# -- content ---------------------------------------------------------------------------------------------------------


class DocumentParser(Protocol):
    """Bytes -> blocks for one family of formats. Runs in the isolated child; pure but for reading `source.path`."""

    name: str
    version: str
    """Raised whenever output changes: it is part of the content fingerprint."""
    extensions: frozenset[str]
    """Lower case with the dot, e.g. {".docx", ".docm"}."""

    def parse(self, source: DocumentSource) -> ParsedDocument:
        """Parse a local file. Raises a DocumentError subclass; an empty result raises EmptyDocumentError."""
        ...


class TextRecognizer(Protocol):
    """OCR of one page image."""

    def recognize(self, image: bytes) -> Sequence[RecognizedLine]:
        """Lines in reading order. image: PNG or JPEG bytes, already within the pixel limit."""
        ...


@dataclass(frozen=True, slots=True)
class RecognizedLine:
    """One OCR line; bbox in pixels of the given image, top-left origin; confidence 0-1."""

    text: str
    bbox: tuple[float, float, float, float]
    confidence: float
    angle: float = 0.0
    """Degrees by which the line falls to the right, of a page that is not quite straight."""


class VisionDescriber(Protocol):
    """Describes a picture in words. Its failure is a warning, never a failed document."""

    name: str
    """Model and prompt: part of the content fingerprint."""

    def describe(self, image: bytes, media_type: str) -> str:
        """Plain text, never empty. image: bytes of that type. ModelUnavailableError."""
        ...


class Tokenizer(Protocol):
    """Counts as the embedder counts."""

    name: str

    def count(self, text: str) -> int:
        """Number of tokens, without special tokens and prefixes."""
        ...

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """`count` of each text, in one call."""
        ...

    def offsets(self, text: str) -> list[tuple[int, int]] | None:
        """Character span (start, end) of every token, or None when the tokenizer only counts."""
        ...


class Chunker(Protocol):
    """Blocks -> chunks and parents."""

    name: str
    parameters: Mapping[str, Any]
    """Everything that changes the output; part of the content fingerprint."""

    def split(self, document: ParsedDocument, *, knowledge_base_id: str, fingerprint: str) -> ChunkedDocument:
        """Deterministic. Ids come from `domain.ids` with the document's id, version and the content fingerprint."""
        ...


# -- engines ---------------------------------------------------------------------------------------------------------


class Embedder(Protocol):
    """Text -> unit vectors. Synchronous; deployments wrap it in a thread."""

    max_tokens: int
    """Longer texts are truncated or windowed by the engine."""
    tokenizer: Tokenizer

    @property
    def dimension(self) -> int:
        """Numbers in a vector. An endpoint's may be asked for at the first use."""
        ...

    @property
    def fingerprint(self) -> str:
        """Hash of model, revision, dimension, prefixes, normalisation: names an index."""
        ...

    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """float32 (len(texts), dimension), unit norm, with the passage prefix; ModelUnavailableError otherwise."""
        ...

    def embed_queries(self, texts: Sequence[str]) -> Matrix:
        """The same with the query prefix."""
        ...


class AsyncEmbedder(Protocol):
    """The read path's view of an embedder: a Serve handle or a thread around an engine."""

    dimension: int
    fingerprint: str

    async def embed_documents(self, texts: Sequence[str]) -> Matrix: ...

    async def embed_queries(self, texts: Sequence[str]) -> Matrix: ...


class Reranker(Protocol):
    """Cross-encoder scores."""

    name: str

    def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """One score per text, same order; higher is better."""
        ...


class AsyncReranker(Protocol):
    """The read path's view of a reranker."""

    name: str

    async def rerank(self, query: str, texts: Sequence[str]) -> list[float]: ...


class QueryRewriter(Protocol):
    """Says a question in other words, for one more try at finding it."""

    name: str

    async def rewrite(self, query: str) -> str | None:
        """One other wording as plain text, or None without one. ModelUnavailableError."""
        ...


class Generator(Protocol):
    """Writes the answer. Asynchronous, so that a disconnect aborts it."""

    name: str

    def stream(self, request: GenerationRequest) -> AsyncIterator[str]:
        """Text deltas, none empty, whose concatenation is the answer, with [来源 N](citation://N) or
        [Source N](citation://N); none at all where the sources hold no answer.

        ContextOverflowError comes before the first delta. ModelUnavailableError, OverloadedError and
        DeadlineExceededError may come at any time. Closing the iterator, and cancelling who waits for it, stop the
        work.
        """
        ...


class HostedGenerator(Generator, Protocol):
    """A generator whose model this process loads and owns."""

    async def start(self) -> None:
        """Load the model and let it say a word, so that the first answer waits for nothing. InvalidSettingError,
        MissingDependencyError, ModelUnavailableError."""
        ...

    async def check_health(self) -> None:
        """ModelUnavailableError from an engine that is dead or hangs: it does not come back by itself."""
        ...

    def statistics(self) -> Mapping[str, float]:
        """Answers by how they ended, tokens, and what runs now."""
        ...

    def close(self) -> None:
        """Give the model's memory back. Safe without a start, and twice."""
        ...


# -- stores ----------------------------------------------------------------------------------------------------------


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


class ChunkIndex(Protocol):
    """Vectors + BM25 of one or several collections. Derived: it can be rebuilt from snapshots at any time."""

    def ensure(self, index: IndexRecord) -> bool:
        """Create the collection (True), or check it: IndexMismatchError when its dimension differs."""
        ...

    def upsert(self, collection: str, rows: Sequence[IndexRow], vectors: Matrix) -> None:
        """vectors: (len(rows), dimension). Writing the same ids again replaces them."""
        ...

    def delete(
        self, collection: str, document_id: str, *, version: int | None = None, max_version: int | None = None
    ) -> None:
        """Rows of document_id with that version / up to max_version / all."""
        ...

    def update_access(self, collection: str, document_id: str, *, access_key: int, metadata: Mapping[str, Any]) -> None:
        """Rewrite the push-down fields of a document's rows without new vectors."""
        ...

    def chunk_ids(self, collection: str, document_id: str) -> dict[str, int]:
        """chunk id -> version of every row of a document."""
        ...

    def rows(
        self,
        collection: str,
        knowledge_base_id: str,
        *,
        after: str = "",
        last: str | None = None,
        document_id: str | None = None,
    ) -> Iterator[StoredRow]:
        """Rows of a knowledge base, by chunk id: of one document, or of those with ids in (after, last]. A page at a
        time; rows written or deleted meanwhile may or may not come. Nothing without the collection."""
        ...

    def foreign_rows(self, collection: str, knowledge_base_ids: Sequence[str]) -> Iterator[StoredRow]:
        """Rows of none of these knowledge bases, as `rows`."""
        ...

    def delete_rows(self, collection: str, knowledge_base_id: str, chunk_ids: Sequence[str]) -> None:
        """Delete these ids in this knowledge base's partition only. What is not there is no error."""
        ...

    def drop(self, collection: str) -> None:
        """Delete the collection. What is not there is no error."""
        ...

    def flush(self, collection: str) -> None:
        """Make recent rows fast to search; once at the end of a run or of an online batch."""
        ...

    async def search_dense(
        self, collection: str, vector: Sequence[float], access: AccessFilter, limit: int
    ) -> list[Hit]:
        """Nearest rows, best first, strong consistency; score is the cosine. An empty filter returns []."""
        ...

    async def search_sparse(self, collection: str, text: str, access: AccessFilter, limit: int) -> list[Hit]:
        """Best BM25 rows, best first. An empty filter returns []."""
        ...


class Catalog(Protocol):
    """Facts that people manage. Lists are paged: (items, next cursor or None)."""

    def create_knowledge_base(
        self, name: str, description: str = "", default_acl: tuple[str, ...] | None = None
    ) -> KnowledgeBase:
        """ConflictError when the name is taken."""
        ...

    def knowledge_base(self, id_or_name: str) -> KnowledgeBase:
        """NotFoundError."""
        ...

    def list_knowledge_bases(
        self, principal: Principal, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[KnowledgeBase], str | None]: ...

    def update_knowledge_base(
        self,
        knowledge_base_id: str,
        *,
        name: str | None = None,
        description: str | None = None,
        default_acl: tuple[str, ...] | None = None,
        close: bool = False,
    ) -> KnowledgeBase:
        """None leaves a field alone; close=True sets default_acl to None."""
        ...

    def delete_knowledge_base(self, knowledge_base_id: str) -> list[str]:
        """Tombstone every document and the knowledge base; their ids. DocumentBusyError under a live claim."""
        ...

    def ensure_source(self, knowledge_base_id: str, kind: SourceKind, name: str) -> Source: ...

    def document(self, document_id: str, principal: Principal) -> Document:
        """A document that the principal may read, tombstoned ones excepted: NotFoundError otherwise."""
        ...

    def list_documents(
        self,
        knowledge_base_id: str,
        principal: Principal,
        *,
        status: DocumentStatus | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> tuple[list[Document], str | None]: ...

    def versions(self, document_id: str) -> list[DocumentVersion]: ...

    def update_document(
        self,
        document_id: str,
        *,
        access: AccessAttributes | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Document:
        """In one transaction: facts, access key, and an INDEX_ACCESS outbox row."""
        ...

    def source(self, knowledge_base_id: str, id_or_name: str) -> Source:
        """NotFoundError."""
        ...

    def delete_source(self, source_id: str) -> list[str]:
        """Tombstone every document of a source; their ids. DocumentBusyError under a live claim: nothing is done."""
        ...

    def tombstone(self, document_id: str) -> Document:
        """Invisible at once, with a PURGE_DOCUMENT outbox row. DocumentBusyError under a live claim."""
        ...

    def purge_facts(self, document_id: str) -> None:
        """Last step of a delete: versions, chunks, parents, assets, jobs go; the tombstone keeps next_version."""
        ...

    def remains(self, document_id: str) -> dict[str, int]:
        """Rows that still stand per table, for the delete receipt."""
        ...

    def add_assets(self, assets: Sequence[DocumentAsset]) -> None: ...

    def assets(self, document_id: str) -> list[DocumentAsset]: ...

    def asset(self, asset_id: str, principal: Principal) -> DocumentAsset:
        """An asset of a visible document that the principal may read: NotFoundError otherwise."""
        ...

    def index_row_facts(self, document_id: str) -> tuple[str, int, Mapping[str, Any]] | None:
        """(source_id, access_key, metadata) as they are now; None when gone or tombstoned."""
        ...

    def ensure_index(self, embedder_fingerprint: str, dimension: int) -> IndexRecord:
        """The record for this embedder; the first one becomes active, a later one is building. IndexMismatchError on
        another dimension; ConflictError while it is being dropped."""
        ...

    def indexes(self) -> list[IndexRecord]:
        """All, the active one first: deletes and access changes go to each as long as its collection may be there."""
        ...

    def missing_parts(self, index_id: int, after: Part | None = None, limit: int = 1000) -> list[MissingPart]:
        """The next parts, by document and number, of what queries see that an index lacks; [] at the end."""
        ...

    def count_missing(self, index_id: int) -> tuple[int, int]:
        """(parts, chunks) of what queries see that an index lacks."""
        ...

    def held_parts(self, index_id: int, parts: Sequence[Part]) -> set[Part]:
        """Which of these an index holds."""
        ...

    def filling(
        self, index_id: int, parts: Sequence[Part]
    ) -> AbstractContextManager[Mapping[tuple[str, int], tuple[str, int, Mapping[str, Any]]]]:
        """(document id, version) -> (source_id, access_key, metadata), of these parts' versions that queries see.

        Inside, they can be neither replaced, deleted nor changed: what the caller writes is removed or updated by
        whoever does so later. At the end the index holds their parts; after an exception it does not.
        """
        ...

    def switch_index(self, index_id: int, fill: Callable[[Sequence[MissingPart]], object] | None = None) -> int:
        """Make an index the active one and retire the other, in one transaction that nothing can be published in.

        0: it is active. Otherwise nothing changed, and so many parts are missing, at least. fill: given the last few
        missing parts, it has the index hold them, while publishing waits. NotFoundError; ConflictError while it is
        being dropped.
        """
        ...

    def lease_index(self, index_id: int, owner: str, lease_seconds: float) -> tuple[str, float] | None:
        """Be the one job that fills an index, or go on being it: None. Otherwise who is, and for how many seconds at
        least. NotFoundError."""
        ...

    def release_index(self, index_id: int, owner: str) -> None:
        """Give a lease back; that of another owner stays."""
        ...

    def begin_drop(self, collection: str) -> IndexRecord:
        """Nobody uses an index from now on. NotFoundError; ConflictError for the active one. Again is harmless."""
        ...

    def finish_drop(self, collection: str) -> None:
        """Forget an index whose collection is gone, with what it held."""
        ...

    def forget_parts(self, collection: str, document_id: str | None = None, version: int | None = None) -> None:
        """An index lacks a version, or everything, from now on: the next re-embedding writes it again."""
        ...

    def create_api_key(self, name: str, principal: Principal) -> str:
        """The secret, shown once; only its hash is stored."""
        ...

    def resolve_api_key(self, secret: str) -> Principal:
        """AuthenticationError."""
        ...

    def has_api_keys(self) -> bool:
        """Whether a key was ever made: revoking the last one does not open the server to callers without any."""
        ...

    def api_keys(self) -> list[ApiKey]:
        """All, revoked ones included, oldest first."""
        ...

    def revoke_api_key(self, name: str) -> ApiKey:
        """Refused from the next request on; again is harmless. Its name stays taken, as its sessions keep it.
        NotFoundError."""
        ...


class Agents(Protocol):
    """Sources, the agents that mount them, and what managed corrections there are."""

    def sources(
        self, knowledge_base_id: str, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[Source], str | None]:
        """Of one knowledge base, oldest first."""
        ...

    def source(self, source_id: str, principal: Principal) -> Source:
        """By id, of a knowledge base that the principal may use: NotFoundError otherwise."""
        ...

    def update_source(
        self,
        source_id: str,
        *,
        enabled: bool | None = None,
        priority: int | None = None,
        chunking_strategy: str | None = None,
    ) -> Source:
        """None leaves a field alone, "" clears the strategy. A disabled source is gone from the next query."""
        ...

    def create_agent(self, knowledge_base_id: str, name: str, *, hide_source_filename: bool = False) -> Agent:
        """ConflictError when the knowledge base has one of that name; NotFoundError without it."""
        ...

    def agent(self, agent_id: str, principal: Principal) -> Agent:
        """By id, of a knowledge base that the principal may use: NotFoundError otherwise."""
        ...

    def find_agent(self, knowledge_base_id: str, id_or_name: str) -> Agent:
        """NotFoundError."""
        ...

    def agents(
        self, knowledge_base_id: str, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[Agent], str | None]:
        """Of one knowledge base, oldest first."""
        ...

    def update_agent(
        self, agent_id: str, *, name: str | None = None, hide_source_filename: bool | None = None
    ) -> Agent:
        """None leaves a field alone. NotFoundError, ConflictError."""
        ...

    def delete_agent(self, agent_id: str) -> None:
        """With its mounts; sources and documents stay. NotFoundError."""
        ...

    def mount(self, agent_id: str, source_id: str, priority: int | None = None) -> SourceMount:
        """Mount a source of the agent's knowledge base, or change its priority; None keeps it, 0 where it is new.
        NotFoundError."""
        ...

    def unmount(self, agent_id: str, source_id: str) -> None:
        """NotFoundError when it was not mounted."""
        ...

    def mounts(self, agent_id: str) -> list[tuple[SourceMount, Source]]:
        """Highest priority first."""
        ...

    def corrections(
        self, knowledge_base_id: str, principal: Principal, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[Document], str | None]:
        """The documents of managed_correction sources that the principal may read, oldest first."""
        ...


class Ledger(Protocol):
    """What was done to which version, by whom, and what is left. PostgreSQL is the truth."""

    def compare(
        self,
        knowledge_base_id: str,
        files: Sequence[SourceFile],
        content_fingerprints: Sequence[str],
        *,
        retry_failed: bool = False,
    ) -> list[PlannedFile]:
        """Anti-join one batch of listed files, same order. Reads no bytes. Changes nothing."""
        ...

    def live_uris(self, knowledge_base_id: str, source_id: str, after: str | None, limit: int) -> list[tuple[str, str]]:
        """(document id, URI) of a source's documents that are not deleted, by id, those behind `after`."""
        ...

    def claim(
        self,
        knowledge_base_id: str,
        source_id: str,
        file: SourceFile,
        content_fingerprint: str,
        *,
        owner: str,
        lease_seconds: float,
    ) -> Claim | None:
        """Register the document and claim its version to make: a new number, or an unfinished one whose lease ended
        (resumed=True when its snapshot is committed). None while somebody else holds a live claim, and when this
        content failed for good since the owner's run began."""
        ...

    def claim_version(self, document_id: str, version: int, *, owner: str, lease_seconds: float) -> Claim | None:
        """Claim one known unfinished version (uploads, retries). None under another's live claim. NotFoundError
        without it; ClaimLostError when it is finished."""
        ...

    def extend(self, owner: str, lease_seconds: float) -> int:
        """Heartbeat: extend every claim that an owner still holds; how many. Also a run's sign of life."""
        ...

    def release(self, owner: str) -> None:
        """Give all of an owner's claims back, for a resumable stop."""
        ...

    def give_back(self, claim: Claim) -> None:
        """End one claim whose version waits for another stage: PENDING. A claim that is lost already stays lost."""
        ...

    def set_status(self, claim: Claim, status: DocumentStatus) -> None:
        """Before the action that it names. ClaimLostError."""
        ...

    def settle_unchanged(self, claim: Claim, file: SourceFile, sha256: str) -> bool:
        """If the published version has the same bytes and a fingerprint that serves (`ids.serves`), drop the claimed
        version, remember the new etag and return True."""
        ...

    def duplicate_of(self, claim: Claim, sha256: str) -> str | None:
        """URI of another live document of the knowledge base with the same bytes, for the report."""
        ...

    def commit_snapshot(
        self, claim: Claim, *, sha256: str, size: int, parts: Sequence[Part], content_fingerprint: str | None = None
    ) -> None:
        """In one transaction: parts_total, part rows, status EMBEDDING, and the content fingerprint if parsing showed
        another one than was claimed (`ids.nothing_recognized`, `ids.awaiting_recognition`). ClaimLostError."""
        ...

    def pending_parts(self, document_id: str, version: int) -> list[Part]:
        """Parts that the active index lacks."""
        ...

    def pending_by_version(self, versions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], set[int]]:
        """(document id, version) -> numbers of its parts that the active index lacks, for each of these versions."""
        ...

    def begin_index(self, claims: Sequence[Claim]) -> dict[str, tuple[str, int, Mapping[str, Any]]]:
        """INDEXING for each claim that is still held, all at once; document id -> (source_id, access_key, metadata) as
        they are now (`Catalog.index_row_facts`), of these only."""
        ...

    def complete_parts(
        self, parts: Sequence[tuple[Claim, PartContent]], *, index_id: int | None = None
    ) -> list[PartOutcome]:
        """`complete_part` of several, in one transaction: what is lost does not keep the others. Same order.

        index_id: the index that the parts were written to, None where there is only one. IndexMismatchError when it is
        not the active one any more.
        """
        ...

    def complete_part(self, claim: Claim, content: PartContent, *, index_id: int | None = None) -> bool:
        """In one transaction, the version row locked: token and tombstone checked, chunks and parents upserted, part
        done; whoever completes the last part publishes (True): published_version, READY, old rows to the outbox.
        Idempotent. ClaimLostError."""
        ...

    def fail(self, claim: Claim, *, stage: str, error_type: str, message: str, permanent: bool) -> None:
        """FAILED with its reason. permanent: the version's rows leave PostgreSQL now and Milvus through the outbox.
        Otherwise rows and snapshot stay, unseen, and the next claim of the same bytes resumes the same version."""
        ...

    def start_run(
        self, knowledge_base_id: str, inputs: Sequence[str], options: Mapping[str, Any], run_id: str
    ) -> IngestionRun: ...

    def end_lost_runs(self, knowledge_base_id: str, seconds: float) -> list[str]:
        """FAILED for each run of the knowledge base without a sign of life for so many seconds; their ids."""
        ...

    def update_run(self, run_id: str, counts: Mapping[str, int]) -> None: ...

    def record_receipts(self, run_id: str, receipts: Sequence[Receipt]) -> None:
        """Keep the rows that a person asks for later: failed, skipped, busy, with stage, type and message."""
        ...

    def finish_run(
        self,
        run_id: str,
        status: RunStatus,
        counts: Mapping[str, int],
        error_message: str | None = None,
        report: Mapping[str, Any] | None = None,
    ) -> None:
        """The run's end, with its final counts and its report as JSON."""
        ...

    def run_report(self, run_id: str) -> Mapping[str, Any] | None:
        """The report that `finish_run` was given; None without one. NotFoundError."""
        ...

    def request_cancel(self, run_id: str) -> IngestionRun:
        """Ask a run's driver to end it at its next heartbeat. NotFoundError; ConflictError when it has ended."""
        ...

    def cancel_requested(self, run_id: str) -> bool: ...

    def run(self, run_id: str) -> IngestionRun: ...

    def runs(
        self, *, knowledge_bases: Collection[str] | None = None, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[IngestionRun], str | None]:
        """Newest first; of these knowledge bases, None: of all."""
        ...

    def run_receipts(self, run_id: str, *, limit: int = 1000) -> list[Receipt]: ...


@dataclass(frozen=True, slots=True)
class UploadRequest:
    """An upload whose object is already stored."""

    document_id: str
    knowledge_base_id: str
    filename: str
    mime_type: str
    sha256: str
    size: int
    content_fingerprint: str
    access: AccessAttributes
    metadata: Mapping[str, Any]
    idempotency_key: str | None = None
    chunking_strategy: str | None = None
    """None: the configured default."""


class UploadQueue(Protocol):
    """Jobs of online uploads."""

    def find_duplicate(self, principal: Principal, request: UploadRequest) -> IngestionJob | None:
        """The job of a live upload with the same bytes and attributes that the principal may read."""
        ...

    def submit(self, request: UploadRequest) -> IngestionJob:
        """Document + version 1 + job in one transaction. The same idempotency key and request give the earlier job
        (another document_id); with another request IdempotencyConflictError."""
        ...

    def retry(self, document_id: str, content_fingerprint: str, chunking_strategy: str | None = None) -> IngestionJob:
        """A job for a failed document, bulk ones included: a new version of the same bytes, or the one that can still
        go on. NotFoundError; ConflictError when the newest version did not fail; DocumentBusyError."""
        ...

    def claim(self, worker: str, lease_seconds: float) -> tuple[IngestionJob, Claim] | None:
        """The next job that is due, with the claim of its version (FOR UPDATE SKIP LOCKED). None: nothing due."""
        ...

    def heartbeat(self, job: IngestionJob, worker: str, lease_seconds: float, *, stage: str, percent: int) -> bool:
        """Extend job and claim; False when the job was lost."""
        ...

    def succeed(self, job: IngestionJob) -> None:
        """ClaimLostError when another worker took the job over; so does `fail`."""
        ...

    def fail(self, job: IngestionJob, *, error_type: str, message: str, retry_in: float | None) -> None:
        """retry_in None or attempts used up: FAILED for good; otherwise PENDING again after retry_in seconds."""
        ...

    def release(self, job: IngestionJob) -> None:
        """Give a job back as it was found: PENDING and due at once, this attempt not counted. ClaimLostError."""
        ...

    def job(self, job_id: str, principal: Principal) -> IngestionJob: ...

    def backlog(self) -> int:
        """Jobs that are not finished."""
        ...


class Outbox(Protocol):
    """Effects owed to other stores. Rows are put there inside the transactions that owe them."""

    def claim(self, limit: int, lease_seconds: float, *, document_id: str | None = None) -> list[OutboxEntry]: ...

    def done(self, entry: OutboxEntry) -> None: ...

    def retry(self, entry: OutboxEntry, message: str, delay_seconds: float) -> None: ...

    def add(self, kind: OutboxKind, document_id: str, knowledge_base_id: str, payload: Mapping[str, Any]) -> None: ...

    def pending(self, document_id: str | None = None) -> int: ...


class Inventory(Protocol):
    """Everything that PostgreSQL holds, walked page by page, and what fsck puts right there."""

    def knowledge_base_ids(self) -> list[str]:
        """All that ever were, deleted ones included, by id."""
        ...

    def documents(self, knowledge_base_id: str, after: str | None = None) -> list[DocumentFacts]:
        """The next page by id, tombstones included, bounded in documents and chunks; [] at the end."""
        ...

    def document(self, document_id: str) -> DocumentFacts | None:
        """As it is now, tombstones included; None when unknown."""
        ...

    def contents(self, document_id: str, version: int) -> Iterator[PartContent]:
        """Chunks and parents of a version as they stand, part by part."""
        ...

    def restore_content(
        self, document_id: str, version: int, contents: Sequence[PartContent], *, sha256: str, content_fingerprint: str
    ) -> bool:
        """Write the published version's content anew. False when another version is published by now."""
        ...

    def drop_content(self, document_id: str, version: int) -> bool:
        """Delete chunks and parents of a version that is over or not there. False when it is neither."""
        ...

    def drop_asset(self, document_id: str, version: int, asset_id: str) -> None: ...

    def release_claim(self, document_id: str, version: int, token: int) -> bool:
        """Give a lapsed claim back. False when somebody took the version up meanwhile."""
        ...

    def reset_version(self, document_id: str, version: int, token: int) -> bool:
        """An unfinished version is prepared again by its next claim. False when somebody took it up meanwhile."""
        ...

    def note_loss(self, document_id: str, version: int, kind: str, subject: str, message: str) -> None: ...

    def stuck_entries(self, seconds: float, attempts: int, limit: int = 1000) -> list[StuckEntry]:
        """Outbox entries overdue by so many seconds, or tried so often."""
        ...

    def make_due(self, entry_id: int | None = None) -> None:
        """An outbox entry is due now; None: each that failed before and waits for its next try."""
        ...

    def stuck_runs(self, seconds: float, limit: int = 1000) -> list[IngestionRun]:
        """RUNNING runs without a sign of life for so many seconds."""
        ...


class Evidence(Protocol):
    """The read path's facts. Two statements a query: scope before the search, rows after it."""

    async def scope(
        self,
        principal: Principal,
        knowledge_base_id: str,
        options: RetrievalOptions,
        *,
        embedder_fingerprint: str | None = None,
    ) -> ReadScope:
        """Access keys, sources, mounts, visible documents and the index in one statement: the active one, or that of
        the caller's embedder if it was retired and is still there.
        ForbiddenError-free: what is not granted is simply an empty filter. NotFoundError for an unknown agent."""
        ...

    async def rows(
        self, principal: Principal, knowledge_base_id: str, hits: Sequence[Hit], options: RetrievalOptions
    ) -> dict[str, EvidenceRow]:
        """Second check, one statement: of the hits' chunk ids, those of a published version of a visible, readable
        document of an enabled source, with chunk, parent and assets."""
        ...

    async def changed_since(self, taken: str, document_ids: Sequence[str]) -> str | None:
        """Where one of these documents was published or deleted after that moment: the moment of this look."""
        ...


class ChunkSearch(Protocol):
    """Chunks by their words, in PostgreSQL: what no index has to find."""

    async def keyword_hits(
        self,
        access: AccessFilter,
        keywords: Sequence[str],
        *,
        least: int,
        limit: int,
        among: Sequence[str] | None = None,
    ) -> list[Hit]:
        """Published chunks of the scope that hold at least so many of the keywords, most first; score: how many.

        A Latin keyword or number must stand as a word of its own, a Chinese one as it is; case does not matter.
        among: chunk ids; None reads every chunk of the scope.
        """
        ...

    async def located(
        self,
        principal: Principal,
        knowledge_base_id: str,
        *,
        chunk_id: str | None = None,
        document_id: str | None = None,
        text: str | None = None,
        limit: int = 20,
    ) -> list[Located]:
        """What exactly one of the three names, as far as the principal may read it, whether queries see it or not.

        A document without chunks is there once, without a chunk. A text is sought in published versions, white space
        and case apart.
        """
        ...


class Analyzer(Protocol):
    """The tokens that BM25 compares."""

    async def analyze(self, texts: Sequence[str]) -> list[list[str]]:
        """The tokens of each text, in order, as the index makes them."""
        ...


class Conversations(Protocol):
    """Chat sessions and the audit trail."""

    async def add_message(
        self,
        session_id: str | None,
        role: str,
        content: str,
        *,
        principal: Principal,
        knowledge_base_id: str,
        evidence: ChatEvidence | None = None,
    ) -> ChatMessage:
        """session_id None starts a session; the message carries its id."""
        ...

    async def require_session(self, session_id: str, principal: Principal, knowledge_base_id: str) -> None:
        """NotFoundError unless the session is the principal's, in this knowledge base."""
        ...

    async def messages(self, session_id: str, principal: Principal) -> list[ChatMessage]: ...

    async def record(self, record: RetrievalRecord) -> None: ...


@runtime_checkable
class MetricSink(Protocol):
    """Counters and histograms; names and units are in `telemetry`."""

    def count(self, name: str, value: float = 1.0, **labels: str) -> None: ...

    def observe(self, name: str, value: float, **labels: str) -> None: ...
