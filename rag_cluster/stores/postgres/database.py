"""Connections to PostgreSQL: pooled, bounded, timed, and found again after the server was restarted."""

from __future__ import annotations

import asyncio
import math
import select
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from rag_cluster.errors import StoreUnavailableError
from rag_cluster.stores.postgres.adapters import ADAPTERS
from rag_cluster.stores.postgres.connections import (
    AsyncConnection,
    Connection,
    Revive,
    async_connection_class,
    connection_class,
)

__all__ = ["AsyncConnection", "Connection", "Database"]

_MAX_CONNECT_SECONDS = 10


class Database:
    """Pools to one PostgreSQL: one for threads, one for each event loop, opened where they are first used.

    dsn: libpq URI or keywords, Unix socket hosts included. pool_size: connections of each pool, at most.
    timeout: seconds for getting a connection, and for each statement. revive is called when connecting fails, before
    one more attempt: whoever finds an embedded server gone restarts it. Picklable; pools do not travel.
    A statement that cannot be answered, or is not, raises StoreUnavailableError; a connection that died while idle is
    replaced before anything is sent on it.
    """

    def __init__(self, dsn: str, *, pool_size: int = 4, timeout: float = 30.0, revive: Revive | None = None) -> None:
        self.dsn = dsn
        self._pool_size = pool_size
        self._timeout = timeout
        self._revive = revive
        self._lock = threading.Lock()
        self._pool: ConnectionPool[Connection] | None = None
        self._async_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncConnectionPool[AsyncConnection]] = (
            WeakKeyDictionary()
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (self.dsn, self._pool_size, self._timeout, self._revive))

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection on which every statement commits by itself."""
        with _outage_as_store_error():
            pool = self._open()
            connection = self._checked(pool)
            try:
                yield connection
            finally:
                pool.putconn(connection)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A connection inside one transaction: committed at the end, rolled back on any exception."""
        with self.connection() as connection, _outage_as_store_error(), connection.transaction():
            yield connection

    @asynccontextmanager
    async def async_connection(self) -> AsyncIterator[AsyncConnection]:
        """`connection` on the running event loop. Cancelling cancels the statement in the server too."""
        with _outage_as_store_error():
            pool = await self._async_open()
            connection = await self._async_checked(pool)
            try:
                yield connection
            finally:
                await pool.putconn(connection)

    @asynccontextmanager
    async def async_transaction(self) -> AsyncIterator[AsyncConnection]:
        """`transaction` on the running event loop."""
        async with self.async_connection() as connection:
            with _outage_as_store_error():
                async with connection.transaction():
                    yield connection

    def ping(self) -> None:
        """One round trip. StoreUnavailableError."""
        with self.connection() as connection:
            connection.execute("SELECT 1")

    def close(self) -> None:
        """Close the threads' pool. It opens again when used again."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    async def aclose(self) -> None:
        """Close the running event loop's pool."""
        pool = self._async_pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()

    def _open(self) -> ConnectionPool[Connection]:
        with self._lock:
            if self._pool is None:
                self._pool = ConnectionPool(
                    self.dsn,
                    connection_class=connection_class(self._timeout, self._revive),
                    configure=self._configure,
                    open=True,
                    **self._pool_options(),
                )
            return self._pool

    async def _async_open(self) -> AsyncConnectionPool[AsyncConnection]:
        loop = asyncio.get_running_loop()
        with self._lock:
            pool = self._async_pools.get(loop)
            if pool is None:
                pool = self._async_pools[loop] = AsyncConnectionPool(
                    self.dsn,
                    connection_class=async_connection_class(self._timeout, self._revive),
                    configure=self._async_configure,
                    open=False,
                    **self._pool_options(),
                )
        if pool.closed:
            await pool.open()
        return pool

    def _pool_options(self) -> dict[str, Any]:
        return {
            "kwargs": {
                "autocommit": True,
                "row_factory": dict_row,
                "context": ADAPTERS,
                "connect_timeout": min(_MAX_CONNECT_SECONDS, max(2, math.ceil(self._timeout))),
                "tcp_user_timeout": int(self._timeout * 1000),
                "application_name": "rag_cluster",
            },
            "min_size": 0,
            "max_size": self._pool_size,
            "timeout": self._timeout,
            "reconnect_timeout": self._timeout,
            "num_workers": 1,
        }

    def _limits(self) -> str:
        milliseconds = int(self._timeout * 1000)
        return (
            f"SET statement_timeout = {milliseconds};"
            # An interrupted client must not hold its locks for ever either.
            f"SET idle_in_transaction_session_timeout = {2 * milliseconds};"
            "SET jit = off"  # compiling costs more than any statement here takes
        )

    def _configure(self, connection: Connection) -> None:
        connection.execute(self._limits())

    async def _async_configure(self, connection: AsyncConnection) -> None:
        # The read path has a handful of statements, each written to have one good plan: planning them anew took longer
        # than running them.
        await connection.execute(self._limits() + "; SET plan_cache_mode = force_generic_plan")

    # A pool full of connections that a server restart killed is drained in one go: the pool's own `check` would wait
    # a growing time between two dead ones. A live one costs no round trip: see `_speaks`.

    def _checked(self, pool: ConnectionPool[Connection]) -> Connection:
        for _ in range(self._pool_size):
            connection = pool.getconn()
            try:
                if _speaks(connection):
                    ConnectionPool.check_connection(connection)
            except psycopg.OperationalError:
                pool.putconn(connection)
            except BaseException:
                pool.putconn(connection)
                raise
            else:
                return connection
        return pool.getconn()

    async def _async_checked(self, pool: AsyncConnectionPool[AsyncConnection]) -> AsyncConnection:
        for _ in range(self._pool_size):
            connection = await pool.getconn()
            try:
                if _speaks(connection):
                    await AsyncConnectionPool.check_connection(connection)
            except psycopg.OperationalError:
                await pool.putconn(connection)
            except BaseException:
                await pool.putconn(connection)
                raise
            else:
                return connection
        return await pool.getconn()


def _rebuild(dsn: str, pool_size: int, timeout: float, revive: Revive | None) -> Database:
    return Database(dsn, pool_size=pool_size, timeout=timeout, revive=revive)


def _speaks(connection: Connection | AsyncConnection) -> bool:
    """Whether something came in on an idle connection: the end of it, when the server went away, or its last words."""
    try:
        idle = select.poll()
        idle.register(connection.fileno(), select.POLLIN)
    except psycopg.OperationalError:
        return True
    return bool(idle.poll(0))


@contextmanager
def _outage_as_store_error() -> Iterator[None]:
    try:
        yield
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:  # PoolTimeout is an OperationalError
        raise StoreUnavailableError(f"PostgreSQL: {str(error).strip() or type(error).__name__}") from error
