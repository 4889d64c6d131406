"""The bulk job, and the only module that knows Ray Data.

    manifest -> batches of documents -> prepare actors -> parts -> index actors -> receipts -> run report
    what awaits text recognition     -> OCR actors     -> parts -> index actors -> receipts
    what another index lacks         -> parts (from snapshots)  -> fill actors  -> receipts     (`fill_stream`)

The second line is an execution of its own with its own pools (`recognition`), so that scans never hold up text.
Rows are ids and bounds: a document's bytes stay inside the prepare actor. PostgreSQL holds the truth, so a run killed
at any moment is resumed by the next one, which asks the ledger what is left.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import ray
from ray.data import ActorPoolStrategy, DataContext
from ray.exceptions import RayError

from rag_cluster.domain.documents import IndexRecord, PlannedFile, Receipt, RunStatus, SourceKind
from rag_cluster.errors import RagClusterError
from rag_cluster.ingestion import manifest, rows, steps
from rag_cluster.ingestion.heartbeat import interruptible
from rag_cluster.ingestion.ray_connection import connect
from rag_cluster.ingestion.ray_metrics import ray_metrics
from rag_cluster.ingestion.report import IngestionReport
from rag_cluster.ingestion.rows import PartDone, PreparedPart, Row, StagesDone
from rag_cluster.ingestion.run import IngestionOptions, Run, RunContext, Stages, Stream
from rag_cluster.ingestion.stage_times import StageTimes
from rag_cluster.ingestion.write_path import Pools, WritePath
from rag_cluster.telemetry import bound, configure_logging, trace_id

__all__ = ["IngestionOptions", "IngestionReport", "fill_stream", "run_ingestion"]
log = logging.getLogger("rag_cluster.ingestion")

BATCH_DOCUMENTS = 48
"""Of a prepare task, at most: as many small ones as an embed call takes parts."""
BATCH_BYTES = 4 * 1024 * 1024
"""Of a prepare task, at most, or one larger file."""
PREPARE_THREADS = 4
"""Documents that a prepare actor has in hand at once: one is parsed and chunked while others wait for the disk and for
PostgreSQL, whose flushes they then share."""
PREPARE_TASKS = 3
"""Tasks of a prepare actor at once: the next ones begin while one still waits for a slow document."""
HAND_ON_SECONDS = 1.0
"""What a prepare task has ready goes on after so long, whatever it still waits for."""
TABLE_PARTS = BATCH_DOCUMENTS
"""Parts that travel together: a document of 10,000 pages leaves prepare as many small blocks."""
BATCHES_PER_ACTOR = 8
"""A small corpus is cut finer: every prepare actor gets its share, and the index actors something to do meanwhile."""

_DOCUMENT = pa.struct(list(manifest.SCHEMA))
_QUIET = {
    "enable_progress_bars": False,
    "enable_operator_progress_bars": False,
    "print_on_execution_start": False,
    "enable_auto_log_stats": False,
    "raise_original_map_exception": True,
    "target_max_block_size": 1,  # a table that a worker gives is a block, neither gathered nor cut (`rows`)
    "target_min_block_size": 1,
    "max_consecutive_actor_init_deaths": 3,  # killed workers: our own errors come with the first batch
}

_DATA_CONTEXT = threading.Lock()
Factory = Callable[[], WritePath]


def run_ingestion(
    factory: Factory,
    knowledge_base: str,
    inputs: Sequence[str],
    options: IngestionOptions = IngestionOptions(),
    *,
    run_id: str | None = None,
    address: str | None = None,
    num_cpus: int | None = None,
) -> IngestionReport:
    """Bring a knowledge base (id or name) up to date with the inputs (paths, globs, prefixes).

    factory: picklable; called once here and once in each actor. address, num_cpus: for `ray.init`, which happens only
    when Ray is not initialised and there is something to do. Documents that fail are rows of the report; an error of
    the run itself is raised after its claims were given back, so that the next run goes on. KeyboardInterrupt (and
    SIGTERM, as `ray job stop` sends it) leaves the run CANCELLED in the same state; so does `Ledger.request_cancel`,
    from any machine, and its report comes back.
    """
    run_id = run_id or str(uuid.uuid4())
    trace_id.set(run_id)
    with bound(run_id=run_id):
        return _run(factory, knowledge_base, inputs, options, run_id, address, num_cpus)


def _run(
    factory: Factory,
    knowledge_base: str,
    inputs: Sequence[str],
    options: IngestionOptions,
    run_id: str,
    address: str | None,
    num_cpus: int | None,
) -> IngestionReport:
    write_path = factory()
    base = write_path.catalog.knowledge_base(knowledge_base)
    source = write_path.catalog.ensure_source(base.id, SourceKind.BULK, options.source)
    strategy = options.chunking_strategy or source.default_chunking_strategy
    write_path.chunker(strategy)  # an unknown strategy ends the run before it begins
    write_path.retry.call(lambda: steps.require_active(write_path))  # and so does another index's embedder
    context = RunContext(run_id, base.id, source.id, strategy, write_path.retry)

    def stage(worker: type[_Prepare], pools: Pools) -> Stream:
        def stream(wave: Sequence[PlannedFile]) -> Iterator[Row]:
            _ensure_ray(pools, address, num_cpus)
            with interruptible():  # again: `ray.init` puts its own handler in the place of ours
                yield from _stream(factory, context, wave, pools, worker)

        return stream

    pools = write_path.pools
    stages = Stages(stage(_Prepare, pools), stage(_Recognize, pools.for_recognition), lambda: _room_for_both(pools))
    write_path.ledger.start_run(base.id, [*inputs, *options.manifests], options.to_dict(), run_id)
    run = Run(write_path, context, options, stages)
    status, message = RunStatus.FAILED, None
    try:
        with interruptible():
            run.execute(inputs)
        status = RunStatus.SUCCEEDED
    except KeyboardInterrupt:
        how = run.cancelled or "interrupted"
        status, message = RunStatus.CANCELLED, f"{how}; the next run goes on from here"
        if not run.cancelled:
            raise
    except Exception as error:
        kind = error.type if isinstance(error, RagClusterError) else type(error).__name__
        message = f"{kind}: {error}"[:2000]
        raise
    finally:
        report = run.tally.report(run_id, base.name, status, message)
        run.close(report)
    return report


def fill_stream(
    factory: Factory, record: IndexRecord, run_id: str, *, address: str | None = None, num_cpus: int | None = None
) -> steps.FillStream:
    """The second graph: documents enter at index, from their snapshots (`lifecycle.reembed`).

    factory: of write paths with the index's embedder; called once in each actor. address, num_cpus: as above.
    """

    def stream(parts: Sequence[PreparedPart]) -> Iterator[steps.Filled]:
        pools = factory().pools
        _ensure_ray(pools, address, num_cpus)
        with interruptible():
            for row in _results(partial(_fill_dataset, factory, record, run_id, parts, pools)):
                if isinstance(row, PartDone | Receipt):
                    yield row

    return stream


def _fill_dataset(
    factory: Factory, record: IndexRecord, run_id: str, parts: Sequence[PreparedPart], pools: Pools
) -> ray.data.Dataset:
    return ray.data.from_arrow([rows.to_table(batch) for batch in steps.batches(parts, pools.batch_parts)]).map_batches(
        _Fill,
        fn_constructor_kwargs={"factory": factory, "record": record, "run_id": run_id},
        batch_size=None,
        batch_format="pyarrow",
        compute=_fixed(pools.index_actors),
        num_cpus=pools.index_cpus,
        num_gpus=pools.index_gpus or None,
    )


def _stream(
    factory: Factory, context: RunContext, wave: Sequence[PlannedFile], pools: Pools, worker: type[_Prepare]
) -> Iterator[Row]:
    """One Ray Data execution over a wave. Pools are fixed: a fast stage must not starve a slow one."""
    return _results(partial(_dataset, {"factory": factory, "context": context}, wave, pools, worker))


def _results(make: Callable[[], ray.data.Dataset]) -> Iterator[Row]:
    """Rows of a dataset as they come; an error of this program as itself. What is missing at the end was lost with a
    worker, and the run asks for it once more."""
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    with _quiet_data_context():
        dataset = make()
    try:
        # Not `iter_batches`: that leaves a thread behind each time, and prefetching would hold each row back.
        for bundle in dataset.iter_internal_ref_bundles():
            for block in bundle.block_refs:
                yield from rows.from_table(ray.get(block))
    except RayError as error:
        raise _own_error(error) or error from error
    except AssertionError as error:
        # Ray 2.60 (DataOpTask.on_data_ready) asserts that a block without its metadata is an error. It is none when a
        # worker was lost between the two and its task, begun again, gave fewer tables: what was done needs no rows.
        if "ray.get should raise" not in str(error):
            raise
        log.warning("a worker was lost together with what it was handing on")


def _dataset(
    arguments: dict[str, Any], wave: Sequence[PlannedFile], pools: Pools, worker: type[_Prepare]
) -> ray.data.Dataset:
    cut: list[Any] = [ray.put(table) for table in _batches(wave, pools.prepare_actors, worker.batch_documents)]
    pa.default_memory_pool().release_unused()  # the tables lie in Ray's store now
    return (
        ray.data.from_arrow_refs(cut)
        .repartition(target_num_rows_per_block=1)
        .map_batches(
            worker,
            fn_constructor_kwargs=arguments,
            batch_size=None,
            batch_format="pyarrow",
            compute=_fixed(pools.prepare_actors, worker.tasks),
            num_cpus=pools.prepare_cpus,
            num_gpus=pools.prepare_gpus or None,
        )
        .map_batches(
            _Index,
            fn_constructor_kwargs=arguments,
            batch_size=None,  # whole blocks: with a row count Ray would wait until that many had come
            batch_format="pyarrow",
            compute=_fixed(pools.index_actors),
            num_cpus=pools.index_cpus,
            num_gpus=pools.index_gpus or None,
        )
    )


def _fixed(actors: int, tasks: int = 1) -> ActorPoolStrategy:
    """tasks: at once in each actor; one more waits there."""
    return ActorPoolStrategy(
        size=actors,
        max_tasks_in_flight_per_actor=tasks + 1,
        max_concurrent_calls_per_actor=tasks,
        enable_true_multi_threading=tasks > 1,
    )


@contextlib.contextmanager
def _quiet_data_context() -> Iterator[None]:
    """Ray Data's settings for a dataset that is made inside; it keeps a copy. One thread at a time: they are global."""
    with _DATA_CONTEXT:
        data_context = DataContext.get_current()
        before = {name: getattr(data_context, name) for name in _QUIET}
        try:
            for name, value in _QUIET.items():
                setattr(data_context, name, value)
            yield
        finally:
            for name, value in before.items():
                setattr(data_context, name, value)


