"""Queries first: bulk work waits while they take longer than they should."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable

QUERIES = "queries"
"""The lane whose times are measured."""
BULK = "bulk"
"""The lane that waits."""

BULK_SHARE = 0.2
"""Of the engine's time, while queries are too slow."""
LONGEST_HOLD = 30.0
_MOST = 1000
"""Queries that are remembered."""


class QueryPace:
    """How long the last queries took, waiting included, and how much bulk work may go beside them.

    target: seconds that 95 % of the queries of the last `window` seconds may take; 0: bulk work is not limited. While
    there are queries, a call of bulk work is made so small that it takes half of the target. While they take too long
    nevertheless, bulk work waits after each call until it has had `BULK_SHARE` of the time: slow, and never stuck.
    """

    def __init__(self, target: float, *, window: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.target = target
        self._window = window
        self._clock = clock
        self._times: deque[tuple[float, float]] = deque(maxlen=_MOST)
        self._next_bulk = -math.inf
        self._tokens_a_second = math.inf

    def answered(self, seconds: float) -> None:
        """A query has its vectors after so many seconds."""
        self._times.append((self._clock(), seconds))

    def computed(self, lane: str, tokens: int, seconds: float) -> None:
        """A call of the engine for this lane was successful."""
        if lane == BULK:
            self._next_bulk = self._clock() + min(seconds * (1 / BULK_SHARE - 1), LONGEST_HOLD)
            self._tokens_a_second = tokens / max(seconds, 1e-6)

    @property
    def p95(self) -> float | None:
        """Seconds; None without a query in the window."""
        oldest = self._clock() - self._window
        while self._times and self._times[0][0] < oldest:
            self._times.popleft()
        if not self._times:
            return None
        ordered = sorted(seconds for _, seconds in self._times)
        return ordered[math.ceil(0.95 * len(ordered)) - 1]

    def hold(self, lane: str) -> float:
        """Seconds that the lane must wait now; 0: it may go on."""
        if lane != BULK or not self.target:
            return 0.0
        left = self._next_bulk - self._clock()
        if left <= 0 or (p95 := self.p95) is None or p95 <= self.target:
            return 0.0
        return left

    def tokens(self, lane: str, most: int) -> int:
        """Of the lane's next call, at most."""
        if lane != BULK or not self.target or self.p95 is None:
            return most
        return int(min(most, self._tokens_a_second * self.target / 2))
