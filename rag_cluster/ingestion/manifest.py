"""The Parquet manifest of a run: what the plan found to do, written and read in bounded memory."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from functools import lru_cache
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from rag_cluster.domain.access import AccessAttributes
from rag_cluster.domain.documents import PlanAction, PlannedFile, SourceFile

SCHEMA = pa.schema(
    [
        ("document_id", pa.string()),
        ("action", pa.string()),
        ("content_fingerprint", pa.string()),
        ("uri", pa.string()),
        ("filename", pa.string()),
        ("size", pa.int64()),
        ("etag", pa.string()),
        ("access", pa.string()),
        ("metadata", pa.string()),
        ("keeps_access", pa.bool_()),
        ("keeps_metadata", pa.bool_()),
        ("chunking_strategy", pa.string()),
        ("referenced", pa.bool_()),
    ]
)
ROW_GROUP = 1000


class ManifestWriter:
    """Appends planned files; holds one row group in memory."""

    def __init__(self, path: str) -> None:
        self._writer = pq.ParquetWriter(path, SCHEMA)
        self._rows: list[dict[str, Any]] = []
        self.count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._flush()
        self._writer.close()

    def add(self, planned: PlannedFile) -> None:
        """One row."""
        self._rows.append(to_row(planned))
        self.count += 1
        if len(self._rows) == ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, schema=SCHEMA))
            self._rows.clear()


def read_manifest(path: str) -> Iterator[PlannedFile]:
    """Stream a manifest, a row group at a time: `iter_batches` would hold more of a longer file."""
    with pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups):
            for row in file.read_row_group(number).to_pylist():
                yield from_row(row)


def to_row(planned: PlannedFile) -> dict[str, Any]:
    """A flat row of `SCHEMA`."""
    file = planned.file
    return {
        "document_id": planned.document_id,
        "action": planned.action.value,
        "content_fingerprint": planned.content_fingerprint,
        "uri": file.uri,
        "filename": file.filename,
        "size": file.size,
        "etag": file.etag,
        "access": _access_text(file.access),
        "metadata": json.dumps(dict(file.metadata), ensure_ascii=False, default=str) if file.metadata else "{}",
        "keeps_access": file.keeps_access,
        "keeps_metadata": file.keeps_metadata,
        "chunking_strategy": file.chunking_strategy,
        "referenced": file.referenced,
    }


def from_row(row: dict[str, Any]) -> PlannedFile:
    """Inverse of `to_row`."""
    file = SourceFile(
        row["uri"],
        row["filename"],
        row["size"],
        row["etag"],
        _access(row["access"]),
        json.loads(row["metadata"]),
        row["keeps_access"],
        row["keeps_metadata"],
        row["chunking_strategy"],
        row["referenced"],
    )
    return PlannedFile(file, row["document_id"], PlanAction(row["action"]), sys.intern(row["content_fingerprint"]))


# Documents of a run share a few attributes, and a driver meets millions of documents and holds thousands.


@lru_cache(maxsize=1000)
def _access_text(access: AccessAttributes) -> str:
    return json.dumps(asdict(access))


@lru_cache(maxsize=1000)
def _access(text: str) -> AccessAttributes:
    access = json.loads(text)
    acl = access["acl"]
    return AccessAttributes(None if acl is None else tuple(acl), access["department"], access["security_level"])
