"""Retrieval and answers: options, results, traces, citations."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field, StringConstraints

from rag_cluster.domain.answers import Answer, Citation
from rag_cluster.domain.blocks import SourceLocator
from rag_cluster.domain.filters import FilterError, parse_filter
from rag_cluster.domain.retrieval import (
    MAX_CANDIDATES,
    RetrievalMode,
    RetrievalOptions,
    RetrievalResult,
    RetrievalTrace,
)
from rag_cluster.errors import InvalidFilterError
from rag_cluster.serving.schemas.base import (
    Name,
    RequestModel,
)
from rag_cluster.serving.schemas.filters import Filters

MAX_QUESTION_CHARS = 8_000


class QueryOptions(RequestModel):
    """Choices of one query; what is left out follows the server's settings."""

    mode: RetrievalMode = RetrievalMode.HYBRID
    top_k: int | None = Field(None, ge=1, le=MAX_CANDIDATES)
    candidate_k: int | None = Field(
        None, ge=1, le=MAX_CANDIDATES, description="Chunks that are reranked; top_k where that is more."
    )
    rewrite: bool = False
    rerank: bool = True
    expand_parents: bool = True
    keyword_fallback: bool = False
    cross_language: bool = Field(False, description="Also passages in the other language, Chinese or English.")
    score_threshold: float | None = None
    document_ids: list[str] | None = Field(None, max_length=10_000)
    source_ids: list[str] | None = Field(None, max_length=1_000)
    agent_id: str | None = None
    filters: Filters = Field(default_factory=dict)

    def resolve(self, *, top_k: int, candidate_k: int, score_threshold: float | None) -> RetrievalOptions:
        """To the domain, with the server's defaults. InvalidFilterError."""
        try:
            parse_filter(self.filters)
        except FilterError as error:
            raise InvalidFilterError(f"options.{error}") from None
        return RetrievalOptions(
            mode=self.mode,
            top_k=self.top_k or top_k,
            candidate_k=self.candidate_k or candidate_k,
            rewrite=self.rewrite,
            rerank=self.rerank,
            expand_parents=self.expand_parents,
            keyword_fallback=self.keyword_fallback,
            cross_language=self.cross_language,
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


class ContextRequest(RetrieveRequest):
    """A search whose evidence is wanted as one text, for a language model of the caller's."""

    max_context_length: int | None = Field(
        None, ge=1, description="Characters; a source that does not fit is left out."
    )
    include_metadata: bool = Field(True, description="Each source's number, document and place above its text.")


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


class ContextResponse(BaseModel):
    """Evidence, best first, as one text."""

    context: str = Field(description="Empty where nothing was found.")
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
