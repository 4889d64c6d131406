"""A Ray for the time of one command: joined where one is named, otherwise started here and stopped afterwards."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import ray
from ray import serve

from rag_cluster.settings import Settings

LOCAL_CPUS = 2
"""Logical CPUs of the local Ray: enough for the ingestion pools (fractions) beside Serve (num_cpus 0)."""


@contextlib.contextmanager
def ray_session(settings: Settings, *, address: str | None = None, num_cpus: int | None = None) -> Iterator[None]:
    """Connect to `address` (or settings.ray_address) or start a local Ray without a dashboard.

    On leaving, Serve is shut down and Ray disconnected only if this call brought Ray up.
    """
    if ray.is_initialized():
        yield
        return
    target = address or settings.ray_address or None
    if target:
        ray.init(address=target, log_to_driver=False, logging_level=logging.ERROR)
    else:
        ray.init(
            num_cpus=num_cpus or LOCAL_CPUS,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    try:
        yield
    finally:
        if not target:
            serve.shutdown()  # type: ignore[no-untyped-call]
        ray.shutdown()
