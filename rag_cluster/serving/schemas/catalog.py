"""Knowledge bases, documents, uploads, jobs and runs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from rag_cluster.domain.access import AccessAttributes
from rag_cluster.domain.documents import (
    DeleteReceipt,
    Document,
    DocumentStatus,
    IngestionJob,
    IngestionRun,
    KnowledgeBase,
    Receipt,
)
from rag_cluster.serving.schemas.base import (
    Acl,
    Department,
    Metadata,
    NewName,
    RequestModel,
)


class KnowledgeBaseCreate(RequestModel):
    """A new knowledge base."""

    name: NewName
    description: str = Field("", max_length=4000)
    default_acl: Acl | None = Field(
        None, description="acl of documents that state none. null: closed. []: everyone with access to the base."
    )


class KnowledgeBasePatch(RequestModel):
    """Fields that are left out stay as they are."""

    name: NewName | None = None
    description: str | None = Field(None, max_length=4000)
    default_acl: Acl | None = Field(None, description="null closes the base; leave out to keep it.")


class KnowledgeBaseResponse(BaseModel):
    """A knowledge base."""

    id: str
    name: str
    description: str
    default_acl: list[str] | None
    created_at: datetime | None
    updated_at: datetime | None

    @classmethod
    def of(cls, base: KnowledgeBase) -> KnowledgeBaseResponse:
        """From the domain."""
        return cls(
            id=base.id,
            name=base.name,
            description=base.description,
            default_acl=None if base.default_acl is None else list(base.default_acl),
            created_at=base.created_at,
            updated_at=base.updated_at,
        )


class KnowledgeBasePage(BaseModel):
    """One page; pass next_cursor as ?cursor= for the next."""

    items: list[KnowledgeBaseResponse]
    next_cursor: str | None


class AccessModel(BaseModel):
    """Who may read a document."""

    acl: Acl | None = Field(None, description="Groups. null: the base's default. []: everyone with the base.")
    department: Department | None = None
    security_level: int = Field(0, ge=0, le=9)

    def attributes(self) -> AccessAttributes:
        """To the domain."""
        return AccessAttributes(
            acl=None if self.acl is None else tuple(self.acl),
            department=self.department,
            security_level=self.security_level,
        )

    @classmethod
    def of(cls, access: AccessAttributes) -> AccessModel:
        """From the domain."""
        return cls(
            acl=None if access.acl is None else list(access.acl),
            department=access.department,
            security_level=access.security_level,
        )


class DocumentPatch(RequestModel):
    """New access or metadata, in force for the next request; nothing is parsed or embedded again."""

    access: AccessModel | None = None
    metadata: Metadata | None = Field(None, description="Replaces the document's metadata.")


class DocumentResponse(BaseModel):
    """A document with its newest version's status."""

    id: str
    knowledge_base_id: str
    source_id: str
    filename: str
    uri: str
    mime_type: str
    status: DocumentStatus
    version: int
    published_version: int | None
    access: AccessModel
    metadata: dict[str, Any]
    error_type: str | None
    error_message: str | None
    created_at: datetime | None
    updated_at: datetime | None

    @classmethod
    def of(cls, document: Document) -> DocumentResponse:
        """From the domain."""
        return cls(
            id=document.id,
            knowledge_base_id=document.knowledge_base_id,
            source_id=document.source_id,
            filename=document.filename,
            uri=document.uri,
            mime_type=document.mime_type,
            status=document.status,
            version=document.version,
            published_version=document.published_version,
            access=AccessModel.of(document.access),
            metadata=dict(document.metadata),
            error_type=document.error_type,
            error_message=document.error_message,
            created_at=document.created_at,
            updated_at=document.updated_at,
        )


class DocumentPage(BaseModel):
    """One page of documents."""

    items: list[DocumentResponse]
    next_cursor: str | None


class UploadResponse(BaseModel):
    """An accepted upload; follow the job."""

    document_id: str
    job_id: str
    status: str
    deduplicated: bool


class JobResponse(BaseModel):
    """The background job of an upload."""

    id: str
    document_id: str
    knowledge_base_id: str
    status: str
    stage: str
    percent: int
    queue_position: int | None = None
    """Jobs before it that the caller may see, while it waits."""
    attempts: int
    max_attempts: int
    error_type: str | None
    error_message: str | None
    created_at: datetime | None
    updated_at: datetime | None

    @classmethod
    def of(cls, job: IngestionJob) -> JobResponse:
        """From the domain."""
        return cls(
            id=job.id,
            document_id=job.document_id,
            knowledge_base_id=job.knowledge_base_id,
            status=job.status,
            stage=job.stage,
            percent=job.percent,
            queue_position=job.queue_position,
            attempts=job.attempts,
            max_attempts=job.max_attempts,
            error_type=job.error_type,
            error_message=job.error_message,
            created_at=job.created_at,
            updated_at=job.updated_at,
        )


class DeleteResponse(BaseModel):
    """What was verified gone, store by store."""

    document_id: str
    stores: dict[str, str]
    pending: bool

    @classmethod
    def of(cls, receipt: DeleteReceipt) -> DeleteResponse:
        """From the domain."""
        return cls(document_id=receipt.document_id, stores=dict(receipt.stores), pending=receipt.pending)


class KnowledgeBaseDeleteResponse(BaseModel):
    """Receipts of all documents of a deleted knowledge base."""

    knowledge_base_id: str
    documents: list[DeleteResponse]


class RunResponse(BaseModel):
    """A bulk ingestion run."""

    id: str
    knowledge_base_id: str
    status: str
    inputs: list[str]
    counts: dict[str, int]
    error_message: str | None
    started_at: datetime | None
    updated_at: datetime | None
    finished_at: datetime | None

    @classmethod
    def of(cls, run: IngestionRun) -> RunResponse:
        """From the domain."""
        return cls(
            id=run.id,
            knowledge_base_id=run.knowledge_base_id,
            status=run.status,
            inputs=list(run.inputs),
            counts=dict(run.counts),
            error_message=run.error_message,
            started_at=run.started_at,
            updated_at=run.updated_at,
            finished_at=run.finished_at,
        )


class RunPage(BaseModel):
    """One page of runs, newest first."""

    items: list[RunResponse]
    next_cursor: str | None


class ReceiptResponse(BaseModel):
    """One input of a run that did not simply become ready."""

    uri: str
    document_id: str
    outcome: str
    stage: str
    error_type: str | None
    message: str

    @classmethod
    def of(cls, receipt: Receipt) -> ReceiptResponse:
        """From the domain."""
        return cls(
            uri=receipt.uri,
            document_id=receipt.document_id,
            outcome=receipt.outcome,
            stage=receipt.stage,
            error_type=receipt.error_type,
            message=receipt.message,
        )


class RunDetail(RunResponse):
    """A run with its failures and skipped inputs."""

    receipts: list[ReceiptResponse]
    report: dict[str, Any] | None = None
    """Once it has ended: outcomes, failures by type, the slowest documents, which stages were at work when."""
