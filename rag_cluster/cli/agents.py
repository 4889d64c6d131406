"""agents: consumers with their own mounted sources."""

from __future__ import annotations

from typing import Annotated

import typer

from rag_cluster.cli.options import Base, Cursor, Json, base_name
from rag_cluster.cli.output import command, emit, say, table
from rag_cluster.cli.session import services

app = typer.Typer(help="Agents, and the sources that they mount.", no_args_is_help=True)

Agent = Annotated[str, typer.Argument(help="Name or id of the agent.")]
SourceName = Annotated[str, typer.Argument(help="Name or id of the source.")]
Hide = Annotated[
    bool | None,
    typer.Option("--hide-source-filename/--show-source-filename", help="Keep file names from the language model."),
]


@app.command("create")
@command
def create(
    name: Annotated[str, typer.Argument(callback=base_name, help="Name, unique in its knowledge base.")],
    knowledge_base: Base,
    hide_source_filename: Hide = None,
    mount: Annotated[list[str] | None, typer.Option(help="Source to mount at once; may be repeated.")] = None,
    as_json: Json = False,
) -> None:
    """Create an agent. It finds nothing until it mounts a source.

    Example: `rag-cluster agents create desk -k harbour --mount bulk --mount corrections`
    """
    from rag_cluster.serving.schemas.agents import AgentResponse

    opened = services()
    base = opened.catalog.knowledge_base(knowledge_base)
    sources = [opened.catalog.source(base.id, source) for source in mount or ()]
    agent = opened.agents.create_agent(base.id, name, hide_source_filename=bool(hide_source_filename))
    for source in sources:
        opened.agents.mount(agent.id, source.id)
    if as_json:
        emit(AgentResponse.of(agent).model_dump(mode="json"))
    else:
        say(f"created {agent.name} ({agent.id})")


@app.command("list")
@command
def list_(
    knowledge_base: Base,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 200,
    cursor: Cursor = None,
    as_json: Json = False,
) -> None:
    """List the agents of a knowledge base.

    Example: `rag-cluster agents list -k harbour`
    """
    opened = services()
    base = opened.catalog.knowledge_base(knowledge_base)
    agents, next_cursor = opened.agents.agents(base.id, cursor=cursor, limit=limit)
    if as_json:
        from rag_cluster.serving.schemas.agents import AgentPage, AgentResponse

        items = [AgentResponse.of(agent) for agent in agents]
        emit(AgentPage(items=items, next_cursor=next_cursor).model_dump(mode="json"))
        return
    table(
        "Agents",
        ("name", "file names", "id"),
        ((agent.name, "hidden" if agent.hide_source_filename else "shown", agent.id) for agent in agents),
        next_cursor=next_cursor,
    )


@app.command("show")
@command
def show(name: Agent, knowledge_base: Base, as_json: Json = False) -> None:
    """Show what an agent mounts, highest priority first.

    Example: `rag-cluster agents show desk -k harbour`
    """
    opened = services()
    agent = opened.agents.find_agent(opened.catalog.knowledge_base(knowledge_base).id, name)
    mounts = opened.agents.mounts(agent.id)
    if as_json:
        from rag_cluster.serving.schemas.agents import AgentResponse, MountList, MountResponse

        items = [MountResponse.of(mount, source) for mount, source in mounts]
        mounted = MountList(agent_id=agent.id, items=items).model_dump(mode="json")
        emit({**AgentResponse.of(agent).model_dump(mode="json"), "mounts": mounted["items"]})
        return
    table(
        f"{agent.name} ({agent.id})",
        ("priority", "source", "kind", "enabled", "id"),
        ((mount.priority, source.name, source.kind, source.enabled, source.id) for mount, source in mounts),
    )


@app.command("update")
@command
def update(
    name: Agent,
    knowledge_base: Base,
    rename: Annotated[str | None, typer.Option("--name", callback=base_name, help="New name.")] = None,
    hide_source_filename: Hide = None,
    as_json: Json = False,
) -> None:
    """Rename an agent, or say whether file names are kept from the language model.

    Example: `rag-cluster agents update desk -k harbour --hide-source-filename`
    """
    from rag_cluster.serving.schemas.agents import AgentResponse

    opened = services()
    agent = opened.agents.find_agent(opened.catalog.knowledge_base(knowledge_base).id, name)
    changed = opened.agents.update_agent(agent.id, name=rename, hide_source_filename=hide_source_filename)
    if as_json:
        emit(AgentResponse.of(changed).model_dump(mode="json"))
    else:
        say(f"updated {changed.name}: file names {'hidden' if changed.hide_source_filename else 'shown'}")


@app.command("delete")
@command
def delete(name: Agent, knowledge_base: Base, as_json: Json = False) -> None:
    """Delete an agent with its mounts; sources and documents stay.

    Example: `rag-cluster agents delete desk -k harbour`
    """
    opened = services()
    agent = opened.agents.find_agent(opened.catalog.knowledge_base(knowledge_base).id, name)
    opened.agents.delete_agent(agent.id)
    if as_json:
        emit({"id": agent.id, "deleted": True})
    else:
        say(f"deleted {agent.name}")


@app.command("mount")
@command
def mount(
    name: Agent,
    source: SourceName,
    knowledge_base: Base,
    priority: Annotated[int | None, typer.Option(help="Higher comes first. Default: as it is, 0 when new.")] = None,
    as_json: Json = False,
) -> None:
    """Mount a source, or change its priority; in force for the next query.

    Example: `rag-cluster agents mount desk corrections -k harbour --priority 10`
    """
    opened = services()
    base = opened.catalog.knowledge_base(knowledge_base)
    agent, found = opened.agents.find_agent(base.id, name), opened.catalog.source(base.id, source)
    made = opened.agents.mount(agent.id, found.id, priority)
    if as_json:
        emit({"agent_id": agent.id, "source_id": found.id, "priority": made.priority})
    else:
        say(f"{agent.name} mounts {found.name} with priority {made.priority}")


@app.command("unmount")
@command
def unmount(name: Agent, source: SourceName, knowledge_base: Base, as_json: Json = False) -> None:
    """Unmount a source.

    Example: `rag-cluster agents unmount desk bulk -k harbour`
    """
    opened = services()
    base = opened.catalog.knowledge_base(knowledge_base)
    agent, found = opened.agents.find_agent(base.id, name), opened.catalog.source(base.id, source)
    opened.agents.unmount(agent.id, found.id)
    if as_json:
        emit({"agent_id": agent.id, "source_id": found.id, "mounted": False})
    else:
        say(f"{agent.name} does not mount {found.name} any more")
