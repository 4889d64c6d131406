"""The sequence from a question to evidence.

    scope -> rewrite -> dense + BM25 of every variant, corrections -> second check -> RRF -> threshold, copies, cut
          -> rerank -> order -> Small2Big -> keyword fallback

Each stage is a module with one contract; this one only says what follows what, and what a failure means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from rag_cluster.domain.access import Principal
from rag_cluster.domain.documents import IndexRecord
from rag_cluster.domain.ports import (
    AsyncEmbedder,
    AsyncReranker,
    ChunkIndex,
    ChunkSearch,
    Evidence,
    MetricSink,
    QueryRewriter,
)
from rag_cluster.domain.retrieval import (
    Hit,
    ReadScope,
    RetrievalMode,
    RetrievalOptions,
    RetrievalResult,
    RetrievalRun,
    RetrievalTrace,
)
from rag_cluster.errors import IndexMismatchError, InvalidRequestError, StoreUnavailableError
from rag_cluster.retrieval import corrections, keyword_fallback
from rag_cluster.retrieval.access import SecondCheck
from rag_cluster.retrieval.candidates import Candidate, above_threshold, collect, cut
from rag_cluster.retrieval.channels import ChannelFactory, QueryVectors
from rag_cluster.retrieval.diversity import without_copies
from rag_cluster.retrieval.expansion import expand
from rag_cluster.retrieval.reranking import rerank
from rag_cluster.retrieval.rewriting import variants
from rag_cluster.retrieval.search import Channel, recall
from rag_cluster.retrieval.trace import TraceRecorder
from rag_cluster.telemetry import NullMetrics

REWRITE_SECONDS = 3.0
RERANK_SECONDS = 5.0
KEYWORD_SECONDS = 2.0


@dataclass(slots=True)
class Passage:
    """What one query left behind at every stage: its results, and what `explain` reads."""

    query: str
    scope: ReadScope
    trace: RetrievalTrace | None = None
    variants: tuple[str, ...] = ()
    channels: Sequence[Channel] = ()
    factory: ChannelFactory | None = None
    fused: Sequence[Candidate] = ()
    """All survivors, in fused order."""
    passed: Sequence[Candidate] = ()
    """Those above the threshold."""
    candidates: Sequence[Candidate] = ()
    """The first candidate_k of these, in fused order: what is reranked."""
    ordered: Sequence[Candidate] = ()
    """The same in the final order."""
    results: tuple[RetrievalResult, ...] = ()
    best_cosine: float | None = None
    query_vector: tuple[float, ...] | None = None

    @property
    def run(self) -> RetrievalRun:
        """What a caller of `retrieve` gets, once it is finished."""
        assert self.trace is not None
        return RetrievalRun(
            self.query,
            self.results,
            self.trace,
            self.scope.hide_source_filename,
            self.best_cosine,
            self.query_vector,
        )

    def finish(self, trace: TraceRecorder) -> Self:
        """With its trace."""
        self.trace = trace.finish(self.variants or (self.query,))
        return self


@dataclass(slots=True)
class Stages:
    """What stages that may be missing need. None: the trace says that it is not configured."""

    reranker: AsyncReranker | None = None
    rewriter: QueryRewriter | None = None
    search: ChunkSearch | None = None
    rewrite_seconds: float = REWRITE_SECONDS
    rerank_seconds: float = RERANK_SECONDS
    keyword_seconds: float = KEYWORD_SECONDS
    metrics: MetricSink = field(default_factory=NullMetrics)


class Retriever:
    """Finds evidence that a principal may read. Knows no generator, so that retrieval is tested without one."""

    def __init__(
        self,
        evidence: Evidence,
        index: ChunkIndex,
        embedder: AsyncEmbedder,
        *,
        reranker: AsyncReranker | None = None,
        rewriter: QueryRewriter | None = None,
        search: ChunkSearch | None = None,
        rewrite_seconds: float = REWRITE_SECONDS,
        rerank_seconds: float = RERANK_SECONDS,
        keyword_seconds: float = KEYWORD_SECONDS,
        metrics: MetricSink | None = None,
    ) -> None:
        self._evidence = evidence
        self._index = index
        self._embedder = embedder
        self._stages = Stages(
            reranker, rewriter, search, rewrite_seconds, rerank_seconds, keyword_seconds, metrics or NullMetrics()
        )

    async def retrieve(
        self, principal: Principal, knowledge_base_id: str, query: str, options: RetrievalOptions | None = None
    ) -> RetrievalRun:
        """Results best first, with the trace.

        InvalidRequestError for a blank query; the first channel's error when every channel failed. A cancelled call
        cancels the searches and model calls that it waits for.
        """
        return (await self.passage(principal, knowledge_base_id, query, options or RetrievalOptions())).run

    async def passage(
        self, principal: Principal, knowledge_base_id: str, query: str, options: RetrievalOptions
    ) -> Passage:
        """As `retrieve`, with what every stage left behind."""
        if not query.strip():
            raise InvalidRequestError("The query is empty: ask something.")
        trace = TraceRecorder(options.mode, self._stages.metrics)
        with trace.stage("scope") as counts:
            scope = await self._evidence.scope(
                principal, knowledge_base_id, options, embedder_fingerprint=self._embedder.fingerprint
            )
            counts["visible_documents"] = scope.visible_documents
        passage = Passage(query, scope)
        if scope.filter.empty or scope.index is None:
            return passage.finish(trace)
        self._require_usable(scope.index, options, trace)
        check = SecondCheck(self._evidence, principal, knowledge_base_id, options, scope.taken)
        await self._recall(passage, scope.index, check, options, trace)
        await self._choose(passage, options, trace)
        _expand(passage, options, trace)
        if options.keyword_fallback:
            await self._fall_back(passage, check, options, trace)
        return passage.finish(trace)

    def _require_usable(self, index: IndexRecord, options: RetrievalOptions, trace: TraceRecorder) -> None:
        """A query is never embedded by another model than the index was."""
        if options.mode is not RetrievalMode.SPARSE and self._embedder.fingerprint != index.embedder_fingerprint:
            raise IndexMismatchError(
                f"The index {index.collection} was made by embedder {index.embedder_fingerprint}, the configured one "
                f"is {self._embedder.fingerprint}: set RAG_EMBEDDER to that of the index and restart, or re-embed."
            )
        if index.state == "retired":
            trace.degrade("index", f"{index.collection} is retired: what was published since is not in it")

    async def _recall(
        self, passage: Passage, index: IndexRecord, check: SecondCheck, options: RetrievalOptions, trace: TraceRecorder
    ) -> None:
        """Variants, channels, and what they found that may be shown."""
        passage.variants = (passage.query,)
        if options.rewrite:
            stages = self._stages
            passage.variants = await variants(stages.rewriter, passage.query, trace, seconds=stages.rewrite_seconds)
        vectors = QueryVectors(self._embedder, passage.variants)
        passage.factory = ChannelFactory(self._index, index.collection, vectors, passage.variants)
        passage.channels = passage.factory.channels(passage.scope, options)
        with trace.stage("recall") as counts:
            await recall(passage.channels, check)
            _count(passage.channels, check, counts)
        _report_failures(passage.channels, trace)
        own = [channel for channel in passage.channels if channel.cosine and channel.name in ("dense", "correction")]
        passage.best_cosine = max((hit.score for channel in own for hit in channel.survivors), default=None)
        passage.query_vector = vectors.original
        with trace.stage("fusion") as counts:
            passage.fused = collect(passage.channels, check, options)
            counts["in"] = len(passage.fused)
            passage.passed = above_threshold(passage.fused, passage.channels, options)
            related = corrections.mark(passage.passed, passage.channels, passage.scope, passage.query, options)
            passage.candidates = cut(
                related, options.candidate_k, lambda one: corrections.standing(one, passage.scope, options)
            )
            counts["out"] = len(passage.candidates)
            if passage.scope.correction_source_ids:
                counts["corrections"] = sum(one.outranks for one in passage.candidates)

    async def _choose(self, passage: Passage, options: RetrievalOptions, trace: TraceRecorder) -> None:
        """The final order, without third copies."""
        if options.rerank:
            stages = self._stages
            await rerank(stages.reranker, passage.query, passage.candidates, trace, seconds=stages.rerank_seconds)
        ordered = corrections.final_order(passage.candidates, passage.scope, options)
        passage.ordered = without_copies(ordered, lambda one: one.copy_key)

    async def _fall_back(
        self, passage: Passage, check: SecondCheck, options: RetrievalOptions, trace: TraceRecorder
    ) -> None:
        """Keyword hits in the places that are free."""
        free = options.top_k - len(passage.results)
        shown = [chunk_id for result in passage.results for chunk_id in result.context_chunk_ids]
        scope, index = passage.scope, self._index

        async def recall(words: str, limit: int) -> list[Hit]:
            assert scope.index is not None  # without one the query has ended long ago
            return await index.search_sparse(scope.index.collection, words, scope.filter, limit)

        found = await keyword_fallback.fill(
            self._stages.search,
            recall,
            passage.query,
            passage.scope,
            check,
            shown,
            free,
            trace,
            seconds=self._stages.keyword_seconds,
        )
        passage.results += expand(
            found,
            free,
            expand_parents=options.expand_parents,
            mode=keyword_fallback.NAME,
            taken=passage.results,
        )


def _expand(passage: Passage, options: RetrievalOptions, trace: TraceRecorder) -> None:
    """Small2Big."""
    with trace.stage("expand") as counts:
        passage.results = expand(
            passage.ordered, options.top_k, expand_parents=options.expand_parents, mode=options.mode.value
        )
        counts["in"], counts["out"] = len(passage.ordered), len(passage.results)


def _count(channels: Sequence[Channel], check: SecondCheck, counts: dict[str, int]) -> None:
    for channel in channels:
        counts[channel.name] = len(channel.survivors)
        counts[f"{channel.name}_microseconds"] = round(channel.seconds * 1e6)
    if check.hides_nothing:
        # To others these tell how much there is that they may not see, while the index lags.
        counts.update((f"{channel.name}_rounds", channel.rounds) for channel in channels)
        counts["checked"], counts["dropped"] = check.checked, check.dropped


def _report_failures(channels: Sequence[Channel], trace: TraceRecorder) -> None:
    """One failed channel is a degradation; all failed is the request's failure."""
    failed = [channel for channel in channels if channel.error is not None]
    if len(failed) == len(channels):
        raise failed[0].error or StoreUnavailableError("No retrieval channel answered.")
    for channel in failed:
        trace.degrade(channel.name, channel.error or "failed")
