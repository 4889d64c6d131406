"""Who works on which version, and what is left of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rag_cluster.domain.chunks import Part, PartContent
from rag_cluster.domain.documents import Claim, DocumentStatus, PartOutcome, PlannedFile, SourceFile
from rag_cluster.domain.ports.runs import Runs


class Ledger(Runs, Protocol):
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

    def live_uris(
        self, knowledge_base_id: str, source_id: str, after: str | None, limit: int, run_id: str | None = None
    ) -> list[tuple[str, str, bool]]:
        """(document id, URI, a version was begun since that run began) of a source's documents that are not deleted,
        by id, those behind `after`."""
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
        (resumed=True when its snapshot is committed). None while somebody else holds a live claim, and when since the
        owner's run began this content failed for good or the document was deleted."""
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
        """If the published version has the same bytes and a fingerprint that serves (`ids.serves`), remember the new
        etag and return True: the claimed version goes, and those that failed before it. Their jobs are now jobs of the
        published version."""
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
