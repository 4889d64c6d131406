"""Deleting everywhere, and the outbox that owes it."""

from __future__ import annotations

from functools import cached_property

from rag_cluster.domain.documents import DeleteReceipt, Source
from rag_cluster.lifecycle.delete import delete_document, delete_knowledge_base, delete_source
from rag_cluster.lifecycle.outbox import drain
from rag_cluster.lifecycle.stores import Stores
from rag_cluster.wiring.stores import StoreServices


class DeletionServices(StoreServices):
    """Deletes, each verified in every store."""

    @cached_property
    def stores(self) -> Stores:
        """What a delete reaches through."""
        return Stores(self.catalog, self.outbox, self.index, self.snapshots, self.objects)

    def drain_outbox(self, document_id: str | None = None) -> int:
        """Carry out what is owed (for one document); how many entries."""
        return drain(self.stores, document_id=document_id)

    def delete_document(self, document_id: str) -> DeleteReceipt:
        """Delete everywhere, verified."""
        return delete_document(self.stores, document_id)

    def delete_knowledge_base(self, knowledge_base_id: str) -> list[DeleteReceipt]:
        """Delete a base with all its documents."""
        return delete_knowledge_base(self.stores, knowledge_base_id)

    def delete_source(self, source: Source) -> list[DeleteReceipt]:
        """Delete all documents of a source."""
        return delete_source(self.stores, source)
