"""keys: API keys. The first one makes the server ask every caller for one."""

from __future__ import annotations

from typing import Annotated

import typer

from rag_cluster.cli.options import Department, Json, SecurityLevel, base_name
from rag_cluster.cli.output import command, emit, err, say
from rag_cluster.cli.session import services
from rag_cluster.domain.access import Principal

app = typer.Typer(help="API keys.", no_args_is_help=True)


@app.command("create")
@command
def create(
    name: Annotated[str, typer.Argument(callback=base_name, help="What the key is for; unique.")],
    knowledge_base: Annotated[
        list[str] | None, typer.Option("--knowledge-base", "-k", help="Granted base; may be repeated. Default: all.")
    ] = None,
    group: Annotated[list[str] | None, typer.Option("--group", help="Group; may be repeated.")] = None,
    department: Department = None,
    security_level: SecurityLevel = 0,
    admin: Annotated[bool, typer.Option("--admin", help="Reads everything of its bases and may change it.")] = False,
    as_json: Json = False,
) -> None:
    """Create an API key. The secret is shown once.

    Example: `rag-cluster keys create website --knowledge-base harbour --group public`
    """
    catalog = services().catalog
    granted = None
    if knowledge_base:
        granted = frozenset(catalog.knowledge_base(base).id for base in knowledge_base)
    principal = Principal(
        name=name,
        knowledge_bases=granted,
        groups=frozenset(group or ()),
        department=department,
        security_level=security_level,
        unrestricted=admin,
    )
    secret = catalog.create_api_key(name, principal)
    if as_json:
        emit({"name": name, "secret": secret})
    else:
        say(secret)
        err.print("Shown once. Send it as 'Authorization: Bearer KEY'.", style="dim")
