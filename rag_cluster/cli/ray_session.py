"""A Ray for the time of one command: joined where one is named, otherwise started here and stopped afterwards."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import ray

from rag_cluster.ingestion.ray_connection import connect
from rag_cluster.serving.proxy import MIDDLEWARES, PROXY_CALLBACK
from rag_cluster.settings import ray_address as ray_address

LOCAL_CPUS = 2
"""Logical CPUs of the local Ray: enough for the ingestion pools (fractions) beside Serve (num_cpus 0)."""


@contextlib.contextmanager
def ray_session(address: str | None) -> Iterator[None]:
    """Join the Ray at the address, or start a local one without a dashboard; leave or stop it at the end."""
    with ray_stopped_afterwards():
        if not ray.is_initialized():
            os.environ.setdefault(PROXY_CALLBACK, MIDDLEWARES)  # a local Ray hands it on to Serve's proxy
            connect(address, LOCAL_CPUS)
        yield


@contextlib.contextmanager
def ray_stopped_afterwards() -> Iterator[None]:
    """Whatever Ray is started or joined inside is left at the end, and its processes are gone by then."""
    before = ray.is_initialized()
    try:
        yield
    finally:
        if not before and ray.is_initialized():
            ray.shutdown(wait_for_processes=True)
