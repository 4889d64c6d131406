"""Contract of the Agents port, and what a query makes of it."""

from __future__ import annotations

import pytest

from rag_cluster.domain.access import LOCAL, AccessAttributes, Principal
from rag_cluster.domain.documents import SourceKind
from rag_cluster.domain.ports import Agents, Catalog, Evidence, Ledger
from rag_cluster.domain.retrieval import RetrievalOptions
from rag_cluster.errors import ConflictError, InvalidRequestError, NotFoundError
from rag_cluster.stores.postgres.agents import PostgresAgents
from rag_cluster.stores.postgres.database import Database
from tests.contracts.ledger_steps import Ingest, listed

NOWHERE = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def ingest(catalog: Catalog, ledger: Ledger) -> Ingest:
    return Ingest(catalog, ledger)


@pytest.fixture
def agents(database: Database) -> Agents:
    return PostgresAgents(database)


def test_an_agent_is_created_found_changed_and_deleted(agents: Agents, ingest: Ingest) -> None:
    made = agents.create_agent(ingest.knowledge_base_id, "helper")
    assert agents.agent(made.id, LOCAL) == agents.find_agent(ingest.knowledge_base_id, "helper") == made
    assert agents.find_agent(ingest.knowledge_base_id, made.id) == made
    changed = agents.update_agent(made.id, hide_source_filename=True)
    assert (changed.name, changed.hide_source_filename) == ("helper", True)
    assert agents.update_agent(made.id, name="desk").hide_source_filename
    agents.delete_agent(made.id)
    for call in (
        lambda: agents.agent(made.id, LOCAL),
        lambda: agents.delete_agent(made.id),
        lambda: agents.update_agent(made.id, name="x"),
        lambda: agents.find_agent(ingest.knowledge_base_id, "desk"),
        lambda: agents.mount(made.id, ingest.source_id),
        lambda: agents.create_agent(NOWHERE, "x"),
        lambda: agents.agent("no id", LOCAL),
    ):
        with pytest.raises(NotFoundError):
            call()


def test_an_agents_name_is_its_own_within_its_knowledge_base(agents: Agents, ingest: Ingest) -> None:
    other = ingest.catalog.create_knowledge_base("other").id
    agents.create_agent(ingest.knowledge_base_id, "helper")
    agents.create_agent(other, "helper")
    with pytest.raises(ConflictError):
        agents.create_agent(ingest.knowledge_base_id, "helper")
    second = agents.create_agent(ingest.knowledge_base_id, "second")
    with pytest.raises(ConflictError):
        agents.update_agent(second.id, name="helper")


def test_agents_and_sources_are_listed_page_by_page(agents: Agents, ingest: Ingest) -> None:
    for number in range(3):
        agents.create_agent(ingest.knowledge_base_id, f"agent {number}")
        ingest.catalog.ensure_source(ingest.knowledge_base_id, SourceKind.BULK, f"source {number}")
    first, cursor = agents.agents(ingest.knowledge_base_id, limit=2)
    rest, end = agents.agents(ingest.knowledge_base_id, limit=2, cursor=cursor)
    assert [agent.name for agent in first + rest] == ["agent 0", "agent 1", "agent 2"] and end is None
    sources, _ = agents.sources(ingest.knowledge_base_id)
    assert [source.name for source in sources] == ["files", "source 0", "source 1", "source 2"]
    assert agents.agents(NOWHERE) == agents.sources("no id") == ([], None)
    with pytest.raises(InvalidRequestError):
        agents.agents(ingest.knowledge_base_id, cursor="nonsense")


def test_a_principal_knows_only_agents_and_sources_of_its_knowledge_bases(agents: Agents, ingest: Ingest) -> None:
    agent = agents.create_agent(ingest.knowledge_base_id, "helper")
    granted = Principal("member", frozenset({ingest.knowledge_base_id}))
    stranger = Principal("stranger", frozenset({NOWHERE}), unrestricted=True)
    assert agents.agent(agent.id, granted) == agent
    assert agents.source(ingest.source_id, granted).name == "files"
    for call in (lambda: agents.agent(agent.id, stranger), lambda: agents.source(ingest.source_id, stranger)):
        with pytest.raises(NotFoundError):
            call()


