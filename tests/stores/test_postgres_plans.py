"""Plans of the read path's statements, as the server makes them once for all values: none reads a large table whole."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from rag_cluster.domain.access import LOCAL, AccessFilter, Principal
from rag_cluster.domain.documents import SourceKind
from rag_cluster.domain.retrieval import Hit, RetrievalOptions
from rag_cluster.stores.postgres.catalog import PostgresCatalog
from rag_cluster.stores.postgres.chunk_search import PostgresChunkSearch
from rag_cluster.stores.postgres.database import Database
from rag_cluster.stores.postgres.evidence import PostgresEvidence

ROWS = 20_000
LARGE = ("documents", "chunks", "parents", "document_versions", "document_assets")
FILL = """
INSERT INTO access_keys (knowledge_base_id, security_level, acl)
  SELECT %(base)s, 0, ARRAY['group' || n] FROM generate_series(0, 9) n;
INSERT INTO documents (id, knowledge_base_id, source_id, uri, filename, access_key, published_version)
  SELECT gen_random_uuid(), %(base)s, %(source)s, 'file:///' || n, 'f' || n,
    (SELECT min(id) FROM access_keys) + CASE WHEN n %% 4000 = 0 THEN 7 ELSE n %% 2 END, 1
  FROM generate_series(1, %(rows)s) n;
INSERT INTO parents (id, document_id, version, index, text)
  SELECT gen_random_uuid(), id, 1, 0, 'text' FROM documents;
INSERT INTO chunks (id, knowledge_base_id, document_id, version, index, parent_id, content)
  SELECT gen_random_uuid(), %(base)s, document_id, 1, 0, id, 'Heading text' FROM parents;
INSERT INTO document_versions (document_id, version, status, content_fingerprint)
  SELECT id, 1, 'READY', 'fingerprint' FROM documents;
INSERT INTO document_assets (id, document_id, version, object_key, media_type, sha256, size)
  SELECT gen_random_uuid(), id, 1, 'key', 'image/png', 'sha', 1 FROM documents"""


@pytest.fixture
def base(catalog: PostgresCatalog, database: Database) -> str:
    """A knowledge base with many documents, of which the members of group7 may read five."""
    found = catalog.create_knowledge_base("large", default_acl=())
    source = catalog.ensure_source(found.id, SourceKind.BULK, "bulk").id
    with psycopg.ClientCursor(psycopg.connect(database.dsn, autocommit=True)) as cursor:
        cursor.execute(FILL, {"base": found.id, "source": source, "rows": ROWS})
        cursor.connection.close()
    return found.id


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement that is run on an event loop."""
    seen: list[str] = []
    execute = psycopg.AsyncCursor.execute

    async def noted(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        if not str(query).startswith("SET "):
            seen.append(str(query))
        return await execute(self, query, *args, **options)

    monkeypatch.setattr(psycopg.AsyncCursor, "execute", noted)
    return seen


def plan(database: Database, statement: str) -> str:
    """The server's plan for whatever values."""
    numbers: dict[str, int] = {}
    numbered = re.sub(r"%\((\w+)\)s", lambda at: f"${numbers.setdefault(at[1], len(numbers) + 1)}", statement)
    with database.connection() as connection:
        rows = connection.execute(f"EXPLAIN (GENERIC_PLAN) {numbered}".replace("%%", "%"), prepare=False).fetchall()
    return "\n".join(row["QUERY PLAN"] for row in rows)


def walked(found: str) -> set[str]:
    """Large tables that a plan reads whole."""
    return {table for table in LARGE if re.search(rf"Seq Scan on {table}\b", found)}


async def test_no_statement_of_a_query_reads_a_large_table_whole(
    base: str, database: Database, async_database: Database, statements: list[str]
) -> None:
    with database.connection() as connection:
        rows = connection.execute("SELECT id, document_id FROM chunks LIMIT 60").fetchall()
        (key,) = connection.execute("SELECT min(id) AS id FROM access_keys").fetchall()
    hits = [Hit(row["id"], row["document_id"], 1, 0.5) for row in rows]
    documents = tuple(hit.document_id for hit in hits)
    chunks = [hit.chunk_id for hit in hits]
    everybody, some = (AccessFilter(base, (key["id"],), document_ids=named) for named in (None, documents))
    evidence, search = PostgresEvidence(async_database), PostgresChunkSearch(async_database)
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: evidence.scope(LOCAL, base, RetrievalOptions()),
        lambda: evidence.scope(LOCAL, base, RetrievalOptions(document_ids=documents)),
        lambda: evidence.rows(LOCAL, base, hits, RetrievalOptions()),
        lambda: evidence.changed_since("100:100:", documents),
        lambda: search.keyword_hits(everybody, ["text"], least=1, limit=9, among=chunks),
        lambda: search.keyword_hits(some, ["text"], least=1, limit=9, among=chunks),
        lambda: search.keyword_hits(some, ["text"], least=1, limit=9),
        lambda: search.exceeds(some, 500),
    ]
    for call in calls:
        await call()
    assert len(statements) == len(calls)
    expected: dict[str, set[str]] = {one: set() for one in statements}
    assert {one: walked(plan(database, one)) for one in statements} == expected, "right after a bulk load"
    with database.connection() as connection:
        connection.execute("ANALYZE")  # as autovacuum does soon
    assert {one: walked(plan(database, one)) for one in statements} == expected


async def test_who_may_read_few_of_many_documents_is_told_these(base: str, async_database: Database) -> None:
    evidence = PostgresEvidence(async_database)
    few = await evidence.scope(Principal("few", frozenset({base}), frozenset({"group7"})), base, RetrievalOptions())
    assert few.visible_documents == ROWS // 4000 and len(few.filter.document_ids or ()) == ROWS // 4000
    many = Principal("many", frozenset({base}), frozenset({"group0", "group1", "group7"}))
    assert (await evidence.scope(many, base, RetrievalOptions())).visible_documents == 1001
    named = RetrievalOptions(document_ids=(*(few.filter.document_ids or ())[:2], str(uuid4())))
    assert (await evidence.scope(many, base, named)).visible_documents == 2
    nobody = await evidence.scope(Principal("none", knowledge_bases=frozenset()), base, named)
    assert nobody.visible_documents == 0 and nobody.filter.empty
