"""A run as rows of text."""

from __future__ import annotations

from collections.abc import Sequence

from rag_cluster.evaluation.measures import means
from rag_cluster.evaluation.results import Cost, Evaluation

COST_COLUMNS = ("chunking", "chunks", "tokens", "chunking s", "tokens embedded now", "embedding s")
EXCERPTS = ("token_", "first_")
"""How the names of measures of excerpts begin."""
Table = tuple[str, Sequence[str], list[list[object]]]
"""(title, columns, rows)."""


def cost_row(variant: str, cost: Cost) -> list[object]:
    """Of COST_COLUMNS."""
    return [
        variant or "default",
        cost.chunks,
        cost.tokens,
        f"{cost.chunking_seconds:.1f}",
        cost.embedded_tokens,
        f"{cost.embedding_seconds:.1f}",
    ]


def tables(evaluation: Evaluation) -> list[Table]:
    """Measures, groups and costs."""
    title = f"{evaluation.dataset}: {len(evaluation.questions)} questions, {evaluation.documents} documents"
    names = list(dict.fromkeys(name for arm in evaluation.arms for name in arm.means))
    excerpts = [name for name in names if name.startswith(EXCERPTS)]
    ranking = [name for name in names if name not in excerpts]
    latencies = [name for name in ("p50_ms", "p99_ms") if any(name in arm.latency for arm in evaluation.arms)]
    rows: list[list[object]] = [
        [arm.name, *(figure(arm.means.get(name)) for name in ranking), *(arm.latency.get(name) for name in latencies)]
        for arm in evaluation.arms
    ]
    found: list[Table] = [(title, ("arm", *ranking, *latencies), rows)]
    briefly = [name for name in excerpts if "precision" not in name]
    if excerpts:
        rows = [[arm.name, *(figure(arm.means.get(name)) for name in briefly)] for arm in evaluation.arms]
        found.append(("Excerpts at equal returned tokens", ("arm", *briefly), rows))
    names = [*ranking, *(name for name in excerpts if "recall" in name)]
    for group, numbers in evaluation.groups.items():
        rows = []
        for arm in evaluation.arms:
            values = means(arm.scores, numbers)
            rows.append([arm.name, *(figure(values.get(name)) for name in names)])
        found.append((f"{group}: {len(numbers)} questions", ("arm", *names), rows))
    costs = {arm.variant: arm.cost for arm in evaluation.arms if arm.cost}
    if costs:
        found.append(("Cost", COST_COLUMNS, [cost_row(variant, cost) for variant, cost in costs.items()]))
    return found


def figure(value: float | None) -> str:
    """Four digits of a share, none of a count."""
    return "" if value is None else f"{value:.4f}" if value <= 1 else f"{value:.0f}"
