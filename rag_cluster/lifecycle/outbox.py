"""Carries out what PostgreSQL owes to the other stores. Each effect is idempotent, so that a crash costs a repeat."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rag_cluster.domain import keys
from rag_cluster.domain.documents import OutboxEntry, OutboxKind
from rag_cluster.errors import RagClusterError
from rag_cluster.lifecycle.stores import Stores

log = logging.getLogger("rag_cluster.lifecycle")

CLAIM_ENTRIES = 100
LEASE_SECONDS = 60.0
MAX_DELAY_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Drained:
    """Effects that were carried out, and that failed."""

    done: int
    failed: int


def drain(stores: Stores, *, document_id: str | None = None) -> int:
    """Carry out every effect that is due when this begins, oldest first; how many succeeded.

    An effect that fails is tried again by a later drain only, after 2, 4, 8 ... at most 300 s: what is owed is never
    forgotten. document_id: only that document's.
    """
    return carry_out(stores, document_id=document_id).done


def carry_out(stores: Stores, *, document_id: str | None = None) -> Drained:
    """`drain`, telling failures too."""
    done = failed = 0
    due = stores.outbox.now()  # what fails may be due again before everything else was tried
    while entries := stores.outbox.claim(CLAIM_ENTRIES, LEASE_SECONDS, due=due, document_id=document_id):
        outcomes = [_carry_out(stores, entry) for entry in entries]
        done += outcomes.count(True)
        failed += outcomes.count(False)
    return Drained(done, failed)


def _carry_out(stores: Stores, entry: OutboxEntry) -> bool:
    try:
        _EFFECTS[entry.kind](stores, entry)
    except Exception as error:  # becomes the entry's message; the entry stays owed
        message = error.message if isinstance(error, RagClusterError) else f"{type(error).__name__}: {error}"
        expected = isinstance(error, RagClusterError)
        fields = {"kind": entry.kind.value, "document_id": entry.document_id, "attempts": entry.attempts}
        log.warning("effect not carried out yet: %s", message, extra=fields, exc_info=not expected)
        stores.outbox.retry(entry, message, min(2.0 ** min(entry.attempts, 16), MAX_DELAY_SECONDS))
        return False
    stores.outbox.done(entry)
    return True


def _index_delete(stores: Stores, entry: OutboxEntry) -> None:
    version, max_version = entry.payload.get("version"), entry.payload.get("max_version")
    for record in stores.catalog.indexes():
        stores.index.delete(record.collection, entry.document_id, version=version, max_version=max_version)


def _index_access(stores: Stores, entry: OutboxEntry) -> None:
    """Write the facts of now until they are the written ones: others may write earlier or later facts meanwhile, and
    whoever writes last sees after it what is true. Each further round is a change that was made meanwhile."""
    written = None
    while (facts := stores.catalog.index_row_facts(entry.document_id)) not in (None, written):
        _, access_key, metadata = written = facts
        for record in stores.catalog.indexes():
            stores.index.update_access(record.collection, entry.document_id, access_key=access_key, metadata=metadata)


def _purge_version(stores: Stores, entry: OutboxEntry) -> None:
    _purge_objects(stores, entry, int(entry.payload["version"]))


def _purge_document(stores: Stores, entry: OutboxEntry) -> None:
    """Milvus -> snapshots -> assets and originals -> facts. Facts go last: they are what finds the rest again.

    Bounded by max_version: a document that was ingested again meanwhile keeps what its newer versions wrote.
    """
    max_version = entry.payload.get("max_version")
    for record in stores.catalog.indexes():
        stores.index.delete(record.collection, entry.document_id, max_version=max_version)
    for version in versions_left(stores, entry.knowledge_base_id, entry.document_id):
        if max_version is None or version <= max_version:
            _purge_objects(stores, entry, version)
    stores.catalog.purge_facts(entry.document_id)


def _purge_objects(stores: Stores, entry: OutboxEntry, version: int) -> None:
    stores.snapshots.delete(entry.knowledge_base_id, entry.document_id, version)
    stores.objects.delete_prefix(keys.version_prefix(entry.knowledge_base_id, entry.document_id, version))


def versions_left(stores: Stores, knowledge_base_id: str, document_id: str) -> list[int]:
    """Versions of which PostgreSQL or the object store still knows, ascending."""
    found = {version.version for version in stores.catalog.versions(document_id)}
    prefix = keys.document_prefix(knowledge_base_id, document_id)
    names = (key[len(prefix) :].partition("/")[0] for key in stores.objects.list(prefix))
    found.update(int(name) for name in names if name.isdecimal())
    return sorted(found)


_EFFECTS: Mapping[OutboxKind, Callable[[Stores, OutboxEntry], None]] = {
    OutboxKind.INDEX_DELETE: _index_delete,
    OutboxKind.INDEX_ACCESS: _index_access,
    OutboxKind.PURGE_VERSION: _purge_version,
    OutboxKind.PURGE_DOCUMENT: _purge_document,
}
