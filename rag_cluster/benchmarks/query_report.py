"""The query benchmark's tables, and the bars that its figures are held against."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from rag_cluster.benchmarks.measure import show
from rag_cluster.benchmarks.query_large import CLIENTS, Large
from rag_cluster.benchmarks.query_measures import Level, Timings, percentile
from rag_cluster.benchmarks.query_statements import SlowStatement, StatementClock

MIB = 1 << 20
MOST_OVERHEAD = 15.0
MOST_STATEMENT = 20
"""Milliseconds."""
MOST_GROWTH = 1.1


def show_overhead(timings: Timings, chunks: int, queries: int) -> dict[str, Any]:
    """Part `overhead` as a table; its figures."""
    bare, nothing = timings.median("bare loop"), timings.median("bare Serve")
    own = {name: (timings.median(name) - bare) * 1000 for name in ("in process", "over HTTP")}
    beside = "over HTTP, without a bare Serve request"
    own[beside] = own["over HTTP"] - nothing * 1000
    measured = (
        "bare loop",
        "scope",
        "embedding",
        "dense search",
        "BM25 search",
        "facts",
        "bare Serve",
        "in process, filtered",
    )
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
        "ok": all(one <= MOST_OVERHEAD for one in own.values()),
    }


def _percentiles(timings: Timings, name: str) -> list[str]:
    return [f"{percentile(timings.seconds[name], share) * 1000:.2f}" for share in (0.1, 0.5, 0.9)]


def show_load(levels: Sequence[Level], chunks: int) -> list[dict[str, Any]]:
    """Part `load`, likewise."""
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


def show_large(found: Large, chunks: int) -> dict[str, Any]:
    """Part `large`, likewise."""
    run, recording = found.run, found.recording
    own = [one for one in found.slow if one.own > MOST_STATEMENT]
    rows = [
        ("queries/s", f"{len(run.seconds) / run.wall:,.0f}", f"{CLIENTS} at once"),
        ("p50, p99 ms", _both(run.seconds), ""),
        *(
            (
                f"{name}, recorded: p50, p99 ms",
                " ".join(f"{percentile(values, at) * 1000:.1f}" for at in (0.5, 0.99)),
                "",
            )
            for name, values in (("dense", recording.dense), ("BM25", recording.sparse))
        ),
        ("memory, MiB", " ".join(f"{used / MIB:.0f}" for used in run.memory[:: max(1, len(run.memory) // 5)]), ""),
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
    rest = max(0.0, one.own - one.computed)
    own = f"{one.own:.0f} to {one.most:.0f}"
    return f"{own} ({one.computed:.0f} CPU + {rest:.0f} disk, locks), {one.waited:.0f} no CPU"


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


def _load() -> str:
    return f"(load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs)"


def _verdict(ok: bool, target: str) -> str:
    return f"{'ok' if ok else 'MISSED'}: {target}"