class _Worker:
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


class _Prepare(_Worker):
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


class _Recognize(_Prepare):
    """Actor of the OCR stage: the same with text recognition, the only one that may see a GPU for it."""

    batch_documents = 1
    tasks = 1
    sees_gpus = True

    def _start(self) -> None:
        if not self._write_path.pools.ocr_gpu:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""

    def _prepare(self, work: steps.Work) -> steps.Prepared:
        return steps.prepare(self._write_path, work, owner=self._context.run_id, recognize=True)


class _Index(_Worker):
    """Actor: owns the embedder; embeds and writes parts; lets receipts through."""

    def _start(self) -> None:
        self._hide_gpus()
        self._record = steps.open_index(self._write_path)

    def __call__(self, batch: pa.Table) -> Iterator[pa.Table]:
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


class _Fill(_Worker):
    """Actor: owns another index's embedder; fills that index from snapshots."""

    def __init__(self, factory: Factory, record: IndexRecord, run_id: str) -> None:
        self._record = record
        super().__init__(factory, RunContext(run_id, "", "", None))

    def _start(self) -> None:
        self._hide_gpus()
        steps.ensure_collection(self._write_path, self._record)

    def __call__(self, batch: pa.Table) -> pa.Table:
        self._enter()
        parts = [row for row in rows.from_table(batch) if isinstance(row, PreparedPart)]
        return self._table(*steps.fill(self._write_path, self._record, parts))


