"""A synchronous embedder, awaitable."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Embedder, Matrix


class ThreadedEmbedder:
    """AsyncEmbedder over an engine in a thread of its own.

    One call runs at a time, in the order of arrival: engines use all their threads for one call. Cancelling a caller
    takes a waiting call out of the queue; one that runs is let finish, its result dropped.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.dimension = embedder.dimension
        self.fingerprint = embedder.fingerprint
        self._lock = threading.Lock()
        self._thread: ThreadPoolExecutor | None = None

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """`Embedder.embed_documents` without blocking the event loop."""
        return await self._run(self._embedder.embed_documents, texts)

    async def embed_queries(self, texts: Sequence[str]) -> Matrix:
        """`Embedder.embed_queries` without blocking the event loop."""
        return await self._run(self._embedder.embed_queries, texts)

    async def _run(self, embed: Callable[[Sequence[str]], Matrix], texts: Sequence[str]) -> Matrix:
        with self._lock:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="embedder")
        return await asyncio.get_running_loop().run_in_executor(self._thread, embed, texts)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_lock", "_thread")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()
        self._thread = None
