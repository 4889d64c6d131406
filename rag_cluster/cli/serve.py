"""serve: the HTTP endpoint on this machine, on the embedded default or on the stores that the settings name."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Annotated

import typer

from rag_cluster.cli.options import Json
from rag_cluster.cli.output import command, emit, say
from rag_cluster.cli.session import services
from rag_cluster.errors import InvalidSettingError
from rag_cluster.ingestion.heartbeat import interruptible


@command
def serve(
    host: Annotated[str | None, typer.Option(help="Default 127.0.0.1; others need an API key.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Default 8000; 0 takes a free one.")] = None,
    address: Annotated[str | None, typer.Option(help="Ray to run on: auto or host:port. Default: a local one.")] = None,
    as_json: Json = False,
) -> None:
    """Serve /v1 until Ctrl-C. `serve run serve_config.yaml` does the same through Ray's own command.

    Example: `rag-cluster serve --port 8000`
    """
    from rag_cluster.cli.ray_session import ray_address, ray_session
    from rag_cluster.serving.app import require_safe_host, running
    from rag_cluster.settings import Settings, get_settings

    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings = get_settings()
    if given:
        settings = Settings(**{**settings.model_dump(exclude_defaults=True), **given})
    if settings.port == 0:
        settings = settings.model_copy(update={"port": free_port()})
    if not address:
        require_free_port(settings.host, settings.port)
    require_safe_host(settings, has_api_keys=services(settings).catalog.has_api_keys())
    with ray_session(ray_address(settings, address)), running(settings) as endpoint:
        if as_json:
            emit({"endpoint": endpoint, "docs": f"{endpoint}/docs"})
        else:
            say("serving on ", (endpoint, "bold"), f"  (docs: {endpoint}/docs)  Ctrl-C stops")
        wait_for_interrupt()


def wait_for_interrupt() -> None:
    """Until Ctrl-C or SIGTERM."""
    with contextlib.suppress(KeyboardInterrupt), interruptible():  # again: Ray puts its own handler in place of ours
        threading.Event().wait()


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def require_free_port(host: str, port: int) -> None:
    """InvalidSettingError when the address cannot be listened on: better now than when Ray has started."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise InvalidSettingError(
                f"Cannot listen on {host}:{port}: {error.strerror}. Choose another with --port or RAG_PORT."
            ) from None


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(serve)
