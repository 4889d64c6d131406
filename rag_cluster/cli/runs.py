"""runs: bulk ingestion runs, from any machine."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rag_cluster.cli.output import Json, command, emit, table
from rag_cluster.domain.documents import IngestionRun
from rag_cluster.wiring import local_services

app = typer.Typer(help="Bulk ingestion runs.", no_args_is_help=True)


def _as_dict(run: IngestionRun) -> dict[str, Any]:
    return {
        "id": run.id,
        "knowledge_base_id": run.knowledge_base_id,
        "status": run.status,
        "inputs": list(run.inputs),
        "counts": dict(run.counts),
        "started_at": run.started_at,
        "updated_at": run.updated_at,
        "finished_at": run.finished_at,
        "error_message": run.error_message,
    }


@app.command("list")
@command
def list_(
    limit: Annotated[int, typer.Option(min=1, max=200)] = 20, cursor: str | None = None, as_json: Json = False
) -> None:
    """List runs, newest first.

    Example: `rag-cluster runs list`
    """
    runs, next_cursor = local_services().ledger.runs(cursor=cursor, limit=limit)
    if as_json:
        emit({"items": [_as_dict(run) for run in runs], "next_cursor": next_cursor})
        return
    table(
        "Runs",
        ("id", "status", "started", "counts", "inputs"),
        (
            (
                run.id,
                run.status,
                run.started_at and run.started_at.strftime("%Y-%m-%d %H:%M:%S"),
                ", ".join(f"{name} {count}" for name, count in run.counts.items() if count),
                ", ".join(run.inputs),
            )
            for run in runs
        ),
    )


@app.command("show")
@command
def show(run_id: Annotated[str, typer.Argument()], as_json: Json = False) -> None:
    """Show one run with the inputs that failed or were skipped.

    Example: `rag-cluster runs show 5f0e...`
    """
    ledger = local_services().ledger
    run, receipts = ledger.run(run_id), ledger.run_receipts(run_id)
    if as_json:
        rows = [
            {"uri": r.uri, "outcome": r.outcome, "stage": r.stage, "error_type": r.error_type, "message": r.message}
            for r in receipts
        ]
        emit({**_as_dict(run), "receipts": rows})
        return
    table(f"Run {run.id}", ("field", "value"), _as_dict(run).items())
    if receipts:
        table(
            "Inputs that did not become ready",
            ("file", "outcome", "stage", "type", "message"),
            ((r.uri, r.outcome, r.stage, r.error_type, r.message) for r in receipts),
        )
