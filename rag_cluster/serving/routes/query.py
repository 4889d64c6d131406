"""/v1/retrieve, /v1/explain and /v1/answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from rag_cluster.domain.access import Principal
from rag_cluster.domain.answers import AnswerEvent, AnswerEventKind
from rag_cluster.domain.deadlines import Deadline, within
from rag_cluster.domain.documents import KnowledgeBase
from rag_cluster.domain.retrieval import RetrievalOptions
from rag_cluster.errors import ForbiddenError
from rag_cluster.serving import sse
from rag_cluster.serving.auth import Services, principal
from rag_cluster.serving.backend import Backend
from rag_cluster.serving.routes.knowledge_bases import granted
from rag_cluster.serving.schemas import (
    AnswerRequest,
    AnswerResponse,
    CitationModel,
    QueryOptions,
    ResultModel,
    RetrieveRequest,
    RetrieveResponse,
    TraceModel,
)
from rag_cluster.serving.schemas.explain import ExplainRequest, ExplainResponse

router = APIRouter(prefix="/v1", tags=["query"])


def request_id(request: Request) -> str:
    """The id that the middleware gave this request."""
    identity: str = request.state.request_id
    return identity


RequestId = Annotated[str, Depends(request_id)]


async def request_deadline(services: Services) -> Deadline:
    """When this request ends, whatever it waits for."""
    return Deadline.after(services.settings.request_timeout)


Ends = Annotated[Deadline, Depends(request_deadline)]


async def query_caller(request: Request, services: Services, deadline: Ends) -> Principal:
    """`auth.principal`, which asks PostgreSQL, within the request's deadline."""
    async with within(deadline):
        return await run_in_threadpool(principal, request, services)


Caller = Annotated[Principal, Depends(query_caller)]


def _options(options: QueryOptions, services: Backend) -> RetrievalOptions:
    settings = services.settings
    return options.resolve(
        top_k=settings.top_k, candidate_k=settings.candidate_k, score_threshold=settings.score_threshold
    )


@router.post("/retrieve")
async def retrieve(
    body: RetrieveRequest, caller: Caller, services: Services, identity: RequestId, deadline: Ends
) -> RetrieveResponse:
    """Find evidence: hybrid retrieval with its trace, without an answer."""
    options = _options(body.options, services)
    base = await _granted(services, caller, body.knowledge_base, deadline)
    run = await services.answerer.retrieve(caller, base.id, body.query, options, request_id=identity, deadline=deadline)
    return RetrieveResponse(
        query=run.query,
        results=[ResultModel.of(result) for result in run.results],
        trace=TraceModel.of(run.trace),
        request_id=identity,
    )


@router.post("/explain")
async def explain(
    body: ExplainRequest, caller: Caller, services: Services, identity: RequestId, deadline: Ends
) -> ExplainResponse:
    """Why a chunk is among the results or not: its rank and score in every stage, and the first that lost it.

    What the caller may not read is not found (404). With `reader` an unrestricted caller explains another's query.
    """
    if body.reader is not None and not caller.unrestricted:
        raise ForbiddenError("Explaining another reader's query needs an unrestricted API key.")
    options = _options(body.options, services)
    base = await _granted(services, caller, body.knowledge_base, deadline)
    explanation, run = await services.answerer.explain(
        caller,
        base.id,
        body.query,
        body.target(),
        options,
        reader=None if body.reader is None else body.reader.principal(base.id),
        request_id=identity,
        deadline=deadline,
    )
    return ExplainResponse.of(explanation, run, identity)


@router.post(
    "/answer",
    response_model=AnswerResponse,
    responses={200: {"content": {sse.MEDIA_TYPE: {"schema": {"type": "string"}}}}},
)
async def answer(
    body: AnswerRequest, request: Request, caller: Caller, services: Services, identity: RequestId, deadline: Ends
) -> AnswerResponse | StreamingResponse:
    """Answer with citations, as JSON or, with `stream` or Accept: text/event-stream, as Server-Sent Events.

    Events: meta, delta*, citation*, then exactly one of done, refuse, error.
    """
    options = _options(body.options, services)
    base = await _granted(services, caller, body.knowledge_base, deadline)
    if not (body.stream or sse.MEDIA_TYPE in request.headers.get("accept", "")):
        finished = await services.answerer.answer(
            caller,
            base.id,
            body.question,
            options,
            request_id=identity,
            session_id=body.session_id,
            deadline=deadline,
        )
        return AnswerResponse.of(finished, identity)
    events = services.answerer.stream(
        caller, base.id, body.question, options, request_id=identity, session_id=body.session_id, deadline=deadline
    )
    return sse.EventStreamResponse(_encoded(events, identity))


async def _granted(services: Backend, caller: Principal, knowledge_base: str, deadline: Deadline) -> KnowledgeBase:
    async with within(deadline):
        return await run_in_threadpool(granted, services, caller, knowledge_base)


async def _encoded(events: AsyncGenerator[AnswerEvent], identity: str) -> AsyncGenerator[bytes]:
    async with aclosing(events):
        async for event in events:
            yield sse.encode(event.kind, _payload(event, identity))


def _payload(event: AnswerEvent, identity: str) -> dict[str, object]:
    if event.kind is AnswerEventKind.META:
        return {**event.data, "request_id": identity}
    if event.answer is not None:
        return AnswerResponse.of(event.answer, identity).model_dump(mode="json")
    if event.kind is AnswerEventKind.CITATION and "citation" in event.data:
        return CitationModel.of(event.data["citation"]).model_dump(mode="json")
    return dict(event.data)
