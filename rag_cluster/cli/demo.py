"""demo: the whole path on this machine. Sample files in, three questions over HTTP, cited answers out."""

from __future__ import annotations

import contextlib
import tempfile
import time
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.panel import Panel
from rich.text import Text

from rag_cluster.cli.options import Json
from rag_cluster.cli.output import command, emit, err, fail, out, say
from rag_cluster.cli.query import show_answer
from rag_cluster.cli.serve import free_port, require_free_port, wait_for_interrupt
from rag_cluster.cli.session import services
from rag_cluster.domain.access import AccessAttributes

if TYPE_CHECKING:
    from rag_cluster.ingestion.report import IngestionReport
    from rag_cluster.serving.schemas import AnswerResponse
    from rag_cluster.settings import Settings
    from rag_cluster.wiring import Services

QUESTIONS = (
    "岸桥制动器间隙的标准值是多少？",
    "Which water level did the tide gauge record when typhoon Meiling passed?",
    "Who won the football world championship in 1998?",
)
"""Chinese, English, and one that the samples cannot answer."""

KNOWLEDGE_BASE = "demo"
SMOLLM2 = "vllm"
"""`--generator vllm`, without a path: the demo makes the model's folder itself."""
VIEWED = "safety_report_2025.pdf"
"""The sample that the demo draws."""


@command
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Go on serving until Ctrl-C.")] = False,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Default: a free port.")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where the stores live. Default: a folder that is removed afterwards.")
    ] = None,
    generator: Annotated[
        str | None,
        typer.Option(
            help="vllm: SmolLM2, a small real language model, in vLLM; both must be installed. Default: RAG_GENERATOR."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Ingest the sample corpus with Ray Data, serve it with Ray Serve, ask three questions. No network, no GPU.

    Example: `rag-cluster demo`
    """
    from rag_cluster.cli.ray_session import ray_session
    from rag_cluster.serving.app import running
    from rag_cluster.wiring import ServiceFactory

    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        home = data_dir or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rag-demo-")))
        settings = _settings(home, port, _generator(generator, home))
        _announce(f"starting PostgreSQL and Milvus Lite in {home}")
        factory = ServiceFactory(settings)
        if data_dir is None:
            stack.callback(factory().stop_embedded_stores)
        opened = services(settings)
        opened.generator(opened.async_embedder)  # loads nothing, but tells a wrong name before the work is done
        stack.enter_context(ray_session(None))
        report = _ingest(settings, opened, quiet=as_json)
        view = _blocks_view(settings)
        _announce("starting the Serve application")
        endpoint = stack.enter_context(running(settings))
        seconds = settings.request_timeout + 30
        answers = [_ask(endpoint, question, seconds, quiet=as_json) for question in QUESTIONS]
        seconds = round(time.monotonic() - started, 1)
        if as_json:
            emit({**_result(seconds, report, answers, endpoint), "blocks_view": view.as_uri()})
        else:
            say(
                ("\ndone", "green"),
                f" in {seconds} s. The endpoint {'listens' if keep else 'listened'} on ",
                (endpoint, "bold"),
            )
            say(f"What the parser saw in {VIEWED}, to open in a browser: ", (view.as_uri(), "bold"))
            say("Next, your own documents: rag-cluster ingest ./documents -k handbook --open")
        if keep:
            _announce(f"serving on {endpoint}  (docs: {endpoint}/docs)  Ctrl-C stops")
            wait_for_interrupt()
        _announce("stopping")


def _announce(text: str) -> None:
    err.print(Text.assemble(("▸ ", "bold cyan"), text), soft_wrap=True)


def _generator(name: str | None, home: Path) -> dict[str, object]:
    """Settings of the generator that the demo was asked for."""
    if name != SMOLLM2:
        return {"generator": name} if name else {}
    from rag_cluster.engines.smollm2 import prepare_smollm2
    from rag_cluster.engines.vllm import require_vllm

    require_vllm()
    _announce("preparing SmolLM2-135M-Instruct")
    model = prepare_smollm2(home / "models" / "smollm2-135m-instruct")
    # Its answers are short, and a CPU takes its time for them.
    limits = {"generator_context_tokens": 4096, "max_answer_tokens": 256}
    seconds = {"request_timeout": 300.0, "first_token_timeout": 120.0, "model_load_timeout": 900.0}
    return {"generator": f"vllm:{model.path}", **limits, **seconds}


def _settings(home: Path, port: int | None, generator: dict[str, object]) -> Settings:
    from rag_cluster.settings import Settings, get_settings

    if port is not None:
        require_free_port("127.0.0.1", port)
    given = get_settings().model_dump(exclude_defaults=True)
    # Samples have no business in the stores of a cluster that the environment may name.
    own = dict.fromkeys(("postgres_dsn", "milvus_uri", "object_url"), "")
    place = {"data_dir": home, "host": "127.0.0.1", "port": port or free_port()}
    return Settings(**{**given, **own, **generator, **place})


def _result(seconds: float, report: IngestionReport, answers: list[AnswerResponse], endpoint: str) -> dict[str, object]:
    return {
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


def _ingest(settings: Settings, opened: Services, *, quiet: bool) -> IngestionReport:
    from rag_cluster.ingestion.pipeline import IngestionOptions, run_ingestion
    from rag_cluster.wiring import WritePathFactory

    opened.ensure_knowledge_base(KNOWLEDGE_BASE)
    with resources.as_file(resources.files("rag_cluster") / "samples") as folder:
        _announce(f"ingesting {len(list(folder.iterdir()))} sample files with Ray Data")
        options = IngestionOptions(AccessAttributes(()), progress=not quiet)
        report = run_ingestion(WritePathFactory(settings), KNOWLEDGE_BASE, [str(folder)], options)
    if not quiet:
        report.print(out)
    if not report.ok:
        raise fail(f"the ingestion failed: {report.headline()}", as_json=quiet, kind="ingestion_failed")
    return report


def _blocks_view(settings: Settings) -> Path:
    """A picture of one sample's pages with the blocks drawn on them, in a file that outlives the demo."""
    from rag_cluster.cli.parse import write_view
    from rag_cluster.parsing.output import parse_files
    from rag_cluster.wiring import isolated_parser, parse_limits

    view = Path(tempfile.mkdtemp(prefix="rag-cluster-demo-view-")) / f"{Path(VIEWED).stem}.html"
    with resources.as_file(resources.files("rag_cluster") / "samples" / VIEWED) as file:
        (parsed,) = parse_files([file], isolated_parser(settings))
        if parsed.error is not None:
            raise parsed.error
        assert parsed.document is not None, "a file gives a document or an error"
        write_view(view, parsed.source, parsed.document, parse_limits(settings))
    return view


def _ask(endpoint: str, question: str, seconds: float, *, quiet: bool) -> AnswerResponse:
    import httpx

    from rag_cluster.serving.schemas import AnswerResponse

    response = httpx.post(
        f"{endpoint}/v1/answer", json={"knowledge_base": KNOWLEDGE_BASE, "question": question}, timeout=seconds
    )
    response.raise_for_status()
    answer = AnswerResponse.model_validate(response.json())
    if not quiet:
        out.print(Panel(Text(question), title="question", title_align="left", border_style="cyan"))
        show_answer(answer)
    return answer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(demo)
