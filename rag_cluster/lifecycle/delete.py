"""Deleting documents, sources and knowledge bases, with a receipt that looks into every store (design section 5).

A tombstone makes the document invisible at once; its outbox row owes the rest, in an order in which facts go last.
What fails stays owed and is resumed by the next drain of any job.
"""

from __future__ import annotations

import time

from rag_cluster.domain import keys
from rag_cluster.domain.documents import DeleteReceipt, Source
from rag_cluster.errors import RagClusterError
from rag_cluster.lifecycle.outbox import carry_out, versions_left
from rag_cluster.lifecycle.stores import Stores

GONE = "gone"
OTHERS_SECONDS = 5.0
"""How long a delete waits for another process that carries out its steps at this moment."""


def delete_document(stores: Stores, document_id: str) -> DeleteReceipt:
    """Delete one document everywhere. NotFoundError; DocumentBusyError under a live claim. Again is harmless."""
    document = stores.catalog.tombstone(document_id)
    return _purge(stores, document.knowledge_base_id, document_id)


def delete_knowledge_base(stores: Stores, knowledge_base_id: str) -> list[DeleteReceipt]:
    """Delete a knowledge base and each of its documents; one receipt a document. DocumentBusyError: nothing is done."""
    document_ids = stores.catalog.delete_knowledge_base(knowledge_base_id)
    return [_purge(stores, knowledge_base_id, document_id) for document_id in document_ids]


def delete_source(stores: Stores, source: Source) -> list[DeleteReceipt]:
    """Delete each document of a source; the empty source stays. NotFoundError; DocumentBusyError: nothing is done."""
    document_ids = stores.catalog.delete_source(source.id)
    return [_purge(stores, source.knowledge_base_id, document_id) for document_id in document_ids]


def _purge(stores: Stores, knowledge_base_id: str, document_id: str) -> DeleteReceipt:
    versions = versions_left(stores, knowledge_base_id, document_id)
    _carry_out(stores, document_id)
    found = {
        "milvus": _index_rows(stores, document_id),
        "snapshots": _count(
            sum(stores.snapshots.exists(knowledge_base_id, document_id, version) for version in versions), "snapshots"
        ),
        "objects": _count(
            sum(1 for _ in stores.objects.list(keys.document_prefix(knowledge_base_id, document_id))), "objects"
        ),
        "postgres": _count(sum(stores.catalog.remains(document_id).values()), "rows"),
    }
    owed = stores.outbox.pending(document_id) > 0
    return DeleteReceipt(document_id, found, pending=owed or any(state != GONE for state in found.values()))


def _carry_out(stores: Stores, document_id: str) -> None:
    """Drain what is due. Nothing due but something owed: a worker that drains at the same time may have it in hand."""
    deadline = time.monotonic() + OTHERS_SECONDS
    while not carry_out(stores, document_id=document_id).failed and stores.outbox.pending(document_id):
        if time.monotonic() > deadline:
            return
        time.sleep(0.1)


def _index_rows(stores: Stores, document_id: str) -> str:
    try:
        rows = sum(len(stores.index.chunk_ids(record.collection, document_id)) for record in stores.catalog.indexes())
    except RagClusterError as error:
        # The tombstone hides the document already; that its rows were not verified gone is what the receipt says.
        return f"not verified: {error.message}"
    return _count(rows, "rows")


def _count(left: int, what: str) -> str:
    return GONE if not left else f"{left} {what} left"
