"""All of it in one object: with what looks after the indexes, and whether everything answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rag_cluster.domain.documents import IndexRecord
from rag_cluster.errors import IndexMismatchError
from rag_cluster.lifecycle.indexes import drop, switch
from rag_cluster.wiring.ingestion import IngestionServices
from rag_cluster.wiring.retrieval import RetrievalServices

if TYPE_CHECKING:
    from rag_cluster.lifecycle.fsck import FsckOptions
    from rag_cluster.lifecycle.recall import Comparison, Question
    from rag_cluster.lifecycle.reembed import Compare
    from rag_cluster.lifecycle.report import Entry, FsckReport


class Services(IngestionServices, RetrievalServices):
    """Everything one process may need, built when first asked for."""

    def fsck(self, options: FsckOptions, listener: Callable[[Entry], None] | None = None) -> FsckReport:
        """Compare the stores, and repair where told to."""
        from rag_cluster.lifecycle.fsck import fsck

        return fsck(self.write_path(), self.inventory, options, listener)

    def compare_indexes(self, new: Services, questions: Sequence[Question], top_k: int) -> Compare:
        """How this settings' embedder finds what the questions expect, beside that of `new`, each in its own index."""
        from rag_cluster.lifecycle.recall import PinnedEvidence, compare_recall
        from rag_cluster.retrieval.retriever import Retriever

        def compare(active: IndexRecord, record: IndexRecord) -> Comparison:
            old, other = (
                Retriever(PinnedEvidence(self.evidence, index), self.index, services.async_embedder)
                for services, index in ((self, active), (new, record))
            )
            return asyncio.run(compare_recall(old, other, questions, top_k))

        return compare

    def switch_index(self, name: str) -> IndexRecord:
        """Make an index, by collection or embedder fingerprint, the active one."""
        return switch(self.catalog, name)

    def drop_index(self, name: str) -> IndexRecord:
        """Delete an index that is not active."""
        return drop(self.catalog, self.index, name)

    def readiness_checks(self) -> dict[str, Callable[[], object]]:
        """Dependency -> a call that returns when it answers and raises when it does not."""
        return {
            "postgres": self.database.ping,
            "milvus": self.index.ping,
            "objects": lambda: self.objects.exists("readiness"),
            "index": self._require_own_index,
        }

    def _require_own_index(self) -> None:
        """IndexMismatchError when queries find no index of this settings' embedder, while there are others."""
        usable = [record for record in self.catalog.indexes() if record.state in ("active", "retired")]
        if usable and self.embedder.fingerprint not in {record.embedder_fingerprint for record in usable}:
            raise IndexMismatchError(f"no index that queries may use belongs to embedder {self.settings.embedder}")
