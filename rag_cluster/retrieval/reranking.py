"""Reranking against the original question. Its absence or failure keeps the fused order and says so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rag_cluster.domain.deadlines import share
from rag_cluster.domain.ports import AsyncReranker
from rag_cluster.errors import ModelUnavailableError
from rag_cluster.retrieval.candidates import Candidate
from rag_cluster.retrieval.trace import TraceRecorder


async def rerank(
    reranker: AsyncReranker | None,
    query: str,
    candidates: Sequence[Candidate],
    trace: TraceRecorder,
    *,
    seconds: float,
) -> None:
    """Set `rerank` and `score` of every candidate, or of none. Never raises but on cancellation."""
    if reranker is None:
        trace.note("rerank", "no reranker configured")
        return
    if not candidates:
        return
    seconds = share(seconds)
    try:
        with trace.stage("rerank") as counts:
            async with asyncio.timeout(seconds):
                scores = await reranker.rerank(query, [candidate.row.chunk.content for candidate in candidates])
            if len(scores) != len(candidates):
                raise ModelUnavailableError(f"{len(scores)} rerank scores for {len(candidates)} candidates")
            counts["in"] = counts["out"] = len(candidates)
    except TimeoutError:
        trace.degrade("rerank", f"no answer within {seconds:.3g} s")
        return
    except Exception as error:  # becomes a trace entry
        trace.degrade("rerank", error)
        return
    for candidate, score in zip(candidates, scores, strict=True):
        candidate.rerank = candidate.score = float(score)
