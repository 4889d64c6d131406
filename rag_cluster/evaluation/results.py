"""What an evaluation measured: one record an arm, its scores question by question, so that two runs can be compared."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from rag_cluster.errors import InvalidRequestError
from rag_cluster.evaluation.measures import Score, means

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Cost:
    """What a way of chunking costs. Seconds are of this run: what a cache knows takes none."""

    chunks: int
    tokens: int
    """Of all distinct chunk texts: what had to be embedded without a cache."""
    chunking_seconds: float = 0.0
    embedded_tokens: int = 0
    """Of those that were embedded in this run."""
    embedding_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ArmResult:
    """One arm on one way of chunking."""

    arm: str
    variant: str
    scores: Mapping[str, Sequence[Score]]
    """Measure -> one value a question, in the questions' order."""
    latency: Mapping[str, float] = field(default_factory=dict)
    """p50_ms, p95_ms, p99_ms and how many queries: one client, every query embedded anew."""
    cost: Cost | None = None
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What gates and comparisons call it."""
        return f"{self.variant} {self.arm}".strip()

    @property
    def means(self) -> dict[str, Score]:
        """Of every measure."""
        return means(self.scores)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A run."""

    dataset: str
    documents: int
    questions: Sequence[str]
    """Ids."""
    arms: Sequence[ArmResult]
    groups: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Name -> numbers of its questions."""
    system: Mapping[str, str] = field(default_factory=dict)
    """What was measured: embedder, index, where the facts lay."""
    answers: Mapping[str, Any] = field(default_factory=dict)

    def arm(self, name: str) -> ArmResult | None:
        """By name; "" is the hybrid one, or the only one."""
        if name:
            return next((arm for arm in self.arms if arm.name == name), None)
        hybrid = [arm for arm in self.arms if arm.arm == "hybrid"]
        return (hybrid or list(self.arms))[0] if len(self.arms) == 1 or len(hybrid) == 1 else None

    def summary(self) -> dict[str, Any]:
        """JSON form without the single questions: one line for a program."""
        return {
            "dataset": self.dataset,
            "documents": self.documents,
            "questions": len(self.questions),
            "system": dict(self.system),
            "arms": {arm.name: self._arm_summary(arm) for arm in self.arms},
            "answers": dict(self.answers),
        }

    def _arm_summary(self, arm: ArmResult) -> dict[str, Any]:
        groups = {name: means(arm.scores, rows) for name, rows in self.groups.items()}
        return {
            "measures": arm.means,
            **({"groups": groups} if groups else {}),
            "latency": dict(arm.latency),
            "cost": asdict(arm.cost) if arm.cost else {},
            "notes": list(arm.notes),
        }

    def write(self, path: Path) -> None:
        """The whole run, as `read` takes it."""
        content = {"schema": SCHEMA, **asdict(self), "summary": self.summary()}
        path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        """InvalidRequestError when the file is not one that `write` wrote."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["schema"] != SCHEMA:
                raise ValueError(f"schema {content['schema']}")
            arms = [
                ArmResult(**{**arm, "cost": Cost(**arm["cost"]) if arm["cost"] else None, "notes": tuple(arm["notes"])})
                for arm in content["arms"]
            ]
            names = ("dataset", "documents", "questions", "groups", "system", "answers")
            return cls(arms=arms, **{name: content[name] for name in names})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidRequestError(f"{path} is not a report of `rag-cluster eval --report`: {error!r}") from None
