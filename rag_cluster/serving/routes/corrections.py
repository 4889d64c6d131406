"""/v1/corrections: write one in one call, list them, delete one."""

from __future__ import annotations

from fastapi import APIRouter

from rag_cluster.domain.documents import SourceKind
from rag_cluster.errors import NotFoundError
from rag_cluster.ingestion.corrections import Correction
from rag_cluster.serving.auth import Administrator, Caller, Services
from rag_cluster.serving.routes.knowledge_bases import Cursor, Limit, granted
from rag_cluster.serving.routes.sources import KnowledgeBase
from rag_cluster.serving.schemas.agents import (
    CorrectionItem,
    CorrectionPage,
    CorrectionRequest,
    CorrectionResponse,
)
from rag_cluster.serving.schemas.catalog import DeleteResponse

router = APIRouter(prefix="/v1/corrections", tags=["corrections"])


@router.post("", status_code=201)
def write(body: CorrectionRequest, caller: Administrator, services: Services) -> CorrectionResponse:
    """Write a managed correction: chunked, embedded, indexed and published when this returns.

    For the agents that mount its source it comes before everything else that answers the question. 409 while another
    call writes the same question.
    """
    base = granted(services, caller, body.knowledge_base)
    mounts = {services.agents.find_agent(base.id, name).id: body.priority for name in body.agents}
    access = body.access.attributes() if body.access else None
    correction = Correction(body.question, body.answer, access, body.metadata)
    receipt = services.write_correction(base.id, correction, body.source, mounts)
    document = services.catalog.document(receipt.document_id, caller)
    return CorrectionResponse(
        document_id=document.id,
        source_id=document.source_id,
        version=document.published_version or document.version,
        question=correction.heading,
        unchanged=receipt.outcome == "unchanged",
    )


@router.get("")
def list_page(
    caller: Caller, services: Services, knowledge_base: KnowledgeBase, cursor: Cursor = None, limit: Limit = 50
) -> CorrectionPage:
    """The corrections of a knowledge base that the caller may read."""
    base = granted(services, caller, knowledge_base)
    items, next_cursor = services.agents.corrections(base.id, caller, cursor=cursor, limit=limit)
    return CorrectionPage(items=[CorrectionItem.of(item) for item in items], next_cursor=next_cursor)


@router.delete("/{document_id}")
def delete(document_id: str, caller: Administrator, services: Services) -> DeleteResponse:
    """Take a correction back; the receipt says per store what was verified gone."""
    document = services.catalog.document(document_id, caller)
    if services.agents.source(document.source_id, caller).kind is not SourceKind.MANAGED_CORRECTION:
        raise NotFoundError(f"no correction {document_id[:64]!r}")
    return DeleteResponse.of(services.delete_document(document_id))
