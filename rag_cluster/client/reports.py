"""A run's report, rebuilt from what a job printed or from the run row, and shown in a notebook."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from rag_cluster.client import html
from rag_cluster.client.views import Row, Tabular
from rag_cluster.domain.documents import IngestionRun, RunStatus
from rag_cluster.ingestion.report import IngestionReport, readable, receipt_of, report_of_run
from rag_cluster.ingestion.report_page import picture
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
    def of_run(cls, run: RunDetail) -> ReportView:
        """What the run row tells, for a job that printed no report. `slowest` and `timeline` are not in it."""
        if run.report is not None:
            return cls.from_dict(run.report)
        found = IngestionRun(
            run.id,
            run.knowledge_base_id,
            RunStatus(run.status),
            counts=run.counts,
            started_at=run.started_at,
            updated_at=run.updated_at,
            finished_at=run.finished_at,
            error_message=run.error_message,
        )
        return cls.of(report_of_run(found, [receipt_of(receipt.model_dump()) for receipt in run.receipts]))

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
            picture(self.timeline) if self.timeline.stages else "",
            html.table(("outcome", "file", "stage", "type", "message"), problems) if problems else "",
            html.note(f"run {self.run_id}"),
        )
