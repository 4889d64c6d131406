"""The ports that a delete reaches through."""

from __future__ import annotations

from dataclasses import dataclass

from rag_cluster.domain.ports import Catalog, ChunkIndex, ObjectStore, Outbox, SnapshotStore


@dataclass(frozen=True, slots=True)
class Stores:
    """Where the traces of a document lie, and what is owed to each."""

    catalog: Catalog
    outbox: Outbox
    index: ChunkIndex
    snapshots: SnapshotStore
    objects: ObjectStore
