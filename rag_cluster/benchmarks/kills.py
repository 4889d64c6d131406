"""The kill test: `python -m rag_cluster.benchmarks.kills --documents 300 --kills 50 --seed 7`.

A corpus of mixed documents, some of them poison, is ingested undisturbed; then, in other data directories, while
processes of every kind are killed at random moments, and run again until there is nothing left to do. At the end every
store must hold what it holds after the undisturbed run: the same chunk ids in PostgreSQL and in Milvus, the same
snapshots, originals and assets, the same failures. Several rounds, until the kills are done. Exit code 1: a difference.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from rag_cluster.benchmarks.kills_corpus import draw
from rag_cluster.benchmarks.kills_runs import BATCH_PARTS, Ingestion, RunResult, services_of
from rag_cluster.benchmarks.kills_state import Embedding, State, read_embedding, read_state
from rag_cluster.benchmarks.kills_targets import Killer, Target
from rag_cluster.benchmarks.measure import show
from rag_cluster.lifecycle.fsck import FsckOptions
from rag_cluster.stores.embedded import EmbeddedStores

LEAST_RUNS, RUNS_PER_KILL = 6, 2
"""A round that needs more runs than this makes no progress."""
PAUSES = 12
"""Kills that fit into the time of an undisturbed run."""
MOST_ROUNDS = 50
"""A round has a kill or more, but for bad luck: its first process may be all that a target is drawn for."""
SHOWN = 10


@dataclass(frozen=True, slots=True)
class Round:
    """One data directory, ingested under fire."""

    kills: int
    runs: tuple[RunResult, ...]
    finished: bool
    """Whether the last run found nothing left to do."""
    differences: dict[str, list[str]]
    fsck: list[str]
    owed: int
    """Effects left in the outbox."""
    embedding: Embedding

    @property
    def most_again(self) -> int:
        """Parts that may be embedded again: those that an index actor has in hand, for each kill."""
        return BATCH_PARTS * self.kills

    @property
    def clean(self) -> bool:
        """Whether nothing tells this round from an undisturbed one."""
        same = not any(self.differences.values()) and not self.fsck and not self.owed
        return self.finished and same and self.embedding.again <= self.most_again


@dataclass(frozen=True, slots=True)
class KillReport:
    """All rounds."""

    documents: int
    reference: State
    rounds: list[Round]
    kills: Counter[Target]

    @property
    def clean(self) -> bool:
        """Whether all rounds are."""
        return all(each.clean for each in self.rounds)

    def to_dict(self) -> dict[str, Any]:
        """JSON form, without the runs' logs."""
        return {
            "documents": self.documents,
            "kills": {kind.value: count for kind, count in self.kills.items()},
            "clean": self.clean,
            "rounds": [
                {
                    "kills": each.kills,
                    "runs": [[run.code, round(run.seconds, 1), dict(run.failures)] for run in each.runs],
                    "differences": each.differences,
                    "fsck": each.fsck,
                    "embedding": asdict(each.embedding),
                    "clean": each.clean,
                }
                for each in self.rounds
            ],
        }


def run_kills(folder: Path, documents: int, kills: int, seed: int) -> KillReport:
    """Draw, ingest undisturbed, then under fire until so many kills are done."""
    corpus = folder / "corpus"
    draw(corpus, documents, seed)
    with _ingestion(folder / "reference", corpus) as ingestion:
        ingestion.finish(2)
        if not ingestion.runs[-1].idle:
            raise RuntimeError(f"the undisturbed run did not finish:\n{ingestion.runs[-1].log}")
        with services_of(ingestion) as services:
            reference = read_state(services)
    killer = Killer(random.Random(seed))  # noqa: S311 - moments, not secrets
    pause = ingestion.runs[0].seconds / PAUSES
    rounds: list[Round] = []
    while killer.kills.total() < kills:
        before = killer.kills.total()
        with _ingestion(folder / f"round{len(rounds) + 1}", corpus) as ingestion:
            ingestion.killer, ingestion.wanted, ingestion.pause = killer, kills, pause
            ingestion.finish(LEAST_RUNS + RUNS_PER_KILL * kills)
            rounds.append(_round(ingestion, reference, killer.kills.total() - before))
        if not rounds[-1].clean or len(rounds) == MOST_ROUNDS:
            break
    return KillReport(documents, reference, rounds, killer.kills)


