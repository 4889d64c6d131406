"""Questions to /v1: search, ask, explain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypedDict

from pydantic import ValidationError

from rag_cluster.client.http import Api
from rag_cluster.client.views import AnswerView, ExplainView, SearchView
from rag_cluster.errors import InvalidRequestError
from rag_cluster.serving.schemas import AnswerRequest, ContextRequest, ContextResponse, QueryOptions, RetrieveRequest
from rag_cluster.serving.schemas.explain import ExplainRequest


class Options(TypedDict, total=False):
    """`QueryOptions`, as keyword arguments."""

    mode: Literal["dense", "sparse", "hybrid"]
    top_k: int
    candidate_k: int
    rewrite: bool
    rerank: bool
    expand_parents: bool
    keyword_fallback: bool
    cross_language: bool
    score_threshold: float
    document_ids: list[str]
    source_ids: list[str]
    agent_id: str
    filters: dict[str, Any]


def search(api: Api, knowledge_base: str, query: str, options: Options) -> SearchView:
    """POST /v1/retrieve."""
    body = _checked(lambda: RetrieveRequest(knowledge_base=knowledge_base, query=query, options=_options(options)))
    return api.post("/v1/retrieve", SearchView, body)


def context(
    api: Api,
    knowledge_base: str,
    query: str,
    max_context_length: int | None,
    include_metadata: bool,
    options: Options,
) -> str:
    """POST /v1/context."""
    body = _checked(
        lambda: ContextRequest(
            knowledge_base=knowledge_base,
            query=query,
            options=_options(options),
            max_context_length=max_context_length,
            include_metadata=include_metadata,
        )
    )
    return api.post("/v1/context", ContextResponse, body).context


def ask(api: Api, knowledge_base: str, question: str, session_id: str | None, options: Options) -> AnswerView:
    """POST /v1/answer."""
    body = _checked(
        lambda: AnswerRequest(
            knowledge_base=knowledge_base, question=question, options=_options(options), session_id=session_id
        )
    )
    return api.post("/v1/answer", AnswerView, body)


def explain(
    api: Api,
    knowledge_base: str,
    query: str,
    document_id: str | None,
    chunk_id: str | None,
    text: str | None,
    options: Options,
) -> ExplainView:
    """POST /v1/explain."""
    body = _checked(
        lambda: ExplainRequest(
            knowledge_base=knowledge_base,
            query=query,
            document_id=document_id,
            chunk_id=chunk_id,
            text=text,
            options=_options(options),
        )
    )
    return api.post("/v1/explain", ExplainView, body)


def _options(options: Options) -> QueryOptions:
    return QueryOptions.model_validate(dict(options))


def _checked(make: Callable[[], RetrieveRequest | AnswerRequest | ExplainRequest]) -> dict[str, Any]:
    """The request's JSON; what cannot be right is not sent."""
    try:
        return make().model_dump(mode="json")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise InvalidRequestError(f"{place}: {first['msg'].removeprefix('Value error, ')}") from None
