"""keys: API keys. The first one makes the server ask every caller for one."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer

from rag_cluster.cli.options import Department, Json, SecurityLevel, base_name
from rag_cluster.cli.output import command, emit, err, say, table
from rag_cluster.cli.session import services
from rag_cluster.domain.access import ApiKey, Principal, stated_access

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
    stated = stated_access(group or (), department, security_level)  # trimmed and checked as those of documents are
    principal = Principal(
        name=name,
        knowledge_bases=granted,
        groups=frozenset(stated.acl or ()),
        department=stated.department,
        security_level=stated.security_level,
        unrestricted=admin,
    )
    secret = catalog.create_api_key(name, principal)
    if as_json:
        emit({"name": name, "secret": secret})
    else:
        say(secret)
        err.print("Shown once. Send it as 'Authorization: Bearer KEY'.", style="dim")


@app.command("list")
@command
def list_keys(as_json: Json = False) -> None:
    """What each key may read. Secrets are not kept.

    Example: `rag-cluster keys list`
    """
    keys = services().catalog.api_keys()
    if as_json:
        emit({"items": [_shown(key) for key in keys]})
        return
    table(
        f"{len(keys)} API keys",
        ("name", "knowledge bases", "groups", "department", "level", "admin", "created", "revoked"),
        (
            (
                key.name,
                "all" if key.principal.knowledge_bases is None else ", ".join(sorted(key.principal.knowledge_bases)),
                ", ".join(sorted(key.principal.groups)),
                key.principal.department,
                key.principal.security_level,
                "yes" if key.principal.unrestricted else "",
                _minute(key.created_at),
                key.revoked_at and _minute(key.revoked_at),
            )
            for key in keys
        ),
    )


@app.command("revoke")
@command
def revoke(
    name: Annotated[str, typer.Argument(help="As it was created.")],
    as_json: Json = False,
) -> None:
    """Refuse a key from the next request on. Its name stays taken: its chat sessions belong to it.

    Example: `rag-cluster keys revoke website`
    """
    key = services().catalog.revoke_api_key(name)
    if as_json:
        emit(_shown(key))
    else:
        say((key.name, "bold"), " is refused from now on")


def _minute(when: datetime) -> str:
    return when.astimezone().strftime("%Y-%m-%d %H:%M")


def _shown(key: ApiKey) -> dict[str, Any]:
    principal = key.principal
    return {
        "name": key.name,
        "knowledge_bases": None if principal.knowledge_bases is None else sorted(principal.knowledge_bases),
        "groups": sorted(principal.groups),
        "department": principal.department,
        "security_level": principal.security_level,
        "admin": principal.unrestricted,
        "created_at": key.created_at.isoformat(),
        "revoked_at": key.revoked_at.isoformat() if key.revoked_at else None,
    }
