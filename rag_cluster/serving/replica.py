"""What the deployments' replicas share: their services, the GPUs that they see, and the health of an engine."""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Awaitable, Callable

import ray

from rag_cluster.errors import ModelUnavailableError
from rag_cluster.ingestion.ray_metrics import ray_metrics
from rag_cluster.telemetry import configure_logging
from rag_cluster.wiring import ServiceFactory, Services

log = logging.getLogger(__name__)

PROBE_SECONDS = 20.0
"""Within Serve's own limit of a health check, 30 s."""
LONGEST_CALL = 300.0
"""Seconds for a hundred long candidates and a large reranker on a CPU, and some more."""


def replica_services(factory: ServiceFactory) -> Services:
    """The services of a replica, which logs, counts on Ray's metrics port, and sees the GPUs that it asked for."""
    if not assigned_gpus():
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # Ray no longer hides GPUs from actors that asked for none
    services = factory()
    configure_logging(services.settings.log_level)
    services.metrics = ray_metrics()
    return services


def assigned_gpus() -> list[str]:
    """Ids of the GPUs that Ray gave to this replica."""
    return list(ray.get_runtime_context().get_accelerator_ids().get("GPU", []))


class EngineHealth:
    """Whether an engine still computes: by what it did since the last check, else by a small call of its own.

    done: successful calls so far. probe: the small call. A hung engine gives no answer, a broken one an error; after
    three such checks Serve replaces the replica. running: seconds of the call that the probe may wait behind. One of
    less than `LONGEST_CALL` is slow, not hung; its caller may have gone, so that it will never count as done.
    """

    def __init__(
        self,
        name: str,
        done: Callable[[], int],
        probe: Callable[[], Awaitable[object]],
        seconds: float = PROBE_SECONDS,
        running: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self._name = name
        self._done = done
        self._probe = probe
        self._seconds = seconds
        self._running = running
        self._seen = -1

    async def check(self) -> None:
        """ModelUnavailableError from a dead engine, or what its call raises."""
        done = self._done()
        if done == self._seen:
            try:
                async with asyncio.timeout(self._seconds):
                    await self._probe()
            except TimeoutError:
                if self._running() < LONGEST_CALL:
                    return
                log.error("%s is dead", self._name)
                raise ModelUnavailableError(f"{self._name} computed nothing within {self._seconds:g} s") from None
        self._seen = self._done()
