"""A run's report, rebuilt from what a job printed or from the run row, and shown in a notebook."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from rag_cluster.client import html
from rag_cluster.client.views import Row, Tabular
from rag_cluster.domain.documents import Receipt, RunStatus
from rag_cluster.ingestion.report import OUTCOMES, IngestionReport, readable
from rag_cluster.serving.schemas import RunDetail


@dataclass(frozen=True, repr=False)
class ReportView(Tabular, IngestionReport):
    """An `IngestionReport`; its rows are the inputs that failed, were skipped or busy."""

    columns: ClassVar[tuple[str, ...]] = ("outcome", "uri", "stage", "error_type", "message", "document_id")

    @classmethod
    def of(cls, report: IngestionReport) -> ReportView:
        """The same report."""
        return cls(**{field.name: getattr(report, field.name) for field in fields(IngestionReport)})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ReportView:
        """Inverse of `IngestionReport.to_dict`, as a job with --json printed it; unknown keys are ignored."""
        known = {field.name: data[field.name] for field in fields(IngestionReport) if field.name in data}
        for name in ("problems", "slowest"):
            known[name] = tuple(_receipt(item) for item in known.get(name, ()))
        return cls(**{**known, "status": RunStatus(known["status"])})

    @classmethod
    def of_run(cls, run: RunDetail) -> ReportView:
        """What the run row tells, for a job that printed no report. `slowest` is not kept there."""
        counts = Counter(run.counts)
        kinds = {
            outcome: Counter(r.error_type or "internal_error" for r in run.receipts if r.outcome == outcome)
            for outcome in ("failed", "skipped")
        }
        end = run.finished_at or run.updated_at
        return cls(
            run_id=run.id,
            knowledge_base=run.knowledge_base_id,
            status=RunStatus(run.status),
            listed=counts["listed"],
            outcomes={name: counts[name] for name in OUTCOMES},
            failures=dict(kinds["failed"]),
            skips=dict(kinds["skipped"]),
            chunks=counts["chunks"],
            embedded_chunks=counts["embedded_chunks"],
            bytes_read=counts["bytes_read"],
            seconds=(end - run.started_at).total_seconds() if end and run.started_at else 0.0,
            recognized=counts["ocr_pages"],
            problems=tuple(_receipt(receipt.model_dump()) for receipt in run.receipts),
            error_message=run.error_message,
        )

    def rows(self) -> list[Row]:
        """The kept problems."""
        return [{name: getattr(receipt, name) for name in self.columns} for receipt in self.problems]

    def _headline(self) -> str:
        return self.headline()

    def _repr_html_(self) -> str:
        counted = [(name, count) for name, count in self.outcomes.items() if count]
        problems = [(r.outcome, readable(r.uri), r.stage, r.error_type, r.message) for r in self.problems]
        return html.frame(
            html.heading(f"{self.status}: {self.headline()}"),
            html.note(self.error_message),
            html.table(("outcome", "documents"), [*counted, ("chunks", self.chunks)]),
            html.table(("outcome", "file", "stage", "type", "message"), problems) if problems else "",
            html.note(f"run {self.run_id}"),
        )


def _receipt(data: Mapping[str, Any]) -> Receipt:
    known = {field.name: data[field.name] for field in fields(Receipt) if field.name in data}
    if "warnings" in known:
        known["warnings"] = tuple(known["warnings"])
    return Receipt(**known)
