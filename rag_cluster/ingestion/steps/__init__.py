"""The steps of one document, as plain functions: prepare (fetch, parse, chunk, snapshot), then index (embed, write).

    claim -> PARSING -> fetch, hash -> unchanged? -> parse -> CHUNKING -> chunk -> assets, original, snapshot
          -> commit_snapshot (EMBEDDING, parts) -> parts -> embed -> INDEXING -> index upsert -> complete_part -> READY

Bulk actors and the upload worker run the same functions. A status is written before the action that it names; nothing
reaches the index or the chunks before the snapshot is committed; every write is idempotent, so that a crash at any
line is repaired by running again. Failures of documents are rows, not exceptions.
"""

from rag_cluster.ingestion.steps.filling import Filled, FillStream, fill, from_snapshots
from rag_cluster.ingestion.steps.indexing import (
    batches,
    ensure_collection,
    index,
    index_batch,
    open_index,
    require_active,
)
from rag_cluster.ingestion.steps.preparation import Prepared, Stage, Work, prepare, prepare_claimed, resume

__all__ = [
    "FillStream",
    "Filled",
    "Prepared",
    "Stage",
    "Work",
    "batches",
    "ensure_collection",
    "fill",
    "from_snapshots",
    "index",
    "index_batch",
    "open_index",
    "prepare",
    "prepare_claimed",
    "require_active",
    "resume",
]
