"""ingest: the bulk job, on a local Ray, on a joined cluster, or submitted to one."""

from __future__ import annotations

import contextlib
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from rag_cluster.cli.options import Department, Json, Ocr, SecurityLevel, base_name, with_ocr
from rag_cluster.cli.output import command, emit, err, fail, out
from rag_cluster.cli.runs import save_report
from rag_cluster.cli.session import services
from rag_cluster.domain.access import stated_access
from rag_cluster.errors import NotFoundError

if TYPE_CHECKING:
    from rag_cluster.ingestion.run import IngestionOptions
    from rag_cluster.ingestion.write_path import Factory
    from rag_cluster.settings import Settings


@command
def ingest(
    context: typer.Context,
    inputs: Annotated[list[str] | None, typer.Argument(help="Files, folders, globs or s3:// prefixes.")] = None,
    *,
    knowledge_base: Annotated[
        str, typer.Option("--knowledge-base", "-k", callback=base_name, help="Name or id; created when new.")
    ],
    acl: Annotated[list[str] | None, typer.Option("--acl", help="Group that may read; may be repeated.")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Everyone with the knowledge base may read.")] = False,
    department: Department = None,
    security_level: SecurityLevel = 0,
    chunking: Annotated[str | None, typer.Option(help="Chunking strategy. Default: structured.")] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Try permanent failures again.")] = False,
    verify_content: Annotated[
        bool, typer.Option("--verify-content", help="Read every file, not only those whose size or time changed.")
    ] = False,
    manifest: Annotated[
        list[str] | None,
        typer.Option("--manifest", help="Parquet, CSV or JSON lines with uri, acl, metadata ...; may be repeated."),
    ] = None,
    include: Annotated[list[str] | None, typer.Option(help="Only files that match, as *.pdf or 2024/**.")] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="Not the files that match.")] = None,
    sync: Annotated[bool, typer.Option("--sync", help="Delete documents whose files disappeared.")] = False,
    reference: Annotated[
        bool, typer.Option("--reference", help="Leave originals where they lie instead of copying them.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; change nothing.")] = False,
    sample: Annotated[
        int, typer.Option(min=0, help="Forecast hours, failures and size from this many documents; change nothing.")
    ] = 0,
    time_limit: Annotated[
        float, typer.Option(min=0, help="Stop after so many seconds; the next run goes on. 0: no limit.")
    ] = 0.0,
    report: Annotated[
        Path | None, typer.Option(help="Write the run's report: .html with a picture of its stages, .json, .parquet.")
    ] = None,
    ocr: Ocr = None,
    address: Annotated[
        str | None, typer.Option(help="http://HEAD:8265 submits a job; auto or host:port joins that Ray.")
    ] = None,
    run_id: Annotated[
        str | None, typer.Option("--run-id", hidden=True, help="Of the run, as a job is given it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Ingest documents. What is unchanged is not read again; a killed run goes on where it stopped.

    Exit code 0: everything listed is ready or was skipped for a stated reason. 1: something failed.

    Example: `rag-cluster ingest ./documents --knowledge-base harbour`
    """
    if acl and open_:
        raise fail("Give --acl or --open, not both.", as_json=as_json, kind="invalid_request", code=2)
    from rag_cluster.cli.ray_session import ray_address, ray_stopped_afterwards
    from rag_cluster.ingestion.listing import Patterns, require_some
    from rag_cluster.ingestion.pipeline import IngestionOptions, run_ingestion
    from rag_cluster.ingestion.report_files import check_path
    from rag_cluster.settings import get_settings
    from rag_cluster.wiring import ServiceFactory

    if report is not None:
        check_path(report)
    settings = with_ocr(get_settings(), ocr)
    target = ray_address(settings, address)
    if target and target.startswith(("http://", "https://")):
        _submit(target, settings, context, as_json, report)
        return
    stated = bool(acl or open_ or department is not None or security_level)
    groups = tuple(acl) if acl else (() if open_ else None)
    options = IngestionOptions(
        access=stated_access(groups, department, security_level) if stated else None,
        chunking_strategy=chunking,
        retry_failed=retry_failed,
        verify_content=verify_content,
        manifests=tuple(manifest or ()),
        patterns=Patterns(tuple(include or ()), tuple(exclude or ())),
        reference=reference,
        sync=sync,
        time_limit=time_limit,
        progress=not as_json,
    )
    inputs = inputs or []
    require_some(ServiceFactory(settings)().inputs, inputs, options.manifests)
    if dry_run or sample:
        _forecast(settings, knowledge_base, inputs, options, sample, as_json)
        return
    services(settings).ensure_knowledge_base(knowledge_base)
    with ray_stopped_afterwards():
        done = run_ingestion(_write_paths(settings), knowledge_base, inputs, options, run_id=run_id, address=target)
    if report is not None:
        save_report(done, report, services(settings).ledger)
    if as_json:
        emit(done.to_dict())
    else:
        done.print(out)
    if not done.ok:
        raise typer.Exit(1)


def _write_paths(settings: Settings) -> Factory:
    """What gives the job's actors their write paths: with a model of their own, or with the one that is served."""
    if settings.ingest_embedder == "serve":
        from rag_cluster.serving.bulk import ServedWritePathFactory

        return ServedWritePathFactory(settings)
    from rag_cluster.wiring import WritePathFactory

    return WritePathFactory(settings)


def _forecast(
    settings: Settings, knowledge_base: str, inputs: list[str], options: IngestionOptions, sample: int, as_json: bool
) -> None:
    from rag_cluster.ingestion.forecast import forecast
    from rag_cluster.ingestion.sync import Sync
    from rag_cluster.wiring import WritePathFactory

    write_path = WritePathFactory(settings)()
    strategy, sync = options.chunking_strategy, None
    base = str(uuid.UUID(int=0))  # to a base that is not there yet everything is new
    with contextlib.suppress(NotFoundError):
        base = write_path.catalog.knowledge_base(knowledge_base).id
        source = write_path.catalog.source(base, options.source)  # or the run makes one
        strategy = strategy or source.default_chunking_strategy
        if options.sync:
            sync = Sync(write_path, base, source.id, inputs, options.manifests, dry_run=True)
    write_path.chunker(strategy)  # an unknown strategy is an error here as it is of a run
    found = forecast(write_path, base, inputs, options.plan(strategy), sample=sample, sync=sync)
    if as_json:
        emit(found.to_dict())
    else:
        found.print(out)


def _submit(address: str, settings: Settings, context: typer.Context, as_json: bool, report: Path | None) -> None:
    """Send this very command to a cluster as a job, or find the one that is under way, and follow its log.

    report: written here, of what the job prints as JSON.
    """
    from rag_cluster.client.jobs import Cluster, last_object
    from rag_cluster.client.secrets import settings_secrets
    from rag_cluster.ingestion.report import IngestionReport

    cluster = Cluster(address, secrets=settings_secrets(settings))
    name, *arguments = _arguments(context)
    printed = ["--json"] if report is not None and not as_json else []
    job = cluster.submit([name, *printed, *arguments], run_id=True)
    status = job.follow(on_log=None if as_json else lambda text: print(text, end="", file=sys.stderr))
    if as_json:
        log = job.log()
        emit({"submission_id": job.submission_id, "status": status, "report": last_object(log), "log": log})
    if report is not None:
        done = IngestionReport.from_dict(job.result())
        done.save(report)
        if not as_json:
            done.print(out)
    if status != "SUCCEEDED":
        err.print(Text.assemble(("error", "bold red"), f" (job_failed): job {job.submission_id} ended {status}"))
        raise typer.Exit(1)


def _arguments(context: typer.Context) -> list[str]:
    """This command line for another machine: without --address, paths made absolute."""
    from rag_cluster.client.ingest import absolute

    given: list[str] = []
    for parameter in context.command.params:
        name, value = str(parameter.name), context.params.get(str(parameter.name))
        if (
            name in ("inputs", "address", "run_id", "report")
            or value is None
            or value == parameter.get_default(context)
        ):
            continue
        values = value if isinstance(value, list | tuple) else [value]
        texts = [absolute(str(item)) if name == "manifest" else str(item) for item in values]
        option = parameter.opts[0]
        given += [option] if value is True else [f"{option}={text}" for text in texts]
    return [str(context.info_name), *given, "--", *map(absolute, context.params.get("inputs") or ())]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(ingest)
