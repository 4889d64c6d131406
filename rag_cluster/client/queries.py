"""Questions to /v1: search, ask, explain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypedDict

from pydantic import ValidationError

from rag_cluster.client.http import Api, segment
from rag_cluster.client.views import AnswerView, ExplainView, SearchView, Standing
from rag_cluster.domain.retrieval import MAX_CANDIDATES
from rag_cluster.errors import InvalidRequestError
from rag_cluster.serving.schemas import AnswerRequest, DocumentResponse, QueryOptions, ResultModel, RetrieveRequest


class Options(TypedDict, total=False):
    """`QueryOptions`, as keyword arguments."""

    mode: Literal["dense", "sparse", "hybrid"]
    top_k: int
    candidate_k: int
    rewrite: bool
    rerank: bool
    expand_parents: bool
    keyword_fallback: bool
    score_threshold: float
    document_ids: list[str]
    source_ids: list[str]
    agent_id: str
    filters: dict[str, Any]


def search(api: Api, knowledge_base: str, query: str, options: Options) -> SearchView:
    """POST /v1/retrieve."""
    body = _checked(lambda: RetrieveRequest(knowledge_base=knowledge_base, query=query, options=_options(options)))
    return api.post("/v1/retrieve", SearchView, body)


def ask(api: Api, knowledge_base: str, question: str, session_id: str | None, options: Options) -> AnswerView:
    """POST /v1/answer."""
    body = _checked(
        lambda: AnswerRequest(
            knowledge_base=knowledge_base, question=question, options=_options(options), session_id=session_id
        )
    )
    return api.post("/v1/answer", AnswerView, body)


def explain(
    api: Api, knowledge_base: str, query: str, document_id: str, chunk_id: str | None, options: Options
) -> ExplainView:
    """The rank of a document (its best chunk) or chunk in each channel, among the first 100 chunks of it."""
    document = api.get(f"/v1/documents/{segment(document_id)}", DocumentResponse)
    standings = []
    for mode in ("dense", "sparse", "hybrid"):
        alone: Options = {
            **options,
            "mode": mode,
            "top_k": MAX_CANDIDATES,
            "candidate_k": MAX_CANDIDATES,
            "rerank": False,
            "expand_parents": False,
        }
        found = search(api, knowledge_base, query, alone)
        standings.append(_standing(mode, found, document_id, chunk_id))
    version = document.published_version
    state = f"version {version} is published" if version else f"nothing is published yet, it is {document.status}"
    target = f"{document.filename}, chunk {chunk_id}" if chunk_id else document.filename
    return ExplainView(query, target, standings, state)


def _standing(mode: str, found: SearchView, document_id: str, chunk_id: str | None) -> Standing:
    def meant(result: ResultModel) -> bool:
        if chunk_id is not None:
            return chunk_id in (result.chunk_id, *result.context_chunk_ids)
        return result.document_id == document_id

    for rank, result in enumerate(found.results, start=1):
        if meant(result):
            return Standing(mode, rank, result.score, len(found), result.chunk_id, result.matched_content)
    return Standing(mode, None, None, len(found), chunk_id, "")


def _options(options: Options) -> QueryOptions:
    return QueryOptions.model_validate(dict(options))


def _checked(make: Callable[[], RetrieveRequest | AnswerRequest]) -> dict[str, Any]:
    """The request's JSON; what cannot be right is not sent."""
    try:
        return make().model_dump(mode="json")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise InvalidRequestError(f"{place}: {first['msg'].removeprefix('Value error, ')}") from None
