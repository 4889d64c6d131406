"""What a run did: counters that do not grow with the corpus, and the report that a person and a program read."""

from __future__ import annotations

import heapq
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path, PurePath
from typing import Any, Self
from urllib.parse import unquote

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rag_cluster.domain.documents import IngestionRun, Receipt, RunStatus
from rag_cluster.ingestion.stage_times import Timeline, TimelineBuilder

OUTCOMES = ("ready", "unchanged", "attributes", "skipped", "failed", "busy", "removed")
KEPT_PROBLEMS = 100
KEPT_COPIES = 100
KEPT_SLOWEST = 10
PRINTED_PROBLEMS = 20
PRINTED_SLOWEST = 3
KEPT_EXTENSIONS = 50


@dataclass(frozen=True, slots=True)
class IngestionReport:
    """One run, finished. Every listed input is in exactly one of `outcomes`; `removed` were not listed any more."""

    run_id: str
    knowledge_base: str
    status: RunStatus
    listed: int
    outcomes: Mapping[str, int]
    failures: Mapping[str, int]
    """By stable error type, of failed inputs."""
    skips: Mapping[str, int]
    """By stable error type, of skipped inputs."""
    chunks: int
    """Of the documents that became ready."""
    embedded_chunks: int
    bytes_read: int
    seconds: float
    duplicates: int = 0
    """Ready documents with the same bytes as another document."""
    recognized: int = 0
    """Pages and pictures whose text was recognised."""
    problems: tuple[Receipt, ...] = ()
    """The first failed, skipped and busy inputs; the ledger keeps them all."""
    copies: tuple[Receipt, ...] = ()
    """The first of the duplicates, each with the id of the document that it repeats (`duplicate_of`)."""
    slowest: tuple[Receipt, ...] = ()
    error_message: str | None = None
    unsupported: Mapping[str, int] = field(default_factory=dict)
    """By extension, of skipped inputs that no parser reads."""
    timeline: Timeline = Timeline(0.0)
    """Which stages were at work when."""

    @property
    def ok(self) -> bool:
        """Whether everything that was listed is now as it should be; the exit status of the job."""
        unfinished = self.outcomes.get("failed", 0) + self.outcomes.get("busy", 0)
        return self.status is RunStatus.SUCCEEDED and self.listed > 0 and not unfinished

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {**asdict(self), "status": self.status.value, "ok": self.ok, "seconds": round(self.seconds, 3)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`, as a job with --json prints it and the ledger keeps it; unknown keys are ignored."""
        known = {field.name: data[field.name] for field in fields(IngestionReport) if field.name in data}
        for name in ("problems", "copies", "slowest"):
            known[name] = tuple(receipt_of(item) for item in known.get(name, ()))
        if "timeline" in known:
            known["timeline"] = Timeline.from_dict(known["timeline"])
        return cls(**{**known, "status": RunStatus(known["status"])})

    def to_json(self) -> str:
        """One line."""
        return json.dumps(self.to_dict(), ensure_ascii=False, default=str)

    def save(self, path: str | Path) -> None:
        """Write it to a file: .json, .html (a page of its own, with the timeline of the stages) or .parquet (its
        receipts as rows). InvalidRequestError for another extension."""
        from rag_cluster.ingestion.report_files import save

        save(self, path)

    def headline(self) -> str:
        """One sentence."""
        if self.listed == 0:
            return "nothing was listed: check the path and the extensions"
        idle = not (self.embedded_chunks or self.bytes_read)
        if idle and self.ok and not self.outcomes.get("ready", 0) and not self.outcomes.get("removed", 0):
            return f"nothing to do: {self.listed} listed, 0 bytes read, 0 chunks embedded"
        counted = ", ".join(f"{count} {name}" for name, count in self.outcomes.items() if count)
        return f"{self.listed} listed: {counted}; {self.embedded_chunks} chunks embedded in {self.seconds:.1f} s"

    def print(self, console: Console) -> None:
        """Headline, table and the first problems, on a console."""
        console.print(self.headline())
        console.print(self.to_table())
        if self.unsupported:
            console.print(unsupported_line(self.unsupported), markup=False, highlight=False, soft_wrap=True)
        for receipt in self.problems[:PRINTED_PROBLEMS]:
            reason = ": ".join(filter(None, (receipt.error_type, receipt.message)))
            line = f"  {receipt.outcome} {readable(receipt.uri)}: {reason}"
            console.print(line, markup=False, emoji=False, highlight=False, soft_wrap=True)
        more = "  ... all of them: " if len(self.problems) > PRINTED_PROBLEMS else ""
        console.print(f"{more}rag-cluster runs show {self.run_id}", markup=False, highlight=False, soft_wrap=True)

    def to_table(self) -> Table:
        """Counts, for a terminal."""
        table = Table(show_header=True)
        table.add_column("outcome")
        table.add_column("count", justify="right")
        table.add_column("detail", overflow="fold")
        details = {"failed": self.failures, "skipped": self.skips}
        for name, count in self.outcomes.items():
            if count:
                kinds = ", ".join(f"{kind} {n}" for kind, n in sorted(details.get(name, {}).items()))
                table.add_row(name, str(count), kinds)
        table.add_section()
        table.add_row("chunks", str(self.chunks), f"{self.embedded_chunks} embedded")
        if self.duplicates:
            table.add_row("duplicates", str(self.duplicates), "ready, with the same bytes as another document")
        if self.recognized:
            table.add_row("OCR", str(self.recognized), "pages and pictures recognised")
        table.add_row("bytes read", str(self.bytes_read), f"{self.seconds:.1f} s")
        if self.slowest:
            table.add_section()
        for receipt in self.slowest[:PRINTED_SLOWEST]:
            table.add_row("slowest", f"{receipt.seconds:.1f} s", Text(readable(receipt.uri)))
        return table


def report_of_run(run: IngestionRun, receipts: Sequence[Receipt]) -> IngestionReport:
    """What a run's row and receipts tell where no report was kept: of one that goes on, or whose driver was lost.
    `slowest` and `timeline` are not known."""
    counts = Counter(run.counts)
    end = run.finished_at or run.updated_at
    return IngestionReport(
        run_id=run.id,
        knowledge_base=run.knowledge_base_id,
        status=run.status,
        listed=counts["listed"],
        outcomes={name: counts[name] for name in OUTCOMES},
        failures=_kinds(receipts, "failed"),
        skips=_kinds(receipts, "skipped"),
        chunks=counts["chunks"],
        embedded_chunks=counts["embedded_chunks"],
        bytes_read=counts["bytes_read"],
        seconds=(end - run.started_at).total_seconds() if end and run.started_at else 0.0,
        recognized=counts["ocr_pages"],
        problems=tuple(receipts),
        error_message=run.error_message,
    )


def receipt_of(data: Mapping[str, Any]) -> Receipt:
    """A receipt from its JSON form; unknown keys are ignored."""
    known = {field.name: data[field.name] for field in fields(Receipt) if field.name in data}
    return Receipt(**{**known, "warnings": tuple(known.get("warnings", ()))})


def _kinds(receipts: Sequence[Receipt], outcome: str) -> dict[str, int]:
    return dict(Counter(r.error_type or "internal_error" for r in receipts if r.outcome == outcome))


def readable(uri: str) -> str:
    """A URI as a person wrote it: a path of this machine, characters instead of percent signs."""
    return unquote(uri.removeprefix("file://"))


def count_unsupported(counts: Counter[str], receipt: Receipt) -> None:
    """Add a receipt of the plan for a file that no parser reads, by its extension; rare ones beyond 50 are "other"."""
    if receipt.stage == "plan" and receipt.error_type == "unsupported_document_type":
        extension = PurePath(readable(receipt.uri)).suffix.lower() or "(none)"
        known = extension in counts or len(counts) < KEPT_EXTENSIONS
        counts[extension if known else "other"] += 1


def unsupported_line(counts: Mapping[str, int]) -> str:
    """What no parser reads, the most frequent extension first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    listed = ", ".join(f"{extension} {count}" for extension, count in ordered)
    return f"not read, as no parser is there or allowed: {listed}"


class Tally:
    """A run's counters while it runs. Memory: the counters and a bounded number of receipts."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.skips: Counter[str] = Counter()
        self.unsupported: Counter[str] = Counter()
        self.embedded_chunks = 0
        self.chunks = 0
        self.bytes_read = 0
        self.duplicates = 0
        self.recognized = 0
        self.timeline = TimelineBuilder()
        self._problems: list[Receipt] = []
        self._copies: list[Receipt] = []
        self._slowest: list[tuple[float, int, Receipt]] = []
        self._started = time.perf_counter()

    @property
    def listed(self) -> int:
        """Inputs that have their receipt."""
        return self.outcomes.total() - self.outcomes["removed"]

    def add(self, receipt: Receipt) -> None:
        """Count one input's receipt."""
        self.outcomes[receipt.outcome] += 1
        self.chunks += receipt.chunks
        self.bytes_read += receipt.bytes
        self.recognized += receipt.recognized
        if receipt.duplicate_of is not None:
            self.duplicates += 1
            if len(self._copies) < KEPT_COPIES:
                self._copies.append(receipt)
        if receipt.outcome == "failed":
            self.failures[receipt.error_type or "internal_error"] += 1
        elif receipt.outcome == "skipped":
            self.skips[receipt.error_type or "skipped"] += 1
            count_unsupported(self.unsupported, receipt)
        if receipt.outcome in ("failed", "skipped", "busy"):
            if len(self._problems) < KEPT_PROBLEMS:
                self._problems.append(receipt)
        elif receipt.seconds:
            push = heapq.heappush if len(self._slowest) < KEPT_SLOWEST else heapq.heappushpop
            push(self._slowest, (receipt.seconds, self.listed, receipt))

    def counts(self) -> dict[str, int]:
        """For the run row in PostgreSQL."""
        return {
            "listed": self.listed,
            **{name: self.outcomes[name] for name in OUTCOMES},
            "chunks": self.chunks,
            "embedded_chunks": self.embedded_chunks,
            "bytes_read": self.bytes_read,
            "ocr_pages": self.recognized,
        }

    def report(
        self, run_id: str, knowledge_base: str, status: RunStatus, error_message: str | None = None
    ) -> IngestionReport:
        """The counters as they are now."""
        return IngestionReport(
            run_id=run_id,
            knowledge_base=knowledge_base,
            status=status,
            listed=self.listed,
            outcomes={name: self.outcomes[name] for name in OUTCOMES},
            failures=dict(self.failures),
            skips=dict(self.skips),
            chunks=self.chunks,
            embedded_chunks=self.embedded_chunks,
            bytes_read=self.bytes_read,
            seconds=time.perf_counter() - self._started,
            duplicates=self.duplicates,
            recognized=self.recognized,
            problems=tuple(self._problems),
            copies=tuple(self._copies),
            slowest=tuple(receipt for _, _, receipt in sorted(self._slowest, reverse=True)),
            error_message=error_message,
            unsupported=dict(self.unsupported),
            timeline=self.timeline.timeline(),
        )
