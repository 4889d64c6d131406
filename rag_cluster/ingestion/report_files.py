"""A run's report as a file: JSON for programs, Parquet for tables of many runs, HTML for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rag_cluster.domain.documents import Receipt
from rag_cluster.errors import InvalidRequestError
from rag_cluster.ingestion.report import IngestionReport
from rag_cluster.ingestion.report_page import page

FORMATS = (".html", ".json", ".parquet")
METADATA_KEY = b"rag_cluster.report"
"""Of the Parquet file: the whole report as JSON."""
SCHEMA = pa.schema(
    [
        ("run_id", pa.string()),
        ("knowledge_base", pa.string()),
        ("section", pa.string()),
        ("uri", pa.string()),
        ("document_id", pa.string()),
        ("outcome", pa.string()),
        ("version", pa.int64()),
        ("chunks", pa.int64()),
        ("pages", pa.int64()),
        ("bytes", pa.int64()),
        ("tokens", pa.int64()),
        ("seconds", pa.float64()),
        ("stage", pa.string()),
        ("error_type", pa.string()),
        ("message", pa.string()),
        ("duplicate_of", pa.string()),
        ("warnings", pa.list_(pa.string())),
        ("recognized", pa.int64()),
    ]
)
"""section: "problem" for an input that failed, was skipped or busy, "duplicate" for one with the bytes of another
document, "slowest" for one of the slowest documents."""


def check_path(path: str | Path) -> str:
    """The extension that decides the format. InvalidRequestError for another one, or where there is no such folder."""
    place = Path(path)
    extension = place.suffix.lower()
    if extension not in FORMATS:
        raise InvalidRequestError(f"A report is written as {', '.join(FORMATS)}, not {place.name!r}.")
    if not place.absolute().parent.is_dir():
        raise InvalidRequestError(f"There is no folder {place.absolute().parent} for the report.")
    return extension


def save(report: IngestionReport, path: str | Path, problems: Sequence[Receipt] | None = None) -> None:
    """Write a report, replacing what is there. InvalidRequestError as `check_path`.

    problems: all that the ledger kept, for a Parquet file; None: those of the report.
    """
    match check_path(path):
        case ".json":
            text = json.dumps(report.to_dict(), ensure_ascii=False, default=str, indent=1)
            Path(path).write_text(text + "\n", encoding="utf-8", errors="replace")
        case ".html":
            Path(path).write_text(page(report), encoding="utf-8", errors="replace")
        case _:
            pq.write_table(_table(report, report.problems if problems is None else problems), path)


def _table(report: IngestionReport, problems: Iterable[Receipt]) -> pa.Table:
    sections = (("problem", problems), ("duplicate", report.copies), ("slowest", report.slowest))
    rows = [
        {"run_id": report.run_id, "knowledge_base": report.knowledge_base, "section": section, **_fields(receipt)}
        for section, receipts in sections
        for receipt in receipts
    ]
    summary = json.dumps(report.to_dict(), ensure_ascii=False, default=str)
    return pa.Table.from_pylist(rows, SCHEMA.with_metadata({METADATA_KEY: summary.encode("utf-8", "replace")}))


def _fields(receipt: Receipt) -> dict[str, Any]:
    """As columns; what is no Unicode, as half of a surrogate pair, is replaced."""
    values = asdict(receipt)
    return {
        name: value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        for name, value in values.items()
    }
