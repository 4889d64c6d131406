"""Joining or starting Ray without its own log lines on a person's terminal; they are in Ray's log files."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from typing import Any

import ray

from rag_cluster.errors import SourceUnavailableError


def connect(address: str | None, num_cpus: int) -> bool:
    """Join the Ray at `address` ("auto" or host:port), or the one whose job this process is, or start a local one.

    num_cpus: logical CPUs of a local Ray, which has no dashboard and belongs to this process alone. True when this
    call started it. SourceUnavailableError when no Ray answers at the address.
    """
    target = address or os.environ.get("RAY_ADDRESS") or "local"
    _check_reachable(target)
    with _native_log_muted():
        if target == "local":
            _start(num_cpus)
        else:
            _join(target)
    return target == "local"


def _start(num_cpus: int) -> None:
    try:
        # "local" and not None: None would join whatever Ray was started on this machine before.
        ray.init("local", num_cpus=num_cpus, include_dashboard=False, **_QUIET)
    except Exception as error:  # Ray raises a bare one where its processes do not come up in time
        raise SourceUnavailableError(
            f"Ray did not start on this machine ({error}). Is it overloaded, or short of memory? Try again, or join "
            "a running Ray with --address or RAY_ADDRESS."
        ) from error


def _join(target: str) -> None:
    try:
        ray.init(target, **_QUIET)
    except (ConnectionError, ValueError) as error:
        reason = f"{error}: {error.__cause__}" if error.__cause__ else error
        raise SourceUnavailableError(f"No Ray can be joined at {target}: {reason}") from error


def _check_reachable(target: str) -> None:
    """Ray itself tries for minutes."""
    host, _, port = target.rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise SourceUnavailableError(f"No Ray answers at {target}: {error}") from None


_CONNECT_SECONDS = 10.0
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}


@contextlib.contextmanager
def _native_log_muted() -> Iterator[None]:
    """Ray's C++ logs an error for every actor pool of Ray Data (ray-project/ray#53727), which is none.

    RAY_BACKEND_LOG_LEVEL is the switch, and is itself announced on file descriptor 2 while Ray starts. Whoever sets it
    wants to see the log.
    """
    if "RAY_BACKEND_LOG_LEVEL" in os.environ:
        yield
        return
    os.environ["RAY_BACKEND_LOG_LEVEL"] = "fatal"
    saved = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
