"""Contract of the ChunkSearch port."""

from __future__ import annotations

import pytest

from rag_cluster.domain.access import LOCAL, AccessAttributes, AccessFilter, Principal
from rag_cluster.domain.documents import DocumentStatus
from rag_cluster.domain.ports import Catalog, ChunkSearch, Ledger
from rag_cluster.errors import InvalidRequestError
from rag_cluster.stores.postgres.chunk_search import PostgresChunkSearch
from rag_cluster.stores.postgres.database import Database
from tests.contracts.ledger_steps import Ingest, listed

NOWHERE = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def ingest(catalog: Catalog, ledger: Ledger) -> Ingest:
    return Ingest(catalog, ledger)


@pytest.fixture
def search(async_database: Database) -> ChunkSearch:
    return PostgresChunkSearch(async_database)


def scope(ingest: Ingest, *documents: str, pushed: bool = False) -> AccessFilter:
    keys = {ingest.catalog.document(document, LOCAL).access_key for document in documents}
    return AccessFilter(ingest.knowledge_base_id, tuple(keys), document_ids=documents if pushed else None)


async def found(search: ChunkSearch, access: AccessFilter, *keywords: str, least: int = 1) -> set[str]:
    hits = await search.keyword_hits(access, keywords, least=least, limit=50)
    return {hit.document_id for hit in hits}


@pytest.mark.parametrize(
    ("text", "keyword", "matches"),
    [
        ("Goods under DDP terms", "ddp", True),
        ("DDP条款适用", "ddp", True),
        ("the addpoint list", "ddp", False),
        ("危险品须申报", "危险品", True),
        ("C++ and 100% [x]", "c", True),
        ("model 4.0", "4.0", True),
        ("model 450", "4.0", False),
        ("model 1450", "45", False),
        ("ÉCLUSE de Caen", "écluse", True),
        ("écluse de Caen", "ÉCLUSE", True),
        ("КРАН и груз", "кран", True),
        ("ΣΙΓΜΑ", "σιγμα", True),
        ("snake_case", "snake_case", True),
        ("snakeXcase", "snake_case", False),
    ],
)
async def test_a_keyword_is_found_as_a_word_of_its_own(
    search: ChunkSearch, ingest: Ingest, text: str, keyword: str, matches: bool
) -> None:
    claim = ingest.ready(listed("file:///a"), text=text)
    assert bool(await found(search, scope(ingest, claim.document_id), keyword)) is matches


async def test_chunks_with_more_keywords_come_first_and_those_with_too_few_not_at_all(
    search: ChunkSearch, ingest: Ingest
) -> None:
    one = ingest.ready(listed("file:///1"), text="hazardous weather").document_id
    two = ingest.ready(listed("file:///2"), text="hazardous materials").document_id
    words = ("hazardous", "materials", "transport")
    hits = await search.keyword_hits(scope(ingest, one, two), words, least=1, limit=10)
    assert [hit.score for hit in hits] == [2, 2, 1, 1]
    assert hits[0].document_id == two and hits[0].version == 1
    assert await found(search, scope(ingest, one, two), *words, least=2) == {two}


async def test_with_a_list_only_its_chunks_are_looked_at(search: ChunkSearch, ingest: Ingest) -> None:
    one = ingest.ready(listed("file:///1"), text="hazardous").document_id
    two = ingest.ready(listed("file:///2"), text="hazardous materials").document_id
    everywhere = scope(ingest, one, two)
    all_hits = await search.keyword_hits(everywhere, ["hazardous"], least=1, limit=10)
    (first, *_) = [hit for hit in all_hits if hit.document_id == two]
    among = await search.keyword_hits(everywhere, ["hazardous"], least=1, limit=10, among=[first.chunk_id, NOWHERE])
    assert [hit.chunk_id for hit in among] == [first.chunk_id]
    assert await search.keyword_hits(everywhere, ["materials"], least=2, limit=10, among=[first.chunk_id]) == []
    assert await search.keyword_hits(everywhere, ["hazardous"], least=1, limit=10, among=[]) == []


