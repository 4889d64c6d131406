"""Models and stores fail while queries run: what can be done without is done without and said in the trace, the rest is
answered with its error within the deadline, and afterwards all is as before, without a restart of anything."""

from __future__ import annotations

import asyncio
import http.server
import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import psutil
import pytest

from rag_cluster.answering.answerer import Answerer
from rag_cluster.domain.access import LOCAL
from rag_cluster.engines.extractive import ExtractiveGenerator
from rag_cluster.engines.options import Endpoint
from rag_cluster.engines.rewriting import OpenAIQueryRewriter
from rag_cluster.errors import ModelUnavailableError
from rag_cluster.ingestion.corrections import Correction
from rag_cluster.retrieval.retriever import Retriever
from rag_cluster.serving.api import create_api
from rag_cluster.serving.backend import make_backend
from rag_cluster.settings import Settings
from rag_cluster.stores.embedded import EmbeddedStores
from rag_cluster.wiring import Services
from tests.fixtures.postgres import PostgresServer

DEADLINE = 3.0
LATE, HANGS = DEADLINE + 5, 5 * DEADLINE
"""What takes longer was not ended by its deadline but by another limit, or by nothing: half of the queries that met a
fault, and any query on a machine that stands still for seconds."""
ENOUGH = 8
"""Of queries that met a fault, for their median to say something."""
CLIENTS = 4
OUTAGE = ("store_unavailable", "deadline_exceeded")
QUESTION = "When does the ferry to Langya Island leave?"


class Reranker:
    """Scores by length; fails or hangs when told to."""

    name = "test"
    fault = ""

    async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        if self.fault == "hangs":
            await asyncio.sleep(60)
        if self.fault == "fails":
            raise ModelUnavailableError("the reranker is out of memory")
        return [float(len(text)) for text in texts]


