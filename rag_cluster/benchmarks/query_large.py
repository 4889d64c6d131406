"""Part `large` of the query benchmark: many queries on many chunks, Milvus's answers replayed from a recording."""

from __future__ import annotations

import asyncio
import random
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

from rag_cluster.benchmarks.measure import tell
from rag_cluster.benchmarks.query_corpus import Drawer, Filled, fill
from rag_cluster.benchmarks.query_relay import relayed
from rag_cluster.benchmarks.query_statements import LOG_PREFIX, SlowStatement, StatementClock, TimedDatabase
from rag_cluster.domain.access import LOCAL, AccessFilter
from rag_cluster.domain.retrieval import Hit, RetrievalOptions
from rag_cluster.retrieval.keyword_fallback import MOST_READ
from rag_cluster.stores.fakes import MemoryChunkIndex
from rag_cluster.wiring import Services

OPTIONS = RetrievalOptions()
CLIENTS = 8
"""At once; most of their time they wait for what is replayed."""
SEARCHES = 200
"""Recorded of each kind, after a tenth as many that nobody counts."""
KEYWORD_CALLS = 100
KEYWORDS = ("budget", "system", "预算")
DOCUMENT_CHUNKS = 50


@dataclass(frozen=True, slots=True)
class Recording:
    """Seconds of real searches, one after the other, and the rows that were searched."""

    rows: int
    dense: tuple[float, ...]
    sparse: tuple[float, ...]


