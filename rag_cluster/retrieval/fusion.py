"""Reciprocal rank fusion: cosine and BM25 live on different scales, so only ranks are compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

RANK_CONSTANT = 60


def reciprocal_rank_fusion(rankings: Iterable[Sequence[str]], rank_constant: int = RANK_CONSTANT) -> dict[str, float]:
    """id -> sum of 1 / (rank_constant + rank) over the rankings that hold it (rank is 1-based)."""
    scores: dict[str, float] = {}
    for ranking in rankings:
        for rank, identifier in enumerate(ranking, start=1):
            scores[identifier] = scores.get(identifier, 0.0) + 1.0 / (rank_constant + rank)
    return scores
