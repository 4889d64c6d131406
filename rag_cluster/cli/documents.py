"""docs: list, show, access, retry, delete."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from rag_cluster.cli.options import Base, Cursor, Department, Json, SecurityLevel, Yes
from rag_cluster.cli.output import command, confirm, emit, fail, say, table
from rag_cluster.cli.receipts import show_receipt
from rag_cluster.cli.session import services
from rag_cluster.domain.access import LOCAL, stated_access
from rag_cluster.domain.documents import DocumentStatus, JobStatus

app = typer.Typer(help="Documents.", no_args_is_help=True)

POLL_SECONDS = 0.5

Id = Annotated[str, typer.Argument(help="Document id, as `docs list` tells it.")]


def _acl_text(acl: tuple[str, ...] | None) -> str:
    if acl is None:
        return "the knowledge base's default"
    return ", ".join(acl) or "open"


@app.command("list")
@command
def list_(
    knowledge_base: Base,
    status: Annotated[DocumentStatus | None, typer.Option(case_sensitive=False, help="Only these.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 100,
    cursor: Cursor = None,
    as_json: Json = False,
) -> None:
    """List documents with their newest version's status.

    Example: `rag-cluster docs list -k harbour --status FAILED`
    """
    catalog = services().catalog
    base = catalog.knowledge_base(knowledge_base)
    documents, next_cursor = catalog.list_documents(base.id, LOCAL, status=status, cursor=cursor, limit=limit)
    if as_json:
        from rag_cluster.serving.schemas import DocumentPage, DocumentResponse

        items = [DocumentResponse.of(document) for document in documents]
        emit(DocumentPage(items=items, next_cursor=next_cursor).model_dump(mode="json"))
        return
    table(
        f"Documents of {base.name}",
        ("file", "status", "version", "published", "error", "id"),
        (
            (
                document.filename,
                document.status,
                document.version,
                document.published_version,
                document.error_type,
                document.id,
            )
            for document in documents
        ),
        next_cursor=next_cursor,
    )


@app.command("show")
@command
def show(document_id: Id, as_json: Json = False) -> None:
    """Show one document.

    Example: `rag-cluster docs show ID`
    """
    from rag_cluster.serving.schemas import DocumentResponse

    document = services().catalog.document(document_id, LOCAL)
    fields = DocumentResponse.of(document).model_dump(mode="json")
    if as_json:
        emit(fields)
        return
    access = fields.pop("access") | {"acl": _acl_text(document.access.acl)}
    table(document.filename, ("field", "value"), (fields | access).items())


@app.command("access")
@command
def access(
    document_id: Id,
    acl: Annotated[list[str] | None, typer.Option("--acl", help="Group; may be repeated.")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Everyone with the knowledge base.")] = False,
    inherit: Annotated[bool, typer.Option("--inherit", help="Follow the knowledge base's default.")] = False,
    department: Department = None,
    security_level: SecurityLevel = 0,
    as_json: Json = False,
) -> None:
    """Set who may read a document, in force for the next query; nothing is parsed or embedded again.

    Example: `rag-cluster docs access ID --acl finance --security-level 2`
    """
    if sum((bool(acl), open_, inherit)) != 1:
        raise fail("Give exactly one of --acl, --open, --inherit.", as_json=as_json, kind="invalid_request", code=2)
    from rag_cluster.serving.schemas import DocumentResponse

    opened = services()
    opened.catalog.document(document_id, LOCAL)
    groups: tuple[str, ...] | None = None if inherit else tuple(acl or ())
    document = opened.catalog.update_document(document_id, access=stated_access(groups, department, security_level))
    opened.drain_outbox(document_id)
    if as_json:
        emit(DocumentResponse.of(document).model_dump(mode="json"))
    else:
        say(f"{document.filename}: acl {_acl_text(document.access.acl)}, level {document.access.security_level}")


@app.command("retry")
@command
def retry(document_id: Id, as_json: Json = False) -> None:
    """Try a failed document again, here and now, also one whose failure was permanent.

    Exit code 1 when it failed again.

    Example: `rag-cluster docs retry ID`
    """
    from rag_cluster.ingestion.steps import require_active
    from rag_cluster.ingestion.uploads import work_once
    from rag_cluster.serving.schemas import JobResponse

    opened = services()
    worker = opened.upload_worker(opened.embedder)
    require_active(worker.write_path)  # with another embedder than the index's the job would wait here for ever
    job = opened.retry_document(document_id)
    while (job := opened.uploads.job(job.id, LOCAL)).status in (JobStatus.PENDING, JobStatus.RUNNING):
        if not work_once(worker):  # nothing is due here: a server's worker has it, or its next attempt waits
            time.sleep(POLL_SECONDS)
    if as_json:
        emit(JobResponse.of(job).model_dump(mode="json"))
    else:
        document = opened.catalog.document(document_id, LOCAL)
        reason = f": {job.error_type}: {job.error_message}" if job.error_type else ""
        say(f"{document.filename}: {job.status}{reason}")
    if job.status is not JobStatus.SUCCEEDED:
        raise typer.Exit(1)


@app.command("delete")
@command
def delete(document_id: Id, yes: Yes = False, as_json: Json = False) -> None:
    """Delete a document everywhere and print what was verified gone.

    Exit code 0: gone from every store. 3: invisible, but steps are still owed; any job carries them out.

    Example: `rag-cluster docs delete ID --yes`
    """
    opened = services()
    document = opened.catalog.document(document_id, LOCAL)
    if not yes and not confirm(f"Delete {document.filename}?"):
        raise fail("Not deleted; --yes does not ask.", as_json=as_json, kind="aborted")
    show_receipt(document.filename, opened.delete_document(document_id), as_json=as_json)
