"""A request's deadline, counted where the work is awaited, so that whoever records the outcome sees why it ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self

from rag_cluster.errors import DeadlineExceededError


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point of the running event loop's clock. seconds: what the message names."""

    at: float
    seconds: float

    @classmethod
    def after(cls, seconds: float) -> Self:
        """The deadline that many seconds from now."""
        return cls(asyncio.get_running_loop().time() + seconds, seconds)


@asynccontextmanager
async def within(deadline: Deadline | None) -> AsyncIterator[None]:
    """Cancel the block at the deadline and raise DeadlineExceededError there. None: no deadline.

    The block must not contain a `yield` of its own: what waits there is another's code.
    """
    try:
        async with asyncio.timeout_at(deadline.at if deadline is not None else None) as scope:
            yield
    except TimeoutError:
        if deadline is None or not scope.expired():
            raise
        raise DeadlineExceededError(f"No result within {deadline.seconds:g} s.") from None
