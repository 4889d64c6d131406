"""A request's deadline, counted where the work is awaited, so that whoever records the outcome sees why it ended.

Who waits inside `within` is cancelled at the deadline. What a request can do without asks `share` how long it may take,
so that the request still has time to go on without it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Self

from rag_cluster.errors import DeadlineExceededError

LARGEST_SHARE = 0.5
"""Of the time left: what one call may take that is not the request's last hope."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point of the running event loop's clock. seconds: what the message names."""

    at: float
    seconds: float

    @classmethod
    def after(cls, seconds: float) -> Self:
        """The deadline that many seconds from now."""
        return cls(asyncio.get_running_loop().time() + seconds, seconds)


_current: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


@asynccontextmanager
async def within(deadline: Deadline | None) -> AsyncIterator[None]:
    """Cancel the block at the deadline and raise DeadlineExceededError there. None: no deadline.

    The block must not contain a `yield` of its own: what waits there is another's code.
    """
    token = _current.set(deadline)
    try:
        async with asyncio.timeout_at(deadline.at if deadline is not None else None) as scope:
            yield
    except TimeoutError:
        if deadline is None or not scope.expired():
            raise
        raise DeadlineExceededError(f"No result within {deadline.seconds:g} s.") from None
    finally:
        _current.reset(token)


def share(seconds: float = math.inf) -> float:
    """Seconds that a call may take which the request can do without: its own limit, and at most half of what is left
    until the deadline of the `within` around it. inf: no limit."""
    deadline = _current.get()
    if deadline is None:
        return seconds
    return min(seconds, max(0.0, deadline.at - asyncio.get_running_loop().time()) * LARGEST_SHARE)
