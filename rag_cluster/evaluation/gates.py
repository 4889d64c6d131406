"""Conditions that a run must meet, for CI: `recall@5>=0.99`, `dense mrr@10>=0.9`, `recall@5/zh>=1`, `p99_ms<=500`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from rag_cluster.errors import InvalidRequestError
from rag_cluster.evaluation.measures import Score, means
from rag_cluster.evaluation.results import ArmResult, Evaluation

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_GATE = re.compile(
    r"\s*(?:(?P<arm>.+?)\s+)?(?P<measure>[^\s/<>=]+)(?:/(?P<group>[^\s<>=]+))?\s*(?P<op>[<>]=?)\s*(?P<value>\S+)\s*"
)


@dataclass(frozen=True, slots=True)
class Gate:
    """One condition."""

    text: str
    arm: str
    """Name of the arm; "": the hybrid one, or the only one."""
    measure: str
    group: str
    """"": all questions."""
    operator: str
    value: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a condition."""

    gate: Gate
    found: float
    passed: bool

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {"gate": self.gate.text, "found": self.found, "passed": self.passed}


def parse_gates(texts: Iterable[str]) -> tuple[Gate, ...]:
    """InvalidRequestError for what is no condition."""
    return tuple(map(_gate, texts))


def check(gates: Iterable[Gate], evaluation: Evaluation) -> list[Verdict]:
    """InvalidRequestError where there is no such arm, measure or group: what tests nothing has not passed."""
    verdicts = []
    for gate in gates:
        found = _found(gate, evaluation)
        verdicts.append(Verdict(gate, found, _OPERATORS[gate.operator](found, gate.value)))
    return verdicts


def _gate(text: str) -> Gate:
    match = _GATE.fullmatch(text)
    try:
        if match is None:
            raise ValueError(text)
        value = float(match["value"])
    except ValueError:
        raise InvalidRequestError(f"A gate is [ARM ]MEASURE[/GROUP]>=VALUE, not {text!r}.") from None
    return Gate(text.strip(), match["arm"] or "", match["measure"], match["group"] or "", match["op"], value)


def _found(gate: Gate, evaluation: Evaluation) -> float:
    arm = evaluation.arm(gate.arm)
    if arm is None:
        names = ", ".join(one.name for one in evaluation.arms)
        raise InvalidRequestError(f"Gate {gate.text!r}: which arm is meant? There are {names}.")
    known = _values(gate, evaluation, arm)
    value = known.get(gate.measure)
    if value is None:
        raise InvalidRequestError(f"Gate {gate.text!r}: measured were {', '.join(known) or 'no such questions'}.")
    return value


def _values(gate: Gate, evaluation: Evaluation, arm: ArmResult) -> dict[str, Score]:
    if gate.group:
        return means(arm.scores, evaluation.groups.get(gate.group, ()))
    return {**arm.means, **arm.latency}
