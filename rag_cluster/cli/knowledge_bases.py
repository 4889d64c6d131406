"""kb: create, list, show, update, delete knowledge bases."""

from __future__ import annotations

from typing import Annotated

import typer

from rag_cluster.cli.options import Cursor, Json, Yes, base_name
from rag_cluster.cli.output import command, confirm, emit, fail, say, table
from rag_cluster.cli.receipts import show_receipts
from rag_cluster.cli.session import services
from rag_cluster.domain.access import LOCAL, stated_access

app = typer.Typer(help="Knowledge bases.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name or id of the knowledge base.")]
Acl = Annotated[
    list[str] | None, typer.Option("--default-acl", help="Group that reads documents without acl; may be repeated.")
]
Open = Annotated[bool, typer.Option("--open", help="Documents without acl are open to everyone with the base.")]


def _acl(default_acl: list[str] | None, open_: bool, *, close: bool = False) -> tuple[str, ...] | None:
    if sum((bool(default_acl), open_, close)) > 1:
        raise typer.BadParameter("give one of --default-acl, --open and --close.")
    return stated_access(default_acl or (() if open_ else None)).acl


def _acl_text(acl: tuple[str, ...] | None) -> str:
    if acl is None:
        return "closed"
    return ", ".join(acl) or "open"


@app.command("create")
@command
def create(
    name: Annotated[str, typer.Argument(callback=base_name, help="Name, unique.")],
    description: Annotated[str, typer.Option(help="What it holds.")] = "",
    default_acl: Acl = None,
    open_: Open = False,
    as_json: Json = False,
) -> None:
    """Create a knowledge base.

    Example: `rag-cluster kb create harbour --open`
    """
    from rag_cluster.serving.schemas import KnowledgeBaseResponse

    acl = _acl(default_acl, open_)
    base = services().catalog.create_knowledge_base(name, description, acl)
    if as_json:
        emit(KnowledgeBaseResponse.of(base).model_dump(mode="json"))
    else:
        say(f"created {base.name} ({base.id})")


@app.command("list")
@command
def list_(
    as_json: Json = False,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 200,
    cursor: Cursor = None,
) -> None:
    """List knowledge bases.

    Example: `rag-cluster kb list`
    """
    bases, next_cursor = services().catalog.list_knowledge_bases(LOCAL, cursor=cursor, limit=limit)
    if as_json:
        from rag_cluster.serving.schemas import KnowledgeBasePage, KnowledgeBaseResponse

        items = [KnowledgeBaseResponse.of(base) for base in bases]
        emit(KnowledgeBasePage(items=items, next_cursor=next_cursor).model_dump(mode="json"))
        return
    table(
        "Knowledge bases",
        ("name", "default acl", "description", "id"),
        ((base.name, _acl_text(base.default_acl), base.description, base.id) for base in bases),
        next_cursor=next_cursor,
    )


@app.command("show")
@command
def show(name: Name, as_json: Json = False) -> None:
    """Show one knowledge base.

    Example: `rag-cluster kb show harbour`
    """
    from rag_cluster.serving.schemas import KnowledgeBaseResponse

    base = services().catalog.knowledge_base(name)
    fields = KnowledgeBaseResponse.of(base).model_dump(mode="json")
    if as_json:
        emit(fields)
    else:
        table(base.name, ("field", "value"), (fields | {"default_acl": _acl_text(base.default_acl)}).items())


@app.command("update")
@command
def update(
    name: Name,
    rename: Annotated[str | None, typer.Option("--name", callback=base_name, help="New name.")] = None,
    description: Annotated[str | None, typer.Option(help="What it holds.")] = None,
    default_acl: Acl = None,
    open_: Open = False,
    close: Annotated[bool, typer.Option("--close", help="Documents without acl become closed.")] = False,
    as_json: Json = False,
) -> None:
    """Change a knowledge base; a new default acl is in force for the next request.

    Example: `rag-cluster kb update harbour --default-acl staff`
    """
    from rag_cluster.serving.schemas import KnowledgeBaseResponse

    acl = _acl(default_acl, open_, close=close)
    catalog = services().catalog
    base = catalog.update_knowledge_base(
        catalog.knowledge_base(name).id, name=rename, description=description, default_acl=acl, close=close
    )
    if as_json:
        emit(KnowledgeBaseResponse.of(base).model_dump(mode="json"))
    else:
        say(f"updated {base.name}: default acl {_acl_text(base.default_acl)}")


@app.command("delete")
@command
def delete(name: Name, yes: Yes = False, as_json: Json = False) -> None:
    """Delete a knowledge base with all its documents.

    Exit code 0: gone from every store. 3: invisible, but steps are still owed; any job carries them out.

    Example: `rag-cluster kb delete harbour --yes`
    """
    opened = services()
    base = opened.catalog.knowledge_base(name)
    if not yes and not confirm(f"Delete {base.name} and all its documents?"):
        raise fail("Not deleted; --yes does not ask.", as_json=as_json, kind="aborted")
    receipts = opened.delete_knowledge_base(base.id)
    show_receipts(base.name, receipts, {"knowledge_base_id": base.id}, as_json=as_json)
