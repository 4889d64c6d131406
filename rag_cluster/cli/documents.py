"""docs: list, show, access, delete."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rag_cluster.cli.output import Json, command, emit, fail, out, table
from rag_cluster.domain.access import LOCAL, AccessAttributes
from rag_cluster.domain.documents import Document, DocumentStatus
from rag_cluster.wiring import local_services

app = typer.Typer(help="Documents.", no_args_is_help=True)

Base = Annotated[str, typer.Option("--knowledge-base", "-k", help="Name or id.")]
Id = Annotated[str, typer.Argument(help="Document id.")]


def _as_dict(document: Document) -> dict[str, Any]:
    return {
        "id": document.id,
        "filename": document.filename,
        "uri": document.uri,
        "status": document.status,
        "version": document.version,
        "published_version": document.published_version,
        "acl": document.access.acl,
        "department": document.access.department,
        "security_level": document.access.security_level,
        "metadata": dict(document.metadata),
        "error_type": document.error_type,
        "error_message": document.error_message,
        "updated_at": document.updated_at,
    }


@app.command("list")
@command
def list_(
    knowledge_base: Base,
    status: DocumentStatus | None = None,
    limit: Annotated[int, typer.Option(min=1, max=200)] = 100,
    cursor: str | None = None,
    as_json: Json = False,
) -> None:
    """List documents with their newest version's status.

    Example: `rag-cluster docs list -k harbour --status FAILED`
    """
    services = local_services()
    base = services.catalog.knowledge_base(knowledge_base)
    documents, next_cursor = services.catalog.list_documents(base.id, LOCAL, status=status, cursor=cursor, limit=limit)
    if as_json:
        emit({"items": [_as_dict(document) for document in documents], "next_cursor": next_cursor})
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
    )
    if next_cursor:
        out.print(f"[dim]more: --cursor {next_cursor}[/]")


@app.command("show")
@command
def show(document_id: Id, as_json: Json = False) -> None:
    """Show one document.

    Example: `rag-cluster docs show 0b9c...`
    """
    document = local_services().catalog.document(document_id, LOCAL)
    if as_json:
        emit(_as_dict(document))
    else:
        table(document.filename, ("field", "value"), _as_dict(document).items())


@app.command("access")
@command
def access(
    document_id: Id,
    acl: Annotated[list[str] | None, typer.Option("--acl", help="Group; may be repeated.")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Everyone with the knowledge base.")] = False,
    inherit: Annotated[bool, typer.Option("--inherit", help="Follow the knowledge base's default.")] = False,
    department: str | None = None,
    security_level: Annotated[int, typer.Option(min=0, max=9)] = 0,
    as_json: Json = False,
) -> None:
    """Set who may read a document, in force for the next query; nothing is parsed or embedded again.

    Example: `rag-cluster docs access 0b9c... --acl finance --security-level 2`
    """
    if sum((bool(acl), open_, inherit)) != 1:
        raise fail("Give exactly one of --acl, --open, --inherit.", as_json=as_json, kind="invalid_request", code=2)
    services = local_services()
    services.catalog.document(document_id, LOCAL)
    groups: tuple[str, ...] | None = None if inherit else tuple(acl or ())
    document = services.catalog.update_document(
        document_id, access=AccessAttributes(groups, department, security_level)
    )
    services.drain_outbox(document_id)
    if as_json:
        emit(_as_dict(document))
    else:
        out.print(f"{document.filename}: acl {document.access.acl}, level {document.access.security_level}")


@app.command("delete")
@command
def delete(
    document_id: Id,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Delete a document everywhere and print what was verified gone.

    Example: `rag-cluster docs delete 0b9c... --yes`
    """
    services = local_services()
    document = services.catalog.document(document_id, LOCAL)
    if not yes and not typer.confirm(f"Delete {document.filename}?"):
        raise fail("Not deleted.", as_json=as_json, kind="aborted")
    receipt = services.delete_document(document_id)
    if as_json:
        emit({"document_id": receipt.document_id, "stores": dict(receipt.stores), "pending": receipt.pending})
    else:
        table(f"Deleted {document.filename}", ("store", "state"), receipt.stores.items())
