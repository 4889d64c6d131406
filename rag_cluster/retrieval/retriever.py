"""The sequence from a question to evidence: scope -> dense + BM25 -> RRF -> rerank -> sort -> Small2Big."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace

from rag_cluster.domain.access import AccessFilter, Principal
from rag_cluster.domain.documents import IndexRecord
from rag_cluster.domain.ports import AsyncEmbedder, AsyncReranker, ChunkIndex, Evidence, MetricSink
from rag_cluster.domain.retrieval import (
    Hit,
    ReadScope,
    RetrievalMode,
    RetrievalOptions,
    RetrievalRun,
)
from rag_cluster.errors import IndexMismatchError, InvalidRequestError, StoreUnavailableError
from rag_cluster.retrieval.access import SecondCheck
from rag_cluster.retrieval.expansion import Candidate, expand
from rag_cluster.retrieval.fusion import reciprocal_rank_fusion
from rag_cluster.retrieval.reranking import rerank
from rag_cluster.retrieval.search import Channel, SearchCall, recall
from rag_cluster.retrieval.trace import TraceRecorder
from rag_cluster.telemetry import NullMetrics


class Retriever:
    """Finds evidence that a principal may read. Knows no generator, so that retrieval is tested without one."""

    def __init__(
        self,
        evidence: Evidence,
        index: ChunkIndex,
        embedder: AsyncEmbedder,
        *,
        reranker: AsyncReranker | None = None,
        metrics: MetricSink | None = None,
    ) -> None:
        self._evidence = evidence
        self._index = index
        self._embedder = embedder
        self._reranker = reranker
        self._metrics = metrics or NullMetrics()

    async def retrieve(
        self, principal: Principal, knowledge_base_id: str, query: str, options: RetrievalOptions | None = None
    ) -> RetrievalRun:
        """Results best first, with the trace.

        InvalidRequestError for a blank query; the first channel's error when every channel failed. A cancelled call
        cancels the searches and model calls that it waits for.
        """
        options = options or RetrievalOptions()
        if not query.strip():
            raise InvalidRequestError("The query is empty: ask something.")
        trace = TraceRecorder(options.mode, self._metrics)
        with trace.stage("scope") as counts:
            scope = await self._evidence.scope(
                principal, knowledge_base_id, options, embedder_fingerprint=self._embedder.fingerprint
            )
            counts["visible_documents"] = scope.visible_documents
        if scope.filter.empty or scope.index is None:
            return RetrievalRun(query, (), trace.finish((query,)), scope.hide_source_filename)
        if options.mode is not RetrievalMode.SPARSE:
            self._require_own(scope.index)
        if scope.index.state == "retired":
            trace.degrade("index", f"{scope.index.collection} is retired: what was published since is not in it")
        if options.rewrite:
            trace.note("rewrite", "no rewriter configured")
        if options.keyword_fallback:
            trace.note("keyword_fallback", "not available in this version")

        vector = _QueryVector(self._embedder, query)
        check = SecondCheck(self._evidence, principal, knowledge_base_id, options)
        channels = self._channels(scope, query, options, vector)
        with trace.stage("recall") as counts:
            await recall(channels, check)
            _count(channels, check, counts)
        _report_failures(channels, trace)

        best_cosine = max(
            (hit.score for channel in channels if channel.cosine for hit in channel.survivors), default=None
        )
        with trace.stage("fusion") as counts:
            candidates = _fuse(channels, check, options)
            counts["out"] = len(candidates)
        if options.rerank:
            await rerank(self._reranker, query, candidates, trace)
        with trace.stage("expand") as counts:
            ordered = _sorted(candidates, scope, by_mount=options.agent_id is not None)
            results = expand(ordered, options.top_k, expand_parents=options.expand_parents, mode=options.mode)
            counts["in"], counts["out"] = len(ordered), len(results)
        return RetrievalRun(
            query, results, trace.finish((query,)), scope.hide_source_filename, best_cosine, vector.value
        )

    def _require_own(self, index: IndexRecord) -> None:
        """A query is never embedded by another model than the index was."""
        if self._embedder.fingerprint != index.embedder_fingerprint:
            raise IndexMismatchError(
                f"The index {index.collection} was made by embedder {index.embedder_fingerprint}, the configured one is "
                f"{self._embedder.fingerprint}: set RAG_EMBEDDER to that of the index and restart, or re-embed."
            )

    def _channels(self, scope: ReadScope, query: str, options: RetrievalOptions, vector: _QueryVector) -> list[Channel]:
        assert scope.index is not None
        collection = scope.index.collection

        def dense(access: AccessFilter) -> SearchCall:
            async def search(limit: int) -> list[Hit]:
                return await self._index.search_dense(collection, await vector.get(), access, limit)

            return search

        def sparse(access: AccessFilter) -> SearchCall:
            async def search(limit: int) -> list[Hit]:
                return await self._index.search_sparse(collection, query, access, limit)

            return search

        channels = []
        if options.mode is not RetrievalMode.SPARSE:
            channels.append(Channel("dense", dense(scope.filter), options.candidate_k, cosine=True))
        if options.mode is not RetrievalMode.DENSE:
            channels.append(Channel("sparse", sparse(scope.filter), options.candidate_k))
        if scope.correction_source_ids:
            # A correction need not score high enough for the general recall (seed 004).
            corrections = replace(scope.filter, source_ids=scope.correction_source_ids)
            cosine = options.mode is not RetrievalMode.SPARSE
            search = (dense if cosine else sparse)(corrections)
            channels.append(Channel("correction", search, options.top_k, cosine=cosine))
        return channels


class _QueryVector:
    """Embeds the query once, inside the dense channel, so that BM25 does not wait for it."""

    def __init__(self, embedder: AsyncEmbedder, query: str) -> None:
        self._embedder = embedder
        self._query = query
        self._lock = asyncio.Lock()
        self.value: tuple[float, ...] | None = None

    async def get(self) -> tuple[float, ...]:
        # Two channels may ask: the lock lets one of them embed.
        async with self._lock:
            return self.value or await self._embed()

    async def _embed(self) -> tuple[float, ...]:
        matrix = await self._embedder.embed_queries([self._query])
        self.value = tuple(float(x) for x in matrix[0])
        return self.value


def _count(channels: Sequence[Channel], check: SecondCheck, counts: dict[str, int]) -> None:
    for channel in channels:
        counts[channel.name] = len(channel.survivors)
        counts[f"{channel.name}_rounds"] = channel.rounds
        counts[f"{channel.name}_microseconds"] = round(channel.seconds * 1e6)
    counts["checked"], counts["dropped"] = check.checked, check.dropped


def _report_failures(channels: Sequence[Channel], trace: TraceRecorder) -> None:
    """One failed channel is a degradation; all failed is the request's failure."""
    failed = [channel for channel in channels if channel.error is not None]
    if len(failed) == len(channels):
        raise failed[0].error or StoreUnavailableError("No retrieval channel answered.")
    for channel in failed:
        trace.degrade(channel.name, str(channel.error) or type(channel.error).__name__)


