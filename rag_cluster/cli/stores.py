"""up, down, status: the embedded stores."""

from __future__ import annotations

import typer

from rag_cluster.cli.output import Json, command, emit, out, table
from rag_cluster.settings import get_settings
from rag_cluster.stores.embedded import EmbeddedStatus, EmbeddedStores


def _stores() -> EmbeddedStores:
    settings = get_settings()
    return EmbeddedStores(settings.home)


def _show(status: EmbeddedStatus, as_json: bool) -> None:
    if as_json:
        emit(status.to_dict())
        return
    table(
        f"Embedded stores in {status.home}",
        ("store", "running", "pid", "address", "size"),
        (
            (store.name, "yes" if store.running else "no", store.pid, store.address, f"{store.bytes / 1e6:,.1f} MB")
            for store in status.stores
        ),
    )


@command
def up(as_json: Json = False) -> None:
    """Start the embedded PostgreSQL and Milvus Lite. Starting twice is harmless.

    Example: `rag-cluster up`
    """
    _show(_stores().up(), as_json)


@command
def down(as_json: Json = False) -> None:
    """Stop the embedded stores. Data stays; `up` brings it back.

    Example: `rag-cluster down`
    """
    stores = _stores()
    stores.down()
    if as_json:
        emit(stores.status().to_dict())
    else:
        out.print("stopped")


@command
def status(as_json: Json = False) -> None:
    """Show whether the embedded stores run. Exit code 1 when one of them does not.

    Example: `rag-cluster status --json`
    """
    found = _stores().status()
    _show(found, as_json)
    if not all(store.running for store in found.stores):
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for function in (up, down, status):
        app.command()(function)
