"""Explanations: where every stage of a query left one chunk."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, Field, StringConstraints, model_validator

from rag_cluster.domain.access import Principal
from rag_cluster.domain.retrieval import Explanation, Outcome, RetrievalRun, Standing, Target
from rag_cluster.serving.schemas.base import Department, Group, Name, RequestModel
from rag_cluster.serving.schemas.queries import MAX_QUESTION_CHARS, QueryOptions, ResultModel, TraceModel

MAX_TARGET_CHARS = 2_000


class ReaderModel(RequestModel):
    """As whom the query is made. For unrestricted keys."""

    groups: list[Group] = Field(default_factory=list, max_length=1_000)
    department: Department | None = None
    security_level: int = Field(0, ge=0, le=9)

    def principal(self, knowledge_base_id: str) -> Principal:
        """To the domain: a reader of this knowledge base."""
        return Principal(
            "explained reader",
            frozenset({knowledge_base_id}),
            frozenset(self.groups),
            self.department,
            self.security_level,
        )


class ExplainRequest(RequestModel):
    """A query, and what should have been among its results: one of chunk_id, document_id and text."""

    knowledge_base: Name = Field(description="Id or name.")
    query: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_QUESTION_CHARS)]
    chunk_id: str | None = Field(None, max_length=200)
    document_id: str | None = Field(None, max_length=200, description="Its chunk that came furthest is explained.")
    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_TARGET_CHARS)] | None = (
        Field(None, description="Words that stand together in a published chunk; white space and case do not count.")
    )
    options: QueryOptions = QueryOptions()
    reader: ReaderModel | None = Field(None, description="Explain somebody else's query; needs an unrestricted key.")

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        if sum(value is not None for value in (self.chunk_id, self.document_id, self.text)) != 1:
            raise ValueError("give exactly one of chunk_id, document_id and text")
        return self

    def target(self) -> Target:
        """To the domain."""
        return Target(self.chunk_id, self.document_id, self.text)


class StandingModel(BaseModel):
    """Where one stage left the chunk."""

    stage: str
    outcome: Outcome
    rank: int | None
    score: float | None
    detail: str

    @classmethod
    def of(cls, standing: Standing) -> StandingModel:
        """From the domain."""
        return cls(
            stage=standing.stage,
            outcome=standing.outcome,
            rank=standing.rank,
            score=standing.score,
            detail=standing.detail,
        )


class ExplainResponse(BaseModel):
    """The chunk's way through the query, and what the query found instead."""

    query: str
    document_id: str
    filename: str
    version: int
    chunk_id: str | None = Field(description="null: the document has no chunk.")
    text: str
    lost_at: str = Field(description='The first stage that lost it; "": it is shown.')
    result: int | None = Field(description="Which result shows it, 1-based.")
    standings: list[StandingModel]
    query_tokens: list[str]
    chunk_tokens: list[str]
    shared_tokens: list[str]
    results: list[ResultModel]
    trace: TraceModel
    request_id: str

    @classmethod
    def of(cls, explanation: Explanation, run: RetrievalRun, request_id: str) -> ExplainResponse:
        """From the domain."""
        return cls(
            query=explanation.query,
            document_id=explanation.document_id,
            filename=explanation.filename,
            version=explanation.version,
            chunk_id=explanation.chunk_id,
            text=explanation.text,
            lost_at=explanation.lost_at,
            result=explanation.result,
            standings=[StandingModel.of(standing) for standing in explanation.standings],
            query_tokens=list(explanation.query_tokens),
            chunk_tokens=list(explanation.chunk_tokens),
            shared_tokens=list(explanation.shared_tokens),
            results=[ResultModel.of(result) for result in run.results],
            trace=TraceModel.of(run.trace),
            request_id=request_id,
        )
