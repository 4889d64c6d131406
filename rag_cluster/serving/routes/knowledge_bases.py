"""/v1/knowledge-bases: create, list, get, patch, delete."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from rag_cluster.domain.access import Principal
from rag_cluster.domain.documents import KnowledgeBase
from rag_cluster.errors import ForbiddenError, NotFoundError
from rag_cluster.serving.auth import Administrator, Caller, Services
from rag_cluster.serving.backend import Backend
from rag_cluster.serving.schemas import (
    DeleteResponse,
    KnowledgeBaseCreate,
    KnowledgeBaseDeleteResponse,
    KnowledgeBasePage,
    KnowledgeBasePatch,
    KnowledgeBaseResponse,
)

router = APIRouter(prefix="/v1/knowledge-bases", tags=["knowledge bases"])

Cursor = Annotated[str | None, Query(max_length=500, description="next_cursor of the page before.")]
Limit = Annotated[int, Query(ge=1, le=200)]


def granted(services: Backend, caller: Principal, id_or_name: str) -> KnowledgeBase:
    """The knowledge base, if the caller may know of it: NotFoundError otherwise, in the same words."""
    base = services.catalog.knowledge_base(id_or_name)
    if not caller.may_use(base.id):
        raise unknown(id_or_name)
    return base


def unknown(id_or_name: str) -> NotFoundError:
    """The same words for what is not there and for what the caller may not know of."""
    return NotFoundError(f"no knowledge base {id_or_name[:200]!r}")


def _require_all(caller: Principal) -> None:
    """That a name is taken, by whatever base, is nothing for a key that is limited to some of them."""
    if caller.knowledge_bases is not None:
        raise ForbiddenError("Naming a knowledge base needs an API key that is not limited to some of them.")


@router.post("", status_code=201)
def create(body: KnowledgeBaseCreate, caller: Administrator, services: Services) -> KnowledgeBaseResponse:
    """Create a knowledge base. Names are unique (409). Needs a key for all of them: one for some could not use it."""
    _require_all(caller)
    acl = None if body.default_acl is None else tuple(body.default_acl)
    return KnowledgeBaseResponse.of(services.catalog.create_knowledge_base(body.name, body.description, acl))


@router.get("")
def list_page(caller: Caller, services: Services, cursor: Cursor = None, limit: Limit = 50) -> KnowledgeBasePage:
    """The knowledge bases that the caller may use."""
    items, next_cursor = services.catalog.list_knowledge_bases(caller, cursor=cursor, limit=limit)
    return KnowledgeBasePage(items=[KnowledgeBaseResponse.of(item) for item in items], next_cursor=next_cursor)


@router.get("/{knowledge_base}")
def get(knowledge_base: str, caller: Caller, services: Services) -> KnowledgeBaseResponse:
    """One knowledge base, by id or name."""
    return KnowledgeBaseResponse.of(granted(services, caller, knowledge_base))


@router.patch("/{knowledge_base}")
def patch(
    knowledge_base: str, body: KnowledgeBasePatch, caller: Administrator, services: Services
) -> KnowledgeBaseResponse:
    """Change name, description or default_acl; a new default_acl is in force for the next request. A new name needs a
    key for all knowledge bases."""
    base = granted(services, caller, knowledge_base)
    if body.name is not None and body.name != base.name:
        _require_all(caller)
    given = "default_acl" in body.model_fields_set
    return KnowledgeBaseResponse.of(
        services.catalog.update_knowledge_base(
            base.id,
            name=body.name,
            description=body.description,
            default_acl=None if body.default_acl is None else tuple(body.default_acl),
            close=given and body.default_acl is None,
        )
    )


@router.delete("/{knowledge_base}")
def delete(knowledge_base: str, caller: Administrator, services: Services) -> KnowledgeBaseDeleteResponse:
    """Delete a knowledge base with all its documents. 409 while one of them is being processed."""
    base = granted(services, caller, knowledge_base)
    receipts = services.delete_knowledge_base(base.id)
    return KnowledgeBaseDeleteResponse(
        knowledge_base_id=base.id, documents=[DeleteResponse.of(receipt) for receipt in receipts]
    )
