"""Requests and responses of /v1, as OpenAPI shows them."""

from __future__ import annotations

import unicodedata
from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from rag_cluster.domain.access import AccessAttributes
from rag_cluster.domain.answers import Answer, Citation
from rag_cluster.domain.blocks import SourceLocator
from rag_cluster.domain.documents import (
    DeleteReceipt,
    Document,
    DocumentStatus,
    IngestionJob,
    IngestionRun,
    KnowledgeBase,
    Receipt,
)
from rag_cluster.domain.retrieval import (
    MAX_CANDIDATES,
    RetrievalMode,
    RetrievalOptions,
    RetrievalResult,
    RetrievalTrace,
)
from rag_cluster.serving.plain_values import check_metadata, check_plain

Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
Group = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
MAX_ACL_BYTES = 1800


def _indexable(acl: list[str]) -> list[str]:
    """PostgreSQL's unique index on access attributes holds 2,704 bytes, of which a department may take 800."""
    if sum(len(group.encode()) + 8 for group in acl) > MAX_ACL_BYTES:
        raise ValueError(f"the groups together must not be longer than {MAX_ACL_BYTES:,} bytes")
    return acl


Acl = Annotated[list[Group], AfterValidator(_indexable)]
Department = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
Metadata = Annotated[dict[str, Any], AfterValidator(check_metadata)]
MAX_QUESTION_CHARS = 8_000


def _addressable(name: str) -> str:
    """A new name must be usable as a path segment, and look like what it is."""
    if "/" in name or "\\" in name or name in (".", ".."):
        raise ValueError("must not contain a slash, nor be '.' or '..'")
    if any(unicodedata.category(char) in ("Cc", "Zl", "Zp") for char in name):
        raise ValueError("must not contain control characters")
    return name


NewName = Annotated[Name, AfterValidator(_addressable)]


class RequestModel(BaseModel):
    """Requests refuse unknown fields, so that a typing mistake is not silently ignored."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    _plain = model_validator(mode="before")(check_plain)


class ErrorBody(BaseModel):
    """What went wrong."""

    code: int = Field(description="Stable numeric code.")
    type: str = Field(description="Stable type.")
    message: str
    request_id: str


def binary(description: str, *media_types: str) -> dict[int | str, dict[str, Any]]:
    """`responses=` of a route that answers with bytes."""
    content = {media_type: {"schema": {"type": "string", "format": "binary"}} for media_type in media_types}
    return {200: {"description": description, "content": content}}


class ErrorResponse(BaseModel):
    """Every error has this form."""

    error: ErrorBody


# -- knowledge bases -------------------------------------------------------------------------------------------------


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


# -- documents -------------------------------------------------------------------------------------------------------


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


# -- retrieval and answers -------------------------------------------------------------------------------------------


class QueryOptions(RequestModel):
    """Choices of one query; what is left out follows the server's settings."""

    mode: RetrievalMode = RetrievalMode.HYBRID
    top_k: int | None = Field(None, ge=1, le=MAX_CANDIDATES)
    candidate_k: int | None = Field(None, ge=1, le=MAX_CANDIDATES)
    rewrite: bool = False
    rerank: bool = True
    expand_parents: bool = True
    keyword_fallback: bool = True
    score_threshold: float | None = None
    document_ids: list[str] | None = Field(None, max_length=10_000)
    source_ids: list[str] | None = Field(None, max_length=1_000)
    agent_id: str | None = None
    filters: dict[str, Any] = Field(default_factory=dict, description="Equality on document metadata.")

    def resolve(self, *, top_k: int, candidate_k: int, score_threshold: float | None) -> RetrievalOptions:
        """To the domain, with the server's defaults."""
        return RetrievalOptions(
            mode=self.mode,
            top_k=self.top_k or top_k,
            candidate_k=max(self.candidate_k or candidate_k, 1),
            rewrite=self.rewrite,
            rerank=self.rerank,
            expand_parents=self.expand_parents,
            keyword_fallback=self.keyword_fallback,
            score_threshold=self.score_threshold if self.score_threshold is not None else score_threshold,
            document_ids=None if self.document_ids is None else tuple(self.document_ids),
            source_ids=None if self.source_ids is None else tuple(self.source_ids),
            agent_id=self.agent_id,
            filters=self.filters,
        )


class RetrieveRequest(RequestModel):
    """A search."""

    knowledge_base: Name = Field(description="Id or name.")
    query: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_QUESTION_CHARS)]
    options: QueryOptions = QueryOptions()


class AnswerRequest(RequestModel):
    """A question."""

    knowledge_base: Name = Field(description="Id or name.")
    question: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_QUESTION_CHARS)]
    options: QueryOptions = QueryOptions()
    stream: bool = Field(False, description="true: Server-Sent Events (also by Accept: text/event-stream).")
    session_id: str | None = Field(None, description="Continue this chat session; null starts one.")


class LocatorModel(BaseModel):
    """Where a text lies in its original file. Only what the format can say is there."""

    heading_path: list[str] = []
    page: int | None = Field(None, description="1-based.")
    bbox: list[float] | None = Field(None, description="PDF points, top-left origin, page as displayed.")
    spans: list[tuple[int, list[float]]] = []
    sheet: str | None = None
    cell_range: str | None = None
    slide: int | None = None
    line_start: int | None = None
    line_end: int | None = None
    display: str = Field("", description="The same for a person.")

    @classmethod
    def of(cls, locator: SourceLocator) -> LocatorModel:
        """From the domain."""
        return cls(**locator.to_dict(), display=locator.display())


