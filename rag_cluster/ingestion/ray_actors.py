"""The actors of a bulk job's graph: each owns what its stage needs and does its steps for the rows that reach it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

import pyarrow as pa

from rag_cluster.domain.documents import IndexRecord, RunStatus
from rag_cluster.ingestion import manifest, rows, steps
from rag_cluster.ingestion.ray_metrics import ray_metrics
from rag_cluster.ingestion.rows import PreparedPart, Row, StagesDone
from rag_cluster.ingestion.run import RunContext
from rag_cluster.ingestion.stage_times import StageTimes
from rag_cluster.ingestion.write_path import Factory
from rag_cluster.telemetry import configure_logging, trace_id

BATCH_DOCUMENTS = 48
"""Of a prepare task, at most: as many small ones as an embed call takes parts."""
PREPARE_THREADS = 4
"""Documents that a prepare actor has in hand at once: one is parsed and chunked while others wait for the disk and for
PostgreSQL, whose flushes they then share."""
PREPARE_TASKS = 3
"""Tasks of a prepare actor at once: the next ones begin while one still waits for a slow document."""
HAND_ON_SECONDS = 1.0
"""What a prepare task has ready goes on after so long, whatever it still waits for."""
TABLE_PARTS = BATCH_DOCUMENTS
"""Parts that travel together: a document of 10,000 pages leaves prepare as many small blocks."""


class Worker:
    """What both actors do at their start. An error there is kept for the first batch: raised in a constructor, Ray
    would report the death of an actor instead of it."""

    def __init__(self, factory: Factory, context: RunContext) -> None:
        configure_logging(context.log_level)
        self._context = context
        self._error: Exception | None = None
        try:
            write_path = context.retry.call(factory)
            self._times = StageTimes(ray_metrics(), write_path.metrics)
            self._write_path = replace(write_path, metrics=self._times)
            self._start()
        except Exception as error:  # raised by the first batch
            self._error = error

    def _start(self) -> None:
        """Load what the stage needs."""

    def _hide_gpus(self) -> None:
        if not self._write_path.pools.index_gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # Ray no longer hides GPUs from actors that asked for none

    def _enter(self) -> None:
        trace_id.set(self._context.run_id)
        if self._error is not None:
            raise self._error

    def _table(self, *out: Row) -> pa.Table:
        """A task's rows, with the stages that led to them."""
        return rows.to_table([*out, StagesDone.of(self._times.take())])


class PrepareActor(Worker):
    """Actor: fetches, parses, chunks and snapshots; owns the isolated parse child."""

    batch_documents = BATCH_DOCUMENTS
    """Of one task, at most."""
    tasks = PREPARE_TASKS
    """At once."""
    sees_gpus = False

    def __init__(self, factory: Factory, context: RunContext) -> None:
        if not self.sees_gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # Ray no longer hides GPUs from actors that asked for none
        super().__init__(factory, context)
        self._threads = ThreadPoolExecutor(PREPARE_THREADS, initializer=trace_id.set, initargs=(context.run_id,))

    def __call__(self, batch: pa.Table) -> Iterator[pa.Table]:
        """Documents as they are done, so that none waits for a slow one. A task that is repeated after its worker died
        may give other tables than the first time, and Ray leaves those out whose number had come already: what they
        held is known to the ledger, and the run's last wave asks for it."""
        self._enter()
        works = [self._work(row) for documents in batch["documents"].to_pylist() for row in documents]
        waiting = [] if self._is_over() else [self._threads.submit(self._prepare, work) for work in works]
        try:
            while waiting:
                finished, _ = wait(waiting, HAND_ON_SECONDS)
                out = [row for future in waiting if future in finished for row in _rows(future.result())]
                waiting = [future for future in waiting if future not in finished]
                for start in range(0, len(out), TABLE_PARTS):
                    yield self._table(*out[start : start + TABLE_PARTS])
                if waiting and self._is_over():
                    return
        finally:
            for future in waiting:
                future.cancel()

    def _is_over(self) -> bool:
        """Whether the run has ended: its driver cannot interrupt a task, and Ray may outlive it."""
        ledger, run_id = self._write_path.ledger, self._context.run_id
        return self._write_path.retry.call(lambda: ledger.run(run_id)).status is not RunStatus.RUNNING

    def _work(self, document: dict[str, Any]) -> steps.Work:
        planned = manifest.from_row(document)
        return steps.Work(
            self._context.knowledge_base_id,
            self._context.source_id,
            planned.document_id,
            planned.file,
            planned.content_fingerprint,
            planned.file.chunking_strategy or self._context.strategy,
        )

    def _prepare(self, work: steps.Work) -> steps.Prepared:
        return steps.prepare(self._write_path, work, owner=self._context.run_id)


def _rows(prepared: steps.Prepared) -> Sequence[Row]:
    return prepared if isinstance(prepared, list) else [prepared]


class RecognizeActor(PrepareActor):
    """Actor of the OCR stage: the same with text recognition, the only one that may see a GPU for it."""

    batch_documents = 1
    tasks = 1
    sees_gpus = True

    def _start(self) -> None:
        if not self._write_path.pools.ocr_gpu:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""

    def _prepare(self, work: steps.Work) -> steps.Prepared:
        return steps.prepare(self._write_path, work, owner=self._context.run_id, recognize=True)


class IndexActor(Worker):
    """Actor: owns the embedder; embeds and writes parts; lets receipts through."""

    def _start(self) -> None:
        self._hide_gpus()
        self._record = steps.open_index(self._write_path)

    def __call__(self, batch: pa.Table) -> Iterator[pa.Table]:
        """Parts become `PartDone` and receipts, an embed call at a time; other rows go through."""
        self._enter()
        arrived = list(rows.from_table(batch))
        parts = [row for row in arrived if isinstance(row, PreparedPart)]
        others = [row for row in arrived if not isinstance(row, PreparedPart)]
        if not parts or any(not isinstance(row, StagesDone) for row in others):
            yield rows.to_table(others)
            others = []
        for some in steps.batches(parts, self._write_path.pools.batch_parts):
            yield self._table(*others, *steps.index(self._write_path, self._record, some))
            others = []


class FillActor(Worker):
    """Actor: owns another index's embedder; fills that index from snapshots."""

    def __init__(self, factory: Factory, record: IndexRecord, run_id: str) -> None:
        self._record = record
        super().__init__(factory, RunContext(run_id, "", "", None))

    def _start(self) -> None:
        self._hide_gpus()
        steps.ensure_collection(self._write_path, self._record)

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Parts become `PartDone` or a receipt of what failed."""
        self._enter()
        parts = [row for row in rows.from_table(batch) if isinstance(row, PreparedPart)]
        return self._table(*steps.fill(self._write_path, self._record, parts))
