"""A bulk job's graphs in Ray Data.

    manifest -> batches of documents -> prepare actors -> parts -> index actors -> receipts
    what awaits text recognition     -> OCR actors     -> parts -> index actors -> receipts
    what another index lacks         -> parts (from snapshots)  -> fill actors  -> receipts

The second line is an execution of its own with its own pools (`recognition`), so that scans never hold up text.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import ray
from ray.data import ActorPoolStrategy, DataContext
from ray.exceptions import RayError

from rag_cluster.domain.documents import IndexRecord, PlannedFile
from rag_cluster.errors import RagClusterError
from rag_cluster.ingestion import manifest, rows, steps
from rag_cluster.ingestion.ray_actors import BATCH_DOCUMENTS, FillActor, IndexActor, PrepareActor
from rag_cluster.ingestion.ray_connection import connect
from rag_cluster.ingestion.rows import PreparedPart, Row
from rag_cluster.ingestion.run import RunContext
from rag_cluster.ingestion.write_path import Factory, Pools

log = logging.getLogger("rag_cluster.ingestion")

BATCH_BYTES = 4 * 1024 * 1024
"""Of a prepare task, at most, or one larger file."""
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


def stream_documents(
    factory: Factory, context: RunContext, wave: Sequence[PlannedFile], pools: Pools, worker: type[PrepareActor]
) -> Iterator[Row]:
    """One Ray Data execution over a wave. Pools are fixed: a fast stage must not starve a slow one."""
    return _results(partial(_dataset, {"factory": factory, "context": context}, wave, pools, worker))


def stream_fills(
    factory: Factory, record: IndexRecord, run_id: str, parts: Sequence[PreparedPart], pools: Pools
) -> Iterator[Row]:
    """The second graph: documents enter at index, from their snapshots."""
    return _results(partial(_fill_dataset, factory, record, run_id, parts, pools))


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
    arguments: dict[str, Any], wave: Sequence[PlannedFile], pools: Pools, worker: type[PrepareActor]
) -> ray.data.Dataset:
    cut: list[Any] = [ray.put(table) for table in _batches(wave, pools.prepare_actors, worker.batch_documents)]
    pa.default_memory_pool().release_unused()  # the tables lie in Ray's store now
    return (
        ray.data.from_arrow_refs(cut)
        .repartition(target_num_rows_per_block=1)
        .map_batches(
            worker,
            fn_constructor_kwargs=arguments,
            batch_size=_whole_blocks(pools.prepare_gpus),
            batch_format="pyarrow",
            compute=_fixed(pools.prepare_actors, worker.tasks),
            num_cpus=pools.prepare_cpus,
            num_gpus=pools.prepare_gpus or None,
        )
        .map_batches(
            IndexActor,
            fn_constructor_kwargs=arguments,
            batch_size=_whole_blocks(pools.index_gpus),
            batch_format="pyarrow",
            compute=_fixed(pools.index_actors),
            num_cpus=pools.index_cpus,
            num_gpus=pools.index_gpus or None,
        )
    )


def _fill_dataset(
    factory: Factory, record: IndexRecord, run_id: str, parts: Sequence[PreparedPart], pools: Pools
) -> ray.data.Dataset:
    return ray.data.from_arrow([rows.to_table(batch) for batch in steps.batches(parts, pools.batch_parts)]).map_batches(
        FillActor,
        fn_constructor_kwargs={"factory": factory, "record": record, "run_id": run_id},
        batch_size=_whole_blocks(pools.index_gpus),
        batch_format="pyarrow",
        compute=_fixed(pools.index_actors),
        num_cpus=pools.index_cpus,
        num_gpus=pools.index_gpus or None,
    )


def _whole_blocks(gpus: float) -> int | None:
    """The batch size by which an actor gets each block as it is: for a larger number Ray Data would wait. Beside a GPU
    it wants a number, and a block has one line (`rows`)."""
    return 1 if gpus else None


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


def ensure_ray(pools: Pools, address: str | None, num_cpus: int | None) -> None:
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


def room_for_both(pools: Pools) -> bool:
    """Whether recognition fits beside the text; on a small machine it follows."""
    if not ray.is_initialized():
        return False
    have = ray.cluster_resources()  # type: ignore[no-untyped-call]
    ocr = pools.for_recognition
    return bool(have.get("CPU", 0) >= pools.cpus + ocr.cpus + 1 and have.get("GPU", 0) >= pools.gpus + ocr.gpus)
