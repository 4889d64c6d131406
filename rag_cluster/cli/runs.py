"""runs: bulk ingestion runs, from any machine."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from rag_cluster.cli.options import Cursor, Json
from rag_cluster.cli.output import command, emit, say, table
from rag_cluster.cli.session import services
from rag_cluster.domain.documents import Receipt, RunStatus
from rag_cluster.domain.ports import Ledger
from rag_cluster.errors import NotFoundError
from rag_cluster.ingestion.progress import RunProgress
from rag_cluster.ingestion.report import KEPT_PROBLEMS, OUTCOMES, IngestionReport, readable, report_of_run

app = typer.Typer(help="Bulk ingestion runs.", no_args_is_help=True)

RunId = Annotated[str, typer.Argument(help="Run id, as `runs list` tells it.")]

POLL_SECONDS = 1.0
MOST_ROWS = 1_000_000
"""Receipts of a Parquet report."""
SHOWN = 200
"""Receipts shown to a person; --json gives all."""


def _summary(counts: Mapping[str, int]) -> str:
    outcomes = ", ".join(f"{counts[name]} {name}" for name in OUTCOMES if counts.get(name))
    return f"{counts.get('listed', 0)} listed" + (f": {outcomes}" if outcomes else "")


def _name(knowledge_base_id: str) -> str:
    try:
        return services().catalog.knowledge_base(knowledge_base_id).name
    except NotFoundError:
        return "(deleted)"


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
    names = {base: _name(base) for base in {run.knowledge_base_id for run in runs}}
    table(
        "Runs",
        ("started", "knowledge base", "status", "counts", "inputs", "id"),
        (
            (
                run.started_at and run.started_at.strftime("%Y-%m-%d %H:%M:%S"),
                names[run.knowledge_base_id],
                run.status,
                _summary(run.counts),
                ", ".join(run.inputs),
                run.id,
            )
            for run in runs
        ),
        next_cursor=next_cursor,
    )


@app.command("watch")
@command
def watch(
    run_id: Annotated[str | None, typer.Argument(help="Run id; default: the newest run.")] = None,
    as_json: Json = False,
) -> None:
    """Follow a run from any machine until it ends. Exit code 1 when it did not succeed.

    Example: `rag-cluster runs watch`
    """
    ledger = services().ledger
    if run_id is None:
        newest, _ = ledger.runs(limit=1)
        if not newest:
            raise NotFoundError("There is no run yet.")
        run_id = newest[0].id
    with RunProgress("run", lambda counts: None, terminal=None if not as_json else False) as progress:
        while (run := ledger.run(run_id)).status is RunStatus.RUNNING:
            progress.update(Counter(run.counts), None)
            time.sleep(POLL_SECONDS)
    if as_json:
        from rag_cluster.serving.schemas import RunResponse

        emit(RunResponse.of(run).model_dump(mode="json"))
    else:
        say(f"{run.status}: {_summary(run.counts)}")
    if run.status is not RunStatus.SUCCEEDED:
        raise typer.Exit(1)


@app.command("cancel")
@command
def cancel(
    run_id: Annotated[str, typer.Argument(help="Run id, as `runs list` tells it.")], as_json: Json = False
) -> None:
    """Ask a run to end within seconds, from any machine; the next run goes on where it stopped.

    Example: `rag-cluster runs cancel ID`
    """
    run = services().ledger.request_cancel(run_id)
    if as_json:
        from rag_cluster.serving.schemas import RunResponse

        emit(RunResponse.of(run).model_dump(mode="json"))
    else:
        say(f"asked run {run.id} to end; `rag-cluster runs watch {run.id}` shows when it has")


@app.command("errors")
@command
def errors(run_id: RunId, as_json: Json = False) -> None:
    """List the inputs of a run that failed, were skipped or busy, with stage, type and message.

    Example: `rag-cluster runs errors ID`
    """
    receipts = services().ledger.run_receipts(services().ledger.run(run_id).id)
    if as_json:
        from rag_cluster.serving.schemas import ReceiptResponse

        emit({"items": [ReceiptResponse.of(receipt).model_dump(mode="json") for receipt in receipts]})
        return
    _receipts_table(receipts)


@app.command("show")
@command
def show(
    run_id: RunId,
    report: Annotated[
        Path | None, typer.Option(help="Write its report: .html with a picture of its stages, .json, .parquet.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show one run with the inputs that failed or were skipped.

    Example: `rag-cluster runs show ID --report run.html`
    """
    from rag_cluster.serving.schemas import ReceiptResponse, RunDetail, RunResponse

    ledger = services().ledger
    if report is not None:
        save_report(_report(ledger, run_id), report, ledger)
    run, receipts = ledger.run(run_id), ledger.run_receipts(run_id)
    fields = RunResponse.of(run).model_dump()
    if as_json:
        rows = [ReceiptResponse.of(receipt) for receipt in receipts]
        kept = ledger.run_report(run_id)
        detail = RunDetail(**fields, receipts=rows, report=None if kept is None else dict(kept))
        emit(detail.model_dump(mode="json"))
        return
    counts = ", ".join(f"{name} {count}" for name, count in run.counts.items() if count)
    shown = fields | {"inputs": ", ".join(run.inputs), "counts": counts}
    table(f"Run {run.id}", ("field", "value"), shown.items())
    if receipts:
        _receipts_table(receipts)


def _report(ledger: Ledger, run_id: str) -> IngestionReport:
    """What was kept with the run; of one that goes on or was lost, what its row tells."""
    run, kept = ledger.run(run_id), ledger.run_report(run_id)
    if kept is not None:
        return IngestionReport.from_dict(kept)
    return report_of_run(run, ledger.run_receipts(run_id, limit=KEPT_PROBLEMS))


def save_report(report: IngestionReport, path: Path, ledger: Ledger) -> None:
    """Write a report to a file; a Parquet file has every receipt that the ledger kept."""
    from rag_cluster.ingestion.report_files import save

    save(report, path, ledger.run_receipts(report.run_id, limit=MOST_ROWS))


def _receipts_table(receipts: Sequence[Receipt]) -> None:
    left_out = len(receipts) - SHOWN
    table(
        "Inputs that did not become ready" + (f", the first {SHOWN} of {len(receipts)}" if left_out > 0 else ""),
        ("outcome", "file", "stage", "type", "message"),
        ((r.outcome, readable(r.uri), r.stage, r.error_type, r.message) for r in receipts[:SHOWN]),
    )
