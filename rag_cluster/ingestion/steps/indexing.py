"""From parts to published versions: one embed call a batch, index upsert, PostgreSQL, part done (design section 5)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rag_cluster.domain.chunks import MAX_PART_CHUNKS, IndexRow, PartContent
from rag_cluster.domain.documents import IndexRecord, PartOutcome, Receipt
from rag_cluster.errors import IndexMismatchError, ModelUnavailableError
from rag_cluster.ingestion.failures import Failure, failed, is_ready, leave
from rag_cluster.ingestion.rows import AwaitingRecognition, Indexed, PartDone, PreparedPart
from rag_cluster.ingestion.steps.preparation import Stage
from rag_cluster.ingestion.write_path import RetryPolicy, WritePath
from rag_cluster.telemetry import (
    CHUNKS_TOTAL,
    DOCUMENT_SECONDS,
    DOCUMENTS_TOTAL,
    STAGE_SECONDS,
    TOKENS_TOTAL,
    bound,
)

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Matrix

RowFacts = tuple[str, int, Mapping[str, Any]]
"""(source_id, access_key, metadata) of a document, as its index rows carry them."""
MAX_BATCH_CHUNKS = MAX_PART_CHUNKS
"""Chunks of one embed call, at most: one full part, or several small ones. On a CPU that is a minute's work, and what a
kill can make to be embedded again."""


def batches(parts: Sequence[PreparedPart], max_parts: int) -> Iterator[list[PreparedPart]]:
    """Cut parts into batches of at most `max_parts` and `MAX_BATCH_CHUNKS`."""
    batch: list[PreparedPart] = []
    chunks = 0
    for part in parts:
        size = part.end - part.start
        if batch and (len(batch) == max_parts or chunks + size > MAX_BATCH_CHUNKS):
            yield batch
            batch, chunks = [], 0
        batch.append(part)
        chunks += size
    if batch:
        yield batch


def require_active(write_path: WritePath) -> None:
    """IndexMismatchError unless what this process embeds would be found by queries. Loads no engine."""
    active = next((found for found in write_path.catalog.indexes() if found.state == "active"), None)
    fingerprint = write_path.embedder().fingerprint
    if active is not None and active.embedder_fingerprint != fingerprint:
        raise IndexMismatchError(
            f"The active index {active.collection} belongs to embedder {active.embedder_fingerprint}, RAG_EMBEDDER "
            f"names {fingerprint}: set it to the index's, or build another index with 'rag-cluster reembed'."
        )


def open_index(write_path: WritePath) -> IndexRecord:
    """The active index, which this process's embedder fills, created when it is not there. IndexMismatchError when it
    belongs to another embedder."""
    write_path.retry.call(lambda: require_active(write_path))
    embedder = write_path.embedder()
    record = write_path.retry.call(lambda: write_path.catalog.ensure_index(embedder.fingerprint, embedder.dimension))
    ensure_collection(write_path, record)
    return record


def ensure_collection(write_path: WritePath, record: IndexRecord) -> None:
    """Make an index's collection if it is not there. What PostgreSQL remembers of it is forgotten before: whoever finds
    a collection must not take it for full because its maker was killed."""
    if not write_path.retry.call(lambda: write_path.index.exists(record.collection)):
        write_path.retry.call(lambda: write_path.catalog.forget_parts(record.collection))
    write_path.retry.call(lambda: write_path.index.ensure(record))


def index(write_path: WritePath, record: IndexRecord, parts: Sequence[PreparedPart]) -> list[Indexed]:
    """Embed and write parts of several documents as one batch: a PartDone for each, a Receipt for each document that
    ends with it, an AwaitingRecognition for each that is published with its text only. Never raises for a document:
    when the batch fails, its parts are tried one by one. IndexMismatchError when another index is active by now."""
    alone = parts[0].document_id if len({part.document_id for part in parts}) == 1 else ""
    with bound(run_id=parts[0].owner if parts else "", document_id=alone):
        return _index(write_path, record, parts)


def _index(write_path: WritePath, record: IndexRecord, parts: Sequence[PreparedPart]) -> list[Indexed]:
    stage = Stage(write_path, name="read")
    started = time.perf_counter()
    try:
        return index_batch(write_path, record, parts, stage)
    except IndexMismatchError:
        raise  # the run's, not the document's: what is unfinished is resumed under the embedder of the new index
    except Exception as error:  # becomes the failure row of each document that also fails alone
        if len(parts) > 1:
            once = replace(write_path, retry=RetryPolicy(retries=0))
            return [row for part in parts for row in index(once, record, [part])]
        part, failure = parts[0], Failure.of(error, stage.name)
        seconds = part.seconds + time.perf_counter() - started
        return [failed(write_path, part.knowledge_base_id, part.uri, part.document_id, part.claim, failure, seconds)]


def index_batch(
    write_path: WritePath, record: IndexRecord, parts: Sequence[PreparedPart], stage: Stage
) -> list[Indexed]:
    """As `index`, but an error is the whole batch's and is raised; it belongs to `stage.name`."""
    started = time.perf_counter()
    stage.enter("read", 60)
    todo, rows = _not_done(write_path, parts)
    loaded = [load(write_path, part) for part in todo]
    if not loaded:
        return rows
    stage.enter("embed", 65)
    loaded = embed(write_path, loaded)
    stage.enter("index", 90)
    # INDEXING for each version that is still ours, with the access facts of now. Should these change before a version
    # is published, the ledger owes an INDEX_ACCESS with it.
    facts = write_path.retry.call(lambda: write_path.ledger.begin_index([item.part.claim for item in loaded]))
    owned = [item for item in loaded if item.part.document_id in facts]
    upsert(write_path, record, owned, facts)
    stage.enter("publish", 95)
    publishing = time.perf_counter()
    rows += _complete(write_path, record, owned, (publishing - started) / len(loaded))
    write_path.metrics.observe(STAGE_SECONDS, time.perf_counter() - publishing, stage=stage.name)
    lost = {item.part.document_id: item.part for item in loaded if item.part.document_id not in facts}
    return rows + [_busy(write_path, part, "index") for part in lost.values()]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A part with its content."""

    part: PreparedPart
    content: PartContent
    vectors: Matrix | None
    """(len(content.chunks), dimension), once embedded."""


def _not_done(write_path: WritePath, parts: Sequence[PreparedPart]) -> tuple[list[PreparedPart], list[Indexed]]:
    """The ledger is asked before anything is embedded: a part that is done costs nothing the second time."""
    todo: list[PreparedPart] = []
    rows: list[Indexed] = []
    versions = list(dict.fromkeys((part.document_id, part.version) for part in parts))
    pending = write_path.retry.call(lambda: write_path.ledger.pending_by_version(versions))
    for part in parts:
        left = pending[part.document_id, part.version]
        if part.part in left:
            todo.append(part)
            continue
        rows.append(PartDone(part.document_id, 0, 0))
        if not left:
            ready = is_ready(write_path, part.claim)
            rows.append(_published(part) if ready else _busy(write_path, part, "publish"))
    return todo, rows


def load(write_path: WritePath, part: PreparedPart) -> Loaded:
    """A part's chunks from its snapshot, not embedded yet."""
    read = partial(write_path.snapshots.read_part, part.knowledge_base_id, part.slice)
    return Loaded(part, write_path.retry.call(read), vectors=None)


