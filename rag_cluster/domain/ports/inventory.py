"""What fsck walks and repairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from rag_cluster.domain.chunks import PartContent
from rag_cluster.domain.documents import IngestionRun
from rag_cluster.domain.inventory import DocumentFacts, StuckEntry


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
        """An unfinished version is prepared again by its next claim. By who claimed it: False when that is lost."""
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
