"""/v1/retrieve, /v1/context, /v1/explain and /v1/answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import StreamingResponse

from rag_cluster.domain.access import Principal
from rag_cluster.domain.answers import AnswerEvent, AnswerEventKind
from rag_cluster.domain.deadlines import Deadline, within
from rag_cluster.domain.documents import KnowledgeBase
from rag_cluster.domain.retrieval import RetrievalOptions
from rag_cluster.errors import AuthenticationError, ForbiddenError
from rag_cluster.serving import sse
from rag_cluster.serving.auth import Services, secret_of, without_key
from rag_cluster.serving.backend import Backend
from rag_cluster.serving.routes.knowledge_bases import unknown
from rag_cluster.serving.schemas import (
    AnswerRequest,
    AnswerResponse,
    CitationModel,
    ContextRequest,
    ContextResponse,
    QueryOptions,
    ResultModel,
    RetrieveRequest,
    RetrieveResponse,
    TraceModel,
)
from rag_cluster.serving.schemas.base import MAX_NAME
from rag_cluster.serving.schemas.explain import ExplainRequest, ExplainResponse

router = APIRouter(prefix="/v1", tags=["query"])


async def request_id(request: Request) -> str:
    """The id that the middleware gave this request."""
    identity: str = request.state.request_id
    return identity


RequestId = Annotated[str, Depends(request_id)]


async def request_deadline(services: Services) -> Deadline:
    """When this request ends, whatever it waits for."""
    return Deadline.after(services.settings.request_timeout)


Ends = Annotated[Deadline, Depends(request_deadline)]


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks, and the knowledge base that the body names, both as they were when the request came."""

    principal: Principal
    named: str | None
    found: KnowledgeBase | None

    async def granted(self, services: Backend, id_or_name: str, deadline: Deadline) -> KnowledgeBase:
        """The knowledge base, as `routes.knowledge_bases.granted`."""
        found = self.found
        if id_or_name != self.named:
            async with within(deadline):
                found = (await services.admissions.admission(None, id_or_name)).knowledge_base
        if found is None or not self.principal.may_use(found.id):
            raise unknown(id_or_name)
        return found


async def asker(request: Request, services: Services, deadline: Ends) -> Asker:
    """`auth.principal` and the knowledge base in one statement, within the request's deadline.

    Who may not ask is told so before the body's fields are checked.
    """
    named = await _named(request)
    secret = None if services.caller is not None else secret_of(request)
    async with within(deadline):
        admission = await services.admissions.admission(secret, named)
    caller = services.caller or admission.principal
    if caller is None and secret is not None:
        raise AuthenticationError("the API key is not valid")
    if caller is None:
        caller = without_key(request, has_api_keys=admission.has_api_keys)
    return Asker(caller, named, admission.knowledge_base)


async def _named(request: Request) -> str | None:
    """The knowledge base in the body, which nobody has checked yet and FastAPI has read already."""
    try:
        body = await request.json()
    except (ValueError, RecursionError):
        return None
    name = body.get("knowledge_base") if isinstance(body, dict) else None
    return name.strip() if isinstance(name, str) and len(name) <= MAX_NAME else None


Asked = Annotated[Asker, Depends(asker)]


def _options(options: QueryOptions, services: Backend) -> RetrievalOptions:
    settings = services.settings
    return options.resolve(
        top_k=settings.top_k, candidate_k=settings.candidate_k, score_threshold=settings.score_threshold
    )


@router.post("/retrieve")
async def retrieve(
    body: RetrieveRequest, asked: Asked, services: Services, identity: RequestId, deadline: Ends
) -> RetrieveResponse:
    """Find evidence: hybrid retrieval with its trace, without an answer."""
    options = _options(body.options, services)
    base = await asked.granted(services, body.knowledge_base, deadline)
    run = await services.answerer.retrieve(
        asked.principal, base.id, body.query, options, request_id=identity, deadline=deadline
    )
    return RetrieveResponse(
        query=run.query,
        results=[ResultModel.of(result) for result in run.results],
        trace=TraceModel.of(run.trace),
        request_id=identity,
    )


@router.post("/context")
async def context(
    body: ContextRequest, asked: Asked, services: Services, identity: RequestId, deadline: Ends
) -> ContextResponse:
    """Find evidence, as one text: numbered sources in the order of the results. The agent may hide documents' names."""
    options = _options(body.options, services)
    base = await asked.granted(services, body.knowledge_base, deadline)
    text = await services.answerer.retrieve_and_format(
        asked.principal,
        base.id,
        body.query,
        options,
        max_context_length=body.max_context_length,
        include_metadata=body.include_metadata,
        request_id=identity,
        deadline=deadline,
    )
    return ContextResponse(context=text, request_id=identity)


@router.post("/explain")
async def explain(
    body: ExplainRequest, asked: Asked, services: Services, identity: RequestId, deadline: Ends
) -> ExplainResponse:
    """Why a chunk is among the results or not: its rank and score in every stage, and the first that lost it.

    What the caller may not read is not found (404). With `reader` an unrestricted caller explains another's query.
    """
    if body.reader is not None and not asked.principal.unrestricted:
        raise ForbiddenError("Explaining another reader's query needs an unrestricted API key.")
    options = _options(body.options, services)
    base = await asked.granted(services, body.knowledge_base, deadline)
    explanation, run = await services.answerer.explain(
        asked.principal,
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
    body: AnswerRequest, request: Request, asked: Asked, services: Services, identity: RequestId, deadline: Ends
) -> AnswerResponse | StreamingResponse:
    """Answer with citations, as JSON or, with `stream` or Accept: text/event-stream, as Server-Sent Events.

    Events: meta, delta*, citation*, then exactly one of done, refuse, error.
    """
    options = _options(body.options, services)
    base = await asked.granted(services, body.knowledge_base, deadline)
    if not (body.stream or sse.MEDIA_TYPE in request.headers.get("accept", "")):
        finished = await services.answerer.answer(
            asked.principal,
            base.id,
            body.question,
            options,
            request_id=identity,
            session_id=body.session_id,
            deadline=deadline,
        )
        return AnswerResponse.of(finished, identity)
    events = services.answerer.stream(
        asked.principal,
        base.id,
        body.question,
        options,
        request_id=identity,
        session_id=body.session_id,
        deadline=deadline,
    )
    return sse.EventStreamResponse(_encoded(events, identity))


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
