"""Jobs, runs, assets and health."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Annotated

from fastapi import APIRouter, Header, Response
from fastapi.responses import JSONResponse

from rag_cluster.domain.access import Principal
from rag_cluster.domain.documents import IngestionRun
from rag_cluster.errors import CorruptObjectError, NotFoundError
from rag_cluster.serving.auth import Administrator, Caller, Services
from rag_cluster.serving.backend import Backend
from rag_cluster.serving.routes.knowledge_bases import Cursor, Limit
from rag_cluster.serving.schemas import (
    HealthResponse,
    JobResponse,
    ModelResponse,
    ModelsResponse,
    ReadyResponse,
    ReceiptResponse,
    RunDetail,
    RunPage,
    RunResponse,
    binary,
)

router = APIRouter()

# Only these are shown inline; anything else is downloaded, so that an SVG or HTML asset can never run as a page.
_INLINE = {"image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp", "image/tiff"}


@router.get("/v1/jobs/{job_id}", tags=["jobs"])
def job(job_id: str, caller: Caller, services: Services) -> JobResponse:
    """The state of an upload's background job."""
    return JobResponse.of(services.uploads.job(job_id, caller))


@router.get("/v1/runs", tags=["runs"])
def runs(caller: Administrator, services: Services, cursor: Cursor = None, limit: Limit = 50) -> RunPage:
    """Bulk ingestion runs of the caller's knowledge bases, newest first."""
    bases = caller.knowledge_bases
    items, next_cursor = services.ledger.runs(knowledge_bases=bases, cursor=cursor, limit=limit)
    return RunPage(items=[RunResponse.of(item) for item in items], next_cursor=next_cursor)


@router.get("/v1/runs/{run_id}", tags=["runs"])
def run(run_id: str, caller: Administrator, services: Services) -> RunDetail:
    """One run with the inputs that failed or were skipped."""
    found = RunResponse.of(_granted(services, caller, run_id))
    receipts = [ReceiptResponse.of(receipt) for receipt in services.ledger.run_receipts(run_id)]
    report = services.ledger.run_report(run_id)
    return RunDetail(**found.model_dump(), receipts=receipts, report=None if report is None else dict(report))


@router.post("/v1/runs/{run_id}/cancel", tags=["runs"], status_code=202)
def cancel(run_id: str, caller: Administrator, services: Services) -> RunResponse:
    """Ask a run to end at its driver's next heartbeat, in a state from which the next run goes on."""
    _granted(services, caller, run_id)
    return RunResponse.of(services.ledger.request_cancel(run_id))


def _granted(services: Backend, caller: Principal, run_id: str) -> IngestionRun:
    """The run, if the caller may use its knowledge base: NotFoundError otherwise, in the same words."""
    found = services.ledger.run(run_id)
    if not caller.may_use(found.knowledge_base_id):
        raise NotFoundError(f"no run {run_id!r}")
    return found


@router.get(
    "/v1/assets/{asset_id}",
    tags=["assets"],
    response_class=Response,
    responses=binary("The image.", *sorted(_INLINE), "application/octet-stream")
    | {304: {"description": "The one that the caller has."}},
)
def asset(
    asset_id: str, caller: Caller, services: Services, if_none_match: Annotated[str | None, Header()] = None
) -> Response:
    """An image of a document that the caller may read. A browser that has it asks again each time (304): a right that
    was revoked is gone for the next request."""
    found = services.catalog.asset(asset_id, caller)
    cached = {"Cache-Control": "private, no-cache", "Vary": "Authorization", "ETag": f'"{found.sha256}"'}
    if if_none_match == cached["ETag"]:
        return Response(status_code=304, headers=cached)
    content = services.objects.get(found.object_key)
    if hashlib.sha256(content).hexdigest() != found.sha256:
        raise CorruptObjectError(
            f"the stored image {asset_id} is damaged: `fsck --deep --repair`, or upload its document again"
        )
    inline = found.media_type in _INLINE
    return Response(
        content,
        media_type=found.media_type if inline else "application/octet-stream",
        headers={
            "X-Content-Type-Options": "nosniff",
            "Content-Disposition": "inline" if inline else "attachment",
            **cached,
        },
    )


@router.get("/v1/models", tags=["models"])
async def models(_: Administrator, services: Services) -> ModelsResponse:
    """What computes, with each replica's counters: requests, calls of the engine, and how well these are filled."""
    found = await services.models()
    return ModelsResponse(models=[ModelResponse(**dataclasses.asdict(model)) for model in found])


@router.get("/healthz", tags=["health"])
async def healthz() -> HealthResponse:
    """The process answers."""
    return HealthResponse(status="ok")


@router.get("/readyz", tags=["health"], response_model=ReadyResponse, responses={503: {"model": ReadyResponse}})
async def readyz(services: Services) -> Response:
    """Every dependency answers, or 503 with the one that does not."""
    checks = dict(await services.readiness())
    ready = all(value == "ok" for value in checks.values())
    body = ReadyResponse(status="ready" if ready else "not ready", checks=checks)
    return JSONResponse(body.model_dump(), status_code=200 if ready else 503)
