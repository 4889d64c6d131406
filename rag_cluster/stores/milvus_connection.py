"""Connections to Milvus that survive its restarts: bounded retries, a server that is revived, collections reloaded."""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from grpc import RpcError
from pymilvus import AsyncMilvusClient, MilvusClient
from pymilvus.exceptions import MilvusException
from tenacity import AsyncRetrying, RetryCallState, Retrying, retry_if_exception, stop_after_attempt
from tenacity.wait import wait_random_exponential

from rag_cluster.errors import IndexMismatchError, InternalError, StoreUnavailableError

T = TypeVar("T")
_CONNECT_SECONDS = 5.0
_ATTEMPTS = 4
_NO_COLLECTION = 100
_NOT_LOADED = 101  # Milvus Lite loads nothing by itself after a restart
_OUTAGES = ("UNAVAILABLE", "Fail connecting", "too_many_pings", "GOAWAY", "Socket closed", "Connection reset")
_CHANNEL = {
    # A server that was just started again is tried at once, not after a backoff that another client earned.
    "grpc.use_local_subchannel_pool": 1,
    "grpc.initial_reconnect_backoff_ms": 50,
    "grpc.min_reconnect_backoff_ms": 50,
    "grpc.max_reconnect_backoff_ms": 1000,
}
_log = logging.getLogger(__name__)


class MilvusConnection:
    """One blocking client, and one asynchronous client per event loop, made at first use. Picklable; thread-safe."""

    def __init__(self, uri: str, token: str, timeout: float, revive: Callable[[], str] | None) -> None:
        self._uri = uri
        self._token = token
        self.timeout = timeout
        """Seconds for one call."""
        self._revive = revive
        self._open()

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the clients."""
        return {name: vars(self)[name] for name in ("_uri", "_token", "timeout", "_revive")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open()

    def _open(self) -> None:
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # it logs stack traces of what we handle
        self._lock = threading.Lock()
        self._client: MilvusClient | None = None
        self._async_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncMilvusClient] = (
            weakref.WeakKeyDictionary()
        )
        self._lite: bool | None = None

    def is_lite(self, client: MilvusClient) -> bool:
        """Whether the other side is Milvus Lite. Asked once."""
        if self._lite is None:
            self._lite = "lite" in client.get_server_version(timeout=self.timeout)
        return self._lite

    def call(self, collection: str, operation: Callable[[MilvusClient], T], *, missing_collection: Any = ...) -> T:
        """Run an operation, again after an outage. missing_collection: the result when there is no collection.

        IndexMismatchError without the collection, StoreUnavailableError otherwise.
        """
        retrying = Retrying(before_sleep=lambda state: self._recover(collection, state), **_RETRY)
        try:
            return retrying(lambda: operation(self._connect()))
        except (MilvusException, RpcError) as error:
            if missing_collection is not ... and _code(error) == _NO_COLLECTION:
                return missing_collection  # type: ignore[no-any-return]
            raise _translated(error) from error

    async def call_async(self, collection: str, operation: Callable[[AsyncMilvusClient], Awaitable[T]]) -> T:
        """The same on the running event loop; cancelling it cancels the call."""

        async def recover(state: RetryCallState) -> None:
            await asyncio.to_thread(self._recover, collection, state)

        async def attempt() -> T:
            return await operation(self._connect_async())

        try:
            return await AsyncRetrying(before_sleep=recover, **_RETRY)(attempt)
        except (MilvusException, RpcError) as error:
            raise _translated(error) from error

    def _connect(self) -> MilvusClient:
        with self._lock:
            if self._client is None:
                self._client = MilvusClient(**self._options())
            return self._client

    def _connect_async(self) -> AsyncMilvusClient:
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._async_clients:
                self._async_clients[loop] = AsyncMilvusClient(**self._options())
            return self._async_clients[loop]

    def _options(self) -> dict[str, Any]:
        if not self._uri and self._revive is not None:
            self._uri = self._revive()
        return {
            "uri": self._uri,
            "token": self._token,
            "timeout": _CONNECT_SECONDS,
            "grpc_options": _CHANNEL,
            "dedicated": True,
        }

    def _recover(self, collection: str, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        _log.warning("Milvus call failed, attempt %d: %s", state.attempt_number, error, extra={"uri": self._uri})
        if error is not None and _code(error) == _NOT_LOADED:
            self._connect().load_collection(collection, timeout=self.timeout)
        elif self._revive is not None:
            uri = self._revive()
            with self._lock:
                if uri != self._uri:
                    self._uri, self._client = uri, None
                    self._async_clients.clear()


def _code(error: BaseException) -> Any:
    return getattr(error, "code", None)


def _is_passing(error: BaseException) -> bool:
    """Whether the same call may succeed when it is made again."""
    return isinstance(error, (MilvusException, RpcError)) and (
        _code(error) == _NOT_LOADED or any(sign in str(error) for sign in _OUTAGES)
    )


_RETRY: dict[str, Any] = {
    "stop": stop_after_attempt(_ATTEMPTS),
    "wait": wait_random_exponential(multiplier=0.1, max=2.0),
    "retry": retry_if_exception(_is_passing),
    "reraise": True,
}


def _translated(error: Exception) -> Exception:
    if _code(error) == _NO_COLLECTION:
        return IndexMismatchError(
            f"The collection does not exist; it is rebuilt from the snapshots by a re-embed: {error}"
        )
    if "exceeds max_length" in str(error):
        return InternalError(f"Milvus refused a row: {error}")
    return StoreUnavailableError(f"Milvus: {error}")
