"""explain: why a chunk, a document or a text is not among the results of a question."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rag_cluster.cli.options import Base, Department, Json, SecurityLevel
from rag_cluster.cli.output import command, emit, say, table
from rag_cluster.cli.query import (
    Agent,
    CrossLanguage,
    Fallback,
    Filter,
    Key,
    Mode,
    Rewrite,
    TopK,
    Url,
    local_query,
    post,
    query_options,
)
from rag_cluster.domain.access import LOCAL
from rag_cluster.domain.retrieval import RetrievalMode
from rag_cluster.telemetry import new_trace_id

if TYPE_CHECKING:
    from rag_cluster.serving.schemas.explain import ExplainRequest, ExplainResponse


@command
def explain(
    query: Annotated[str, typer.Argument(help="The question.")],
    knowledge_base: Base,
    chunk: Annotated[str | None, typer.Option(help="Id of the chunk that should be found.")] = None,
    document: Annotated[str | None, typer.Option(help="Id of its document: the chunk that came furthest.")] = None,
    text: Annotated[str | None, typer.Option(help="Words that stand together in it.")] = None,
    mode: Mode = RetrievalMode.HYBRID,
    top_k: TopK = None,
    filters: Filter = None,
    agent: Agent = None,
    rewrite: Rewrite = False,
    keyword_fallback: Fallback = False,
    cross_language: CrossLanguage = False,
    as_reader: Annotated[bool, typer.Option("--as-reader", help="As a reader without rights of its own.")] = False,
    group: Annotated[list[str] | None, typer.Option(help="As a reader of this group; may be repeated.")] = None,
    department: Department = None,
    security_level: SecurityLevel = 0,
    url: Url = None,
    api_key: Key = None,
    as_json: Json = False,
) -> None:
    """Tell where every stage left a chunk, and which one lost it first.

    Example: `rag-cluster explain "crane wind limit" -k harbour --text "72 km/h"`
    """
    from rag_cluster.serving.schemas.explain import ExplainRequest, ExplainResponse, ReaderModel

    reader = None
    if as_reader or group or department or security_level:
        reader = ReaderModel(groups=group or [], department=department, security_level=security_level)
    request = ExplainRequest(
        knowledge_base=knowledge_base,
        query=query,
        chunk_id=chunk,
        document_id=document,
        text=text,
        options=query_options(
            mode, top_k, filters, agent, rewrite=rewrite, fallback=keyword_fallback, cross_language=cross_language
        ),
        reader=reader,
    )
    if url:
        found = post(url, "/v1/explain", ExplainResponse, request.model_dump(mode="json"), api_key)
    else:
        found = _here(request)
    if as_json:
        emit(found.model_dump(mode="json"))
    else:
        _show(found)


def _here(request: ExplainRequest) -> ExplainResponse:
    from rag_cluster.serving.schemas.explain import ExplainResponse

    opened, base_id, options = local_query(request.knowledge_base, request.options)
    identity = new_trace_id()
    reader = None if request.reader is None else request.reader.principal(base_id)
    answerer = opened.answerer(opened.async_embedder)
    asked: Any = answerer.explain(
        LOCAL, base_id, request.query, request.target(), options, reader=reader, request_id=identity
    )
    explanation, run = asyncio.run(asked)
    return ExplainResponse.of(explanation, run, identity)


def _show(found: ExplainResponse) -> None:
    say(("chunk ", "bold"), f"{found.chunk_id or 'none'} of {found.filename}, version {found.version}")
    if found.text:
        say(("text  ", "bold"), " ".join(found.text.split())[:200])
    for name, tokens in (("query", found.query_tokens), ("shared", found.shared_tokens)):
        if found.query_tokens:
            say((f"{name} tokens ", "bold"), " ".join(tokens) or "none")
    table(
        "Its way",
        ("stage", "outcome", "rank", "score", "detail"),
        (
            (one.stage, one.outcome, one.rank, "" if one.score is None else f"{one.score:.4f}", one.detail)
            for one in found.standings
        ),
    )
    if found.lost_at:
        say(("lost at ", "bold red"), found.lost_at)
    else:
        say((f"shown as result {found.result}", "green"))
    for degradation in found.trace.degradations:
        say(("degraded ", "yellow"), degradation)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(explain)
