"""Micro-batching: the texts of many requests become few calls of an engine, and an idle engine is called at once."""

from __future__ import annotations

import asyncio
import copy
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rag_cluster import telemetry
from rag_cluster.engines.pacing import QUERIES, QueryPace
from rag_cluster.errors import ModelUnavailableError, RagClusterError, told

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Matrix, MetricSink

log = logging.getLogger(__name__)

BATCH_TOKENS = 1024
_BYTES_PER_TOKEN = 4

Compute = Callable[[Sequence[str]], Awaitable["Matrix"]]


def estimated_tokens(text: str) -> int:
    """Of UTF-8 a token takes four bytes or a little more, in English as in Chinese: counting would hold up the event
    loop for longer than a wrong guess costs."""
    return 2 + len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN


@dataclass(slots=True, eq=False)
class _Call:
    """One caller's texts; `rows` are the vectors of the first of them."""

    texts: Sequence[str]
    done: asyncio.Future[Matrix]
    taken: int = 0
    rows: list[Matrix] = field(default_factory=list)
    arrived: float = field(default_factory=time.perf_counter)

    def deliver(self, rows: Matrix) -> bool:
        """Whether these were the last ones that it waited for."""
        if self.done.done():
            return False
        self.rows.append(rows)
        if sum(map(len, self.rows)) < len(self.texts):
            return False
        self.done.set_result(self.rows[0] if len(self.rows) == 1 else np.concatenate(self.rows))
        return True

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            # Each caller raises an error of its own: one raised in many tasks collects the traces of all.
            self.done.set_exception(_own(error))
            self.done.exception()  # looked at: a caller that is being cancelled does not


@dataclass(slots=True)
class _Batch:
    """What one call of the engine computes."""

    lane: str
    texts: list[str] = field(default_factory=list)
    tokens: int = 0
    shares: list[tuple[_Call, int]] = field(default_factory=list)
    """Calls with how many of the texts are theirs, in order."""

    @property
    def abandoned(self) -> bool:
        return all(call.done.done() for call, _ in self.shares)


@dataclass(slots=True)
class LaneCounts:
    """What one lane has done since it began. tokens: estimated; seconds: of the engine."""

    requests: int = 0
    batches: int = 0
    """Calls of the engine."""
    failed: int = 0
    """Of these."""
    texts: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def snapshot(self) -> dict[str, float]:
        """With the mean of a batch."""
        return {**asdict(self), "mean_batch_tokens": self.tokens / self.batches if self.batches else 0.0}