def _fuse(channels: Sequence[Channel], check: SecondCheck, options: RetrievalOptions) -> list[Candidate]:
    """Candidates of the working channels in fused order: at most candidate_k, and every correction."""
    candidates: dict[str, Candidate] = {}
    for channel in channels:
        for hit in channel.survivors:
            candidate = candidates.setdefault(hit.chunk_id, Candidate(check.row(hit.chunk_id)))
            candidate.sources.append(channel.name)
            if channel.cosine:
                candidate.dense = hit.score
            else:
                candidate.sparse = hit.score
    fused = reciprocal_rank_fusion([hit.chunk_id for hit in channel.survivors] for channel in channels)
    for chunk_id, candidate in candidates.items():
        candidate.fusion = fused[chunk_id]
        candidate.score = _channel_score(candidate, options.mode)
    kept = _above_threshold(list(candidates.values()), channels, options)
    # Ties are common between the first ranks of two channels; the cosine, then the id, makes the order stable.
    kept.sort(key=lambda one: (-one.score, -(one.dense if one.dense is not None else -1.0), one.chunk_id))
    return [one for rank, one in enumerate(kept) if rank < options.candidate_k or "correction" in one.sources]


def _channel_score(candidate: Candidate, mode: RetrievalMode) -> float:
    if mode is RetrievalMode.DENSE:
        return candidate.dense or 0.0
    if mode is RetrievalMode.SPARSE:
        return candidate.sparse or 0.0
    return candidate.fusion or 0.0


def _above_threshold(
    candidates: list[Candidate], channels: Sequence[Channel], options: RetrievalOptions
) -> list[Candidate]:
    """score_threshold is a cosine, in sparse mode a BM25 score; RRF sums are ranks and bear no threshold.

    In hybrid mode a candidate that BM25 alone found is at most as near as the last dense hit, which stands for it;
    when the dense channel failed nothing is known about cosines and nothing is dropped.
    """
    threshold = options.score_threshold
    if threshold is None:
        return candidates
    if options.mode is RetrievalMode.SPARSE:
        return [one for one in candidates if (one.sparse or 0.0) >= threshold]
    dense = next((channel for channel in channels if channel.name == "dense"), None)
    if dense is None or dense.error is not None:
        return candidates
    bound = min((hit.score for hit in dense.survivors), default=-math.inf)
    return [one for one in candidates if (one.dense if one.dense is not None else bound) >= threshold]


def _sorted(candidates: Sequence[Candidate], scope: ReadScope, *, by_mount: bool) -> list[Candidate]:
    """With an agent: corrections first, then the mount's priority, then score; without one by score alone."""
    if not by_mount:
        return sorted(candidates, key=lambda one: -one.score)
    return sorted(candidates, key=lambda one: (not one.correction, -scope.mounts.get(one.row.source_id, 0), -one.score))