class AssetModel(BaseModel):
    """An image of a result."""

    id: str
    media_type: str
    caption: str
    content_url: str


class ResultModel(BaseModel):
    """One result."""

    chunk_id: str
    document_id: str
    version: int
    filename: str
    content: str
    matched_content: str
    score: float
    dense_score: float | None
    sparse_score: float | None
    fusion_score: float | None
    rerank_score: float | None
    retrieval_sources: list[str]
    retrieval_mode: str
    heading_path: list[str]
    locator: LocatorModel
    context_locator: LocatorModel
    context_chunk_ids: list[str]
    content_types: list[str]
    assets: list[AssetModel]
    source_id: str
    source_kind: str
    source_name: str
    source_priority: int
    document_origin: str
    metadata: dict[str, Any]

    @classmethod
    def of(cls, result: RetrievalResult) -> ResultModel:
        """From the domain."""
        return cls(
            chunk_id=result.chunk_id,
            document_id=result.document_id,
            version=result.version,
            filename=result.filename,
            content=result.content,
            matched_content=result.matched_content,
            score=result.score,
            dense_score=result.dense_score,
            sparse_score=result.sparse_score,
            fusion_score=result.fusion_score,
            rerank_score=result.rerank_score,
            retrieval_sources=list(result.retrieval_sources),
            retrieval_mode=result.retrieval_mode,
            heading_path=list(result.heading_path),
            locator=LocatorModel.of(result.locator),
            context_locator=LocatorModel.of(result.context_locator),
            context_chunk_ids=list(result.context_chunk_ids),
            content_types=list(result.content_types),
            assets=[
                AssetModel(
                    id=asset.id,
                    media_type=asset.media_type,
                    caption=asset.caption,
                    content_url=f"/v1/assets/{asset.id}",
                )
                for asset in result.assets
            ],
            source_id=result.source_id,
            source_kind=result.source_kind,
            source_name=result.source_name,
            source_priority=result.source_priority,
            document_origin=result.document_origin,
            metadata=dict(result.metadata),
        )


class StageModel(BaseModel):
    """One stage of a trace."""

    name: str
    milliseconds: float
    counts: dict[str, int]


class TraceModel(BaseModel):
    """What really happened to a query."""

    mode: RetrievalMode
    query_variants: list[str]
    stages: list[StageModel]
    degradations: list[str]
    milliseconds: float

    @classmethod
    def of(cls, trace: RetrievalTrace) -> TraceModel:
        """From the domain."""
        return cls(
            mode=trace.mode,
            query_variants=list(trace.query_variants),
            stages=[
                StageModel(name=stage.name, milliseconds=round(stage.milliseconds, 3), counts=dict(stage.counts))
                for stage in trace.stages
            ],
            degradations=list(trace.degradations),
            milliseconds=round(trace.milliseconds, 3),
        )


class RetrieveResponse(BaseModel):
    """Results, best first, and the trace."""

    query: str
    results: list[ResultModel]
    trace: TraceModel
    request_id: str


class CitationModel(BaseModel):
    """One numbered source of an answer."""

    number: int
    document_id: str
    version: int
    filename: str
    chunk_id: str
    heading_path: list[str]
    locator: LocatorModel
    context_chunk_ids: list[str]
    quote: str
    uri: str

    @classmethod
    def of(cls, citation: Citation) -> CitationModel:
        """From the domain."""
        return cls(
            number=citation.number,
            document_id=citation.document_id,
            version=citation.version,
            filename=citation.filename,
            chunk_id=citation.chunk_id,
            heading_path=list(citation.heading_path),
            locator=LocatorModel.of(citation.locator),
            context_chunk_ids=list(citation.context_chunk_ids),
            quote=citation.quote,
            uri=citation.uri,
        )


class AnswerResponse(BaseModel):
    """An answer; a refused one has no citations."""

    question: str
    answer: str
    refused: bool
    refusal_reason: str
    citations: list[CitationModel]
    results: list[ResultModel]
    trace: TraceModel | None
    warnings: list[str]
    session_id: str | None = None
    message_id: str | None = None
    request_id: str

    @classmethod
    def of(cls, answer: Answer, request_id: str) -> AnswerResponse:
        """From the domain."""
        return cls(
            question=answer.question,
            answer=answer.text,
            refused=answer.refused,
            refusal_reason=answer.refusal_reason,
            citations=[CitationModel.of(citation) for citation in answer.citations],
            results=[ResultModel.of(result) for result in answer.results],
            trace=TraceModel.of(answer.trace) if answer.trace else None,
            warnings=list(answer.warnings),
            session_id=answer.session_id,
            message_id=answer.message_id,
            request_id=request_id,
        )


class HealthResponse(BaseModel):
    """The process answers."""

    status: str


class ReadyResponse(BaseModel):
    """Which dependencies answer; 503 unless all do."""

    status: str
    checks: dict[str, str]
