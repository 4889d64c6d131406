"""demo: the whole path on this machine. Sample files in, three questions over HTTP, cited answers out."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import httpx
import typer
from rich.panel import Panel

from rag_cluster.cli.output import Json, command, emit, fail, out
from rag_cluster.cli.query import show_answer
from rag_cluster.cli.ray_session import ray_session
from rag_cluster.domain.access import AccessAttributes
from rag_cluster.serving.schemas import AnswerResponse
from rag_cluster.settings import Settings, get_settings
from rag_cluster.wiring import Services, WritePathFactory, local_services

if TYPE_CHECKING:
    from rag_cluster.ingestion.report import IngestionReport

QUESTIONS = (
    "岸桥制动器间隙的标准值是多少？",
    "How high was the water when typhoon Meiling passed?",
    "Who won the football world championship in 1998?",
)
"""Chinese, English, and one that the samples cannot answer."""

KNOWLEDGE_BASE = "demo"


@command
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Go on serving until Ctrl-C.")] = False,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Default: a free port.")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where the stores live. Default: a folder that is removed afterwards.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Ingest the sample corpus with Ray Data, serve it with Ray Serve, ask three questions. No network, no GPU.

    Example: `rag-cluster demo`
    """
    started = time.monotonic()
    with ExitStack() as stack:
        home = data_dir or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rag-demo-")))
        settings = _settings(home, port)
        say = _silent if as_json else _announce
        say(f"starting PostgreSQL and Milvus Lite in {home}")
        services = local_services(settings)
        if data_dir is None:
            stack.callback(services.stop_embedded_stores)
        stack.enter_context(ray_session(settings))
        report = _ingest(settings, services, say, quiet=as_json)
        say("starting the Serve application")
        from rag_cluster.serving.app import start

        endpoint = start(settings)
        answers = [_ask(endpoint, question, as_json) for question in QUESTIONS]
        seconds = round(time.monotonic() - started, 1)
        if as_json:
            emit(
                {
                    "seconds": seconds,
                    "documents": report.outcomes["ready"] + report.outcomes["unchanged"],
                    "chunks": report.chunks,
                    "answers": [
                        {
                            "question": answer.question,
                            "answer": answer.answer,
                            "refused": answer.refused,
                            "citations": [citation.model_dump(mode="json") for citation in answer.citations],
                        }
                        for answer in answers
                    ],
                    "endpoint": endpoint,
                }
            )
        else:
            out.print(f"\n[green]done[/] in {seconds} s. The endpoint listened on [bold]{endpoint}[/]")
        if keep:
            _serve_on(endpoint)


def _announce(text: str) -> None:
    out.print(f"[bold cyan]▸[/] {text}")


def _silent(text: str) -> None:
    """With --json only the last line is printed."""


def _settings(home: Path, port: int | None) -> Settings:
    given = get_settings().model_dump(exclude_defaults=True)
    return Settings(**{**given, "data_dir": home, "port": port or free_port()})


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _ingest(settings: Settings, services: Services, say: Callable[[str], None], *, quiet: bool) -> IngestionReport:
    from rag_cluster.ingestion.pipeline import IngestionOptions, run_ingestion

    services.ensure_knowledge_base(KNOWLEDGE_BASE)
    with resources.as_file(resources.files("rag_cluster") / "samples") as folder:
        say(f"ingesting {len(list(folder.iterdir()))} sample files with Ray Data")
        report = run_ingestion(
            WritePathFactory(settings),
            KNOWLEDGE_BASE,
            [str(folder)],
            IngestionOptions(AccessAttributes(()), progress=not quiet),
        )
    if not quiet:
        report.print(out)
    if not report.ok:
        raise fail(f"the ingestion failed: {dict(report.failures)}", as_json=quiet, kind="ingestion_failed")
    return report


def _ask(endpoint: str, question: str, quiet: bool) -> AnswerResponse:
    response = httpx.post(
        f"{endpoint}/v1/answer", json={"knowledge_base": KNOWLEDGE_BASE, "question": question}, timeout=120
    )
    response.raise_for_status()
    answer = AnswerResponse.model_validate(response.json())
    if not quiet:
        out.print(Panel(question, title="question", title_align="left", border_style="cyan"))
        show_answer(answer)
    return answer


def _serve_on(endpoint: str) -> None:
    out.print(f"serving on {endpoint}  (docs: {endpoint}/docs)  Ctrl-C stops")
    stop = threading.Event()
    try:
        stop.wait()
    except KeyboardInterrupt:
        out.print("stopping")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(demo)
