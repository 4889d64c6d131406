"""Recall channels: each searches deeper until enough hits survive the second check."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from rag_cluster.domain.deadlines import share
from rag_cluster.domain.retrieval import Hit
from rag_cluster.domain.terms import speaks
from rag_cluster.errors import StoreUnavailableError
from rag_cluster.retrieval.access import SecondCheck

MAX_LIMIT = 16_384
"""Milvus returns no more than this many rows of one search."""
REPEATS = 2
"""Searches of one query that documents may overtake, besides the first."""

SearchCall = Callable[[int], Awaitable[list[Hit]]]
"""limit -> hits, best first."""


@dataclass(slots=True)
class Channel:
    """One way of finding candidates, with what it found so far."""

    name: str
    search: SearchCall
    wanted: int
    """How many hits must survive the second check, third copies not counted."""
    cosine: bool = False
    """Whether its scores are cosines."""
    targeted: bool = False
    """It searches a part of what the others search."""
    foreign: str = ""
    """The question's language, "zh" or "en", where only chunks that hardly speak it count: however few there are, it is
    searched once, so that it costs little where all speak the question's."""
    limit: int = 0
    hits: list[Hit] = field(default_factory=list)
    survivors: list[Hit] = field(default_factory=list)
    rounds: int = 0
    seconds: float = 0.0
    error: Exception | None = None
    open: bool = True

    def __post_init__(self) -> None:
        self.limit = self.limit or self.wanted

    async def run(self) -> None:
        """Search once with the present limit. A failure is kept, not raised; cancellation passes through.

        A channel that hangs fails at half of the time that its request has left, so that the others' hits are used.
        """
        started, seconds = time.perf_counter(), share()
        self.rounds += 1
        try:
            async with asyncio.timeout(seconds) as scope:
                self.hits = await self.search(self.limit)
        except TimeoutError as error:
            late = StoreUnavailableError(f"no answer within {seconds:.3g} s")
            self.error, self.open = late if scope.expired() else error, False
        except Exception as error:  # becomes a trace entry, or the raised error when every channel failed
            self.error, self.open = error, False
        finally:
            self.seconds += time.perf_counter() - started

    def reopen(self) -> None:
        """Search again, as deep as was needed."""
        self.open = self.error is None

    def take(self, check: SecondCheck) -> None:
        """Keep the hits that count."""
        self.survivors = check.survivors(self.hits)
        if self.foreign:
            texts = ((hit, check.row(hit.chunk_id).chunk.text) for hit in self.survivors)
            self.survivors = [hit for hit, text in texts if not speaks(self.foreign, text)]

    def settle(self, check: SecondCheck) -> None:
        """Close when enough hits survived or the index holds no more; otherwise double the limit."""
        self.take(check)
        exhausted = len(self.hits) < self.limit or self.limit >= MAX_LIMIT or bool(self.foreign)
        if exhausted or check.distinct(self.survivors) >= self.wanted:
            self.open = False
        else:
            self.limit = min(self.limit * 2, MAX_LIMIT)


async def recall(channels: Sequence[Channel], check: SecondCheck) -> None:
    """Run all channels concurrently, round by round; one statement checks the new hits of a round together.

    Failed channels carry `error`. Where everything relevant could be pushed down, one round suffices. A document that
    is published between a search and its check lost the old version's hits, while the search was too early for the new
    one's: then all is searched again.
    """
    await _rounds(channels, check)
    for _ in range(REPEATS):
        if not await check.overtaken():
            break
        for channel in channels:
            channel.reopen()
        await _rounds(channels, check)
    check.seal()
    for channel in channels:
        channel.take(check)  # a later round may have shown a newer version


async def _rounds(channels: Sequence[Channel], check: SecondCheck) -> None:
    while pending := [channel for channel in channels if channel.open]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(channel.run()) for channel in pending]
        if any(task.cancelled() for task in tasks):
            # A call that cancelled itself must not look like an index without hits.
            raise asyncio.CancelledError
        found = [channel for channel in pending if channel.error is None]
        await check.admit(hit for channel in found for hit in channel.hits)
        for channel in found:
            channel.settle(check)
