"""Retrieval measures by ir_measures; answer measures of our own."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence

from rag_cluster.errors import MissingDependencyError

NAMES = ("recall@1", "recall@5", "mrr@10", "ndcg@10")


def retrieval_measures(gold: Mapping[str, str], rankings: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Means over all questions, those without a result counted as 0.

    gold: question id -> relevant document id; rankings: question id -> document ids, best first, without repetition.
    """
    try:
        import ir_measures
    except ImportError:
        raise MissingDependencyError("Evaluation needs ir_measures: install rag-cluster[test].") from None
    recall_1, recall_5, mrr, ndcg = (ir_measures.parse_measure(name) for name in ("R@1", "R@5", "RR@10", "nDCG@10"))
    qrels = [ir_measures.Qrel(question, document, 1) for question, document in gold.items()]
    run = [
        ir_measures.ScoredDoc(question, document, -float(rank))
        for question, documents in rankings.items()
        for rank, document in enumerate(documents)
    ]
    found = ir_measures.calc_aggregate([recall_1, recall_5, mrr, ndcg], qrels, run)
    return {name: round(found[key], 4) for name, key in zip(NAMES, (recall_1, recall_5, mrr, ndcg), strict=True)}


def holds(answers: Sequence[str], quotes: Sequence[str]) -> bool:
    """Whether a gold string stands inside a quoted sentence, compared without case, width and white space."""
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
