"""sources: the named origins of documents in a knowledge base."""

from __future__ import annotations

from typing import Annotated

import typer

from rag_cluster.cli.options import Base, Cursor, Json, base_name
from rag_cluster.cli.output import command, emit, say, table
from rag_cluster.cli.session import services
from rag_cluster.domain.documents import SourceKind

app = typer.Typer(help="Sources of documents. `delete -k BASE --source NAME` deletes what one holds.")


@app.command("create")
@command
def create(
    name: Annotated[str, typer.Argument(callback=base_name, help="Name, unique with its kind.")],
    knowledge_base: Base,
    kind: Annotated[SourceKind, typer.Option(help="bulk, upload or managed_correction.")] = SourceKind.BULK,
    as_json: Json = False,
) -> None:
    """Create a source, or find the one of that kind and name.

    Example: `rag-cluster sources create corrections -k harbour --kind managed_correction`
    """
    from rag_cluster.serving.schemas.agents import SourceResponse

    catalog = services().catalog
    source = catalog.ensure_source(catalog.knowledge_base(knowledge_base).id, kind, name)
    if as_json:
        emit(SourceResponse.of(source).model_dump(mode="json"))
    else:
        say(f"{source.kind} {source.name} ({source.id})")


@app.command("list")
@command
def list_(
    knowledge_base: Base,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 200,
    cursor: Cursor = None,
    as_json: Json = False,
) -> None:
    """List the sources of a knowledge base.

    Example: `rag-cluster sources list -k harbour`
    """
    opened = services()
    base = opened.catalog.knowledge_base(knowledge_base)
    sources, next_cursor = opened.agents.sources(base.id, cursor=cursor, limit=limit)
    if as_json:
        from rag_cluster.serving.schemas.agents import SourcePage, SourceResponse

        items = [SourceResponse.of(source) for source in sources]
        emit(SourcePage(items=items, next_cursor=next_cursor).model_dump(mode="json"))
        return
    table(
        "Sources",
        ("name", "kind", "enabled", "priority", "chunking", "id"),
        ((s.name, s.kind, s.enabled, s.priority, s.default_chunking_strategy, s.id) for s in sources),
        next_cursor=next_cursor,
    )


@app.command("update")
@command
def update(
    name: Annotated[str, typer.Argument(help="Name or id of the source.")],
    knowledge_base: Base,
    enabled: Annotated[
        bool | None, typer.Option("--enable/--disable", help="Whether queries see it, from the next one on.")
    ] = None,
    priority: Annotated[
        int | None, typer.Option(help="Shown with its results; an agent's mounts have their own.")
    ] = None,
    chunking: Annotated[str | None, typer.Option(help='Strategy of documents to come; "": the configured one.')] = None,
    as_json: Json = False,
) -> None:
    """Enable, disable or rank a source, or say how its documents are chunked from now on.

    Example: `rag-cluster sources update bulk -k harbour --disable`
    """
    from rag_cluster.serving.schemas.agents import SourceResponse

    opened = services()
    source = opened.catalog.source(opened.catalog.knowledge_base(knowledge_base).id, name)
    if chunking:
        opened.chunker(chunking)
    changed = opened.agents.update_source(source.id, enabled=enabled, priority=priority, chunking_strategy=chunking)
    if as_json:
        emit(SourceResponse.of(changed).model_dump(mode="json"))
    else:
        say(f"updated {changed.name}: {'enabled' if changed.enabled else 'disabled'}, priority {changed.priority}")
