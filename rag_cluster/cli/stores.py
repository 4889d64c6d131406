"""up, down, status: the embedded stores."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import typer

from rag_cluster.cli.options import Json
from rag_cluster.cli.output import command, emit, say, table

if TYPE_CHECKING:
    from rag_cluster.stores.embedded import EmbeddedStatus, EmbeddedStores


def _stores() -> tuple[EmbeddedStores, set[str]]:
    """The embedded stores, and the names of those that the settings use."""
    from rag_cluster.settings import get_settings
    from rag_cluster.stores.embedded import EmbeddedStores

    settings = get_settings()
    used = {"postgres": settings.embedded_postgres, "milvus": settings.embedded_milvus}
    return EmbeddedStores(settings.home), {name for name, ours in used.items() if ours}


def _show(status: EmbeddedStatus, as_json: bool) -> None:
    if as_json:
        emit({**asdict(status), "running": status.running})
        return
    if not status.servers:
        say("RAG_POSTGRES_DSN and RAG_MILVUS_URI name the stores; none is embedded.")
        return
    table(
        f"Embedded stores in {status.home}",
        ("store", "running", "pid", "uptime", "memory", "data", "address"),
        (
            (
                server.name,
                "yes" if server.reachable else "no",
                server.pid,
                f"{server.uptime_seconds:,.0f} s" if server.uptime_seconds is not None else "",
                _megabytes(server.memory_bytes),
                _megabytes(server.data_bytes),
                server.address,
            )
            for server in status.servers
        ),
    )
    say(f"objects: {_megabytes(status.object_bytes)}")


def _megabytes(count: int | None) -> str:
    return "" if count is None else f"{count / 1e6:,.1f} MB"


@command
def up(as_json: Json = False) -> None:
    """Start the embedded PostgreSQL and Milvus Lite, unless the settings name others. Starting twice is harmless.

    Example: `rag-cluster up`
    """
    stores, used = _stores()
    if "postgres" in used:
        stores.ensure_postgres()
    if "milvus" in used:
        stores.ensure_milvus()
    _show(_only(stores.status(), used), as_json)


@command
def down(as_json: Json = False) -> None:
    """Stop the embedded stores. Data stays; `up` brings it back.

    Example: `rag-cluster down`
    """
    stores, _ = _stores()
    found = stores.down()
    if as_json:
        emit({**asdict(found), "running": found.running})
    else:
        say("stopped")


@command
def status(as_json: Json = False) -> None:
    """Show whether the embedded stores run. Exit code 1 when one of them does not.

    Example: `rag-cluster status --json`
    """
    stores, used = _stores()
    found = _only(stores.status(), used)
    _show(found, as_json)
    if not found.running:
        raise typer.Exit(1)


def _only(status: EmbeddedStatus, used: set[str]) -> EmbeddedStatus:
    return replace(status, servers=tuple(server for server in status.servers if server.name in used))


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for function in (up, down, status):
        app.command()(function)
