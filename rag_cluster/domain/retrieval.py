"""A query on its way to evidence (design section 6, seeds 000/001/004)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rag_cluster.domain.access import AccessFilter
from rag_cluster.domain.blocks import SourceLocator
from rag_cluster.domain.chunks import Chunk, Parent
from rag_cluster.domain.documents import Document, IndexRecord, SourceKind
from rag_cluster.domain.filters import Filter, parse_filter


class RetrievalMode(StrEnum):
    """Which channels recall candidates."""

    DENSE = "dense"
    SPARSE = "sparse"
    HYBRID = "hybrid"


MAX_CANDIDATES = 100


@dataclass(frozen=True, slots=True)
class RetrievalOptions:
    """One request's choices. Checked at construction: ValueError names the field."""

    mode: RetrievalMode = RetrievalMode.HYBRID
    top_k: int = 5
    candidate_k: int = 30
    """Candidates that go on to the reranker; never fewer than top_k."""
    rewrite: bool = False
    rerank: bool = True
    expand_parents: bool = True
    keyword_fallback: bool = False
    cross_language: bool = False
    """Search for passages in the other language than the question's, too (Chinese and English)."""
    score_threshold: float | None = None
    document_ids: tuple[str, ...] | None = None
    source_ids: tuple[str, ...] | None = None
    agent_id: str | None = None
    filters: Mapping[str, Any] = field(default_factory=dict)
    """JSON of `domain.filters`: equalities on document metadata, or a tree."""

    def __post_init__(self) -> None:
        if not 1 <= self.top_k <= MAX_CANDIDATES:
            raise ValueError(f"top_k must be 1-{MAX_CANDIDATES}, not {self.top_k}")
        if not 1 <= self.candidate_k <= MAX_CANDIDATES:
            raise ValueError(f"candidate_k must be 1-{MAX_CANDIDATES}, not {self.candidate_k}")
        object.__setattr__(self, "candidate_k", max(self.candidate_k, self.top_k))
        parse_filter(self.filters)

    @property
    def filter(self) -> Filter | None:
        """`filters`, parsed."""
        return parse_filter(self.filters)


@dataclass(frozen=True, slots=True)
class Hit:
    """One row that an index search returned, best first. score is the channel's own; only its rank is compared."""

    chunk_id: str
    document_id: str
    version: int
    score: float


MAX_PUSHED_DOCUMENTS = 1000
"""Visible documents are named to an index, and their chunks looked at one by one, up to so many (design section 6)."""


@dataclass(frozen=True, slots=True)
class ReadScope:
    """What PostgreSQL resolved for a principal and a request before any search: one statement."""

    filter: AccessFilter
    index: IndexRecord | None
    """The active index; None when nothing was ever indexed."""
    visible_documents: int
    """Documents that the request may search. Counted to `MAX_PUSHED_DOCUMENTS` + 1 and no further, unless document_ids
    was given."""
    mounts: Mapping[str, int] = field(default_factory=dict)
    """source id -> mount priority; empty without an agent."""
    correction_source_ids: tuple[str, ...] = ()
    hide_source_filename: bool = False
    taken: str = ""
    """The moment of this look, for `Evidence.changed_since`."""


@dataclass(frozen=True, slots=True)
class AssetReference:
    """An image that a result may show, by id; its bytes come from the assets route under the same access rule."""

    id: str
    media_type: str
    caption: str = ""


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """A hit that passed the second check, with everything a result needs (no N+1)."""

    chunk: Chunk
    parent: Parent | None
    filename: str
    uri: str
    source_id: str
    source_kind: SourceKind
    source_name: str
    source_priority: int
    assets: tuple[AssetReference, ...] = ()
    document_metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Located:
    """A chunk with its document, visible or not. chunk None: the document has none (yet)."""

    document: Document
    chunk: Chunk | None


@dataclass(frozen=True, slots=True)
class RetrievalResult:
    """One result. content is what is read (the parent's text after Small2Big), matched_content what was found."""

    chunk_id: str
    document_id: str
    version: int
    knowledge_base_id: str
    filename: str
    content: str
    matched_content: str
    score: float
    """The score of the final sort; not comparable between modes or requests."""
    dense_score: float | None = None
    sparse_score: float | None = None
    fusion_score: float | None = None
    rerank_score: float | None = None
    retrieval_sources: tuple[str, ...] = ()
    """Channels that found it: dense, sparse, rewrite_dense, rewrite_sparse, correction, keyword_fallback."""
    heading_path: tuple[str, ...] = ()
    locator: SourceLocator = SourceLocator()
    context_locator: SourceLocator = SourceLocator()
    context_chunk_ids: tuple[str, ...] = ()
    content_types: tuple[str, ...] = ()
    assets: tuple[AssetReference, ...] = ()
    source_id: str = ""
    source_kind: SourceKind = SourceKind.BULK
    source_name: str = ""
    source_priority: int = 0
    document_origin: str = ""
    """The document's URI."""
    retrieval_mode: str = ""
    matches: tuple[Chunk, ...] = ()
    """The matched chunks themselves (one, or several merged into this parent), best first."""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked about: exactly one of a chunk's id, a document's id, and a text that a chunk holds."""

    chunk_id: str | None = None
    document_id: str | None = None
    text: str | None = None


class Outcome(StrEnum):
    """What a stage did with an explained chunk."""

    PASSED = "passed"
    MISSED = "missed"
    """This one did not bring it; another may have."""
    LOST = "lost"
    """Here it ended."""
    SKIPPED = "skipped"
    """The stage did not run, or had nothing to say about it."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where one stage left an explained chunk."""

    stage: str
    """ready, access, source, filter, index, tokens, a channel's name, threshold, corrections, fusion, rerank, order,
    expansion, keyword_fallback, budget."""
    outcome: Outcome
    rank: int | None = None
    """1-based, in the stage's own order."""
    score: float | None = None
    """The stage's own."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a chunk is among the results, or at which stage it was lost first."""

    query: str
    document_id: str
    filename: str
    version: int
    chunk_id: str | None
    text: str
    standings: tuple[Standing, ...]
    """In the order in which a query meets them."""
    query_tokens: tuple[str, ...] = ()
    chunk_tokens: tuple[str, ...] = ()
    shared_tokens: tuple[str, ...] = ()
    """The analyzer's, distinct: BM25 finds a chunk by these alone."""
    result: int | None = None
    """Which result shows the chunk, 1-based."""

    @property
    def lost_at(self) -> str:
        """The first stage that lost it; "" when it reached the end."""
        return next((one.stage for one in self.standings if one.outcome is Outcome.LOST), "")


@dataclass(frozen=True, slots=True)
class StageTrace:
    """One stage: how many went in and came out, how long it took."""

    name: str
    milliseconds: float
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RetrievalTrace:
    """What really happened to a query."""

    mode: RetrievalMode
    query_variants: tuple[str, ...] = ()
    stages: tuple[StageTrace, ...] = ()
    degradations: tuple[str, ...] = ()
    """"stage: reason" of every stage that failed or was not there, e.g. "rerank: no reranker configured"."""
    milliseconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RetrievalRun:
    """results + trace, shared by the retrieve, answer and explain paths."""

    query: str
    results: tuple[RetrievalResult, ...]
    trace: RetrievalTrace
    hide_source_filename: bool = False
    best_cosine: float | None = None
    """Highest dense similarity of any candidate: what refusal looks at."""
    query_vector: tuple[float, ...] | None = None
