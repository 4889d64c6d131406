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
from rag_cluster.benchmarks.measure import show, tell
from rag_cluster.benchmarks.query_corpus import fill
from rag_cluster.benchmarks.query_large import Large
from rag_cluster.benchmarks.query_measures import Level, Timings, percentile
from rag_cluster.benchmarks.query_statements import SlowStatement, StatementClock
from rag_cluster.settings import Settings
from rag_cluster.wiring import Services, local_services

MIB = 1 << 20
MOST_OVERHEAD = 15.0
MOST_STATEMENT = 20
"""Milliseconds."""
MOST_GROWTH = 1.1
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
def serving(settings: Settings) -> Iterator[str]:
    """The Serve application on a Ray of its own; its URL."""
    import ray

    from rag_cluster.serving.app import running
    from rag_cluster.serving.proxy import MIDDLEWARES, PROXY_CALLBACK

    os.environ[PROXY_CALLBACK] = MIDDLEWARES
    ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        with running(settings) as endpoint:
            yield endpoint
    finally:
        ray.shutdown()


def measure_served(parts: Sequence[Part], chunks: int, queries: int, seconds: float) -> dict[str, Any]:
    """Parts `overhead` and `load`, on the same stores and the same application."""
    from rag_cluster.benchmarks.query_reference import bare_application

    results: dict[str, Any] = {}
    with stores(port=_free_port()) as services:
        tell(f"filling {chunks:,} chunks into Milvus Lite")
        filled = fill(services, chunks, per_document=8)
        tell("starting Serve")
        with serving(services.settings) as endpoint:
            if Part.OVERHEAD in parts:
                with bare_application():
                    timings = asyncio.run(query_measures.overhead(services, filled, endpoint, queries))
                results[Part.OVERHEAD.value] = _show_overhead(timings, chunks, queries)
            if Part.LOAD in parts:
                levels = [
                    _level(endpoint, filled.knowledge_base_id, route, clients, seconds)
                    for route in ROUTES
                    for clients in CLIENTS
                ]
                results[Part.LOAD.value] = _show_load(levels, chunks)
    return results


def _level(endpoint: str, knowledge_base_id: str, route: str, clients: int, seconds: float) -> Level:
    level = asyncio.run(query_measures.load(endpoint, knowledge_base_id, route, clients, seconds))
    tell(f"{route}, {clients} clients: {sum(level.statuses.values())} requests in {level.wall:.0f} s")
    return level


def _show_overhead(timings: Timings, chunks: int, queries: int) -> dict[str, Any]:
    bare, nothing = timings.median("bare loop"), timings.median("bare Serve")
    own = {name: (timings.median(name) - bare) * 1000 for name in ("in process", "over HTTP")}
    beside = "over HTTP, without a bare Serve request"
    own[beside] = own["over HTTP"] - nothing * 1000
    measured = ("bare loop", "scope", "embedding", "dense search", "BM25 search", "facts", "bare Serve")
    rows = [
        *((name, *_percentiles(timings, name), "", "") for name in measured),
        *(
            (
                name,
                *(("", "", "") if name == beside else _percentiles(timings, name)),
                f"{own[name]:.2f}",
                _verdict(own[name] <= MOST_OVERHEAD, f"<= {MOST_OVERHEAD:g}"),
            )
            for name in own
        ),
    ]
    title = f"One client, {queries} queries each on {chunks:,} chunks in Milvus Lite, milliseconds {_load()}"
    show(title, ("", "p10", "p50", "p90", "own overhead, p50", ""), rows)
    return {
        "own_overhead_ms": own,
        "p50_ms": {name: timings.median(name) * 1000 for name in timings.seconds},
        "queries": queries,
        "chunks": chunks,
    }


def _percentiles(timings: Timings, name: str) -> list[str]:
    return [f"{percentile(timings.seconds[name], share) * 1000:.2f}" for share in (0.1, 0.5, 0.9)]


def _show_load(levels: Sequence[Level], chunks: int) -> list[dict[str, Any]]:
    rows = [
        (
            level.route,
            str(level.clients),
            f"{percentile(level.seconds, 0.5) * 1000:.0f}",
            f"{percentile(level.seconds, 0.99) * 1000:.0f}",
            f"{level.rate:.1f}",
            ", ".join(f"{count} x {status}" for status, count in sorted(level.statuses.items())),
            _verdict(level.ok, "200 or 429"),
        )
        for level in levels
    ]
    title = f"Clients over HTTP on {chunks:,} chunks in Milvus Lite {_load()}"
    show(title, ("route", "clients", "p50 ms", "p99 ms", "results/s", "statuses", ""), rows)
    return [
        {
            "route": level.route,
            "clients": level.clients,
            "p50_ms": percentile(level.seconds, 0.5) * 1000,
            "p99_ms": percentile(level.seconds, 0.99) * 1000,
            "per_second": level.rate,
            "statuses": level.statuses,
            "ok": level.ok,
        }
        for level in levels
    ]


