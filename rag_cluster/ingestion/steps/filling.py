"""From snapshots to another index: parts of published versions are embedded and written, nothing is fetched or parsed.

A document's row is locked while its rows are written. Whoever replaces, deletes or changes it afterwards owes that to
every index, this one included; whoever did so before made the part one that is not missing any more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from rag_cluster.domain.chunks import MissingPart
from rag_cluster.domain.documents import IndexRecord, Receipt
from rag_cluster.ingestion.failures import Failure
from rag_cluster.ingestion.rows import PartDone, PreparedPart
from rag_cluster.ingestion.steps.indexing import Loaded, embed, load, upsert
from rag_cluster.ingestion.write_path import RetryPolicy, WritePath
from rag_cluster.telemetry import CHUNKS_TOTAL, ERRORS_TOTAL, STAGE_SECONDS, TOKENS_TOTAL

log = logging.getLogger("rag_cluster.ingestion")

Filled = PartDone | Receipt
FillStream = Callable[[Sequence[PreparedPart]], Iterator[Filled]]
"""Fills an index with parts of published versions; yields a PartDone or a failed Receipt of each as they come."""


def from_snapshots(missing: Sequence[MissingPart]) -> list[PreparedPart]:
    """Missing parts as rows of the pipeline: they enter at index, under nobody's claim."""
    return [
        PreparedPart(
            item.knowledge_base_id,
            item.uri,
            item.part.document_id,
            item.part.version,
            owner="",
            token=0,
            part=item.part.index,
            start=item.part.start,
            end=item.part.end,
            chunks=item.part.end - item.part.start,
        )
        for item in missing
    ]


def fill(write_path: WritePath, record: IndexRecord, parts: Sequence[PreparedPart]) -> list[Filled]:
    """Embed and write parts of published versions into an index, as one batch: a PartDone for each, of 0 chunks where
    there was nothing to do any more, or a failed Receipt. What fails as a batch is tried part by part."""
    try:
        return _fill(write_path, record, parts)
    except Exception as error:  # becomes the receipt of each part that also fails alone
        if len(parts) > 1:
            once = replace(write_path, retry=RetryPolicy(retries=0))
            return [row for part in parts for row in fill(once, record, [part])]
        if _is_missing(write_path, record, parts[0]):
            return [_failed(write_path, parts[0], Failure.of(error, "reembed"))]
        return [PartDone(parts[0].document_id, 0, 0)]  # deleted or replaced meanwhile, its snapshot too


def _fill(write_path: WritePath, record: IndexRecord, parts: Sequence[PreparedPart]) -> list[Filled]:
    held = write_path.retry.call(lambda: write_path.catalog.held_parts(record.id, [part.slice for part in parts]))
    todo = [load(write_path, part) for part in parts if part.slice not in held]
    written: set[PreparedPart] = set()
    if todo:
        started = time.perf_counter()
        loaded = embed(write_path, todo)
        written = write_path.retry.call(partial(_write, write_path, record, loaded))
        write_path.metrics.observe(STAGE_SECONDS, time.perf_counter() - started, stage="reembed")
    tokens = {item.part: sum(chunk.token_count for chunk in item.content.chunks) for item in todo}
    rows: list[Filled] = []
    for part in parts:
        chunks = part.chunks if part in written else 0
        rows.append(PartDone(part.document_id, chunks, tokens[part] if chunks else 0))
    write_path.metrics.count(CHUNKS_TOTAL, sum(part.chunks for part in written))
    write_path.metrics.count(TOKENS_TOTAL, sum(tokens[part] for part in written))
    return rows


def _write(write_path: WritePath, record: IndexRecord, loaded: Sequence[Loaded]) -> set[PreparedPart]:
    """Those that were still of a published version."""
    once = replace(write_path, retry=RetryPolicy(retries=0))  # no waiting while documents are locked
    with write_path.catalog.filling(record.id, [item.part.slice for item in loaded]) as facts:
        owned = [item for item in loaded if (item.part.document_id, item.part.version) in facts]
        upsert(once, record, owned, {document_id: found for (document_id, _), found in facts.items()})
    return {item.part for item in owned}


def _is_missing(write_path: WritePath, record: IndexRecord, part: PreparedPart) -> bool:
    before = replace(part.slice, index=part.part - 1)
    found = write_path.retry.call(lambda: write_path.catalog.missing_parts(record.id, before, 1))
    return [item.part for item in found] == [part.slice]


def _failed(write_path: WritePath, part: PreparedPart, failure: Failure) -> Receipt:
    write_path.metrics.count(ERRORS_TOTAL, stage=failure.stage, type=failure.error_type)
    log.warning("part not embedded anew: %s", failure.message, extra={"uri": part.uri, "part": part.part})
    return Receipt(
        part.uri,
        part.document_id,
        "failed",
        version=part.version,
        stage=failure.stage,
        error_type=failure.error_type,
        message=failure.message,
    )