class MicroBatcher:
    """One call of the engine at a time; what arrives meanwhile goes together into the next ones.

    lanes: name -> what computes the texts of that kind; they take turns, so that a query waits for one call of
    documents at most, however many of these wait. A call takes up to max_tokens, at least one text. A caller's texts
    are spread over as many as they need, and callers of a lane take turns too. For one event loop. pace: which lane has
    to wait at times.

    When a call of the engine fails, so do the callers with a text in it, and no others. A caller that is cancelled
    drops out; a call of which all have dropped out is cancelled.
    """

    def __init__(
        self,
        lanes: Mapping[str, Compute],
        *,
        max_tokens: int = BATCH_TOKENS,
        weigh: Callable[[str], int] = estimated_tokens,
        pace: QueryPace | None = None,
        metrics: MetricSink | None = None,
    ) -> None:
        self.max_tokens = max_tokens
        self.counts = {lane: LaneCounts() for lane in lanes}
        self._compute = dict(lanes)
        self._pace = pace or QueryPace(0)
        self._metrics = metrics or telemetry.NullMetrics()
        self._weigh = weigh
        self._waiting: dict[str, deque[_Call]] = {lane: deque() for lane in lanes}
        self._turns = deque(lanes)
        self._batch: _Batch | None = None
        self._running: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Requests with a text that no call has taken yet."""
        return sum(not call.done.done() for lane in self._waiting.values() for call in lane)

    async def embed(self, lane: str, texts: Sequence[str]) -> Matrix:
        """float32 (len(texts), dimension), in order. RagClusterErrors of the engine as they are, else
        ModelUnavailableError."""
        if not texts:
            return await self._compute[lane](texts)
        call = _Call(list(texts), asyncio.get_running_loop().create_future())
        call.done.add_done_callback(self._left)
        self._waiting[lane].append(call)
        self.counts[lane].requests += 1
        self._metrics.count(telemetry.EMBED_REQUESTS_TOTAL, lane=lane)
        self._start()
        return await call.done

    def _left(self, done: asyncio.Future[Matrix]) -> None:
        if done.cancelled() and self._batch is not None and self._batch.abandoned and self._running is not None:
            self._running.cancel()

    def _start(self) -> None:
        if self._batch is None and (batch := self._next()) is not None:
            self._batch = batch
            self._running = asyncio.ensure_future(self._run(batch))

    def _next(self) -> _Batch | None:
        for lane in tuple(self._turns):
            if self._waiting[lane] and (seconds := self._pace.hold(lane)) > 0:
                self._start_after(seconds)
                continue
            batch = self._collect(lane)
            if batch.texts:
                self._turns.remove(lane)
                self._turns.append(lane)
                return batch
        return None

    def _start_after(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._held_long_enough)

    def _held_long_enough(self) -> None:
        self._timer = None
        self._start()

    def _collect(self, lane: str) -> _Batch:
        batch, left, waiting = _Batch(lane), self._pace.tokens(lane, self.max_tokens), self._waiting[lane]
        while waiting:
            call = waiting.popleft()
            if call.done.done():
                continue
            first = call.taken
            while call.taken < len(call.texts):
                tokens = self._weigh(call.texts[call.taken])
                left -= tokens
                if left < 0 and batch.texts:
                    waiting.append(call)  # at the end: the others' turn
                    break
                batch.texts.append(call.texts[call.taken])
                batch.tokens += tokens
                call.taken += 1
            if call.taken > first:
                batch.shares.append((call, call.taken - first))
            if left <= 0:
                break
        return batch

    async def _run(self, batch: _Batch) -> None:
        started = time.perf_counter()
        try:
            vectors = await self._compute[batch.lane](batch.texts)
            if len(vectors) != len(batch.texts):
                raise ModelUnavailableError(f"{len(vectors)} vectors for {len(batch.texts)} texts")
        except asyncio.CancelledError:
            for call, _ in batch.shares:
                call.done.cancel()
        except Exception as error:  # becomes the error of each of its callers
            self.counts[batch.lane].failed += 1
            if not isinstance(error, RagClusterError):
                log.error("the embedder failed", exc_info=error)
            for call, _ in batch.shares:
                call.fail(error)
        else:
            self._pace.computed(batch.lane, batch.tokens, time.perf_counter() - started)
            start = 0
            for call, count in batch.shares:
                if call.deliver(vectors[start : start + count]):
                    self._answered(batch.lane, time.perf_counter() - call.arrived)
                start += count
        finally:
            self._batch = self._running = None
            self._count(batch, time.perf_counter() - started)
            self._start()

    def _answered(self, lane: str, seconds: float) -> None:
        self._metrics.observe(telemetry.EMBED_SECONDS, seconds, lane=lane)
        if lane == QUERIES:
            self._pace.answered(seconds)

    def _count(self, batch: _Batch, seconds: float) -> None:
        counts = self.counts[batch.lane]
        counts.batches += 1
        counts.texts += len(batch.texts)
        counts.tokens += batch.tokens
        counts.seconds += seconds
        self._metrics.count(telemetry.EMBED_BATCHES_TOTAL, lane=batch.lane)
        self._metrics.count(telemetry.EMBED_TEXTS_TOTAL, len(batch.texts), lane=batch.lane)
        self._metrics.count(telemetry.EMBED_TOKENS_TOTAL, batch.tokens, lane=batch.lane)


def _own(error: Exception) -> Exception:
    if isinstance(error, RagClusterError):
        own: Exception = copy.copy(error)
    else:
        own = ModelUnavailableError(f"The embedder failed ({told(error)}).")
    own.__cause__ = error
    return own
