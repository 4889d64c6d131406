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

_MOST = 1000
"""Queries that are remembered."""


class QueryPace:
    """How long the last queries took, waiting included, and whether bulk work may go on.

    target: seconds that 95 % of the queries of the last `window` seconds may take; 0: bulk work never waits. It never
    waits for more than `most` seconds between two calls either, so that it is slow, and not stuck, while queries are.
    """

    def __init__(
        self, target: float, *, window: float = 10.0, most: float = 2.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.target = target
        self._window = window
        self._most = most
        self._clock = clock
        self._times: deque[tuple[float, float]] = deque(maxlen=_MOST)
        self._last_bulk = -math.inf

    def answered(self, seconds: float) -> None:
        """A query has its vectors after so many seconds."""
        self._times.append((self._clock(), seconds))

    def computed(self, lane: str) -> None:
        """A call of the engine for this lane has ended."""
        if lane == BULK:
            self._last_bulk = self._clock()

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
        left = self._last_bulk + self._most - self._clock()
        if left <= 0 or (p95 := self.p95) is None or p95 <= self.target:
            return 0.0
        return left
