"""serve: the HTTP endpoint on this machine, on the embedded default or on the stores that the settings name."""

from __future__ import annotations

import signal
import threading
from typing import Annotated

import typer

from rag_cluster.cli.output import command, out
from rag_cluster.cli.ray_session import ray_session
from rag_cluster.settings import Settings, get_settings
from rag_cluster.wiring import local_services


@command
def serve(
    host: Annotated[str | None, typer.Option(help="Default 127.0.0.1; others need an API key.")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535)] = None,
    address: Annotated[str | None, typer.Option(help="Ray to run on: auto or host:port. Default: a local one.")] = None,
) -> None:
    """Serve /v1 until Ctrl-C. `serve run serve_config.yaml` does the same through Ray's own command.

    Example: `rag-cluster serve --port 8000`
    """
    from rag_cluster.serving.app import start

    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings = get_settings()
    if given:
        settings = Settings(**{**settings.model_dump(exclude_defaults=True), **given})
    local_services(settings)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with ray_session(settings, address=address):
        endpoint = start(settings)
        out.print(f"serving on [bold]{endpoint}[/]  (docs: {endpoint}/docs)  Ctrl-C stops")
        stop.wait()


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(serve)
