"""Synchronous engines, awaitable."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from rag_cluster.engines.batching import BATCH_TOKENS, Compute, MicroBatcher
from rag_cluster.engines.pacing import BULK, QUERIES, QueryPace

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Embedder, Matrix, MetricSink, Reranker

T = TypeVar("T")


class _OneThread:
    """A thread of its own. One call runs at a time, in the order of arrival: engines use all threads for one call.

    Cancelling a caller takes a waiting call out of the queue; one that runs is let finish, its result dropped.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._thread: ThreadPoolExecutor | None = None
        self._began: float | None = None

    def running(self) -> float:
        """Seconds since the call that runs began; 0 where none does."""
        began = self._began
        return 0.0 if began is None else time.monotonic() - began

    async def run(self, call: Callable[[], T]) -> T:
        """The call's result, without blocking the event loop."""
        with self._lock:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix=self._name)
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._timed, call)

    def _timed(self, call: Callable[[], T]) -> T:
        self._began = time.monotonic()
        try:
            return call()
        finally:
            self._began = None

    def __reduce__(self) -> tuple[type[_OneThread], tuple[str]]:
        return _OneThread, (self._name,)


class ThreadedEmbedder:
    """AsyncEmbedder over an engine in a thread of its own; see `_OneThread`. Picklable if the engine is.

    What comes while a call runs is micro-batched, queries, documents and bulk work in turns (`MicroBatcher`).
    batch_tokens: of one call. query_target: see `QueryPace`.
    """

    def __init__(
        self,
        embedder: Embedder,
        *,
        batch_tokens: int = BATCH_TOKENS,
        query_target: float = 0.0,
        metrics: MetricSink | None = None,
    ) -> None:
        self._embedder = embedder
        self._batch_tokens = batch_tokens
        self._pace = QueryPace(query_target)
        self._metrics = metrics
        self.dimension = embedder.dimension
        self.fingerprint = embedder.fingerprint
        self._thread = _OneThread("embedder")
        self._batchers: WeakKeyDictionary[asyncio.AbstractEventLoop, MicroBatcher] = WeakKeyDictionary()

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """`Embedder.embed_documents` without blocking the event loop."""
        return await self._batcher().embed("documents", texts)

    async def embed_queries(self, texts: Sequence[str]) -> Matrix:
        """`Embedder.embed_queries` without blocking the event loop."""
        return await self._batcher().embed(QUERIES, texts)

    async def embed_bulk(self, texts: Sequence[str]) -> Matrix:
        """As `embed_documents`, for work that nobody waits for."""
        return await self._batcher().embed(BULK, texts)

    def configure(self, *, batch_tokens: int, query_target: float) -> None:
        """Other limits from the next call of the engine on."""
        self._batch_tokens = batch_tokens
        self._pace.target = query_target
        for batcher in self._batchers.values():
            batcher.max_tokens = batch_tokens

    def statistics(self) -> dict[str, Any]:
        """Limits, and what this event loop's requests became: `LaneCounts` by lane, how many wait, the queries' p95."""
        batcher = self._batcher()
        return {
            "batch_tokens": self._batch_tokens,
            "query_p95_seconds": self._pace.p95,
            "waiting": batcher.waiting,
            "lanes": {lane: counts.snapshot() for lane, counts in batcher.counts.items()},
        }

    def _batcher(self) -> MicroBatcher:
        loop = asyncio.get_running_loop()
        if loop not in self._batchers:
            lanes = {
                QUERIES: self._threaded(self._embedder.embed_queries),
                "documents": self._threaded(self._embedder.embed_documents),
                BULK: self._threaded(self._embedder.embed_documents),
            }
            self._batchers[loop] = MicroBatcher(
                lanes, max_tokens=self._batch_tokens, pace=self._pace, metrics=self._metrics
            )
        return self._batchers[loop]

    def _threaded(self, embed: Callable[[Sequence[str]], Matrix]) -> Compute:
        async def compute(texts: Sequence[str]) -> Matrix:
            return await self._thread.run(lambda: embed(texts))

        return compute

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (self._embedder, self._batch_tokens, self._pace.target)


def _rebuilt(embedder: Embedder, batch_tokens: int, query_target: float) -> ThreadedEmbedder:
    return ThreadedEmbedder(embedder, batch_tokens=batch_tokens, query_target=query_target)


class ThreadedReranker:
    """AsyncReranker, likewise."""

    def __init__(self, reranker: Reranker) -> None:
        self._reranker = reranker
        self.name = reranker.name
        self._thread = _OneThread("reranker")

    async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """`Reranker.rerank` without blocking the event loop."""
        return await self._thread.run(lambda: self._reranker.rerank(query, texts))

    def running(self) -> float:
        """Seconds since the engine's call that runs began, also if its caller has gone; 0 where none does."""
        return self._thread.running()