async def record(services: Services, filled: Filled, rows: int, searches: int = SEARCHES) -> Recording:
    """Search what is in Milvus, with the filter of a real query."""
    scope = await services.evidence.scope(LOCAL, filled.knowledge_base_id, OPTIONS)
    assert scope.index is not None, "it was filled"
    collection, access, index = scope.index.collection, scope.filter, services.index
    drawer, vectors = Drawer(17), np.random.default_rng(17)
    dense: list[float] = []
    sparse: list[float] = []
    for number in range(searches + searches // 10):
        vector = vectors.standard_normal(scope.index.dimension, dtype=np.float32)
        vector /= np.linalg.norm(vector)
        began = time.perf_counter()
        await index.search_dense(collection, vector.tolist(), access, OPTIONS.candidate_k)
        between = time.perf_counter()
        await index.search_sparse(collection, drawer.question(number), access, OPTIONS.candidate_k)
        dense.append(between - began)
        sparse.append(time.perf_counter() - between)
    warm = searches // 10
    return Recording(rows, tuple(dense[warm:]), tuple(sparse[warm:]))


class RecordedIndex(MemoryChunkIndex):
    """A `ChunkIndex` that answers as late as the recorded one did, with chunks at random."""

    def __init__(self, hits: Sequence[Hit], recording: Recording, seed: int = 5) -> None:
        super().__init__()
        self._hits, self._recording = hits, recording
        self._random = random.Random(seed)  # noqa: S311 - a load, not a secret

    async def search_dense(
        self, collection: str, vector: Sequence[float], access: AccessFilter, limit: int
    ) -> list[Hit]:
        """As many hits as asked for."""
        return await self._answer(self._recording.dense, limit)

    async def search_sparse(self, collection: str, text: str, access: AccessFilter, limit: int) -> list[Hit]:
        """Likewise."""
        return await self._answer(self._recording.sparse, limit)

    async def _answer(self, recorded: Sequence[float], limit: int) -> list[Hit]:
        await asyncio.sleep(self._random.choice(recorded))
        return self._random.sample(self._hits, limit)


@dataclass(slots=True)
class LongRun:
    """Resident bytes of this process after every so many queries, and seconds of each query."""

    memory: list[int] = field(default_factory=list)
    seconds: array[float] = field(default_factory=lambda: array("d"))
    wall: float = 0.0

    @property
    def growth(self) -> float:
        """The last memory over that after a tenth of the queries, when everything is loaded and every cache is full."""
        return self.memory[-1] / self.memory[max(0, len(self.memory) // 10 - 1)]


async def long_run(services: Services, knowledge_base_id: str, queries: int, clients: int) -> LongRun:
    """So many queries, so many at once, with all statements of one that is served: from its key to its audit row."""
    run, drawer, own = LongRun(), Drawer(13), psutil.Process()
    answerer, secret = services.answerer(services.async_embedder), services.catalog.create_api_key("benchmark", LOCAL)
    numbers = iter(range(queries))
    every = max(1, queries // 20)

    async def ask() -> None:
        for number in numbers:
            began = time.perf_counter()
            await services.admissions.admission(secret, knowledge_base_id)
            await answerer.retrieve(LOCAL, knowledge_base_id, drawer.question(number), OPTIONS)
            run.seconds.append(time.perf_counter() - began)
            if len(run.seconds) % every == 0:
                run.memory.append(own.memory_info().rss)
                tell(f"{len(run.seconds):,} queries, {run.memory[-1] >> 20} MiB")

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(ask())
    run.wall = time.perf_counter() - started
    return run


async def keyword_run(services: Services, filled: Filled, calls: int) -> None:
    """The keyword fallback's statement, on as many chunks as it may be given, and on a scope of whole documents."""
    chosen = random.Random(3)  # noqa: S311 - a load, not a secret
    scope = await services.evidence.scope(LOCAL, filled.knowledge_base_id, OPTIONS)
    documents = sorted({hit.document_id for hit in filled.hits})
    for _ in range(calls):
        among = [hit.chunk_id for hit in chosen.sample(filled.hits, min(len(filled.hits), MOST_READ))]
        await services.chunk_search.keyword_hits(scope.filter, KEYWORDS, least=1, limit=45, among=among)
        few = tuple(chosen.sample(documents, min(len(documents), MOST_READ // DOCUMENT_CHUNKS)))
        narrow = AccessFilter(filled.knowledge_base_id, scope.filter.access_keys, document_ids=few)
        await services.chunk_search.keyword_hits(narrow, KEYWORDS, least=1, limit=45)


@dataclass(frozen=True, slots=True)
class Large:
    """What part `large` found."""

    run: LongRun
    recording: Recording
    clock: StatementClock
    slow: list[SlowStatement]


def measure(services: Services, chunks: int, queries: int, recorded: int, limit: float) -> Large:
    """Fill, record, replay. recorded: of the chunks, those that Milvus holds. limit: of a statement, seconds."""
    tell(f"filling {chunks:,} chunks, {recorded:,} of them into Milvus Lite")
    filled = fill(services, chunks, per_document=DOCUMENT_CHUNKS, indexed=recorded)
    tell(f"recording {SEARCHES} searches of each kind")
    recording = asyncio.run(_recorded(services, filled, recorded))
    services.embedded.down(keep=("postgres",))
    clock = StatementClock(limit)
    log = Path(next(one.log for one in services.embedded.status().servers if one.name == "postgres"))
    with services.database.connection() as connection:
        connection.execute(f"ALTER SYSTEM SET log_min_duration_statement = {limit * 1000:.0f}")
        connection.execute(f"ALTER SYSTEM SET log_line_prefix = '{LOG_PREFIX}'")
        connection.execute("ALTER SYSTEM SET log_parameter_max_length = 0")  # hundreds of ids each
        connection.execute("SELECT pg_reload_conf()")
    begin = log.stat().st_size
    replaying = Services(services.settings)
    replaying.__dict__["index"] = RecordedIndex(filled.hits, recording)  # in place of Milvus, which is not asked for
    with relayed(services.database.dsn) as (dsn, reader):
        replaying.__dict__["database"] = TimedDatabase(dsn, clock, reader)
        run = asyncio.run(_replayed(replaying, filled, queries))
        replaying.database.close()
    with log.open("rb") as file:
        file.seek(begin)
        slow = clock.slow(file.read().decode(errors="replace"))
    return Large(run, recording, clock, slow)


async def _recorded(services: Services, filled: Filled, rows: int) -> Recording:
    try:
        return await record(services, filled, rows)
    finally:
        await services.database.aclose()


async def _replayed(services: Services, filled: Filled, queries: int) -> LongRun:
    try:
        run = await long_run(services, filled.knowledge_base_id, queries, CLIENTS)
        await keyword_run(services, filled, KEYWORD_CALLS)
        return run
    finally:
        await services.database.aclose()
