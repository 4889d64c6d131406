"""What every engine's results must be, checked where they leave the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rag_cluster.errors import ModelUnavailableError

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Matrix


def unit_rows(vectors: Any, count: int, dimension: int, engine: str) -> Matrix:
    """float32 (count, dimension), contiguous, rows scaled to unit norm. ModelUnavailableError when they cannot be."""
    matrix = (
        np.ascontiguousarray(vectors, dtype=np.float32).reshape(-1, dimension) if count else np.zeros((0, dimension))
    )
    if matrix.shape != (count, dimension):
        raise ModelUnavailableError(f"{engine} gave vectors of shape {matrix.shape}, not {(count, dimension)}")
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    if not np.all(np.isfinite(norms)) or np.any(norms == 0):
        raise ModelUnavailableError(f"{engine} gave vectors without a direction")
    return np.ascontiguousarray(matrix / norms, dtype=np.float32)


def probabilities(logits: Sequence[float] | Any, count: int, engine: str) -> list[float]:
    """Logits -> scores from 0 to 1. ModelUnavailableError when there are not so many, or one is no number."""
    values = np.asarray(logits, dtype=np.float64).reshape(-1)
    if len(values) != count or not np.all(np.isfinite(values)):
        raise ModelUnavailableError(f"{engine} gave {len(values)} scores for {count} texts, or some that are no number")
    # In 64 bits, so that scores near 1 stay apart.
    scores: list[float] = (1 / (1 + np.exp(-values))).tolist()
    return scores