def _round(ingestion: Ingestion, reference: State, kills: int) -> Round:
    with services_of(ingestion) as services:
        found = services.fsck(FsckOptions(deep=True, grace_seconds=0))
        return Round(
            kills=kills,
            runs=tuple(ingestion.runs),
            finished=ingestion.runs[-1].idle,
            differences=read_state(services).differences(reference),
            fsck=[str(entry.to_dict()) for entry in found.entries],
            owed=services.outbox.pending(),
            embedding=read_embedding(services),
        )


@contextmanager
def _ingestion(home: Path, corpus: Path) -> Iterator[Ingestion]:
    try:
        yield Ingestion(home, corpus)
    finally:
        EmbeddedStores(home).down()


def print_report(report: KillReport) -> None:
    """The tables."""
    show(
        f"{sum(report.kills.values())} kills over {report.documents} documents",
        ("killed", "times"),
        [(kind.value, str(report.kills[kind])) for kind in Target],
    )
    show(
        "Against the undisturbed run",
        (
            "round",
            "kills",
            "runs",
            "s",
            "differences",
            "fsck",
            "parts again",
            "allowed",
            "most",
            "passing failures",
            "",
        ),
        [_row(number, each, report.reference.failure_types) for number, each in enumerate(report.rounds, 1)],
    )
    reference = report.reference
    print(
        f"each round: {len(reference.documents)} documents, {len(reference.failures)} failures, "
        f"{len(reference.chunks)} chunks, {len(reference.index)} index rows, {len(reference.objects)} objects, "
        f"{len(reference.assets)} assets"
    )
    for number, each in enumerate(report.rounds, 1):
        for line in _problems(each):
            print(f"round {number}: {line}")


def _row(number: int, each: Round, expected: frozenset[str]) -> tuple[str, ...]:
    embedding = each.embedding
    passing = sum((run.failures for run in each.runs), Counter[str]())
    return (
        str(number),
        str(each.kills),
        str(len(each.runs)),
        f"{sum(run.seconds for run in each.runs):.0f}",
        str(sum(map(len, each.differences.values()))),
        str(len(each.fsck)),
        f"{embedding.again} of {embedding.parts}",
        str(each.most_again),
        str(embedding.most),
        ", ".join(f"{kind} {count}" for kind, count in passing.items() if kind not in expected),
        "ok" if each.clean else "FAILED",
    )


def _problems(each: Round) -> Iterator[str]:
    for name, lines in each.differences.items():
        yield from (f"{name}: {line}" for line in lines[:SHOWN])
    yield from each.fsck[:SHOWN]
    if each.owed:
        yield f"{each.owed} effects are still owed"
    for run in each.runs:
        if run.report is None and run.code != -9:
            killed = ", ".join(run.kills) or "nothing"
            last = run.log.strip().rpartition("\n")[2]
            yield f"a run ended with {run.code} after {killed} was killed: {last[:300]}"
    if not each.finished:
        yield f"not finished: {each.runs[-1].report or each.runs[-1].log}"


def run(
    documents: Annotated[int, typer.Option(min=10)] = 300,
    kills: Annotated[int, typer.Option(min=1)] = 50,
    seed: Annotated[int, typer.Option(help="Of the texts, and of whom is killed when.")] = 7,
    keep: Annotated[Path | None, typer.Option(help="An empty folder that is kept, for a look afterwards.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Also print one JSON object as the last line.")] = False,
) -> None:
    """Kill everything, everywhere, and compare."""
    with tempfile.TemporaryDirectory(prefix="kills-", ignore_cleanup_errors=True) as name:
        report = run_kills(keep or Path(name), documents, kills, seed)
    print_report(report)
    if as_json:
        print(json.dumps(report.to_dict(), ensure_ascii=False))
    if not report.clean or report.kills.total() < kills:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(run)