def _batches(wave: Sequence[PlannedFile], actors: int, most: int = BATCH_DOCUMENTS) -> Iterator[pa.Table]:
    """One row for each prepare task, of documents up to `most` and `BATCH_BYTES`. A table at a time: the rows of a
    whole wave would be the most that the driver ever holds."""
    documents = min(max(len(wave) // (BATCHES_PER_ACTOR * actors), 1), most)
    done: list[list[dict[str, Any]]] = []
    batch: list[dict[str, Any]] = []
    size = 0
    for planned in wave:
        if batch and (len(batch) == documents or size + planned.file.size > BATCH_BYTES):
            done.append(batch)
            batch, size = [], 0
            if len(done) * documents >= manifest.ROW_GROUP:
                yield _documents(done)
                done = []
        batch.append(manifest.to_row(planned))
        size += planned.file.size
    yield _documents([*done, batch])


def _documents(batches: list[list[dict[str, Any]]]) -> pa.Table:
    return pa.table({"documents": pa.array(batches, pa.list_(_DOCUMENT))})


def _own_error(error: BaseException | None) -> RagClusterError | None:
    """The error of this program that Ray wrapped, if there is one."""
    while error is not None:
        cause = getattr(error, "cause", None)
        if isinstance(cause, RagClusterError):
            return cause
        error = error.__cause__ or cause
    return None


def _ensure_ray(pools: Pools, address: str | None, num_cpus: int | None) -> None:
    """Start or join Ray unless this process has one. The pools must leave a CPU for the tasks between them."""
    needed = max(pools.cpus, pools.for_recognition.cpus) + 1
    if not ray.is_initialized():
        connect(address, max(num_cpus or os.cpu_count() or 1, math.ceil(needed)))
    available = ray.cluster_resources().get("CPU", 0)  # type: ignore[no-untyped-call]
    if available < needed:
        log.warning(
            "Ray has %s CPUs and the pools need %s: the run waits until the cluster grows, or set "
            "RAG_PREPARE_CPUS, RAG_INDEX_CPUS, RAG_OCR_CPUS and the numbers of actors lower",
            available,
            needed,
        )


def _room_for_both(pools: Pools) -> bool:
    """Whether recognition fits beside the text; on a small machine it follows."""
    if not ray.is_initialized():
        return False
    have = ray.cluster_resources()  # type: ignore[no-untyped-call]
    ocr = pools.for_recognition
    return bool(have.get("CPU", 0) >= pools.cpus + ocr.cpus + 1 and have.get("GPU", 0) >= pools.gpus + ocr.gpus)