def measure_large(chunks: int, queries: int, recorded: int) -> dict[str, Any]:
    """Part `large`."""
    with stores(embedder="hash:384") as services:
        return _show_large(query_large.measure(services, chunks, queries, recorded, MOST_STATEMENT / 1000), chunks)


def _show_large(found: Large, chunks: int) -> dict[str, Any]:
    run, recording = found.run, found.recording
    own = [one for one in found.slow if one.own > MOST_STATEMENT]
    rows = [
        ("queries/s", f"{len(run.seconds) / run.wall:,.0f}", f"{query_large.CLIENTS} at once"),
        ("p50, p99 ms", _both(run.seconds), ""),
        *(
            (
                f"{name}, recorded: p50, p99 ms",
                " ".join(f"{percentile(values, at) * 1000:.1f}" for at in (0.5, 0.99)),
                "",
            )
            for name, values in (("dense", recording.dense), ("BM25", recording.sparse))
        ),
        ("memory, MiB", " ".join(f"{used / MIB:.0f}" for used in run.memory[:: max(1, len(run.memory) // 8)]), ""),
        ("memory, growth", f"x {run.growth:.3f}", _verdict(run.growth <= MOST_GROWTH, f"<= {MOST_GROWTH}")),
        (f"statements over {MOST_STATEMENT} ms", str(len(own)), _verdict(not own, "none")),
        ("the same, with waiting for others", str(len(found.slow)), "by PostgreSQL's log"),
        *((f"slowest: {_parts_of(one)}", one.text[:40], "") for one in found.slow[:3]),
    ]
    title = (
        f"{len(run.seconds):,} queries on {chunks:,} chunks {_load()}\nIndex latencies: replayed from "
        f"{len(recording.dense)} searches of each kind, in this run, in Milvus Lite on {recording.rows:,} chunks"
    )
    show(title, ("", "value", ""), rows)
    return {
        "queries_per_second": len(run.seconds) / run.wall,
        "p50_ms": percentile(run.seconds, 0.5) * 1000,
        "p99_ms": percentile(run.seconds, 0.99) * 1000,
        "memory_growth": run.growth,
        "memory_bytes": run.memory,
        "recorded": {"chunks": recording.rows, "dense_s": recording.dense, "sparse_s": recording.sparse},
        "slow_statements": len(own),
        "slow_with_waiting": len(found.slow),
        "slowest_own_ms": max((one.own for one in found.slow), default=0.0),
        "statements": _show_statements(found.clock),
        "ok": run.growth <= MOST_GROWTH and not own,
    }


def _parts_of(one: SlowStatement) -> str:
    rest = one.own - one.computed
    return f"{one.computed:.0f} CPU + {rest:.0f} disk, locks | {one.waited:.0f} no CPU + {one.unread:.0f} not read"


def _both(seconds: Sequence[float]) -> str:
    return ", ".join(f"{percentile(seconds, share) * 1000:.1f}" for share in (0.5, 0.99))


def _show_statements(clock: StatementClock) -> list[dict[str, Any]]:
    found = [
        {"statement": text, "calls": len(kind.elapsed)}
        | {
            f"{name}_{label}_ms": percentile(values, share) * 1000
            for name, values in (("elapsed", kind.elapsed), ("computed", kind.computed), ("waited", kind.waited))
            for label, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
        }
        for text, kind in sorted(clock.kinds.items())
    ]
    rows = [
        (
            str(one["statement"])[:44],
            f"{one['calls']:,}",
            *(
                " ".join(f"{one[f'{name}_{label}_ms']:.1f}" for label in ("p50", "p99", "max"))
                for name in ("computed", "waited", "elapsed")
            ),
        )
        for one in found
    ]
    title = "PostgreSQL's statements, ms: p50 p99 max"
    show(title, ("", "calls", "on a CPU", "waiting for one", "until it was here"), rows)
    return found


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _load() -> str:
    return f"(load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs)"


def _verdict(ok: bool, target: str) -> str:
    return f"{'ok' if ok else 'MISSED'}: {target}"


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
    """Measure queries on this machine. Exit code 1: under load a request got neither a result nor a 429."""
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
    if not all(level["ok"] for level in results.get(Part.LOAD.value, [])):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(run)
