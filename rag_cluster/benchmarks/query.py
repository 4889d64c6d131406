"""What a query costs besides its model and its stores: `python -m rag_cluster.benchmarks.query`.

Parts, each against design section 9 (all of them when none is named with --part):

    overhead   one client on 10,000 chunks in real Milvus Lite: this project in process and over HTTP, against a bare
               loop of the same embedder and store calls, in turns in the same run
    load       1, 8 and 32 clients over real HTTP: every request gets a result or a 429
    large      20,000 queries on 100,000 chunks, the index replaced by latencies that were recorded before in the same
               run, in Milvus Lite on 20,000 of them: memory, and PostgreSQL's statements by PostgreSQL's own clock

Stores are embedded ones in a temporary folder, Serve and its deployments run on a Ray of their own. No question comes
twice, and the cache of questions is off.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from rag_cluster.benchmarks import query_large, query_measures
from rag_cluster.benchmarks.measure import tell
from rag_cluster.benchmarks.query_corpus import fill
from rag_cluster.benchmarks.query_measures import Level
from rag_cluster.benchmarks.query_report import MOST_STATEMENT, show_large, show_load, show_overhead
from rag_cluster.settings import Settings
from rag_cluster.wiring import Services, local_services

CLIENTS = (1, 8, 32)
ROUTES = ("/v1/retrieve", "/v1/answer")


class Part(StrEnum):
    """What can be measured by itself."""

    OVERHEAD = "overhead"
    LOAD = "load"
    LARGE = "large"


@contextmanager
def stores(**settings: Any) -> Iterator[Services]:
    """Embedded stores in a temporary folder, stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="rag-query-") as folder:
        services = local_services(Settings(data_dir=Path(folder), query_cache_size=0, _env_file=None, **settings))
        try:
            yield services
        finally:
            services.stop_embedded_stores()


@contextmanager
def ray_of_its_own() -> Iterator[None]:
    """A Ray on this machine, whose Serve proxy answers as ours does."""
    import ray

    from rag_cluster.serving.proxy import MIDDLEWARES, PROXY_CALLBACK

    os.environ[PROXY_CALLBACK] = MIDDLEWARES
    tell("starting Ray")
    ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()


def measure_served(parts: Sequence[Part], chunks: int, queries: int, seconds: float) -> dict[str, Any]:
    """Parts `overhead` and `load`, on the same stores and the same application."""
    from rag_cluster.benchmarks.query_reference import bare_application
    from rag_cluster.serving.app import running

    results: dict[str, Any] = {}
    # Ray first: on a machine with too much to do it does not start, and nothing is lost yet.
    with ray_of_its_own(), stores(port=_free_port()) as services:
        tell(f"filling {chunks:,} chunks into Milvus Lite")
        filled = fill(services, chunks, per_document=8)
        tell("starting the application")
        with running(services.settings) as endpoint:
            if Part.OVERHEAD in parts:
                with bare_application():
                    timings = asyncio.run(query_measures.overhead(services, filled, endpoint, queries))
                results[Part.OVERHEAD.value] = show_overhead(timings, chunks, queries)
            if Part.LOAD in parts:
                levels = [
                    _level(endpoint, filled.knowledge_base_id, route, clients, seconds)
                    for route in ROUTES
                    for clients in CLIENTS
                ]
                results[Part.LOAD.value] = show_load(levels, chunks)
    return results


def _level(endpoint: str, knowledge_base_id: str, route: str, clients: int, seconds: float) -> Level:
    level = asyncio.run(query_measures.load(endpoint, knowledge_base_id, route, clients, seconds))
    tell(f"{route}, {clients} clients: {sum(level.statuses.values())} requests in {level.wall:.0f} s")
    return level


def measure_large(chunks: int, queries: int, recorded: int) -> dict[str, Any]:
    """Part `large`."""
    with stores(embedder="hash:384") as services:
        return show_large(query_large.measure(services, chunks, queries, recorded, MOST_STATEMENT / 1000), chunks)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def run(
    part: Annotated[list[Part] | None, typer.Option(help="Measure only this; may be given several times.")] = None,
    chunks: Annotated[int, typer.Option(min=100, help="Of the parts overhead and load.")] = 10_000,
    queries: Annotated[int, typer.Option(min=10, help="Of the part overhead, each way.")] = 300,
    seconds: Annotated[float, typer.Option(min=0.5, help="Of each level of the part load.")] = 20.0,
    large_chunks: Annotated[int, typer.Option(min=100, help="Of the part large.")] = 100_000,
    large_queries: Annotated[int, typer.Option(min=20, help="Of the part large.")] = 20_000,
    recorded_chunks: Annotated[
        int, typer.Option(min=100, help="Of the part large, in Milvus Lite while its latencies are recorded.")
    ] = 20_000,
    quick: Annotated[bool, typer.Option("--quick", help="2,000 chunks and little time, for a look.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Also print one JSON object as the last line.")] = False,
) -> None:
    """Measure queries on this machine. Exit code 1: a bar was missed."""
    if quick:
        chunks, queries, seconds = min(chunks, 2000), min(queries, 50), min(seconds, 3.0)
        large_chunks, large_queries = min(large_chunks, 5000), min(large_queries, 1000)
    chosen: Sequence[Part] = part or list(Part)
    results: dict[str, Any] = {}
    if {Part.OVERHEAD, Part.LOAD} & set(chosen):
        results |= measure_served(chosen, chunks, queries, seconds)
    if Part.LARGE in chosen:
        results[Part.LARGE.value] = measure_large(large_chunks, large_queries, min(recorded_chunks, large_chunks))
    if as_json:
        print(json.dumps(results))
    parts = [results[name] for name in (Part.OVERHEAD.value, Part.LARGE.value) if name in results]
    if not all(one["ok"] for one in (*parts, *results.get(Part.LOAD.value, ()))):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(run)
