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

from rag_cluster.errors import ExternalServiceError

log = logging.getLogger("rag_cluster.ingestion")


def _never() -> bool:
    return False


class Heartbeat:
    """A thread that calls `extend` three times a lease. After a whole lease without success `check` insists.

    extend: one attempt. insist: the same with retries, for as long as an outage is waited for.

    cancelled: asked at every beat; once it is true the work is interrupted as by Ctrl-C, in the main thread at once,
    elsewhere at the next `check`.
    """

    def __init__(
        self,
        extend: Callable[[], object],
        lease_seconds: float,
        cancelled: Callable[[], bool] = _never,
        *,
        insist: Callable[[], object] | None = None,
    ) -> None:
        self._extend = extend
        self._insist = insist or extend
        self._is_cancelled = cancelled
        self.cancelled = False
        self._lease = lease_seconds
        self._stop = threading.Event()
        self._alive_at = time.monotonic()
        self._thread = threading.Thread(target=self._beat, name="claim-heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._owner = threading.current_thread()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=self._lease)

    def check(self) -> None:
        """KeyboardInterrupt when the work was cancelled. StoreUnavailableError when the claims have lapsed because the
        ledger did not answer, and does not answer now. Who took over meanwhile is safe: tokens shut us out."""
        if self.cancelled:
            raise KeyboardInterrupt
        silent = time.monotonic() - self._alive_at
        if silent > self._lease:
            log.warning("the ledger did not answer for %.0f s", silent)
            self._insist()
            self._alive_at = time.monotonic()

    def _beat(self) -> None:
        while not self._stop.wait(self._lease / 3):
            try:
                self._extend()
                self._alive_at = time.monotonic()
                if not self.cancelled and self._is_cancelled():
                    self._cancel()
            except ExternalServiceError as error:
                log.warning("heartbeat failed: %s", error.message)

    def _cancel(self) -> None:
        self.cancelled = True
        main = threading.main_thread()
        if self._owner is main and main.ident is not None:
            signal.pthread_kill(main.ident, signal.SIGTERM)  # wakes it where it waits; `interruptible` is around it


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