def test_sources_are_mounted_ranked_and_unmounted(agents: Agents, ingest: Ingest) -> None:
    agent = agents.create_agent(ingest.knowledge_base_id, "helper")
    more = ingest.catalog.ensure_source(ingest.knowledge_base_id, SourceKind.MANAGED_CORRECTION, "fixes")
    assert agents.mount(agent.id, ingest.source_id).priority == 0
    assert agents.mount(agent.id, more.id, 7).priority == 7
    assert agents.mount(agent.id, more.id).priority == 7
    assert [(mount.priority, source.name) for mount, source in agents.mounts(agent.id)] == [(7, "fixes"), (0, "files")]
    assert agents.mount(agent.id, ingest.source_id, 9).priority == 9
    assert [source.name for _, source in agents.mounts(agent.id)] == ["files", "fixes"]
    agents.unmount(agent.id, more.id)
    assert [source.name for _, source in agents.mounts(agent.id)] == ["files"]
    with pytest.raises(NotFoundError):
        agents.unmount(agent.id, more.id)


def test_a_source_of_another_knowledge_base_is_not_mounted(agents: Agents, ingest: Ingest) -> None:
    agent = agents.create_agent(ingest.knowledge_base_id, "helper")
    other = ingest.catalog.create_knowledge_base("other").id
    foreign = ingest.catalog.ensure_source(other, SourceKind.BULK, "files")
    with pytest.raises(NotFoundError, match="no source"):
        agents.mount(agent.id, foreign.id)


def test_a_source_keeps_what_an_update_leaves_out(agents: Agents, ingest: Ingest) -> None:
    assert agents.update_source(ingest.source_id, chunking_strategy="sentence").default_chunking_strategy == "sentence"
    changed = agents.update_source(ingest.source_id, enabled=False, priority=3)
    assert (changed.enabled, changed.priority, changed.default_chunking_strategy) == (False, 3, "sentence")
    assert agents.update_source(ingest.source_id, chunking_strategy="").default_chunking_strategy is None
    with pytest.raises(NotFoundError):
        agents.update_source(NOWHERE, enabled=True)


async def test_the_next_query_sees_every_change(agents: Agents, ingest: Ingest, evidence: Evidence) -> None:
    ingest.ready()
    agent = agents.create_agent(ingest.knowledge_base_id, "helper", hide_source_filename=True)

    async def scope() -> tuple[bool, dict[str, int], tuple[str, ...], bool]:
        found = await evidence.scope(LOCAL, ingest.knowledge_base_id, RetrievalOptions(agent_id=agent.id))
        hidden = found.hide_source_filename
        return found.filter.empty, dict(found.mounts), found.correction_source_ids, hidden

    assert await scope() == (True, {}, (), True)
    agents.mount(agent.id, ingest.source_id, 4)
    assert await scope() == (False, {ingest.source_id: 4}, (), True)
    fixes = ingest.catalog.ensure_source(ingest.knowledge_base_id, SourceKind.MANAGED_CORRECTION, "fixes")
    agents.mount(agent.id, fixes.id)
    assert (await scope())[2] == (fixes.id,)
    agents.update_source(ingest.source_id, enabled=False)
    assert await scope() == (True, {fixes.id: 0}, (fixes.id,), True)
    agents.delete_agent(agent.id)
    with pytest.raises(NotFoundError):
        await scope()


def test_only_corrections_that_may_be_read_are_listed(agents: Agents, ingest: Ingest) -> None:
    fixes = ingest.catalog.ensure_source(ingest.knowledge_base_id, SourceKind.MANAGED_CORRECTION, "fixes")
    ingest.ready(listed("file:///plain"))
    ingest.source_id = fixes.id
    open_one = ingest.ready(listed("correction://1")).document_id
    ingest.ready(listed("correction://2", access=AccessAttributes(("board",))))
    member = Principal("member", frozenset({ingest.knowledge_base_id}))
    found, _ = agents.corrections(ingest.knowledge_base_id, member)
    assert [document.id for document in found] == [open_one]
    assert len(agents.corrections(ingest.knowledge_base_id, LOCAL)[0]) == 2
    assert agents.corrections(NOWHERE, LOCAL) == ([], None)
