"""/v1/retrieve and /v1/answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from rag_cluster.domain.answers import AnswerEvent, AnswerEventKind
from rag_cluster.domain.retrieval import RetrievalOptions
from rag_cluster.errors import DeadlineExceededError
from rag_cluster.serving import sse
from rag_cluster.serving.auth import Caller, Services
from rag_cluster.serving.backend import Backend
from rag_cluster.serving.error_responses import error_body
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

router = APIRouter(prefix="/v1", tags=["query"])


def request_id(request: Request) -> str:
    """The id that the middleware gave this request."""
    identity: str = request.state.request_id
    return identity


RequestId = Annotated[str, Depends(request_id)]


def _options(options: QueryOptions, services: Backend) -> RetrievalOptions:
    settings = services.settings
    return options.resolve(
        top_k=settings.top_k, candidate_k=settings.candidate_k, score_threshold=settings.score_threshold
    )


@contextlib.asynccontextmanager
async def _deadline(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise DeadlineExceededError(f"No result within {seconds:g} s.") from None


@router.post("/retrieve")
async def retrieve(body: RetrieveRequest, caller: Caller, services: Services, identity: RequestId) -> RetrieveResponse:
    """Find evidence: hybrid retrieval with its trace, without an answer."""
    async with _deadline(services.settings.request_timeout):
        base = await run_in_threadpool(granted, services, caller, body.knowledge_base)
        run = await services.answerer.retrieve(
            caller, base.id, body.query, _options(body.options, services), request_id=identity
        )
    return RetrieveResponse(
        query=run.query,
        results=[ResultModel.of(result) for result in run.results],
        trace=TraceModel.of(run.trace),
        request_id=identity,
    )


@router.post(
    "/answer",
    response_model=AnswerResponse,
    responses={200: {"content": {sse.MEDIA_TYPE: {"schema": {"type": "string"}}}}},
)
async def answer(
    body: AnswerRequest, request: Request, caller: Caller, services: Services, identity: RequestId
) -> AnswerResponse | StreamingResponse:
    """Answer with citations, as JSON or, with `stream` or Accept: text/event-stream, as Server-Sent Events.

    Events: meta, delta*, citation*, then exactly one of done, refuse, error.
    """
    timeout = services.settings.request_timeout
    options = _options(body.options, services)
    async with _deadline(timeout):
        base = await run_in_threadpool(granted, services, caller, body.knowledge_base)
        if not (body.stream or sse.MEDIA_TYPE in request.headers.get("accept", "")):
            finished = await services.answerer.answer(
                caller, base.id, body.question, options, request_id=identity, session_id=body.session_id
            )
            return AnswerResponse.of(finished, identity)
    events = services.answerer.stream(
        caller, base.id, body.question, options, request_id=identity, session_id=body.session_id
    )
    return StreamingResponse(_encoded(events, identity, timeout), media_type=sse.MEDIA_TYPE, headers=sse.HEADERS)


async def _encoded(events: AsyncIterator[AnswerEvent], identity: str, timeout: float) -> AsyncIterator[bytes]:
    try:
        async with _deadline(timeout):
            async for event in events:
                yield sse.encode(event.kind, _payload(event, identity))
    except DeadlineExceededError as error:
        # The status line is sent: the only honest way left is the error event.
        yield sse.encode(AnswerEventKind.ERROR, error_body(error))


def _payload(event: AnswerEvent, identity: str) -> dict[str, object]:
    if event.kind is AnswerEventKind.META:
        return {**event.data, "request_id": identity}
    if event.answer is not None:
        return AnswerResponse.of(event.answer, identity).model_dump(mode="json")
    if event.kind is AnswerEventKind.CITATION and "citation" in event.data:
        return CitationModel.of(event.data["citation"]).model_dump(mode="json")
    return dict(event.data)
