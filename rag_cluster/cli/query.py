"""search and ask: the read path from the terminal, in this process or over HTTP with --url."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import httpx
import typer
from rich.markup import escape

from rag_cluster.cli.output import Json, command, emit, out, table
from rag_cluster.domain.access import LOCAL
from rag_cluster.domain.retrieval import RetrievalMode
from rag_cluster.errors import error_types
from rag_cluster.serving.schemas import AnswerResponse, QueryOptions, ResultModel, RetrieveResponse, TraceModel
from rag_cluster.settings import get_settings
from rag_cluster.telemetry import new_trace_id
from rag_cluster.wiring import local_services

Base = Annotated[str, typer.Option("--knowledge-base", "-k", help="Name or id.")]
Url = Annotated[str | None, typer.Option(help="Ask a running server instead of this process.")]
Key = Annotated[str | None, typer.Option("--api-key", envvar="RAG_API_KEY", help="For --url.")]
Mode = Annotated[RetrievalMode, typer.Option(help="dense, sparse or hybrid.")]
TopK = Annotated[int | None, typer.Option(min=1, max=100, help="Results.")]


def _post(url: str, path: str, body: dict[str, Any], key: str | None) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        response = httpx.post(f"{url.rstrip('/')}{path}", json=body, headers=headers, timeout=120)
    except httpx.HTTPError as error:
        raise error_types()["source_unavailable"](f"No answer from {url}: {error}. Is the server running?") from None
    answer: dict[str, Any] = response.json()
    if response.is_error:
        found = answer["error"]
        raise error_types().get(found["type"], error_types()["internal_error"])(found["message"])
    return answer


def _search(base: str, query: str, options: QueryOptions) -> RetrieveResponse:
    services, settings, identity = local_services(), get_settings(), new_trace_id()
    resolved = options.resolve(
        top_k=settings.top_k, candidate_k=settings.candidate_k, score_threshold=settings.score_threshold
    )
    knowledge_base = services.catalog.knowledge_base(base)
    answerer = services.answerer(services.async_embedder)
    run = asyncio.run(answerer.retrieve(LOCAL, knowledge_base.id, query, resolved, request_id=identity))
    return RetrieveResponse(
        query=query,
        results=[ResultModel.of(result) for result in run.results],
        trace=TraceModel.of(run.trace),
        request_id=identity,
    )


def _ask(base: str, question: str, options: QueryOptions) -> AnswerResponse:
    services, settings, identity = local_services(), get_settings(), new_trace_id()
    resolved = options.resolve(
        top_k=settings.top_k, candidate_k=settings.candidate_k, score_threshold=settings.score_threshold
    )
    knowledge_base = services.catalog.knowledge_base(base)
    answerer = services.answerer(services.async_embedder)
    answer = asyncio.run(answerer.answer(LOCAL, knowledge_base.id, question, resolved, request_id=identity))
    return AnswerResponse.of(answer, identity)


def show_answer(answer: AnswerResponse) -> None:
    """An answer with its citations, for people."""
    out.print(escape(answer.answer), style="yellow" if answer.refused else "")
    for citation in answer.citations:
        out.print(
            f"  [bold][{citation.number}][/] {escape(citation.filename)}  [cyan]{escape(citation.locator.display)}[/]"
        )


def _show_trace(trace: TraceModel) -> None:
    table(
        f"Trace ({trace.mode}, {trace.milliseconds:.0f} ms)",
        ("stage", "ms", "counts"),
        (
            (stage.name, f"{stage.milliseconds:.1f}", ", ".join(f"{k} {v}" for k, v in stage.counts.items()))
            for stage in trace.stages
        ),
    )
    for degradation in trace.degradations:
        out.print(f"[yellow]degraded[/] {escape(degradation)}")


@command
def search(
    query: Annotated[str, typer.Argument()],
    knowledge_base: Base,
    mode: Mode = RetrievalMode.HYBRID,
    top_k: TopK = None,
    trace: Annotated[bool, typer.Option("--trace", help="Show the stages.")] = False,
    url: Url = None,
    api_key: Key = None,
    as_json: Json = False,
) -> None:
    """Find evidence without writing an answer.

    Example: `rag-cluster search "crane wind limit" -k harbour --trace`
    """
    options = QueryOptions(mode=mode, top_k=top_k)
    if url:
        body = {"knowledge_base": knowledge_base, "query": query, "options": options.model_dump(mode="json")}
        found = RetrieveResponse.model_validate(_post(url, "/v1/retrieve", body, api_key))
    else:
        found = _search(knowledge_base, query, options)
    if as_json:
        emit(found.model_dump(mode="json"))
        return
    table(
        f"{len(found.results)} results",
        ("#", "score", "document", "place", "text"),
        (
            (
                number,
                f"{result.score:.4f}",
                result.filename,
                result.locator.display,
                " ".join(result.matched_content.split())[:200],
            )
            for number, result in enumerate(found.results, start=1)
        ),
    )
    if trace:
        _show_trace(found.trace)


@command
def ask(
    question: Annotated[str, typer.Argument()],
    knowledge_base: Base,
    mode: Mode = RetrievalMode.HYBRID,
    top_k: TopK = None,
    trace: Annotated[bool, typer.Option("--trace", help="Show the stages.")] = False,
    url: Url = None,
    api_key: Key = None,
    as_json: Json = False,
) -> None:
    """Answer a question with citations, or say that the knowledge base does not tell.

    Example: `rag-cluster ask "岸桥制动器的标准间隙是多少？" -k harbour`
    """
    options = QueryOptions(mode=mode, top_k=top_k)
    if url:
        body = {"knowledge_base": knowledge_base, "question": question, "options": options.model_dump(mode="json")}
        answer = AnswerResponse.model_validate(_post(url, "/v1/answer", body, api_key))
    else:
        answer = _ask(knowledge_base, question, options)
    if as_json:
        emit(answer.model_dump(mode="json"))
        return
    show_answer(answer)
    if trace and answer.trace:
        _show_trace(answer.trace)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(search)
    app.command()(ask)
