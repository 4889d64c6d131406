"""Bulk runs and their receipts: the part of `PostgresLedger` about reports."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from rag_cluster.domain.documents import IngestionRun, Receipt, RunStatus
from rag_cluster.errors import ConflictError, NotFoundError
from rag_cluster.stores.postgres import rows
from rag_cluster.stores.postgres.adapters import as_uuid, known_uuid, known_uuids
from rag_cluster.stores.postgres.database import Database
from rag_cluster.stores.postgres.paging import page, page_values

_MAX_MESSAGE = 4000


class LedgerRuns:
    """`Ledger`'s methods on bulk runs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def start_run(
        self, knowledge_base_id: str, inputs: Sequence[str], options: Mapping[str, Any], run_id: str
    ) -> IngestionRun:
        """RUNNING. A run that was started before, by a lost driver, runs again under its id."""
        with self._database.connection() as connection:
            try:
                row = connection.execute(
                    """INSERT INTO ingestion_runs (id, knowledge_base_id, inputs, options) VALUES (%s, %s, %s, %s)
                       ON CONFLICT (id) DO UPDATE SET status = 'RUNNING', finished_at = NULL, error_message = NULL,
                         cancel_requested_at = NULL,
                         updated_at = now() RETURNING *""",
                    (
                        as_uuid(run_id, "run"),
                        as_uuid(knowledge_base_id, "knowledge base"),
                        list(inputs),
                        Jsonb(dict(options)),
                    ),
                ).fetchone()
            except psycopg.errors.ForeignKeyViolation:
                raise NotFoundError(f"no knowledge base {knowledge_base_id!r}") from None
        assert row is not None, "an upsert returns its row"
        return rows.run(row)

    def end_lost_runs(self, knowledge_base_id: str, seconds: float) -> list[str]:
        """FAILED for each run of the knowledge base whose driver gave no sign of life (`Ledger.extend`) for so many
        seconds; their ids."""
        with self._database.connection() as connection:
            found = connection.execute(
                """UPDATE ingestion_runs r SET status = 'FAILED', finished_at = now(), updated_at = now(),
                     error_message = 'its driver was lost; the next run goes on from there'
                   WHERE r.knowledge_base_id = %s AND r.status = 'RUNNING'
                     AND r.updated_at < clock_timestamp() - make_interval(secs => %s)
                     AND NOT EXISTS (SELECT 1 FROM document_versions v WHERE v.claim_owner = r.id::text
                       AND v.claim_until > clock_timestamp())
                   RETURNING r.id""",
                (as_uuid(knowledge_base_id, "knowledge base"), seconds),
            ).fetchall()
        return [row["id"] for row in found]

    def update_run(self, run_id: str, counts: Mapping[str, int]) -> None:
        """Progress, as counts so far."""
        with self._database.connection() as connection:
            connection.execute(
                "UPDATE ingestion_runs SET counts = %s, updated_at = now() WHERE id = %s",
                (Jsonb(dict(counts)), as_uuid(run_id, "run")),
            )

    def record_receipts(self, run_id: str, receipts: Sequence[Receipt]) -> None:
        """Keep the rows that a person asks for later: failed, skipped, busy, with stage, type and message.

        A second receipt for an input replaces the first.
        """
        run = as_uuid(run_id, "run")
        values = [
            (
                run,
                receipt.uri,
                known_uuid(receipt.document_id),
                receipt.outcome,
                receipt.stage,
                receipt.error_type,
                receipt.message[:_MAX_MESSAGE],
            )
            for receipt in receipts
        ]
        try:
            with self._database.transaction() as connection, connection.cursor() as cursor:
                cursor.executemany(
                    """INSERT INTO ingestion_run_receipts
                         (run_id, uri, document_id, outcome, stage, error_type, message)
                       VALUES (%s, %s, %s, %s, %s, %s, %s)
                       ON CONFLICT (run_id, uri) DO UPDATE SET document_id = EXCLUDED.document_id,
                         outcome = EXCLUDED.outcome, stage = EXCLUDED.stage, error_type = EXCLUDED.error_type,
                         message = EXCLUDED.message""",
                    values,
                )
        except psycopg.errors.ForeignKeyViolation:
            raise NotFoundError(f"no run {run_id!r}") from None

    def finish_run(
        self,
        run_id: str,
        status: RunStatus,
        counts: Mapping[str, int],
        error_message: str | None = None,
        report: Mapping[str, Any] | None = None,
    ) -> None:
        """The run's end, with its final counts and its report as JSON."""
        stored = None if report is None else Jsonb(dict(report))
        with self._database.connection() as connection:
            connection.execute(
                """UPDATE ingestion_runs SET status = %s, counts = %s, error_message = %s, report = %s,
                     updated_at = now(), finished_at = now() WHERE id = %s""",
                (status, Jsonb(dict(counts)), error_message, stored, as_uuid(run_id, "run")),
            )

    def run_report(self, run_id: str) -> Mapping[str, Any] | None:
        """The report that `finish_run` was given; None without one. NotFoundError."""
        with self._database.connection() as connection:
            row = connection.execute(
                "SELECT report FROM ingestion_runs WHERE id = %s", (as_uuid(run_id, "run"),)
            ).fetchone()
        if row is None:
            raise NotFoundError(f"no run {run_id!r}")
        report: Mapping[str, Any] | None = row["report"]
        return report

    def request_cancel(self, run_id: str) -> IngestionRun:
        """Ask a run's driver to end it at its next heartbeat. NotFoundError; ConflictError when it has ended."""
        with self._database.connection() as connection:
            row = connection.execute(
                """UPDATE ingestion_runs SET cancel_requested_at = coalesce(cancel_requested_at, now())
                   WHERE id = %s AND status = 'RUNNING' RETURNING *""",
                (as_uuid(run_id, "run"),),
            ).fetchone()
        if row is None:
            raise ConflictError(f"run {run_id} is {self.run(run_id).status} already")
        return rows.run(row)

    def cancel_requested(self, run_id: str) -> bool:
        """Whether `request_cancel` came since the run started."""
        with self._database.connection() as connection:
            row = connection.execute(
                "SELECT 1 FROM ingestion_runs WHERE id = %s AND cancel_requested_at IS NOT NULL",
                (as_uuid(run_id, "run"),),
            ).fetchone()
        return row is not None

    def run(self, run_id: str) -> IngestionRun:
        """NotFoundError."""
        with self._database.connection() as connection:
            row = connection.execute("SELECT * FROM ingestion_runs WHERE id = %s", (as_uuid(run_id, "run"),)).fetchone()
        if row is None:
            raise NotFoundError(f"no run {run_id!r}")
        return rows.run(row)

    def runs(
        self, *, knowledge_bases: Collection[str] | None = None, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[IngestionRun], str | None]:
        """Newest first; of these knowledge bases, None: of all."""
        values = page_values(cursor, limit)
        values["bases"] = known_uuids(None if knowledge_bases is None else tuple(knowledge_bases))
        with self._database.connection() as connection:
            found = connection.execute(
                """SELECT * FROM ingestion_runs
                   WHERE (%(bases)s::uuid[] IS NULL OR knowledge_base_id = ANY(%(bases)s::uuid[]))
                     AND (%(after_id)s::uuid IS NULL
                       OR (started_at, id) < (%(after_time)s::timestamptz, %(after_id)s::uuid))
                   ORDER BY started_at DESC, id DESC LIMIT %(fetch)s""",
                values,
            ).fetchall()
        return page(found, limit, rows.run, "started_at")

    def run_receipts(self, run_id: str, *, limit: int = 1000) -> list[Receipt]:
        """The kept receipts, by URI."""
        with self._database.connection() as connection:
            found = connection.execute(
                "SELECT * FROM ingestion_run_receipts WHERE run_id = %s ORDER BY uri LIMIT %s",
                (as_uuid(run_id, "run"), limit),
            ).fetchall()
        return [
            Receipt(
                uri=row["uri"],
                document_id=row["document_id"] or "",
                outcome=row["outcome"],
                stage=row["stage"],
                error_type=row["error_type"],
                message=row["message"],
            )
            for row in found
        ]
