"""Bulk runs, as people ask for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from rag_cluster.domain.documents import IngestionRun, Receipt, RunStatus


class Runs(Protocol):
    """Runs of bulk ingestion: counts, receipts, report, end."""

    def start_run(
        self, knowledge_base_id: str, inputs: Sequence[str], options: Mapping[str, Any], run_id: str
    ) -> IngestionRun: ...

    def end_lost_runs(self, knowledge_base_id: str, seconds: float) -> list[str]:
        """FAILED for each run of the knowledge base without a sign of life for so many seconds; their ids."""
        ...

    def update_run(self, run_id: str, counts: Mapping[str, int]) -> None: ...

    def record_receipts(self, run_id: str, receipts: Sequence[Receipt]) -> None:
        """Keep the rows that a person asks for later: failed, skipped, busy, with stage, type and message."""
        ...

    def finish_run(
        self,
        run_id: str,
        status: RunStatus,
        counts: Mapping[str, int],
        error_message: str | None = None,
        report: Mapping[str, Any] | None = None,
    ) -> None:
        """The run's end, with its final counts and its report as JSON."""
        ...

    def run_report(self, run_id: str) -> Mapping[str, Any] | None:
        """The report that `finish_run` was given; None without one. NotFoundError."""
        ...

    def request_cancel(self, run_id: str) -> IngestionRun:
        """Ask a run's driver to end it at its next heartbeat. NotFoundError; ConflictError when it has ended."""
        ...

    def cancel_requested(self, run_id: str) -> bool: ...

    def run(self, run_id: str) -> IngestionRun: ...

    def runs(
        self, *, knowledge_bases: Collection[str] | None = None, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[IngestionRun], str | None]:
        """Newest first; of these knowledge bases, None: of all."""
        ...

    def run_receipts(self, run_id: str, *, limit: int = 1000) -> list[Receipt]: ...
