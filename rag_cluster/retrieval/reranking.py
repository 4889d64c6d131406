"""Reranking against the original question. Its absence or failure keeps the fused order and says so."""

from __future__ import annotations

from collections.abc import Sequence

from rag_cluster.domain.ports import AsyncReranker
from rag_cluster.errors import ModelUnavailableError
from rag_cluster.retrieval.candidates import Candidate
from rag_cluster.retrieval.trace import TraceRecorder


async def rerank(
    reranker: AsyncReranker | None, query: str, candidates: Sequence[Candidate], trace: TraceRecorder
) -> None:
    """Set `rerank` and `score` of every candidate, or of none."""
    if reranker is None:
        trace.note("rerank", "no reranker configured")
        return
    if not candidates:
        return
    try:
        with trace.stage("rerank") as counts:
            scores = await reranker.rerank(query, [candidate.row.chunk.content for candidate in candidates])
            if len(scores) != len(candidates):
                raise ModelUnavailableError(f"{len(scores)} rerank scores for {len(candidates)} candidates")
            counts["in"] = counts["out"] = len(candidates)
    except Exception as error:  # becomes a trace entry
        trace.degrade("rerank", str(error) or type(error).__name__)
        return
    for candidate, score in zip(candidates, scores, strict=True):
        candidate.rerank = candidate.score = float(score)
