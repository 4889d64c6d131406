"""Milvus, PostgreSQL and plain Python mean the same by every filter."""

from __future__ import annotations

import asyncio
import json
import os
import random
import uuid
from typing import Any

import numpy as np
import pytest
from psycopg.types.json import Jsonb

from rag_cluster.domain.access import AccessFilter
from rag_cluster.domain.blocks import SourceLocator
from rag_cluster.domain.chunks import Chunk, IndexRow, chunk_facts
from rag_cluster.domain.documents import IndexRecord
from rag_cluster.domain.filters import parse_filter, passes
from rag_cluster.domain.predicates import AllOf, AnyOf, Compare, Element, Predicate, Substring, predicate
from rag_cluster.stores.milvus import MAX_LIMIT, MilvusChunkIndex
from rag_cluster.stores.postgres.database import Connection, Database
from rag_cluster.stores.postgres.filters import sql_condition
from tests.stores.filter_cases import STRINGS, metadata, raw_filter

FULL = os.environ.get("RAG_FULL_COUNTS") == "1"
FILTERS = 5_000 if FULL else 250
ROWS = 120
KB = "kb"


def _row(draw: random.Random, number: int) -> IndexRow:
    own = {"own": draw.choice(STRINGS)} if draw.random() < 0.5 else {}
    chunk = Chunk(
        f"row-{number}",
        KB,
        f"document-{number}",
        1,
        0,
        "text",
        locator=SourceLocator(
            heading_path=tuple(draw.sample(["a", "b", "港口", "%"], draw.randint(0, 2))),
            page=draw.choice([None, 1, 2, 3]),
            sheet=draw.choice([None, "a", "2024"]),
        ),
        content_types=tuple(draw.sample(["text", "table", "a"], draw.randint(0, 2))),
        metadata={"chunking_strategy": draw.choice(["structured", "a"]), "places": [[0, 1, {"page": 1}]], **own},
    )
    return IndexRow(chunk, "source", 1, metadata(draw))


def _load(connection: Connection, rows: list[IndexRow]) -> None:
    """Documents d and chunks c with the columns that a condition asks."""
    connection.execute("CREATE TEMP TABLE d (id text, metadata jsonb)")
    connection.execute(
        """CREATE TEMP TABLE c (id text, locator jsonb, content_types text[], chunking_strategy text, metadata jsonb)"""
    )
    for row in rows:
        chunk = row.chunk
        rest = {name: value for name, value in chunk.metadata.items() if name != "chunking_strategy"}
        connection.execute("INSERT INTO d VALUES (%s, %s)", (chunk.id, Jsonb(dict(row.document_metadata))))
        connection.execute(
            "INSERT INTO c VALUES (%s, %s, %s, %s, %s)",
            (
                chunk.id,
                Jsonb(chunk.locator.to_dict()),
                list(chunk.content_types),
                chunk.metadata["chunking_strategy"],
                Jsonb(rest),
            ),
        )


def _leaves(test: Predicate) -> list[Predicate]:
    if isinstance(test, (AllOf, AnyOf)):
        return [leaf for part in test.parts for leaf in _leaves(part)]
    return [test]


def _may_exceed(test: Predicate) -> bool:
    """Where `milvus_filters` tells that an expression may find more, the second check deciding."""
    for leaf in _leaves(test):
        numeric = isinstance(leaf, (Compare, Element)) and not isinstance(leaf.value, str)
        pattern = isinstance(leaf, Substring) and not {"%", "_", "\\"}.isdisjoint(leaf.text)
        if numeric or pattern or (isinstance(leaf, Element) and not leaf.wanted):
            return True
    return False


@pytest.mark.timeout(1800)
def test_milvus_sql_and_python_find_the_same_rows(milvus_index: MilvusChunkIndex, database: Database) -> None:
    draw = random.Random(7)
    rows = [_row(draw, number) for number in range(ROWS)]
    record = IndexRecord(1, f"chunks_{uuid.uuid4().hex[:16]}", "fingerprint", 8, "active")
    milvus_index.ensure(record)
    milvus_index.upsert(record.collection, rows, np.tile(np.eye(8, dtype=np.float32)[0], (ROWS, 1)))
    milvus_index.flush(record.collection)

    async def in_milvus(access: AccessFilter) -> set[str]:
        hits = await milvus_index.search_dense(record.collection, [1.0] + [0.0] * 7, access, MAX_LIMIT)
        return {hit.chunk_id for hit in hits}

    exact = selective = 0
    with asyncio.Runner() as runner, database.connection() as connection:
        _load(connection, rows)
        for _ in range(FILTERS):
            raw = raw_filter(draw)
            filter = parse_filter(raw)
            assert filter is not None
            shown = json.dumps(raw, ensure_ascii=False)
            expected = {row.chunk.id for row in rows if passes(filter, row.document_metadata, chunk_facts(row.chunk))}
            condition, values = sql_condition(filter)
            found = connection.execute(f"SELECT d.id FROM d JOIN c USING (id) WHERE {condition}", values).fetchall()
            assert {row["id"] for row in found} == expected, shown
            pushed = runner.run(in_milvus(AccessFilter(KB, (1,), metadata=filter)))
            assert pushed >= expected, shown
            if not _may_exceed(predicate(filter)):
                assert pushed == expected, shown
            exact += pushed == expected
            selective += 0 < len(expected) < ROWS
    assert exact > 0.6 * FILTERS and selective > 0.3 * FILTERS, (exact, selective)
    print(f"{FILTERS} filters, {exact} exact in Milvus, {selective} neither empty nor all")


def test_a_negation_of_any_filter_never_overlaps_with_it_and_twice_is_the_filter_itself() -> None:
    draw = random.Random(11)
    documents: list[dict[str, Any]] = [metadata(draw) for _ in range(50)]
    for _ in range(FILTERS):
        raw = raw_filter(draw)
        filter, opposite = parse_filter(raw), parse_filter({"not": raw})
        for document in documents:
            true, false = passes(filter, document, {}), passes(opposite, document, {})
            assert not (true and false), raw
            assert passes(parse_filter({"not": {"not": raw}}), document, {}) is true, raw
