"""Connections that revive a server which is gone, and give one up that is there and does not answer.

A server that was stopped or cut off keeps its sockets open: no timeout of its own ends a statement then, and neither
does cancelling it there. So that no request waits for ever, both end on this side too, with the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import waiting
from psycopg.rows import DictRow

Connection = psycopg.Connection[DictRow]
AsyncConnection = psycopg.AsyncConnection[DictRow]
Revive = Callable[[], None]

_GRACE = 2.0
"""A server that works ends a statement by its own timeout: the connection is kept then."""
_CANCEL_SECONDS = 0.25
"""A server that works cancels within milliseconds."""


def connection_class(timeout: float, revive: Revive | None) -> type[Connection]:
    """Statements take `timeout` seconds and a little more, at most. revive: called before connecting a second time."""

    class PatientConnection(psycopg.Connection[DictRow]):
        @classmethod
        def connect(cls, *args: Any, **kwargs: Any) -> Any:
            try:
                return super().connect(*args, **kwargs)
            except psycopg.OperationalError:
                if revive is None:
                    raise
                revive()
                return super().connect(*args, **kwargs)

        def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
            if timeout is not None:
                return super().wait(gen, interval, timeout)
            try:
                return super().wait(gen, interval, limit)
            except psycopg.errors._WaitTimeout:
                raise _given_up(self, limit) from None

    limit = timeout + _GRACE
    return PatientConnection


def async_connection_class(timeout: float, revive: Revive | None) -> type[AsyncConnection]:
    """The same on an event loop. A cancelled statement is cancelled in the server; a server that does not do so within
    a moment loses the connection."""

    class AsyncPatientConnection(psycopg.AsyncConnection[DictRow]):
        @classmethod
        async def connect(cls, *args: Any, **kwargs: Any) -> Any:
            try:
                return await super().connect(*args, **kwargs)
            except psycopg.OperationalError:
                if revive is None:
                    raise
                await asyncio.to_thread(revive)
                return await super().connect(*args, **kwargs)

        async def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
            if timeout is not None:
                return await super().wait(gen, interval, timeout)
            try:
                async with asyncio.timeout(limit):
                    return await waiting.wait_async(gen, self.pgconn.socket, interval=interval)
            except TimeoutError:
                raise _given_up(self, limit) from None
            except asyncio.CancelledError:
                if self.pgconn.transaction_status == psycopg.pq.TransactionStatus.ACTIVE:
                    await self._cancel_there(gen)
                raise

        async def _cancel_there(self, gen: Any) -> None:
            try:
                async with asyncio.timeout(_CANCEL_SECONDS):
                    await self.cancel_safe(timeout=_CANCEL_SECONDS)
                    await waiting.wait_async(gen, self.pgconn.socket)
            except psycopg.errors.QueryCanceled:
                pass  # as asked for
            except BaseException as error:
                self.pgconn.finish()
                if not isinstance(error, Exception):
                    raise

    limit = timeout + _GRACE
    return AsyncPatientConnection


def _given_up(connection: Connection | AsyncConnection, seconds: float) -> psycopg.OperationalError:
    connection.pgconn.finish()
    return psycopg.OperationalError(f"the server did not answer within {seconds:g} s")