def embed(write_path: WritePath, loaded: Sequence[Loaded]) -> list[Loaded]:
    """The same with vectors, by one call. ModelUnavailableError."""
    texts = [chunk.content for item in loaded for chunk in item.content.chunks]
    vectors = write_path.retry.call(lambda: write_path.embedder().embed_documents(texts))
    if len(vectors) != len(texts):
        raise ModelUnavailableError(f"the embedder gave {len(vectors)} vectors for {len(texts)} texts")
    embedded, start = [], 0
    for item in loaded:
        end = start + len(item.content.chunks)
        embedded.append(replace(item, vectors=vectors[start:end]))
        start = end
    return embedded


def upsert(write_path: WritePath, record: IndexRecord, owned: Sequence[Loaded], facts: Mapping[str, RowFacts]) -> None:
    """Write embedded parts to an index, with the access facts of their documents."""
    rows: list[IndexRow] = []
    for item in owned:
        source_id, access_key, metadata = facts[item.part.document_id]
        rows.extend(IndexRow(chunk, source_id, access_key, metadata) for chunk in item.content.chunks)
    if rows:
        vectors = np.concatenate([item.vectors for item in owned if item.vectors is not None])
        write_path.retry.call(lambda: write_path.index.upsert(record.collection, rows, vectors))


def _complete(write_path: WritePath, record: IndexRecord, owned: Sequence[Loaded], seconds: float) -> list[Indexed]:
    """Chunks and parents to PostgreSQL, parts done; the last part publishes, and only then is there a receipt."""
    written = [(item.part.claim, item.content) for item in owned]
    complete = partial(write_path.ledger.complete_parts, written, index_id=record.id)
    outcomes = write_path.retry.call(complete) if written else []
    rows: list[Indexed] = []
    for item, outcome in zip(owned, outcomes, strict=True):
        part, chunks = item.part, item.content.chunks
        if outcome is PartOutcome.LOST:
            rows.append(_busy(write_path, part, "publish"))
            continue
        tokens = sum(chunk.token_count for chunk in chunks)
        write_path.metrics.count(CHUNKS_TOTAL, len(chunks))
        write_path.metrics.count(TOKENS_TOTAL, tokens)
        rows.append(PartDone(part.document_id, len(chunks), tokens))
        if outcome is PartOutcome.PUBLISHED:
            write_path.metrics.count(DOCUMENTS_TOTAL, outcome="text_ready" if part.awaiting else "ready")
            write_path.metrics.observe(DOCUMENT_SECONDS, part.seconds + seconds)
            rows.append(_published(replace(part, seconds=part.seconds + seconds), part.chunks, tokens))
    return rows


def _published(part: PreparedPart, chunks: int = 0, tokens: int = 0) -> Receipt | AwaitingRecognition:
    """The end of its document, or of its first half."""
    if part.awaiting:
        return AwaitingRecognition(part.document_id, part.awaiting, part.bytes)
    return replace(_receipt(part, "ready"), chunks=chunks, tokens=tokens)


def _receipt(part: PreparedPart, outcome: str) -> Receipt:
    return Receipt(
        part.uri,
        part.document_id,
        outcome,
        version=part.version,
        pages=part.pages,
        bytes=part.bytes,
        seconds=part.seconds,
        duplicate_of=part.duplicate_of,
        warnings=part.warnings,
        recognized=part.recognized,
    )


def _busy(write_path: WritePath, part: PreparedPart, stage: str) -> Receipt:
    leave(write_path, part.knowledge_base_id, part.claim)
    return replace(_receipt(part, "busy"), stage=stage, message="the claim was lost or the document deleted")
