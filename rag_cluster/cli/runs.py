"""runs: bulk ingestion runs, from any machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from rag_cluster.cli.options import Cursor, Json
from rag_cluster.cli.output import command, emit, table
from rag_cluster.cli.session import services
from rag_cluster.ingestion.report import OUTCOMES, readable

app = typer.Typer(help="Bulk ingestion runs.", no_args_is_help=True)

SHOWN = 200
"""Receipts shown to a person; --json gives all."""


def _summary(counts: Mapping[str, int]) -> str:
    outcomes = ", ".join(f"{counts[name]} {name}" for name in OUTCOMES if counts.get(name))
    return f"{counts.get('listed', 0)} listed" + (f": {outcomes}" if outcomes else "")


@app.command("list")
@command
def list_(
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 20, cursor: Cursor = None, as_json: Json = False
) -> None:
    """List runs, newest first.

    Example: `rag-cluster runs list`
    """
    runs, next_cursor = services().ledger.runs(cursor=cursor, limit=limit)
    if as_json:
        from rag_cluster.serving.schemas import RunPage, RunResponse

        items = [RunResponse.of(run) for run in runs]
        emit(RunPage(items=items, next_cursor=next_cursor).model_dump(mode="json"))
        return
    table(
        "Runs",
        ("started", "status", "counts", "inputs", "id"),
        (
            (
                run.started_at and run.started_at.strftime("%Y-%m-%d %H:%M:%S"),
                run.status,
                _summary(run.counts),
                ", ".join(run.inputs),
                run.id,
            )
            for run in runs
        ),
        next_cursor=next_cursor,
    )


@app.command("show")
@command
def show(
    run_id: Annotated[str, typer.Argument(help="Run id, as `runs list` tells it.")], as_json: Json = False
) -> None:
    """Show one run with the inputs that failed or were skipped.

    Example: `rag-cluster runs show ID`
    """
    from rag_cluster.serving.schemas import ReceiptResponse, RunDetail, RunResponse

    ledger = services().ledger
    run, receipts = ledger.run(run_id), ledger.run_receipts(run_id)
    fields = RunResponse.of(run).model_dump()
    if as_json:
        rows = [ReceiptResponse.of(receipt) for receipt in receipts]
        emit(RunDetail(**fields, receipts=rows).model_dump(mode="json"))
        return
    counts = ", ".join(f"{name} {count}" for name, count in run.counts.items() if count)
    shown = fields | {"inputs": ", ".join(run.inputs), "counts": counts}
    table(f"Run {run.id}", ("field", "value"), shown.items())
    if receipts:
        left_out = len(receipts) - SHOWN
        table(
            "Inputs that did not become ready" + (f", the first {SHOWN} of {len(receipts)}" if left_out > 0 else ""),
            ("outcome", "file", "stage", "type", "message"),
            ((r.outcome, readable(r.uri), r.stage, r.error_type, r.message) for r in receipts[:SHOWN]),
        )
