"""What a knowledge base is in every store, so that two of them can be compared, and how often its parts were embedded.

Ids follow from the knowledge base's name and the files' paths, so that another data directory has the same ones.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from rag_cluster.engines.hashing import HashEmbedder
from rag_cluster.settings import get_settings
from rag_cluster.wiring import Services

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Matrix

EMBED_SECONDS = 0.4
EMBEDDED = "embedded.log"
"""Below the data directory: a line for each embed call, with the digests of its texts."""


class LoggedEmbedder(HashEmbedder):
    """The hash embedder; writes down what it is asked for, and takes as long as a model, so that kills meet it."""

    def __init__(self, *, threads: int = 1, batch_size: int = 1) -> None:
        super().__init__()

    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """As the hash embedder."""
        line = " ".join(map(_digest, texts)) + "\n"
        descriptor = os.open(get_settings().home / EMBEDDED, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, line.encode())  # one call: a kill leaves it whole or not there
        finally:
            os.close(descriptor)
        time.sleep(EMBED_SECONDS)
        return super().embed_documents(texts)


EMBEDDER = f"{LoggedEmbedder.__module__}:{LoggedEmbedder.__name__}"
"""As RAG_EMBEDDER names it."""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class State:
    """Everything that a finished ingestion left behind, as name -> content."""

    documents: Mapping[str, str]
    """Document id -> published version and status."""
    failures: Mapping[str, str]
    """Document id and version -> stage, type, message."""
    chunks: Mapping[str, str]
    """In PostgreSQL: chunk id -> digest of its text."""
    index: Mapping[str, str]
    """In Milvus: chunk id -> document id and version."""
    parents: Mapping[str, str]
    assets: Mapping[str, str]
    """Asset id and version -> object key and digest."""
    objects: Mapping[str, str]
    """Snapshots, originals and assets: key -> digest."""

    @property
    def failure_types(self) -> frozenset[str]:
        """Error types of `failures`."""
        return frozenset(content.split()[1] for content in self.failures.values())

    def differences(self, other: State) -> dict[str, list[str]]:
        """Field -> what is missing here ("-"), more ("+") or different ("!") compared with the other."""
        return {
            field.name: _differences(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)
        }


def _differences(mine: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    found = [f"- {key} {other[key]}" for key in other.keys() - mine.keys()]
    found += [f"+ {key} {mine[key]}" for key in mine.keys() - other.keys()]
    found += [f"! {key} {mine[key]} {other[key]}" for key in mine.keys() & other.keys() if mine[key] != other[key]]
    return sorted(found)


def read_state(services: Services) -> State:
    """The state of all stores."""

    def table(statement: str) -> dict[str, str]:
        with services.database.connection() as connection:
            return {str(row["name"]): str(row["content"]) for row in connection.execute(statement)}

    return State(
        documents=table(
            """SELECT d.id AS name, concat_ws(' ', d.published_version, v.version, v.status, d.deleted_at) AS content
               FROM documents d LEFT JOIN document_versions v ON v.document_id = d.id"""
        ),
        failures=table(
            """SELECT document_id || ' ' || version AS name,
                 concat_ws(' ', error_stage, error_type, error_permanent, error_message) AS content
               FROM document_versions WHERE status = 'FAILED'"""
        ),
        chunks=table("SELECT id AS name, version || ' ' || md5(content) AS content FROM chunks"),
        index=_index(services),
        parents=table("SELECT id AS name, version || ' ' || md5(text) AS content FROM parents"),
        assets=table(
            "SELECT id || ' ' || version AS name, object_key || ' ' || sha256 AS content FROM document_assets"
        ),
        objects={
            found.key: hashlib.sha256(services.objects.get(found.key)).hexdigest()
            for found in services.objects.entries("")
        },
    )


def _index(services: Services) -> dict[str, str]:
    """Twice the same id is written as such."""
    bases = services.inventory.knowledge_base_ids()
    found: dict[str, str] = {}
    for record in services.catalog.indexes():
        for row in (row for base in bases for row in services.index.rows(record.collection, base)):
            found[row.id] = "twice" if row.id in found else f"{row.document_id} {row.version}"
        for row in services.index.foreign_rows(record.collection, bases):
            found[row.id] = "of no knowledge base"
    return found


@dataclass(frozen=True, slots=True)
class Embedding:
    """How often parts were embedded."""

    parts: int
    again: int
    """Times that a part was embedded after its first."""
    most: int
    """Times of the part that was embedded most often."""


def read_embedding(services: Services) -> Embedding:
    """Parts of what is in PostgreSQL now, against the log. Chunks of all documents differ."""
    path: Path = services.settings.home / EMBEDDED
    times = Counter(digest for line in path.read_text().splitlines() for digest in line.split())
    with services.database.connection() as connection:
        rows = connection.execute(
            """SELECT c.content, p.document_id, p.version, p.part FROM chunks c
               JOIN document_parts p ON p.document_id = c.document_id AND p.version = c.version
                 AND c.index >= p.chunk_start AND c.index < p.chunk_end"""
        ).fetchall()
    shared = Counter(_digest(row["content"]) for row in rows)
    by_part: dict[tuple[str, int, int], int] = {}
    for row in rows:
        digest = _digest(row["content"])
        if shared[digest] == 1:
            key = (row["document_id"], row["version"], row["part"])
            by_part[key] = max(by_part.get(key, 0), times[digest])
    again = sum(count - 1 for count in by_part.values())
    return Embedding(len(by_part), again, max(by_part.values(), default=0))
