"""Switching back, and dropping what is not needed any more."""

from __future__ import annotations

from rag_cluster.domain.documents import IndexRecord
from rag_cluster.domain.ports import Catalog, ChunkIndex
from rag_cluster.errors import ConflictError, NotFoundError


def find_index(catalog: Catalog, name: str) -> IndexRecord:
    """By collection or embedder fingerprint. NotFoundError."""
    for record in catalog.indexes():
        if name in (record.collection, record.embedder_fingerprint):
            return record
    raise NotFoundError(f"There is no index {name!r}: 'rag-cluster indexes list' names them.")


def switch(catalog: Catalog, name: str) -> IndexRecord:
    """Make an index the active one, as it is. ConflictError while it lacks anything that queries see."""
    record = find_index(catalog, name)
    if catalog.switch_index(record.id):
        parts, chunks = catalog.count_missing(record.id)
        raise ConflictError(
            f"{record.collection} lacks {parts} parts ({chunks} chunks) that were published since: "
            "'rag-cluster reembed' with its embedder writes them and switches."
        )
    return find_index(catalog, name)


def drop(catalog: Catalog, index: ChunkIndex, name: str) -> IndexRecord:
    """Delete an index that is not active, with its collection. Killed in the middle, it is finished by the next call.
    NotFoundError, ConflictError."""
    record = catalog.begin_drop(find_index(catalog, name).collection)
    index.drop(record.collection)
    catalog.finish_drop(record.collection)
    return record
