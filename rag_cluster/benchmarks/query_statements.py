"""PostgreSQL's statements, each by two clocks: how long it took, and how long its server process waited for a CPU.

Where more is to do than there are CPUs, every statement takes longer by what it waits for one. Linux counts that for
each process (/proc/PID/schedstat), so that a statement that is slow by itself, or waits for a lock or the disk, can be
told from one that was held up; so it does for the one process that a statement with a large result waits for.
"""

from __future__ import annotations

import re
import time
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import DictRow

from rag_cluster.stores.postgres.database import AsyncConnection, Database

LOG_PREFIX = "%n [%p] "
"""Of the server's log: seconds since 1970, process."""
_LOGGED = re.compile(r"^(\d+\.\d+) \[(\d+)\] LOG:  duration: ([\d.]+) ms  (?:[^:\n]*:)?\s*(.*)$", re.MULTILINE)
_TEXT = 70
_LATE = 0.05
"""Seconds by which the server may write its line after its answer arrived here."""
_FIELDS = 5
"""Of a call, its process left out."""
_BUFFERED = 20
"""Rows that fit into a socket, so that the server need not wait until somebody reads them."""


@dataclass(slots=True)
class Kind:
    """The calls of one statement, seconds each: until the answer was here, on a CPU, waiting for one."""

    elapsed: array[float] = field(default_factory=lambda: array("f"))
    computed: array[float] = field(default_factory=lambda: array("f"))
    waited: array[float] = field(default_factory=lambda: array("f"))


@dataclass(frozen=True, slots=True)
class Call:
    """One call: its server process, when it ran (seconds since 1970), and what became of the time, in seconds."""

    process: int
    began: float
    ended: float
    computed: float
    waited: float
    reader_waited: float
    """While it ran, its reader waited for a CPU for so long; 0 for a small result, as nobody waits for its reader."""


@dataclass(frozen=True, slots=True)
class SlowStatement:
    """A statement that took longer than the limit by the server's clock; milliseconds."""

    total: float
    computed: float
    waited: float
    unread: float
    """At most so much it waited for its reader."""
    text: str

    @property
    def most(self) -> float:
        """Computing, the disk, locks, and the reader."""
        return self.total - self.waited

    @property
    def own(self) -> float:
        """The same without the reader."""
        return self.most - self.unread


class StatementClock:
    """What the statements of a `TimedDatabase` took. limit: seconds; of longer ones every call is kept."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self.kinds: dict[str, Kind] = defaultdict(Kind)
        self._long: dict[int, array[float]] = defaultdict(lambda: array("d"))
        """Of each process its calls, one after the other: under load these are many, and memory is measured here."""

    def keep(self, text: str, call: Call) -> None:
        """One call that has just ended."""
        kind = self.kinds[" ".join(text.split())[:_TEXT]]
        elapsed = call.ended - call.began
        for values, seconds in ((kind.elapsed, elapsed), (kind.computed, call.computed), (kind.waited, call.waited)):
            values.append(seconds)
        if elapsed >= self._limit:
            self._long[call.process].extend((call.began, call.ended, call.computed, call.waited, call.reader_waited))

    def slow(self, log: str) -> list[SlowStatement]:
        """What the server logged as longer than the limit, slowest of their own first.

        Planning and running are lines of their own there; those of one call are one statement here.
        """
        totals: dict[Call | int, float] = defaultdict(float)
        texts: dict[Call | int, str] = {}
        for number, (at, process, milliseconds, text) in enumerate(_LOGGED.findall(log)):
            call = self._call(int(process), float(at)) or number
            totals[call] += float(milliseconds)
            texts[call] = " ".join(text.split())[:_TEXT]
        return sorted((_slow(call, total, texts[call]) for call, total in totals.items()), key=lambda one: -one.own)

    def _call(self, process: int, at: float) -> Call | None:
        """The last one that began before this moment, unless it had ended long before."""
        values = self._long.get(process, array("d"))
        after = bisect_right(values[::_FIELDS], at)
        if not after:
            return None
        call = Call(process, *values[(after - 1) * _FIELDS : after * _FIELDS])
        return call if at <= call.ended + _LATE else None


def _slow(call: Call | int, total: float, text: str) -> SlowStatement:
    if isinstance(call, int):  # of another process
        return SlowStatement(total, 0.0, 0.0, 0.0, text)
    computed, waited = call.computed * 1000, call.waited * 1000
    unread = max(0.0, min(total - computed - waited, call.reader_waited * 1000))
    return SlowStatement(total, computed, waited, unread, text)


class TimedDatabase(Database):
    """`Database` whose statements on an event loop are timed. reader: the process that reads what the server sends."""

    def __init__(self, dsn: str, clock: StatementClock, reader: int) -> None:
        super().__init__(dsn)
        self._cursor = _timed_cursor(clock, reader)

    @asynccontextmanager
    async def async_connection(self) -> AsyncIterator[AsyncConnection]:
        """As there."""
        async with super().async_connection() as connection:
            connection.cursor_factory = self._cursor
            yield connection


def _timed_cursor(clock: StatementClock, reader: int) -> type[psycopg.AsyncCursor[DictRow]]:
    class TimedCursor(psycopg.AsyncCursor[DictRow]):
        async def execute(self, query: Any, *args: Any, **options: Any) -> Any:
            process = self.connection.info.backend_pid
            server, (_, reader_waited) = _scheduled(process), _scheduled(reader)
            began = time.time()
            done = await super().execute(query, *args, **options)
            ended = time.time()
            computed, waited = (after - before for after, before in zip(_scheduled(process), server, strict=True))
            unread = _scheduled(reader)[1] - reader_waited if self.rowcount > _BUFFERED else 0.0
            clock.keep(str(query), Call(process, began, ended, computed, waited, unread))
            return done

    return TimedCursor


def _scheduled(process: int) -> tuple[float, float]:
    """Seconds that a process of this machine ran, and that it was ready and had to wait. Zeros where nobody counts."""
    try:
        ran, waited, _ = Path(f"/proc/{process}/schedstat").read_text().split()
    except (OSError, ValueError):
        return 0.0, 0.0
    return int(ran) / 1e9, int(waited) / 1e9
