"""Sources, agents and what they mount."""

from __future__ import annotations

from typing import Protocol

from rag_cluster.domain.access import Principal
from rag_cluster.domain.documents import Agent, Document, Source, SourceMount


class Agents(Protocol):
    """Sources, the agents that mount them, and what managed corrections there are."""

    def sources(
        self, knowledge_base_id: str, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[Source], str | None]:
        """Of one knowledge base, oldest first."""
        ...

    def source(self, source_id: str, principal: Principal) -> Source:
        """By id, of a knowledge base that the principal may use: NotFoundError otherwise."""
        ...

    def update_source(
        self,
        source_id: str,
        *,
        enabled: bool | None = None,
        priority: int | None = None,
        chunking_strategy: str | None = None,
    ) -> Source:
        """None leaves a field alone, "" clears the strategy. A disabled source is gone from the next query."""
        ...

    def create_agent(self, knowledge_base_id: str, name: str, *, hide_source_filename: bool = False) -> Agent:
        """ConflictError when the knowledge base has one of that name; NotFoundError without it."""
        ...

    def agent(self, agent_id: str, principal: Principal) -> Agent:
        """By id, of a knowledge base that the principal may use: NotFoundError otherwise."""
        ...

    def find_agent(self, knowledge_base_id: str, id_or_name: str) -> Agent:
        """NotFoundError."""
        ...

    def agents(
        self, knowledge_base_id: str, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[Agent], str | None]:
        """Of one knowledge base, oldest first."""
        ...

    def update_agent(
        self, agent_id: str, *, name: str | None = None, hide_source_filename: bool | None = None
    ) -> Agent:
        """None leaves a field alone. NotFoundError, ConflictError."""
        ...

    def delete_agent(self, agent_id: str) -> None:
        """With its mounts; sources and documents stay. NotFoundError."""
        ...

    def mount(self, agent_id: str, source_id: str, priority: int | None = None) -> SourceMount:
        """Mount a source of the agent's knowledge base, or change its priority; None keeps it, 0 where it is new.
        NotFoundError."""
        ...

    def unmount(self, agent_id: str, source_id: str) -> None:
        """NotFoundError when it was not mounted."""
        ...

    def mounts(self, agent_id: str) -> list[tuple[SourceMount, Source]]:
        """Highest priority first."""
        ...

    def corrections(
        self, knowledge_base_id: str, principal: Principal, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[Document], str | None]:
        """The documents of managed_correction sources that the principal may read, oldest first."""
        ...