class Embedder:
    """The real one; away or hanging when told to."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.fault = inner, ""
        self.dimension, self.fingerprint = inner.dimension, inner.fingerprint

    async def embed_queries(self, texts: Sequence[str]) -> Any:
        if self.fault == "hangs":
            await asyncio.sleep(60)
        if self.fault == "fails":
            raise ModelUnavailableError("the embedder is away")
        return await self._inner.embed_queries(texts)

    embed_documents = embed_queries


class SlowRewriter(http.server.BaseHTTPRequestHandler):
    """An endpoint for rewriting that takes longer than anybody waits, once it is slow."""

    slow = threading.Event()
    stop = threading.Event()

    def do_POST(self) -> None:
        if self.slow.is_set():
            self.stop.wait(20)
        body = b'{"choices": [{"message": {"content": "ferry departure Langya"}}]}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@dataclass
class Seen:
    """What clients got."""

    statuses: Counter[int] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    degradations: set[str] = field(default_factory=set)
    slowest: float = 0.0
    faulted: list[float] = field(default_factory=list)
    """Seconds of the queries that met a fault."""
    empty: int = 0


@dataclass
class Stand:
    """The read path on stores of its own, which nobody revives."""

    client: httpx.AsyncClient
    postgres: PostgresServer
    milvus: EmbeddedStores
    reranker: Reranker
    embedder: Embedder

    async def ask(self, seen: Seen, route: str = "/v1/retrieve") -> None:
        field_name = "question" if route == "/v1/answer" else "query"
        body: dict[str, Any] = {"knowledge_base": "port", field_name: QUESTION, "options": {"rewrite": True}}
        started = time.monotonic()
        response = await self.client.post(route, json=body)
        seconds = time.monotonic() - started
        seen.slowest = max(seen.slowest, seconds)
        seen.statuses[response.status_code] += 1
        found = response.json()
        if response.status_code == 200:
            seen.degradations |= set(found["trace"]["degradations"])
            seen.empty += not found["results"]
        else:
            seen.errors[found["error"]["type"]] += 1
        if response.status_code != 200 or found["trace"]["degradations"]:
            seen.faulted.append(seconds)

    @asynccontextmanager
    async def asked(self) -> AsyncIterator[Seen]:
        """Clients that ask all the time; what they were told while the block ran."""
        seen, stop = Seen(), asyncio.Event()

        async def client(number: int) -> None:
            while not stop.is_set():
                await self.ask(seen, "/v1/answer" if number % 2 else "/v1/retrieve")
                await asyncio.sleep(0.02)

        async with asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(client(number))
            yield seen
            stop.set()
        assert seen.slowest < HANGS, seen
        assert len(seen.faulted) < ENOUGH or median(seen.faulted) < LATE, seen

    async def until(self, seen: Seen, *told: str) -> None:
        """Until as many errors of these types were seen as there are clients, or such a degradation."""
        async with asyncio.timeout(60):
            while sum(seen.errors[one] for one in told) < CLIENTS:
                if any(entry.startswith(told) for entry in seen.degradations):
                    break
                await asyncio.sleep(0.05)

    async def recovers(self) -> None:
        """A query that is answered as before, in the end, without anything being restarted here."""
        async with asyncio.timeout(60):
            while True:
                seen = Seen()
                await self.ask(seen)
                if seen.statuses[200] and not seen.degradations:
                    assert not seen.empty
                    return
                await asyncio.sleep(0.1)


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[PostgresServer]:
    with tempfile.TemporaryDirectory(prefix="rag-pg-", ignore_cleanup_errors=True) as directory:
        server = PostgresServer(Path(directory) / "data")
        yield server
        server.close()


@pytest.fixture(scope="module")
def own_milvus() -> Iterator[EmbeddedStores]:
    with tempfile.TemporaryDirectory(prefix="rag-mv-", ignore_cleanup_errors=True) as directory:
        stores = EmbeddedStores(Path(directory))
        stores.ensure_milvus()
        yield stores
        stores.down()


@pytest.fixture(scope="module")
def rewriter() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), SlowRewriter)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    SlowRewriter.stop.set()
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def services(own_postgres: PostgresServer, own_milvus: EmbeddedStores, tmp_path_factory: Any) -> Iterator[Services]:
    """With one document."""
    services = Services(
        Settings(
            data_dir=tmp_path_factory.mktemp("faults"),
            postgres_dsn=own_postgres.dsn,
            milvus_uri=own_milvus.ensure_milvus(),
            embedder="hash:64",
            postgres_timeout=2.0,
            request_timeout=DEADLINE,
            query_cache_size=0,
            ocr="off",
        )
    )
    base = services.catalog.create_knowledge_base("port", default_acl=())
    services.write_correction(base.id, Correction(question=QUESTION, answer="At 07:45 every morning."), "faq", {})
    yield services
    services.database.close()


@pytest.fixture(scope="module")
def key(services: Services) -> str:
    return services.catalog.create_api_key("clients", replace(LOCAL, name="clients"))


@pytest.fixture
async def stand(
    services: Services, own_postgres: PostgresServer, own_milvus: EmbeddedStores, rewriter: str, key: str
) -> AsyncIterator[Stand]:
    embedder, reranker = Embedder(services.async_embedder), Reranker()
    retriever = Retriever(
        services.evidence,
        services.index,
        embedder,
        reranker=reranker,
        rewriter=OpenAIQueryRewriter(Endpoint(rewriter, timeout=10), "model"),
        rewrite_seconds=0.5,
        rerank_seconds=0.5,
    )
    answerer = Answerer(retriever, ExtractiveGenerator(embedder, lambda text: [(0, len(text))]), services.conversations)
    app = create_api(replace(make_backend(services, embedder), answerer=answerer))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
        yield Stand(client, own_postgres, own_milvus, reranker, embedder)
    await services.database.aclose()


def _milvus_pid(stores: EmbeddedStores) -> int:
    (pid,) = [one.pid for one in stores.status().servers if one.name == "milvus" and one.pid]
    return pid


@contextmanager
def _stopped(pid: int) -> Iterator[None]:
    processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            process.resume()


@pytest.mark.parametrize("fault", ["fails", "hangs"])
async def test_without_the_embedder_words_alone_find(stand: Stand, fault: str) -> None:
    await stand.recovers()
    async with stand.asked() as seen:
        stand.embedder.fault = fault
        await stand.until(seen, "dense: ")
        stand.embedder.fault = ""
    assert set(seen.statuses) == {200} and not seen.empty, seen
    await stand.recovers()


@pytest.mark.parametrize("fault", ["fails", "hangs"])
async def test_without_the_reranker_the_fused_order_stays(stand: Stand, fault: str) -> None:
    async with stand.asked() as seen:
        stand.reranker.fault = fault
        await stand.until(seen, "rerank: ")
        stand.reranker.fault = ""
    assert set(seen.statuses) == {200} and not seen.empty, seen
    await stand.recovers()


async def test_a_slow_rewriter_is_not_waited_for(stand: Stand) -> None:
    async with stand.asked() as seen:
        SlowRewriter.slow.set()
        await stand.until(seen, "rewrite: no answer within 0.5 s")
        SlowRewriter.slow.clear()
    assert set(seen.statuses) == {200} and not seen.empty, seen
    await stand.recovers()


async def test_without_milvus_queries_fail_as_such_and_come_back_with_it(stand: Stand) -> None:
    async with stand.asked() as seen:
        os.kill(_milvus_pid(stand.milvus), signal.SIGKILL)
        await stand.until(seen, *OUTAGE)
        await asyncio.to_thread(stand.milvus.ensure_milvus)
        await stand.recovers()
    assert set(seen.statuses) <= {200, 502, 504}, seen


async def test_a_milvus_that_hangs_hangs_no_query(stand: Stand) -> None:
    await stand.recovers()
    async with stand.asked() as seen:
        with _stopped(_milvus_pid(stand.milvus)):
            await stand.until(seen, *OUTAGE)
        await stand.recovers()
    assert set(seen.statuses) <= {200, 502, 504}, seen


async def test_without_postgresql_queries_fail_as_such_and_come_back_with_it(stand: Stand) -> None:
    async with stand.asked() as seen:
        await asyncio.to_thread(stand.postgres.kill)
        await stand.until(seen, *OUTAGE)
        await asyncio.to_thread(stand.postgres.restart)
        await stand.recovers()
    assert set(seen.statuses) <= {200, 502, 504}, seen


async def test_a_postgresql_that_hangs_hangs_no_query(stand: Stand) -> None:
    await stand.recovers()
    async with stand.asked() as seen:
        with stand.postgres.stopped():
            await stand.until(seen, *OUTAGE)
        await stand.recovers()
    assert set(seen.statuses) <= {200, 502, 504}, seen
