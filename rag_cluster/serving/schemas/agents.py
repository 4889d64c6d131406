"""Sources, agents, mounts and managed corrections."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints

from rag_cluster.domain.documents import Agent, Document, Source, SourceKind, SourceMount
from rag_cluster.ingestion.corrections import CORRECTIONS_SOURCE, MAX_ANSWER, MAX_QUESTION
from rag_cluster.serving.schemas.base import Metadata, Name, NewName, RequestModel
from rag_cluster.serving.schemas.catalog import AccessModel, DeleteResponse

Priority = Annotated[int, Field(ge=-1_000_000, le=1_000_000, description="Higher comes first.")]


class SourceCreate(RequestModel):
    """A source that documents may be written to."""

    knowledge_base: Name = Field(description="Id or name.")
    kind: SourceKind
    name: NewName


class SourcePatch(RequestModel):
    """Fields that are left out stay as they are; in force for the next query."""

    enabled: bool | None = None
    priority: Priority | None = None
    default_chunking_strategy: str | None = Field(None, max_length=100, description='"": the configured default.')


class SourceResponse(BaseModel):
    """A named origin of documents."""

    id: str
    knowledge_base_id: str
    kind: SourceKind
    name: str
    enabled: bool
    priority: int
    default_chunking_strategy: str | None

    @classmethod
    def of(cls, source: Source) -> SourceResponse:
        """From the domain."""
        return cls(
            id=source.id,
            knowledge_base_id=source.knowledge_base_id,
            kind=source.kind,
            name=source.name,
            enabled=source.enabled,
            priority=source.priority,
            default_chunking_strategy=source.default_chunking_strategy,
        )


class SourcePage(BaseModel):
    """One page of sources."""

    items: list[SourceResponse]
    next_cursor: str | None


class SourceDeleteResponse(BaseModel):
    """Receipts of all documents of a source."""

    source_id: str
    documents: list[DeleteResponse]


class AgentCreate(RequestModel):
    """A consumer that searches the sources which it mounts, and no others."""

    knowledge_base: Name = Field(description="Id or name.")
    name: NewName
    hide_source_filename: bool = Field(False, description="Keep file names from the language model.")


class AgentPatch(RequestModel):
    """Fields that are left out stay as they are."""

    name: NewName | None = None
    hide_source_filename: bool | None = None


class AgentResponse(BaseModel):
    """An agent; its id is `options.agent_id` of a query."""

    id: str
    knowledge_base_id: str
    name: str
    hide_source_filename: bool

    @classmethod
    def of(cls, agent: Agent) -> AgentResponse:
        """From the domain."""
        return cls(
            id=agent.id,
            knowledge_base_id=agent.knowledge_base_id,
            name=agent.name,
            hide_source_filename=agent.hide_source_filename,
        )


class AgentPage(BaseModel):
    """One page of agents."""

    items: list[AgentResponse]
    next_cursor: str | None


class MountRequest(RequestModel):
    """A source to mount, or to mount with another priority."""

    source_id: str = Field(max_length=200)
    priority: Priority | None = Field(None, description="null keeps it, 0 where the mount is new.")


class MountResponse(BaseModel):
    """A mounted source."""

    source_id: str
    priority: int
    source: SourceResponse

    @classmethod
    def of(cls, mount: SourceMount, source: Source) -> MountResponse:
        """From the domain."""
        return cls(source_id=mount.source_id, priority=mount.priority, source=SourceResponse.of(source))


class MountList(BaseModel):
    """What an agent mounts, highest priority first."""

    agent_id: str
    items: list[MountResponse]


class CorrectionRequest(RequestModel):
    """A question and what is to be answered from now on. The same question again replaces its answer."""

    knowledge_base: Name = Field(description="Id or name.")
    question: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_QUESTION)]
    answer: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_ANSWER)]
    source: NewName = Field(CORRECTIONS_SOURCE, description="Name of the managed_correction source, made when new.")
    agents: list[Name] = Field(
        default_factory=list, max_length=100, description="Ids or names of agents that mount the source from now on."
    )
    priority: Priority | None = Field(None, description="Of these mounts; null keeps it, 0 where the mount is new.")
    access: AccessModel | None = Field(
        None, description="null keeps it; a new correction gets the knowledge base's default."
    )
    metadata: Metadata | None = Field(None, description="null keeps them.")


class CorrectionResponse(BaseModel):
    """A correction, published: the next query finds it."""

    document_id: str
    source_id: str
    version: int
    question: str
    unchanged: bool = Field(False, description="The same question with the same answer was there already.")


class CorrectionItem(BaseModel):
    """A correction in a list. Its answer is the document's content."""

    document_id: str
    source_id: str
    question: str
    version: int
    status: str
    access: AccessModel

    @classmethod
    def of(cls, document: Document) -> CorrectionItem:
        """From the domain."""
        return cls(
            document_id=document.id,
            source_id=document.source_id,
            question=str(document.metadata.get("question", document.filename)),
            version=document.version,
            status=document.status,
            access=AccessModel.of(document.access),
        )


class CorrectionPage(BaseModel):
    """One page of corrections."""

    items: list[CorrectionItem]
    next_cursor: str | None
