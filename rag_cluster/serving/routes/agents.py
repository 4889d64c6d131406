"""/v1/agents: create, list, get, patch, delete, and what they mount."""

from __future__ import annotations

from fastapi import APIRouter

from rag_cluster.serving.auth import Administrator, Caller, Services
from rag_cluster.serving.backend import Backend
from rag_cluster.serving.routes.knowledge_bases import Cursor, Limit, granted
from rag_cluster.serving.routes.sources import KnowledgeBase
from rag_cluster.serving.schemas.agents import (
    AgentCreate,
    AgentPage,
    AgentPatch,
    AgentResponse,
    MountList,
    MountRequest,
    MountResponse,
)

router = APIRouter(prefix="/v1/agents", tags=["agents"])


@router.post("", status_code=201)
def create(body: AgentCreate, caller: Administrator, services: Services) -> AgentResponse:
    """Create an agent. Names are unique in a knowledge base (409). It finds nothing until it mounts a source."""
    base = granted(services, caller, body.knowledge_base)
    agent = services.agents.create_agent(base.id, body.name, hide_source_filename=body.hide_source_filename)
    return AgentResponse.of(agent)


@router.get("")
def list_page(
    caller: Caller, services: Services, knowledge_base: KnowledgeBase, cursor: Cursor = None, limit: Limit = 50
) -> AgentPage:
    """The agents of a knowledge base that the caller may use."""
    base = granted(services, caller, knowledge_base)
    items, next_cursor = services.agents.agents(base.id, cursor=cursor, limit=limit)
    return AgentPage(items=[AgentResponse.of(item) for item in items], next_cursor=next_cursor)


@router.get("/{agent_id}")
def get(agent_id: str, caller: Caller, services: Services) -> AgentResponse:
    """One agent."""
    return AgentResponse.of(services.agents.agent(agent_id, caller))


@router.patch("/{agent_id}")
def patch(agent_id: str, body: AgentPatch, caller: Administrator, services: Services) -> AgentResponse:
    """Rename an agent, or say whether file names are kept from the language model."""
    services.agents.agent(agent_id, caller)
    return AgentResponse.of(
        services.agents.update_agent(agent_id, name=body.name, hide_source_filename=body.hide_source_filename)
    )


@router.delete("/{agent_id}")
def delete(agent_id: str, caller: Administrator, services: Services) -> AgentResponse:
    """Delete an agent with its mounts; sources and documents stay."""
    agent = services.agents.agent(agent_id, caller)
    services.agents.delete_agent(agent_id)
    return AgentResponse.of(agent)


@router.get("/{agent_id}/mounts")
def mounts(agent_id: str, caller: Administrator, services: Services) -> MountList:
    """What an agent mounts, highest priority first."""
    services.agents.agent(agent_id, caller)
    return _mounts(services, agent_id)


@router.post("/{agent_id}/mounts")
def mount(agent_id: str, body: MountRequest, caller: Administrator, services: Services) -> MountList:
    """Mount a source of the agent's knowledge base, or change its priority; in force for the next query."""
    services.agents.agent(agent_id, caller)
    services.agents.mount(agent_id, body.source_id, body.priority)
    return _mounts(services, agent_id)


@router.delete("/{agent_id}/mounts/{source_id}")
def unmount(agent_id: str, source_id: str, caller: Administrator, services: Services) -> MountList:
    """Unmount a source; 404 when it was not mounted."""
    services.agents.agent(agent_id, caller)
    services.agents.unmount(agent_id, source_id)
    return _mounts(services, agent_id)


def _mounts(services: Backend, agent_id: str) -> MountList:
    found = services.agents.mounts(agent_id)
    return MountList(agent_id=agent_id, items=[MountResponse.of(mount, source) for mount, source in found])
