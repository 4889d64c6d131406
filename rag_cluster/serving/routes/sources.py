"""/v1/sources: create, list, get, patch, delete the documents of one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from rag_cluster.serving.auth import Administrator, Services
from rag_cluster.serving.routes.knowledge_bases import Cursor, Limit, granted
from rag_cluster.serving.schemas.agents import (
    SourceCreate,
    SourceDeleteResponse,
    SourcePage,
    SourcePatch,
    SourceResponse,
)
from rag_cluster.serving.schemas.catalog import DeleteResponse

router = APIRouter(prefix="/v1/sources", tags=["sources"])

KnowledgeBase = Annotated[str, Query(max_length=200, description="Id or name.")]

# Administrators only: what a source is called may tell of documents that the caller may not read.


@router.post("", status_code=201)
def create(body: SourceCreate, caller: Administrator, services: Services) -> SourceResponse:
    """Create a source, or find the one of that kind and name."""
    base = granted(services, caller, body.knowledge_base)
    return SourceResponse.of(services.catalog.ensure_source(base.id, body.kind, body.name))


@router.get("")
def list_page(
    caller: Administrator, services: Services, knowledge_base: KnowledgeBase, cursor: Cursor = None, limit: Limit = 50
) -> SourcePage:
    """The sources of a knowledge base."""
    base = granted(services, caller, knowledge_base)
    items, next_cursor = services.agents.sources(base.id, cursor=cursor, limit=limit)
    return SourcePage(items=[SourceResponse.of(item) for item in items], next_cursor=next_cursor)


@router.get("/{source_id}")
def get(source_id: str, caller: Administrator, services: Services) -> SourceResponse:
    """One source."""
    return SourceResponse.of(services.agents.source(source_id, caller))


@router.patch("/{source_id}")
def patch(source_id: str, body: SourcePatch, caller: Administrator, services: Services) -> SourceResponse:
    """Enable, disable or rank a source, or say how its documents are chunked from now on."""
    services.agents.source(source_id, caller)
    if body.default_chunking_strategy:
        services.content_fingerprint("a.md", body.default_chunking_strategy)  # invalid_setting for an unknown one
    return SourceResponse.of(
        services.agents.update_source(
            source_id,
            enabled=body.enabled,
            priority=body.priority,
            chunking_strategy=body.default_chunking_strategy,
        )
    )


@router.delete("/{source_id}")
def delete(source_id: str, caller: Administrator, services: Services) -> SourceDeleteResponse:
    """Delete every document of a source; the empty source stays. 409 while one of them is being processed."""
    receipts = services.delete_source(services.agents.source(source_id, caller))
    return SourceDeleteResponse(source_id=source_id, documents=[DeleteResponse.of(receipt) for receipt in receipts])
