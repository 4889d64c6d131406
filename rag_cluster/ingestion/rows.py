"""The rows that travel between the stages: ids and bounds, never document bytes, texts or vectors.

One Arrow schema for all of them (kinds and their fields as JSON), so that blocks of any stage can be mixed and an
all-null column never changes a type. A table has one line, however many rows it carries: Ray Data, which would gather
or cut tables to its own size, then passes each on at once and whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from rag_cluster.domain.chunks import Part
from rag_cluster.domain.documents import Claim, Receipt
from rag_cluster.ingestion.stage_times import StageSpan

SCHEMA = pa.schema([("rows", pa.string())])


@dataclass(frozen=True, slots=True)
class PreparedPart:
    """One part on its way to the index, with what its document's receipt will say."""

    knowledge_base_id: str
    uri: str
    document_id: str
    version: int
    owner: str
    token: int
    part: int
    start: int
    end: int
    chunks: int
    """Chunks of all parts of the document that this run has to index."""
    pages: int = 0
    bytes: int = 0
    seconds: float = 0.0
    """Spent on preparing the document."""
    duplicate_of: str | None = None
    warnings: tuple[str, ...] = ()
    recognized: int = 0
    """Pages and pictures whose text was recognised."""
    awaiting: int = 0
    """Pages and pictures whose text comes with the next version; at least 1 when the version holds only the others."""

    @property
    def claim(self) -> Claim:
        """The claim under which the part is written."""
        return Claim(self.document_id, self.version, self.owner, self.token)

    @property
    def slice(self) -> Part:
        """The part as the ledger and the snapshot know it."""
        return Part(self.document_id, self.version, self.part, self.start, self.end)


@dataclass(frozen=True, slots=True)
class PartDone:
    """One part was written, or (chunks == 0) found written."""

    document_id: str
    chunks: int
    tokens: int


@dataclass(frozen=True, slots=True)
class AwaitingRecognition:
    """A document on its way to the OCR stage: unclaimed, and either untouched or published with its text."""

    document_id: str
    pages: int
    """Pages and pictures whose text is to be recognised, at least 1."""
    bytes: int = 0
    """Read so far."""


@dataclass(frozen=True, slots=True)
class StagesDone:
    """When a worker was at which stage since its last row of this kind."""

    text: str

    @classmethod
    def of(cls, spans: Iterable[StageSpan]) -> StagesDone:
        """Spans as a row."""
        return cls(" ".join(f"{s.stage}:{s.begun:.6f}:{s.ended:.6f}:{s.busy:.6f}:{s.count}" for s in spans))

    def spans(self) -> list[StageSpan]:
        """Inverse of `of`."""
        fields = (text.split(":") for text in self.text.split())
        return [StageSpan(s, float(begun), float(ended), float(busy), int(n)) for s, begun, ended, busy, n in fields]


Indexed = PartDone | AwaitingRecognition | Receipt
"""What indexing gives."""
Row = PreparedPart | Indexed | StagesDone
_KINDS: dict[str, type[Any]] = {
    "part": PreparedPart,
    "done": PartDone,
    "awaiting": AwaitingRecognition,
    "receipt": Receipt,
    "stages": StagesDone,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def to_table(rows: Iterable[Row]) -> pa.Table:
    """Rows as an Arrow table of `SCHEMA`, of one line."""
    named = [(_NAMES[type(row)], asdict(row)) for row in rows]
    return pa.table({"rows": [json.dumps(named, ensure_ascii=False)]}, schema=SCHEMA)


def from_table(table: pa.Table) -> Iterator[Row]:
    """Inverse of `to_table`."""
    for text in table["rows"].to_pylist():
        for kind, fields in json.loads(text):
            if "warnings" in fields:
                fields["warnings"] = tuple(fields["warnings"])
            yield _KINDS[kind](**fields)
