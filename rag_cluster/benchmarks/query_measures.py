"""What the query benchmark measures: a bare loop, the same through this project, and clients over HTTP."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx

from rag_cluster.benchmarks.measure import tell
from rag_cluster.benchmarks.query_corpus import Drawer, Filled
from rag_cluster.domain.access import LOCAL, AccessFilter
from rag_cluster.domain.retrieval import Hit, RetrievalOptions
from rag_cluster.wiring import Services

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS = RetrievalOptions()
FILTERED = RetrievalOptions(filters={"field": "number", "operator": "gte", "value": 1})
"""What all documents of `query_corpus` but one pass."""
FILTERED_EACH = 10
"""Milvus Lite takes many times as long for a filter: it is asked for every so many rounds."""
CLIENT_SECONDS = 120.0
BARE_PREFIX, BARE_ROUTE = "/bare", "/query"
"""Where `query_reference.bare_application` is served."""


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which that share (0-1) of them lies; 0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


@dataclass(slots=True)
class Timings:
    """Seconds by name."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    async def time(self, name: str, call: Awaitable[Any]) -> Any:
        """The call's result; its time is kept."""
        started = time.perf_counter()
        result = await call
        self.seconds[name].append(time.perf_counter() - started)
        return result

    def median(self, name: str) -> float:
        """Of one name, seconds."""
        return statistics.median(self.seconds[name])


class BareLoop:
    """What a query cannot do without, and nothing else: scope, embedding and two searches at once, facts."""

    def __init__(self, services: Services, knowledge_base_id: str, timings: Timings) -> None:
        self._services, self._base, self._timings = services, knowledge_base_id, timings
        self._embedder = services.async_embedder

    async def __call__(self, question: str) -> None:
        """One query."""
        evidence, timings = self._services.evidence, self._timings
        fingerprint = self._embedder.fingerprint
        scope = await timings.time(
            "scope", evidence.scope(LOCAL, self._base, OPTIONS, embedder_fingerprint=fingerprint)
        )
        collection = scope.index.collection
        found = await asyncio.gather(
            self._dense(question, collection, scope.filter), self._sparse(question, collection, scope.filter)
        )
        hits = {hit.chunk_id: hit for channel in found for hit in channel}
        await timings.time("facts", evidence.rows(LOCAL, self._base, list(hits.values()), OPTIONS))

    async def _dense(self, question: str, collection: str, access: AccessFilter) -> list[Hit]:
        matrix = await self._timings.time("embedding", self._embedder.embed_queries([question]))
        search = self._services.index.search_dense(collection, matrix[0].tolist(), access, OPTIONS.candidate_k)
        hits: list[Hit] = await self._timings.time("dense search", search)
        return hits

    async def _sparse(self, question: str, collection: str, access: AccessFilter) -> list[Hit]:
        search = self._services.index.search_sparse(collection, question, access, OPTIONS.candidate_k)
        hits: list[Hit] = await self._timings.time("BM25 search", search)
        return hits


async def overhead(services: Services, filled: Filled, endpoint: str, queries: int) -> Timings:
    """One client: bare, in process and over HTTP in turns, so that a slow minute hits all alike; no question twice."""
    timings, drawer = Timings(), Drawer(11)
    numbers = iter(range(10**9))
    bare = BareLoop(services, filled.knowledge_base_id, timings)
    answerer = services.answerer(services.async_embedder)
    async with httpx.AsyncClient(base_url=endpoint, timeout=CLIENT_SECONDS) as client:

        async def served(question: str) -> None:
            body = {"knowledge_base": filled.knowledge_base_id, "query": question}
            (await client.post("/v1/retrieve", json=body)).raise_for_status()

        async def in_process(question: str) -> None:
            await answerer.retrieve(LOCAL, filled.knowledge_base_id, question, OPTIONS)

        async def nothing(question: str) -> None:
            (await client.post(BARE_PREFIX + BARE_ROUTE, json={"query": question})).raise_for_status()

        contenders: Mapping[str, Callable[[str], Awaitable[None]]] = {
            "bare loop": bare,
            "in process": in_process,
            "bare Serve": nothing,
            "over HTTP": served,
        }
        for number in range(queries + queries // 10):
            if number == queries // 10:
                timings.seconds.clear()  # warm from here on
            if number % 50 == 0:
                tell(f"overhead: {number} of {queries + queries // 10} rounds")
            for name, ask in contenders.items():
                await timings.time(name, ask(drawer.question(next(numbers))))
            if number % FILTERED_EACH == 0:
                question = drawer.question(next(numbers))
                filtered = answerer.retrieve(LOCAL, filled.knowledge_base_id, question, FILTERED)
                await timings.time("in process, filtered", filtered)
    await services.database.aclose()
    return timings


@dataclass(frozen=True, slots=True)
class Level:
    """What so many clients got. Seconds are of the answers with status 200."""

    route: str
    clients: int
    seconds: list[float]
    statuses: dict[int, int]
    wall: float

    @property
    def rate(self) -> float:
        """Results a second."""
        return len(self.seconds) / self.wall

    @property
    def ok(self) -> bool:
        """Whether every request got a result or a 429."""
        return set(self.statuses) <= {200, 429}


async def load(endpoint: str, knowledge_base_id: str, route: str, clients: int, seconds: float) -> Level:
    """Clients that ask one question after the other for so long, each another one. A 429 is waited for, as it says.

    A request that gets no answer at all counts under status 0.
    """
    drawer, statuses = Drawer(100 + clients), Counter[int]()
    taken: list[float] = []
    numbers = iter(range(10**9))
    field_name = "question" if route == "/v1/answer" else "query"
    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(base_url=endpoint, timeout=CLIENT_SECONDS, limits=limits) as client:

        async def ask() -> None:
            while time.perf_counter() < until:
                body = {"knowledge_base": knowledge_base_id, field_name: drawer.question(next(numbers))}
                began = time.perf_counter()
                try:
                    response = await client.post(route, json=body)
                except httpx.HTTPError as error:  # becomes a failure of its level
                    tell(f"{route}: {type(error).__name__}: {error}")
                    statuses[0] += 1
                    continue
                statuses[response.status_code] += 1
                if response.status_code == 200:
                    taken.append(time.perf_counter() - began)
                elif response.status_code == 429:
                    await asyncio.sleep(float(response.headers["retry-after"]))

        started = time.perf_counter()
        until = started + seconds
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(ask())
        wall = time.perf_counter() - started
    return Level(route, clients, taken, dict(statuses), wall)
