"""The fake reranker beside the real ones: shared terms, at no cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rag_cluster.domain.terms import terms


class OverlapReranker:
    """Share of the question's terms (English stems, Chinese bigrams) that a text holds, 0-1. Deterministic."""

    name = "overlap"

    def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """One score per text, same order."""
        wanted = Counter(terms(query))
        total = sum(wanted.values())
        if not total:
            return [0.0] * len(texts)
        return [sum((wanted & Counter(terms(text))).values()) / total for text in texts]
