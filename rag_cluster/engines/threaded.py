"""A synchronous embedder, awaitable."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from rag_cluster.engines.batching import BATCH_TOKENS, MicroBatcher

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Embedder, Matrix


class ThreadedEmbedder:
    """AsyncEmbedder over an engine in a thread of its own.

    One call runs at a time: engines use all their threads for one call. What comes meanwhile is micro-batched, queries
    and documents in turns (`MicroBatcher`). Cancelling a caller takes its texts out of the queue; a call that runs is
    let finish, its result dropped. batch_tokens: of one call.
    """

    _thread: ThreadPoolExecutor | None
    _batchers: WeakKeyDictionary[asyncio.AbstractEventLoop, MicroBatcher]

    def __init__(self, embedder: Embedder, *, batch_tokens: int = BATCH_TOKENS) -> None:
        self._embedder = embedder
        self._batch_tokens = batch_tokens
        self.dimension = embedder.dimension
        self.fingerprint = embedder.fingerprint
        self._open()

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """`Embedder.embed_documents` without blocking the event loop."""
        return await self._batcher().embed("documents", texts)

    async def embed_queries(self, texts: Sequence[str]) -> Matrix:
        """`Embedder.embed_queries` without blocking the event loop."""
        return await self._batcher().embed("queries", texts)

    def _batcher(self) -> MicroBatcher:
        loop = asyncio.get_running_loop()
        with self._lock:
            found = self._batchers.get(loop)
            if found is None:
                lanes = {
                    "queries": partial(self._compute, "embed_queries"),
                    "documents": partial(self._compute, "embed_documents"),
                }
                found = self._batchers[loop] = MicroBatcher(lanes, max_tokens=self._batch_tokens)
            return found

    async def _compute(self, method: str, texts: Sequence[str]) -> Matrix:
        with self._lock:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="embedder")
        loop = asyncio.get_running_loop()
        vectors: Matrix = await loop.run_in_executor(self._thread, getattr(self._embedder, method), texts)
        return vectors

    def _open(self) -> None:
        self._lock = threading.Lock()
        self._thread = None
        self._batchers = WeakKeyDictionary()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key not in ("_lock", "_thread", "_batchers")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open()
