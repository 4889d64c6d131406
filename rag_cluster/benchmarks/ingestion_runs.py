"""Runs of the ingestion benchmark, each in a process of its own, whose memory is a driver's and nothing else.

`python -m rag_cluster.benchmarks.ingestion_runs '{...}'` does one `Order` and prints its `Figures` as the last line.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from rag_cluster.benchmarks.ingestion_instruments import (
    FREE_EMBEDDER,
    MeasuredFactory,
    ProcessTimes,
    SimulatedListing,
    read_log,
)
from rag_cluster.benchmarks.measure import in_child, peak_bytes
from rag_cluster.engines.registry import create_embedder
from rag_cluster.settings import Settings
from rag_cluster.wiring import Services, local_services

MODULE = "rag_cluster.benchmarks.ingestion_runs"
TIMEOUT = 1500.0
BARE_BATCH = 256
"""Texts of one call of the bare embedder: as many as the pipeline's largest batch."""


@dataclass(frozen=True, slots=True)
class Order:
    """One run: which documents into which data directory."""

    data_dir: str
    inputs: str
    knowledge_base: str = "benchmark"
    embedder: str = FREE_EMBEDDER
    fake_index: bool = True
    cpus: int = 2
    warm_up: str = ""
    """A folder ingested before, so that Ray, the stores and the file cache are warm."""
    bare: bool = False
    """Embed the same texts afterwards without any pipeline."""
    keys: int = 0
    """Plan this many simulated keys instead of ingesting."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run gave. Seconds are wall seconds unless they are called CPU."""

    documents: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    chunks: int = 0
    seconds: float = 0.0
    window_seconds: float = 0.0
    """From the first batch in an index actor to the last chunk written."""
    stages: list[dict[str, Any]] = field(default_factory=list)
    processes: dict[str, float] = field(default_factory=dict)
    """CPU seconds by kind of process, inside the window; of the whole run when nothing was to be done."""
    driver_peak: int = 0
    """Bytes: the most that the driver's process alone ever occupied (VmHWM), warm-up included."""
    bare_seconds: float = 0.0
    bare_cpu_seconds: float = 0.0

    @property
    def cpu_seconds(self) -> float:
        """Of all processes inside the window."""
        return sum(self.processes.values())

    @property
    def rate(self) -> float:
        """Chunks a second, warm."""
        return self.chunks / self.window_seconds if self.window_seconds else 0.0


def run_order(order: Order) -> Figures:
    """The figures of one order, done in a process of its own."""
    return Figures(**in_child(MODULE, [json.dumps(asdict(order))], timeout=TIMEOUT))


@contextmanager
def data_directory() -> Iterator[str]:
    """A temporary data directory, whose servers are stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="rag-ingestion-") as folder:
        try:
            yield folder
        finally:
            Services(_settings(Order(folder, ""))).embedded.down()


def _settings(order: Order) -> Settings:
    return Settings(data_dir=Path(order.data_dir), embedder=order.embedder, _env_file=None)


def ingest(order: Order) -> Figures:
    """Warm up, ingest, and read what the instruments saw."""
    from rag_cluster.ingestion.pipeline import IngestionOptions, run_ingestion

    settings = _settings(order)
    services = local_services(settings)
    services.ensure_knowledge_base(order.knowledge_base)
    quiet = IngestionOptions(progress=False)

    def run(inputs: str) -> tuple[Any, Path]:
        log = Path(order.data_dir) / f"stages-{uuid.uuid4().hex}"
        log.mkdir()
        factory = MeasuredFactory(settings, str(log), order.fake_index)
        return run_ingestion(factory, order.knowledge_base, [inputs], quiet, num_cpus=order.cpus), log

    if order.warm_up:
        run(order.warm_up)
    started = time.time()
    with ProcessTimes(_servers(services)) as times:
        report, log = run(order.inputs)
    driver_peak = peak_bytes()  # before the stage files are read, which no driver does
    seen = read_log(log)
    warm = (seen.begun, seen.ended) if seen.ended else (started, time.time())
    bare = _bare(order, services) if order.bare else (0.0, 0.0)
    return Figures(
        documents=report.listed,
        outcomes={name: count for name, count in report.outcomes.items() if count},
        chunks=report.embedded_chunks,
        seconds=report.seconds,
        window_seconds=seen.ended - seen.begun,
        stages=[asdict(stage) for stage in seen.stages],
        processes=times.seconds(*warm),
        driver_peak=driver_peak,
        bare_seconds=bare[0],
        bare_cpu_seconds=bare[1],
    )


def plan_keys(order: Order) -> Figures:
    """Plan simulated keys, none of which the ledger knows, into a manifest."""
    from dataclasses import replace

    from rag_cluster.ingestion.manifest import ManifestWriter
    from rag_cluster.ingestion.plan import plan

    services = local_services(_settings(order))
    base = services.ensure_knowledge_base(order.knowledge_base)
    write_path = replace(services.write_path(), inputs=SimulatedListing(order.keys))
    with tempfile.TemporaryDirectory() as folder, ProcessTimes(_servers(services)) as times:
        started = time.time()
        with ManifestWriter(f"{folder}/manifest.parquet") as writer:
            for item in plan(write_path, base.id, ["s3://benchmark"]):
                writer.add(item)  # type: ignore[arg-type]  # nothing is known: all are to do
            count = writer.count
        ended = time.time()
    processes = times.seconds(started, ended)
    return Figures(documents=count, seconds=ended - started, processes=processes, driver_peak=peak_bytes())


def _bare(order: Order, services: Services) -> tuple[float, float]:
    """(wall, CPU) seconds of the embedder alone on the chunks of the measured documents, in their order."""
    with services.database.connection() as connection:
        found = connection.execute(
            """SELECT c.content FROM chunks c JOIN documents d ON d.id = c.document_id
               WHERE starts_with(d.uri, %s) ORDER BY d.uri, c.index""",
            (Path(order.inputs).absolute().as_uri() + "/",),
        ).fetchall()
    texts = [row["content"] for row in found]
    embedder = create_embedder(order.embedder, threads=services.settings.embedder_threads)
    embedder.embed_documents(texts[:8])
    wall, cpu = time.perf_counter(), time.process_time()
    for start in range(0, len(texts), BARE_BATCH):
        embedder.embed_documents(texts[start : start + BARE_BATCH])
    return time.perf_counter() - wall, time.process_time() - cpu


def _servers(services: Services) -> list[psutil.Process]:
    return [psutil.Process(server.pid) for server in services.embedded.status().servers if server.pid]


def main(argument: str) -> None:
    """Do one order, given as JSON; print its figures."""
    order = Order(**json.loads(argument))
    print(json.dumps(asdict(plan_keys(order) if order.keys else ingest(order))))


if __name__ == "__main__":
    main(sys.argv[1])
