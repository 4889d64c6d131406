"""Two runs on the same questions: is the difference more than chance?

The p-value is that of the paired randomisation test (Fisher; Smucker et al., CIKM 2007): if the two were alike, every
question's difference could as well have the other sign. The interval is of the paired bootstrap, percentiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rag_cluster.errors import InvalidRequestError
from rag_cluster.evaluation.measures import Score
from rag_cluster.evaluation.results import ArmResult, Evaluation

if TYPE_CHECKING:
    import numpy.typing as npt

ROUNDS = 10_000
SEED = 7
LEVEL = 0.95
_ROUNDS_AT_ONCE = 500  # thousands of questions: some megabytes a matrix
_EXACT = 13
"""Questions that differ up to which all sign patterns are gone through."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One measure of one arm: run B minus run A."""

    arm: str
    measure: str
    questions: int
    a: float
    b: float
    difference: float
    low: float
    high: float
    """Bounds of the 95 % interval of the difference."""
    p: float
    """Two-sided, of this measure alone: of twenty measures without a difference one is below 0.05."""

    @property
    def significant(self) -> bool:
        """At 0.05."""
        return self.p < 1 - LEVEL

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {**asdict(self), "significant": self.significant}


def compare(a: Evaluation, b: Evaluation) -> list[Difference]:
    """Every measure that both have, on the questions that both have, arm by arm.

    Arms are paired by name; where each run has one arm, or one of a kind of retrieving, these are. InvalidRequestError
    when nothing can be paired.
    """
    rows = {question: row for row, question in enumerate(a.questions)}
    shared = [(rows[question], row) for row, question in enumerate(b.questions) if question in rows]
    if not shared:
        raise InvalidRequestError("The two runs have no question in common.")
    found = []
    for first, second in _pairs(a, b):
        name = first.name if first.name == second.name else f"{first.name} -> {second.name}"
        for measure in first.scores:
            if measure in second.scores:
                left, right = first.scores[measure], second.scores[measure]
                pairs = [(left[x], right[y]) for x, y in shared]
                found.extend(_difference(name, measure, pairs))
    if not found:
        raise InvalidRequestError("The two runs have no arm in common.")
    return found


def caveats(a: Evaluation, b: Evaluation) -> list[str]:
    """What makes two runs less alike than their arms' names say."""
    found = [] if a.dataset == b.dataset else [f"The data sets are {a.dataset} and {b.dataset}."]
    shared = len(set(a.questions) & set(b.questions))
    if not shared == len(a.questions) == len(b.questions):
        found.append(f"{shared} questions are compared, of {len(a.questions)} and {len(b.questions)}.")
    return found


def _pairs(a: Evaluation, b: Evaluation) -> list[tuple[ArmResult, ArmResult]]:
    by_name = {arm.name: arm for arm in b.arms}
    pairs = [(arm, by_name[arm.name]) for arm in a.arms if arm.name in by_name]
    if pairs:
        return pairs
    if len(a.arms) == 1 == len(b.arms):
        return [(a.arms[0], b.arms[0])]
    kinds = [{arm.arm: arm for arm in run.arms} for run in (a, b)]
    if any(len(kind) < len(run.arms) for kind, run in zip(kinds, (a, b), strict=True)):
        return []  # several ways of chunking: which is to be compared with which?
    return [(arm, kinds[1][name]) for name, arm in kinds[0].items() if name in kinds[1]]


def _difference(arm: str, measure: str, pairs: Sequence[tuple[Score, Score]]) -> list[Difference]:
    known = np.array([pair for pair in pairs if pair[0] is not None and pair[1] is not None], np.float64)
    if not len(known):
        return []
    differences = known[:, 1] - known[:, 0]
    low, high = bootstrap_interval(differences)
    a, b = known.mean(axis=0)
    values = (a, b, differences.mean(), low, high, randomisation_p(differences))
    return [Difference(arm, measure, len(known), *(round(float(value), 4) for value in values))]


def randomisation_p(differences: npt.NDArray[np.float64], rounds: int = ROUNDS) -> float:
    """Two-sided p of a mean difference of 0. Exact for a few questions that differ, else of so many random signs."""
    told = differences[differences != 0]
    if not len(told):
        return 1.0
    observed = abs(told.sum()) * (1 - 1e-12)
    if len(told) <= _EXACT:
        signs = 1.0 - 2.0 * ((np.arange(2 ** len(told))[:, None] >> np.arange(len(told))) & 1)
        return float((np.abs(signs @ told) >= observed).mean())
    generator = np.random.default_rng(SEED)
    extreme = 0
    for start in range(0, rounds, _ROUNDS_AT_ONCE):
        size = min(_ROUNDS_AT_ONCE, rounds - start)
        signs = generator.integers(0, 2, (size, len(told)), np.int8) * 2.0 - 1.0
        extreme += int((np.abs(signs @ told) >= observed).sum())
    return (extreme + 1) / (rounds + 1)


def bootstrap_interval(differences: npt.NDArray[np.float64], rounds: int = ROUNDS) -> tuple[float, float]:
    """Percentile interval of the mean at LEVEL, questions drawn with replacement."""
    generator = np.random.default_rng(SEED)
    found = []
    for start in range(0, rounds, _ROUNDS_AT_ONCE):
        size = min(_ROUNDS_AT_ONCE, rounds - start)
        drawn = generator.integers(0, len(differences), (size, len(differences)))
        found.append(differences[drawn].mean(axis=1))
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(np.concatenate(found), [tail, 100 - tail])
    return float(low), float(high)