async def test_it_is_told_whether_a_scope_has_more_chunks(search: ChunkSearch, ingest: Ingest) -> None:
    one = ingest.ready(listed("file:///1"), text="hazardous").document_id
    two = ingest.ready(listed("file:///2"), text="hazardous").document_id
    assert [await search.exceeds(scope(ingest, one, two), chunks) for chunks in (0, 3, 4)] == [True, True, False]
    assert not await search.exceeds(scope(ingest, one, pushed=True), 2)
    assert not await search.exceeds(AccessFilter(ingest.knowledge_base_id, ()), 0)


async def test_only_published_documents_of_the_scope_are_searched(search: ChunkSearch, ingest: Ingest) -> None:
    shown = ingest.ready(listed("file:///1"), text="hazardous").document_id
    other = ingest.ready(listed("file:///2"), text="hazardous").document_id
    secret = ingest.ready(listed("file:///3", access=AccessAttributes(("board",))), text="hazardous").document_id
    deleted = ingest.ready(listed("file:///4"), text="hazardous").document_id
    everything = scope(ingest, shown, other, secret)
    ingest.catalog.tombstone(deleted)
    assert await found(search, everything, "hazardous") == {shown, other, secret}
    assert await found(search, scope(ingest, shown), "hazardous") == {shown, other}
    assert await found(search, scope(ingest, shown, pushed=True), "hazardous") == {shown}
    assert await found(search, AccessFilter(ingest.knowledge_base_id, ()), "hazardous") == set()
    assert await found(search, AccessFilter(NOWHERE, everything.access_keys), "hazardous") == set()


async def test_a_chunk_a_document_and_a_text_are_located(search: ChunkSearch, ingest: Ingest) -> None:
    claim = ingest.ready(listed("file:///a"), text="Storage (dry) costs 12 euros")
    by_document = await search.located(LOCAL, ingest.knowledge_base_id, document_id=claim.document_id)
    assert [one.chunk.index for one in by_document if one.chunk] == [0, 1]
    assert by_document[0].document == ingest.catalog.document(claim.document_id, LOCAL)
    chunk = by_document[1].chunk
    assert chunk is not None
    (by_chunk,) = await search.located(LOCAL, ingest.knowledge_base_id, chunk_id=chunk.id)
    assert by_chunk.chunk == chunk
    (by_text,) = await search.located(LOCAL, ingest.knowledge_base_id, text="storage  (DRY)\ncosts 12 euros 1")
    assert by_text.chunk == chunk
    assert await search.located(LOCAL, ingest.knowledge_base_id, text="storage .dry. costs") == []


async def test_a_document_without_chunks_is_located_with_its_status(search: ChunkSearch, ingest: Ingest) -> None:
    claim = ingest.must_claim(listed("file:///a"))
    (one,) = await search.located(LOCAL, ingest.knowledge_base_id, document_id=claim.document_id)
    assert one.chunk is None
    assert (one.document.status, one.document.published_version) == (DocumentStatus.PENDING, None)


async def test_what_may_not_be_read_is_not_located(search: ChunkSearch, ingest: Ingest) -> None:
    secret = ingest.ready(listed("file:///3", access=AccessAttributes(("board",))), text="hazardous").document_id
    (first, *_) = await search.located(LOCAL, ingest.knowledge_base_id, document_id=secret)
    assert first.chunk is not None
    member = Principal("member", frozenset({ingest.knowledge_base_id}))
    for principal, base in ((member, ingest.knowledge_base_id), (LOCAL, NOWHERE)):
        assert await search.located(principal, base, document_id=secret) == []
        assert await search.located(principal, base, chunk_id=first.chunk.id) == []
        assert await search.located(principal, base, text="hazardous") == []
    ingest.catalog.tombstone(secret)
    assert await search.located(LOCAL, ingest.knowledge_base_id, chunk_id=first.chunk.id) == []


@pytest.mark.parametrize("names", [{}, {"text": " "}, {"text": "a", "chunk_id": NOWHERE}])
async def test_exactly_one_thing_is_located(search: ChunkSearch, ingest: Ingest, names: dict[str, str]) -> None:
    with pytest.raises(InvalidRequestError):
        await search.located(LOCAL, ingest.knowledge_base_id, **names)  # type: ignore[arg-type]


async def test_what_is_no_id_names_nothing(search: ChunkSearch, ingest: Ingest) -> None:
    ingest.ready()
    assert await search.located(LOCAL, ingest.knowledge_base_id, chunk_id="x") == []
