"""ingest: the bulk job, on a local Ray, on a joined cluster, or submitted to one."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from rag_cluster.cli.output import Json, command, emit, err, fail, out
from rag_cluster.domain.access import AccessAttributes
from rag_cluster.settings import get_settings
from rag_cluster.wiring import WritePathFactory, local_services


@command
def ingest(
    inputs: Annotated[list[str], typer.Argument(help="Files, folders, globs or s3:// prefixes.")],
    knowledge_base: Annotated[str, typer.Option("--knowledge-base", "-k", help="Name; created when new.")],
    acl: Annotated[list[str] | None, typer.Option("--acl", help="Group that may read; may be repeated.")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Everyone with the knowledge base may read.")] = False,
    department: str | None = None,
    security_level: Annotated[int, typer.Option(min=0, max=9)] = 0,
    chunking: Annotated[str | None, typer.Option(help="Chunking strategy. Default: structured.")] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Try permanent failures again.")] = False,
    verify_content: Annotated[
        bool, typer.Option("--verify-content", help="Read every file, not only those whose size or time changed.")
    ] = False,
    address: Annotated[
        str | None, typer.Option(help="http://HEAD:8265 submits a job; auto or host:port joins that Ray.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Ingest documents. What is unchanged is not read again; a killed run goes on where it stopped.

    Exit code 0: everything listed is ready or was skipped for a stated reason. 1: something failed.

    Example: `rag-cluster ingest ./documents --knowledge-base harbour`
    """
    if address and address.startswith(("http://", "https://")):
        _submit(address, as_json)
        return
    from rag_cluster.ingestion.pipeline import IngestionOptions, run_ingestion

    settings = get_settings()
    stated = bool(acl or open_ or department or security_level)
    groups = tuple(acl) if acl else (() if open_ else None)
    options = IngestionOptions(
        access=AccessAttributes(groups, department, security_level) if stated else None,
        chunking_strategy=chunking,
        retry_failed=retry_failed,
        verify_content=verify_content,
        progress=not as_json,
    )
    services = local_services(settings)
    services.ensure_knowledge_base(knowledge_base)
    report = run_ingestion(
        WritePathFactory(settings), knowledge_base, inputs, options, address=address or settings.ray_address or None
    )
    if as_json:
        emit(report.to_dict())
    else:
        report.print(out)
    if not report.ok:
        raise typer.Exit(1)


def _submit(address: str, as_json: bool) -> None:
    """Send this very command to a cluster as a job and follow its log."""
    from rag_cluster.client import submit_and_follow

    arguments = _without_address(sys.argv[1:])
    entrypoint = " ".join(["python", "-m", "rag_cluster.cli", *map(shlex.quote, arguments)])
    submission_id, status, log = submit_and_follow(
        address, entrypoint, on_log=None if as_json else lambda text: err.print(text, end="", markup=False)
    )
    if as_json:
        emit({"submission_id": submission_id, "status": status, "log": log})
    if status != "SUCCEEDED":
        raise fail(f"job {submission_id} ended {status}", as_json=as_json, kind="job_failed")


def _without_address(arguments: list[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument == "--address":
            skip = True
        elif not argument.startswith("--address="):
            # Relative paths mean this machine's folder here, and the job's there: send them absolute.
            kept.append(str(Path(argument).absolute()) if Path(argument).exists() else argument)
    return kept


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(ingest)
