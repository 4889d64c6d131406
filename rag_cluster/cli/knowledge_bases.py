"""kb: create, list, show, update, delete knowledge bases."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rag_cluster.cli.output import Json, command, emit, fail, out, table
from rag_cluster.domain.access import LOCAL
from rag_cluster.domain.documents import KnowledgeBase
from rag_cluster.wiring import local_services

app = typer.Typer(help="Knowledge bases.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name or id of the knowledge base.")]
Acl = Annotated[
    list[str] | None, typer.Option("--default-acl", help="Group that reads documents without acl; may be repeated.")
]
Open = Annotated[bool, typer.Option("--open", help="Documents without acl are open to everyone with the base.")]


def _as_dict(base: KnowledgeBase) -> dict[str, Any]:
    return {
        "id": base.id,
        "name": base.name,
        "description": base.description,
        "default_acl": base.default_acl,
        "created_at": base.created_at,
    }


def _acl_text(acl: tuple[str, ...] | None) -> str:
    if acl is None:
        return "closed"
    return ", ".join(acl) or "open"


@app.command("create")
@command
def create(
    name: Name, description: str = "", default_acl: Acl = None, open_: Open = False, as_json: Json = False
) -> None:
    """Create a knowledge base.

    Example: `rag-cluster kb create harbour --open`
    """
    acl: tuple[str, ...] | None = tuple(default_acl) if default_acl else (() if open_ else None)
    base = local_services().catalog.create_knowledge_base(name, description, acl)
    if as_json:
        emit(_as_dict(base))
    else:
        out.print(f"created {base.name} ({base.id})")


@app.command("list")
@command
def list_(as_json: Json = False, limit: int = 200, cursor: str | None = None) -> None:
    """List knowledge bases.

    Example: `rag-cluster kb list`
    """
    bases, next_cursor = local_services().catalog.list_knowledge_bases(LOCAL, cursor=cursor, limit=limit)
    if as_json:
        emit({"items": [_as_dict(base) for base in bases], "next_cursor": next_cursor})
        return
    table(
        "Knowledge bases",
        ("name", "id", "default acl", "description"),
        ((base.name, base.id, _acl_text(base.default_acl), base.description) for base in bases),
    )


@app.command("show")
@command
def show(name: Name, as_json: Json = False) -> None:
    """Show one knowledge base.

    Example: `rag-cluster kb show harbour`
    """
    base = local_services().catalog.knowledge_base(name)
    if as_json:
        emit(_as_dict(base))
    else:
        table(base.name, ("field", "value"), _as_dict(base).items())


@app.command("update")
@command
def update(
    name: Name,
    rename: Annotated[str | None, typer.Option("--name", help="New name.")] = None,
    description: str | None = None,
    default_acl: Acl = None,
    open_: Open = False,
    close: Annotated[bool, typer.Option("--close", help="Documents without acl become closed.")] = False,
    as_json: Json = False,
) -> None:
    """Change a knowledge base; a new default acl is in force for the next request.

    Example: `rag-cluster kb update harbour --default-acl staff`
    """
    catalog = local_services().catalog
    acl: tuple[str, ...] | None = tuple(default_acl) if default_acl else (() if open_ else None)
    base = catalog.update_knowledge_base(
        catalog.knowledge_base(name).id, name=rename, description=description, default_acl=acl, close=close
    )
    if as_json:
        emit(_as_dict(base))
    else:
        out.print(f"updated {base.name}: default acl {_acl_text(base.default_acl)}")


@app.command("delete")
@command
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Delete a knowledge base with all its documents.

    Example: `rag-cluster kb delete harbour --yes`
    """
    services = local_services()
    base = services.catalog.knowledge_base(name)
    if not yes and not typer.confirm(f"Delete {base.name} and all its documents?"):
        raise fail("Not deleted.", as_json=as_json, kind="aborted")
    receipts = services.delete_knowledge_base(base.id)
    pending = sum(receipt.pending for receipt in receipts)
    if as_json:
        emit({"knowledge_base_id": base.id, "documents": len(receipts), "pending": pending})
    else:
        out.print(f"deleted {base.name}: {len(receipts)} documents, {pending} with steps still owed")
