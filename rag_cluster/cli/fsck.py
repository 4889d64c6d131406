"""fsck: what PostgreSQL, Milvus and the object store disagree about, and putting it right."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from rag_cluster.cli.options import Json
from rag_cluster.cli.output import command, emit, say, table
from rag_cluster.cli.session import services

if TYPE_CHECKING:
    from rag_cluster.lifecycle.report import Entry, FsckReport

SHOWN = 50


@command
def fsck(
    repair: Annotated[bool, typer.Option("--repair", help="Put right what is found.")] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Hash originals and images too.")] = False,
    knowledge_base: Annotated[
        str | None, typer.Option("--knowledge-base", "-k", help="Only this one, by name or id.")
    ] = None,
    grace_minutes: Annotated[
        float,
        typer.Option(min=0, help="Younger objects may belong to an upload under way; older claims are stuck."),
    ] = 60.0,
    findings: Annotated[Path | None, typer.Option(help="Write every finding to this file, one JSON a line.")] = None,
    as_json: Json = False,
) -> None:
    """Compare PostgreSQL, Milvus and the object store; PostgreSQL is the truth. Queries and ingestion may go on.

    Exit code 0: nothing found. 1: something was found (with --repair: also when all of it was repaired; run again).

    Example: `rag-cluster fsck --repair`
    """
    from rag_cluster.lifecycle.fsck import FsckOptions

    opened = services()
    base = None if knowledge_base is None else opened.catalog.knowledge_base(knowledge_base).id
    options = FsckOptions(repair, deep, base, grace_minutes * 60)
    with _opened(findings) as file:
        report = opened.fsck(options, None if file is None else lambda entry: _write(file, entry))
    if as_json:
        emit(report.to_dict())
    else:
        _show(report)
    if not report.clean:
        raise typer.Exit(1)


@contextlib.contextmanager
def _opened(path: Path | None) -> Iterator[TextIO | None]:
    if path is None:
        yield None
        return
    with path.open("w", encoding="utf-8") as file:
        yield file


def _write(file: TextIO, entry: Entry) -> None:
    file.write(json.dumps(entry.to_dict(), ensure_ascii=False) + "\n")


def _show(report: FsckReport) -> None:
    from rag_cluster.domain.inventory import Fault, Outcome

    if not report.clean:
        table(
            "Findings",
            ("fault", "findings", "repaired", "lost", "failed"),
            (
                (
                    fault.value,
                    report.count(fault),
                    *(report.count(fault, outcome) for outcome in (Outcome.REPAIRED, Outcome.LOST, Outcome.FAILED)),
                )
                for fault in Fault
                if report.count(fault)
            ),
        )
        hidden = report.findings - min(len(report.entries), SHOWN)
        table(
            f"The first {SHOWN}; --findings FILE has all" if hidden > 0 else "In full",
            ("fault", "outcome", "document", "version", "subject", "detail"),
            (
                (
                    entry.finding.fault,
                    entry.outcome,
                    entry.finding.document_id,
                    entry.finding.version or "",
                    entry.finding.subject,
                    entry.message or entry.finding.detail,
                )
                for entry in report.entries[:SHOWN]
            ),
        )
    scanned = report.scanned
    unjudged = scanned["busy"] + scanned["owed"]
    say(
        f"{'clean' if report.clean else f'{report.findings} findings'}: {scanned['documents']:,} documents, "
        f"{scanned['rows']:,} index rows, {scanned['objects']:,} objects in {report.seconds:.1f} s"
        + (f"; {unjudged:,} documents were not judged: work on them is under way or owed" if unjudged else "")
    )


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(fsck)
