"""search and ask: the read path from the terminal, in this process or over HTTP with --url."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from rag_cluster.cli.options import Base, Json
from rag_cluster.cli.output import command, emit, say, table
from rag_cluster.cli.session import services
from rag_cluster.domain.access import LOCAL
from rag_cluster.domain.marks import MARK
from rag_cluster.domain.retrieval import RetrievalMode
from rag_cluster.errors import InvalidFilterError
from rag_cluster.telemetry import new_trace_id

if TYPE_CHECKING:
    from pydantic import BaseModel

    from rag_cluster.domain.retrieval import RetrievalOptions
    from rag_cluster.serving.schemas import AnswerResponse, QueryOptions, RetrieveResponse, TraceModel
    from rag_cluster.wiring import Services

Url = Annotated[str | None, typer.Option(help="Ask a running server, http://HOST:PORT, instead of this process.")]
Key = Annotated[str | None, typer.Option("--api-key", envvar="RAG_API_KEY", help="For --url.")]
Mode = Annotated[RetrievalMode, typer.Option(help="dense, sparse or hybrid.", case_sensitive=False)]
TopK = Annotated[int | None, typer.Option(min=1, max=100, help="Results.")]
Filter = Annotated[
    str | None, typer.Option("--filter", help="JSON, e.g. '{\"year\": 2024}'; the language is in docs/filters.md.")
]
Agent = Annotated[str | None, typer.Option(help="Search as this agent: its name or id; with --url its id.")]
Rewrite = Annotated[bool, typer.Option("--rewrite", help="Search for the question in other words too.")]
Fallback = Annotated[
    bool, typer.Option("--keyword-fallback", help="Fill free places with chunks that hold the question's keywords.")
]
CrossLanguage = Annotated[
    bool, typer.Option("--cross-language", help="Also look for passages in the other language, Chinese or English.")
]
Trace = Annotated[bool, typer.Option("--trace", help="Show the stages.")]

Response = TypeVar("Response", bound="BaseModel")


def post(url: str, path: str, model: type[Response], body: dict[str, Any], key: str | None) -> Response:
    """Ask a running server."""
    from rag_cluster.client.http import connect

    with contextlib.closing(connect(url, key)) as api:
        return api.post(path, model, body)


def query_options(
    mode: RetrievalMode,
    top_k: int | None,
    filters: str | None,
    agent: str | None,
    *,
    rewrite: bool,
    fallback: bool,
    cross_language: bool,
) -> QueryOptions:
    """The options of `search`, `ask` and `explain` as a request has them. filters: JSON; InvalidFilterError."""
    from rag_cluster.serving.schemas import QueryOptions

    try:
        parsed = json.loads(filters) if filters else {}
    except ValueError as error:
        raise InvalidFilterError(f"--filter is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise InvalidFilterError("--filter is a JSON object")
    return QueryOptions(
        mode=mode,
        top_k=top_k,
        agent_id=agent,
        rewrite=rewrite,
        keyword_fallback=fallback,
        cross_language=cross_language,
        filters=parsed,
    )


def local_query(base: str, options: QueryOptions) -> tuple[Services, str, RetrievalOptions]:
    """What a query in this process needs: services, the knowledge base's id, options with the settings' defaults and
    the agent's id for its name."""
    opened = services()
    settings = opened.settings
    resolved = options.resolve(
        top_k=settings.top_k, candidate_k=settings.candidate_k, score_threshold=settings.score_threshold
    )
    base_id = opened.catalog.knowledge_base(base).id
    if resolved.agent_id is not None:
        resolved = replace(resolved, agent_id=opened.agents.find_agent(base_id, resolved.agent_id).id)
    return opened, base_id, resolved


def _search(base: str, query: str, options: QueryOptions) -> RetrieveResponse:
    from rag_cluster.serving.schemas import ResultModel, RetrieveResponse, TraceModel

    opened, base_id, resolved = local_query(base, options)
    identity = new_trace_id()
    answerer = opened.answerer(opened.async_embedder)
    run = asyncio.run(answerer.retrieve(LOCAL, base_id, query, resolved, request_id=identity))
    return RetrieveResponse(
        query=query,
        results=[ResultModel.of(result) for result in run.results],
        trace=TraceModel.of(run.trace),
        request_id=identity,
    )


def _ask(base: str, question: str, options: QueryOptions) -> AnswerResponse:
    from rag_cluster.serving.schemas import AnswerResponse

    opened, base_id, resolved = local_query(base, options)
    identity = new_trace_id()
    answerer = opened.answerer(opened.async_embedder)
    answer = asyncio.run(answerer.answer(LOCAL, base_id, question, resolved, request_id=identity))
    return AnswerResponse.of(answer, identity)


def show_answer(answer: AnswerResponse) -> None:
    """An answer with its citations, for people."""
    say((MARK.sub(r"[\1]", answer.answer), "yellow" if answer.refused else ""))
    for citation in answer.citations:
        say("  ", (f"[{citation.number}]", "bold"), f" {citation.filename}  ", (citation.locator.display, "cyan"))


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
        say(("degraded ", "yellow"), degradation)


@command
def search(
    query: Annotated[str, typer.Argument(help="In the documents' language or another.")],
    knowledge_base: Base,
    mode: Mode = RetrievalMode.HYBRID,
    top_k: TopK = None,
    filters: Filter = None,
    agent: Agent = None,
    rewrite: Rewrite = False,
    keyword_fallback: Fallback = False,
    cross_language: CrossLanguage = False,
    trace: Trace = False,
    url: Url = None,
    api_key: Key = None,
    as_json: Json = False,
) -> None:
    """Find evidence without writing an answer.

    Example: `rag-cluster search "crane wind limit" -k harbour --trace`
    """
    from rag_cluster.serving.schemas import RetrieveResponse

    options = query_options(
        mode, top_k, filters, agent, rewrite=rewrite, fallback=keyword_fallback, cross_language=cross_language
    )
    if url:
        body = {"knowledge_base": knowledge_base, "query": query, "options": options.model_dump(mode="json")}
        found = post(url, "/v1/retrieve", RetrieveResponse, body, api_key)
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
    question: Annotated[str, typer.Argument(help="In the documents' language or another.")],
    knowledge_base: Base,
    mode: Mode = RetrievalMode.HYBRID,
    top_k: TopK = None,
    filters: Filter = None,
    agent: Agent = None,
    rewrite: Rewrite = False,
    keyword_fallback: Fallback = False,
    cross_language: CrossLanguage = False,
    trace: Trace = False,
    url: Url = None,
    api_key: Key = None,
    as_json: Json = False,
) -> None:
    """Answer a question with citations, or say that the knowledge base does not tell.

    Example: `rag-cluster ask "岸桥制动器的标准间隙是多少？" -k harbour`
    """
    from rag_cluster.serving.schemas import AnswerResponse

    options = query_options(
        mode, top_k, filters, agent, rewrite=rewrite, fallback=keyword_fallback, cross_language=cross_language
    )
    if url:
        body = {"knowledge_base": knowledge_base, "question": question, "options": options.model_dump(mode="json")}
        answer = post(url, "/v1/answer", AnswerResponse, body, api_key)
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
