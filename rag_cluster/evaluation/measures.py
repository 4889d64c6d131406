"""What one question scored, and the means over many. Ranking measures are checked against ir_measures in the tests."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence

RANKING = ("recall@1", "recall@5", "recall@10", "mrr@10", "ndcg@10")
DEPTH = 10

Score = float | None
"""None: the question has nothing that this measures."""


def ranking_measures(relevant: Collection[str], ranking: Sequence[str]) -> dict[str, float]:
    """RANKING of one question. relevant: ids, all equally so; ranking: ids, best first, without repetition."""
    hits = [document in relevant for document in ranking[:DEPTH]]
    first = hits.index(True) + 1 if True in hits else None
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(len(relevant), DEPTH) + 1))
    gain = sum(hit / math.log2(rank + 1) for rank, hit in enumerate(hits, start=1))
    return {
        **{f"recall@{k}": sum(hits[:k]) / len(relevant) for k in (1, 5, 10)},
        "mrr@10": 1 / first if first else 0.0,
        "ndcg@10": gain / ideal,
    }


def mean(values: Sequence[Score]) -> Score:
    """Mean of what was measured, to four digits; None of nothing."""
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 4) if known else None


def means(scores: Mapping[str, Sequence[Score]], rows: Collection[int] | None = None) -> dict[str, Score]:
    """Mean of each measure over all questions, or over those with these numbers. What no question has is left out."""
    found = {name: mean(values if rows is None else [values[row] for row in rows]) for name, values in scores.items()}
    return {name: value for name, value in found.items() if value is not None}


def holds(answers: Sequence[str], quotes: Sequence[str]) -> bool:
    """Whether a gold string stands inside a text, compared without case, width and white space."""
    squeezed = [_squeeze(quote) for quote in quotes]
    return any(wanted in quote for answer in answers if (wanted := _squeeze(answer)) for quote in squeezed)


def _squeeze(text: str) -> str:
    return re.sub(r"\s+", "", unicodedata.normalize("NFKC", text)).lower()


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest-rank percentile; 0.0 of nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
