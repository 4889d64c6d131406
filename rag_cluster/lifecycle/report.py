"""What a run of fsck found and did: counters for all findings, and the first of them in full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from rag_cluster.domain.inventory import Fault, Finding, Outcome

KEPT = 1000


@dataclass(frozen=True, slots=True)
class Entry:
    """A finding and what became of it."""

    finding: Finding
    outcome: Outcome
    message: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON, flat."""
        return {**asdict(self.finding), "outcome": self.outcome, "message": self.message}


@dataclass
class FsckReport:
    """Bounded, however many findings there are: each is told to `listener` when it is settled."""

    repair: bool
    listener: Callable[[Entry], None] | None = None
    scanned: Counter[str] = field(default_factory=Counter)
    """knowledge_bases, documents, rows, objects; busy and owed documents, which were not judged; foreign objects."""
    counts: Counter[tuple[Fault, Outcome]] = field(default_factory=Counter)
    entries: list[Entry] = field(default_factory=list)
    """The first `KEPT`."""
    seconds: float = 0.0

    def add(self, finding: Finding, outcome: Outcome, message: str = "") -> None:
        """Settle one finding."""
        entry = Entry(finding, outcome, message)
        self.counts[finding.fault, outcome] += 1
        if len(self.entries) < KEPT:
            self.entries.append(entry)
        if self.listener is not None:
            self.listener(entry)

    @property
    def findings(self) -> int:
        """All of them, repaired ones included."""
        return self.counts.total()

    @property
    def clean(self) -> bool:
        """Nothing was found."""
        return not self.findings

    def count(self, fault: Fault, outcome: Outcome | None = None) -> int:
        """Findings of one kind (with one outcome)."""
        return sum(n for (kind, end), n in self.counts.items() if kind is fault and outcome in (None, end))

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        faults = {
            fault.value: {"findings": self.count(fault)}
            | {outcome.value: n for outcome in Outcome if (n := self.count(fault, outcome))}
            for fault in Fault
            if self.count(fault)
        }
        return {
            "clean": self.clean,
            "repair": self.repair,
            "findings": self.findings,
            "repaired": sum(n for (_, end), n in self.counts.items() if end is Outcome.REPAIRED),
            "faults": faults,
            "scanned": dict(self.scanned),
            "seconds": round(self.seconds, 3),
            "entries": [entry.to_dict() for entry in self.entries],
            "entries_left_out": self.findings - len(self.entries),
        }
