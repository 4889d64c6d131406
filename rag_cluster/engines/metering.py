"""Counts what a language model writes, and how each answer ended."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from rag_cluster import telemetry
from rag_cluster.domain.ports import MetricSink
from rag_cluster.errors import ContextOverflowError

OUTCOMES = ("completed", "truncated", "aborted", "rejected", "failed")
"""truncated: by the limit of its tokens; aborted: nobody waits any more; rejected: the prompt was too long."""
KINDS = ("prompt_tokens", "completion_tokens")


class Generation:
    """One answer in the making, as its engine sees it."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.first_token: float | None = None
        """Seconds after the start."""
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.truncated = False

    def text(self) -> None:
        """Text has come."""
        if self.first_token is None:
            self.first_token = time.perf_counter() - self.started


class GenerationMeter:
    """The counters of one engine in one process. name: the model's, a label of its metrics."""

    def __init__(self, name: str, metrics: MetricSink) -> None:
        self._name = name
        self._metrics = metrics
        self._counts: Counter[str] = Counter()
        self.running = 0

    @contextmanager
    def generation(self) -> Iterator[Generation]:
        """Count the block as one answer: by how it is left, and by the tokens that it noted."""
        generation, outcome = Generation(), "failed"
        self.running += 1
        try:
            yield generation
            outcome = "truncated" if generation.truncated else "completed"
        except (asyncio.CancelledError, GeneratorExit):
            outcome = "aborted"
            raise
        except ContextOverflowError:
            outcome = "rejected"
            raise
        finally:
            self.running -= 1
            self._count(generation, outcome)

    def snapshot(self) -> dict[str, int]:
        """Answers by outcome, tokens by kind, and those running now."""
        return {"running": self.running, **{name: self._counts[name] for name in (*OUTCOMES, *KINDS)}}

    def _count(self, generation: Generation, outcome: str) -> None:
        self._counts[outcome] += 1
        self._metrics.count(telemetry.GENERATIONS_TOTAL, generator=self._name, outcome=outcome)
        for kind in KINDS:
            tokens = getattr(generation, kind)
            self._counts[kind] += tokens
            self._metrics.count(telemetry.GENERATOR_TOKENS_TOTAL, tokens, generator=self._name, kind=kind)
        if generation.first_token is not None:
            self._metrics.observe(telemetry.FIRST_TOKEN_SECONDS, generation.first_token, generator=self._name)
