"""The bulk job: plans, sends what is to do through Ray Data (`ray_graph`, `ray_actors`), reports.

Rows are ids and bounds: a document's bytes stay inside the prepare actor. PostgreSQL holds the truth, so a run killed
at any moment is resumed by the next one, which asks the ledger what is left.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

from rag_cluster.domain.documents import IndexRecord, PlannedFile, Receipt, RunStatus, SourceKind
from rag_cluster.errors import RagClusterError
from rag_cluster.ingestion import ray_graph, steps
from rag_cluster.ingestion.heartbeat import interruptible
from rag_cluster.ingestion.ray_actors import PrepareActor, RecognizeActor
from rag_cluster.ingestion.report import IngestionReport
from rag_cluster.ingestion.rows import PartDone, PreparedPart, Row
from rag_cluster.ingestion.run import IngestionOptions, Run, RunContext, Stages, Stream
from rag_cluster.ingestion.write_path import Factory, Pools
from rag_cluster.telemetry import bound, trace_id

__all__ = ["IngestionOptions", "IngestionReport", "fill_stream", "run_ingestion"]


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

    def stage(worker: type[PrepareActor], pools: Pools) -> Stream:
        def stream(wave: Sequence[PlannedFile]) -> Iterator[Row]:
            ray_graph.ensure_ray(pools, address, num_cpus)
            with interruptible():  # again: `ray.init` puts its own handler in the place of ours
                yield from ray_graph.stream_documents(factory, context, wave, pools, worker)

        return stream

    pools = write_path.pools
    stages = Stages(
        stage(PrepareActor, pools), stage(RecognizeActor, pools.for_recognition), lambda: ray_graph.room_for_both(pools)
    )
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
        ray_graph.ensure_ray(pools, address, num_cpus)
        with interruptible():
            for row in ray_graph.stream_fills(factory, record, run_id, parts, pools):
                if isinstance(row, PartDone | Receipt):
                    yield row

    return stream
