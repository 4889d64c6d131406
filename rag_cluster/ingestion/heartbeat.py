"""Keeps claims alive while their owner works, and turns a polite kill into a resumable stop."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Self

from rag_cluster.errors import ExternalServiceError, StoreUnavailableError

log = logging.getLogger("rag_cluster.ingestion")


class Heartbeat:
    """A thread that calls `extend` three times a lease. `check` raises once a whole lease passed without success."""

    def __init__(self, extend: Callable[[], object], lease_seconds: float) -> None:
        self._extend = extend
        self._lease = lease_seconds
        self._stop = threading.Event()
        self._alive_at = time.monotonic()
        self._thread = threading.Thread(target=self._beat, name="claim-heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=self._lease)

    def check(self) -> None:
        """StoreUnavailableError when the claims have lapsed because the ledger did not answer."""
        silent = time.monotonic() - self._alive_at
        if silent > self._lease:
            raise StoreUnavailableError(f"the ledger did not answer for {silent:.0f} s; claims have lapsed")

    def _beat(self) -> None:
        while not self._stop.wait(self._lease / 3):
            try:
                self._extend()
                self._alive_at = time.monotonic()
            except ExternalServiceError as error:
                log.warning("heartbeat failed: %s", error.message)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt, as Ctrl-C does. Only in the main thread, where Python allows it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
