"""Contract of the ChunkSearch port."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rag_cluster.domain.access import LOCAL, AccessAttributes, AccessFilter, Principal
from rag_cluster.domain.blocks import SourceLocator
from rag_cluster.domain.chunks import Chunk, IndexRow
from rag_cluster.domain.documents import DocumentStatus, IndexRecord
from rag_cluster.domain.filters import parse_filter
from rag_cluster.domain.ports import Catalog, ChunkSearch, Ledger
from rag_cluster.errors import InvalidRequestError
from rag_cluster.retrieval.keyword_fallback import keyword_like
from rag_cluster.stores.fakes import MemoryChunkIndex, MemoryChunkSearch
from rag_cluster.stores.postgres.chunk_search import PostgresChunkSearch
from rag_cluster.stores.postgres.database import Database
from tests.contracts.ledger_steps import OPEN, Ingest, listed

NOWHERE = "00000000-0000-0000-0000-000000000000"


class PostgresShelf:
    """Puts documents of two chunks where the search finds them."""

    def __init__(self, ingest: Ingest, search: ChunkSearch) -> None:
        self.ingest, self.search = ingest, search
        self.base = ingest.knowledge_base_id

    def put(self, name: str, text: str, **file: Any) -> str:
        return self.ingest.ready(listed(f"file:///{name}", **file), text=text).document_id

    def scope(self, *documents: str) -> AccessFilter:
        """What may be read by the access keys of these documents."""
        keys = {self.ingest.catalog.document(document, LOCAL).access_key for document in documents}
        return AccessFilter(self.base, tuple(keys))


class MemoryShelf:
    def __init__(self) -> None:
        self.index, self.base = MemoryChunkIndex(), "kb"
        self.index.ensure(IndexRecord(1, "chunks", "fingerprint", 1, "active"))
        self.search = MemoryChunkSearch(self.index, "chunks")
        self.keys: dict[str, int] = {}

    def put(
        self, name: str, text: str, access: AccessAttributes = OPEN, metadata: Mapping[str, Any] | None = None
    ) -> str:
        self.keys[name] = len(access.acl or ())
        chunks = [
            Chunk(f"{name}/{at}", self.base, name, 1, at, f"Heading\n{text} {at}", locator=SourceLocator(page=at + 1))
            for at in range(2)
        ]
        rows = [IndexRow(chunk, "source", self.keys[name], metadata or {}) for chunk in chunks]
        self.index.upsert("chunks", rows, np.ones((2, 1), np.float32))
        return name

    def scope(self, *documents: str) -> AccessFilter:
        return AccessFilter(self.base, tuple({self.keys[document] for document in documents}))


@pytest.fixture
def ingest(catalog: Catalog, ledger: Ledger) -> Ingest:
    return Ingest(catalog, ledger)


@pytest.fixture
def search(async_database: Database) -> ChunkSearch:
    return PostgresChunkSearch(async_database)


@pytest.fixture(params=["memory", "postgres"])
def shelf(request: pytest.FixtureRequest) -> PostgresShelf | MemoryShelf:
    if request.param == "memory":
        return MemoryShelf()
    return PostgresShelf(request.getfixturevalue("ingest"), request.getfixturevalue("search"))


Shelf = PostgresShelf | MemoryShelf


async def found(shelf: Shelf, access: AccessFilter, *keywords: str, least: int = 1) -> set[str]:
    hits = await shelf.search.keyword_hits(access, keywords, least=least, limit=50)
    return {hit.document_id for hit in hits}


WORDS = {  # text -> keywords that it holds, and such as it does not hold
    "Goods under DDP terms": (["ddp"], ["dd", "go"]),
    "DDP条款适用": (["ddp", "条款"], ["条例"]),
    "the addpoint list": ([], ["ddp"]),
    "危险品须申报": (["危险品"], ["危险物"]),
    "C++ and 100% [x]": (["c", "c++", "100"], ["c#", "10"]),
    "model 4.0": (["4.0"], ["4.00", "14.0"]),
    "model 1450": (["1450"], ["4.0", "45"]),
    "ÉCLUSE de Müller": (["écluse", "ÉCLUSE", "müller"], ["ller", "m"]),
    "КРАН и груз": (["кран"], ["кра"]),
    "ΣΙΓΜΑ": (["σιγμα"], []),
    "snake_case": (["snake_case"], ["snakexcase"]),
    "按ISO9001与ISO-14001执行": (["iso9001", "iso14001", "iso-14001", "iso", "9001"], ["001", "iso900", "so9001"]),
    "grade Q235‑B, see IEC 60068–2–6": (["q235-b", "60068-2-6"], ["235-c"]),
    "ＤＤＰ条款，ＱＣ１２号岸桥": (["ddp", "qc12"], ["dp", "qc1"]),
    "a 4 hour shift": (["4"], ["a4"]),
    "CO₂ und 20 TEU": (["co2", "20teu"], ["o2"]),
}


async def test_a_keyword_is_found_as_a_word_of_its_own(shelf: Shelf) -> None:
    for number, (text, (held, others)) in enumerate(WORDS.items()):
        name = shelf.put(f"document{number}", text)
        own = replace(shelf.scope(name), document_ids=(name,))
        assert [word for word in held if not await found(shelf, own, word)] == [], text
        assert [word for word in others if await found(shelf, own, word)] == [], text


QUESTIONS = {
    "ISO9001": "certified by ISO9001",
    "ISO 9001认证": "已通过ISO9001认证",
    "QC12的标准": "QC-12 岸桥标准间隙",
    "5G": "5G coverage of the yard",
    "5G网络": "堆场５Ｇ网络已开通",
    "H2O content": "no more H2O than that",
    "Q235B": "钢材采用Q235B",
    "GB/T 1591-2018": "符合GB/T 1591-2018规定",
    "Müller": "signed by Müller",
    "ＤＤＰ": "Goods under DDP terms",
    "ddp": "按ＤＤＰ条款交货",
    "C++": "written in C++",
    "and/or storage/handling": "handling and storage",
}


async def test_what_a_question_names_is_found(shelf: Shelf) -> None:
    for number, (question, text) in enumerate(QUESTIONS.items()):
        wanted, name = keyword_like(question), shelf.put(f"document{number}", text)
        own = replace(shelf.scope(name), document_ids=(name,))
        assert wanted is not None and await found(shelf, own, *wanted.words, least=wanted.least), question


async def test_a_code_is_not_found_by_the_number_in_it(shelf: Shelf) -> None:
    names = [shelf.put(str(number), f"{number} of them") for number in (2, 5, 12, 235, 9001)]
    for question in ("H2O", "5G", "QC12", "Q235B", "ISO9001"):
        wanted = keyword_like(question)
        assert wanted is not None and not await found(shelf, shelf.scope(*names), *wanted.words), question


async def test_chunks_with_more_keywords_come_first_and_those_with_too_few_not_at_all(shelf: Shelf) -> None:
    one, two = shelf.put("1", "hazardous weather"), shelf.put("2", "hazardous materials")
    words = ("hazardous", "materials", "transport")
    hits = await shelf.search.keyword_hits(shelf.scope(one, two), words, least=1, limit=10)
    assert [hit.score for hit in hits] == [2, 2, 1, 1]
    assert hits[0].document_id == two and hits[0].version == 1
    assert await found(shelf, shelf.scope(one, two), *words, least=2) == {two}


async def test_with_a_list_only_its_chunks_are_looked_at(shelf: Shelf) -> None:
    one, two = shelf.put("1", "hazardous"), shelf.put("2", "hazardous materials")
    everywhere, search = shelf.scope(one, two), shelf.search.keyword_hits
    all_hits = await search(everywhere, ["hazardous"], least=1, limit=10)
    (first, *_) = [hit for hit in all_hits if hit.document_id == two]
    among = await search(everywhere, ["hazardous"], least=1, limit=10, among=[first.chunk_id, NOWHERE])
    assert [hit.chunk_id for hit in among] == [first.chunk_id]
    assert await search(everywhere, ["materials"], least=2, limit=10, among=[first.chunk_id]) == []
    assert await search(everywhere, ["hazardous"], least=1, limit=10, among=[]) == []


async def test_what_the_filter_excludes_takes_no_place_of_the_limit(shelf: Shelf) -> None:
    names = [shelf.put(str(number), "hazardous", metadata={"year": number}) for number in range(6)]
    everywhere = shelf.scope(*names)
    chunks = [hit.chunk_id for hit in await shelf.search.keyword_hits(everywhere, ["hazardous"], least=1, limit=50)]
    second_page = {"scope": "chunk", "field": "page", "operator": "eq", "value": 2}
    late = {"field": "year", "operator": "gte", "value": 4}
    for raw, wanted in (({"year": 5}, {names[5]}), ({"and": [second_page, late]}, {*names[4:]})):
        filtered = replace(everywhere, metadata=parse_filter(raw))
        for among in (None, chunks):
            hits = await shelf.search.keyword_hits(filtered, ["hazardous"], least=1, limit=2, among=among)
            assert len(hits) == 2 and {hit.document_id for hit in hits} == wanted


async def test_it_is_told_whether_a_scope_has_more_chunks(shelf: Shelf) -> None:
    one, two = shelf.put("1", "hazardous"), shelf.put("2", "hazardous")
    everywhere, search = shelf.scope(one, two), shelf.search
    assert [await search.exceeds(everywhere, chunks) for chunks in (0, 3, 4)] == [True, True, False]
    assert not await search.exceeds(replace(everywhere, document_ids=(one,)), 2)
    assert not await search.exceeds(AccessFilter(shelf.base, ()), 0)


async def test_only_documents_of_the_scope_are_searched(shelf: Shelf) -> None:
    shown, other = shelf.put("1", "hazardous"), shelf.put("2", "hazardous")
    secret = shelf.put("3", "hazardous", access=AccessAttributes(("board",)))
    everything = shelf.scope(shown, other, secret)
    assert await found(shelf, everything, "hazardous") == {shown, other, secret}
    assert await found(shelf, shelf.scope(shown), "hazardous") == {shown, other}
    assert await found(shelf, replace(everything, document_ids=(shown,)), "hazardous") == {shown}
    assert await found(shelf, replace(everything, source_ids=(NOWHERE,)), "hazardous") == set()
    assert await found(shelf, AccessFilter(shelf.base, ()), "hazardous") == set()
    assert await found(shelf, AccessFilter(NOWHERE, everything.access_keys), "hazardous") == set()


async def test_a_deleted_document_has_no_hits(search: ChunkSearch, ingest: Ingest) -> None:
    shelf = PostgresShelf(ingest, search)
    shown, deleted = shelf.put("1", "hazardous"), shelf.put("2", "hazardous")
    ingest.catalog.tombstone(deleted)
    assert await found(shelf, shelf.scope(shown), "hazardous") == {shown}


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


async def test_a_text_is_located_as_it_stands_whatever_its_signs_and_their_width(
    search: ChunkSearch, ingest: Ingest
) -> None:
    ingest.ready(listed("file:///a"), text=f"吊车（ＱＣ１２）{string.punctuation}")
    for text in ("吊车(QC12)", string.punctuation):
        assert await search.located(LOCAL, ingest.knowledge_base_id, text=text), text


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
