"""Whether each dependency answers, asked often and by anybody."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from rag_cluster.errors import RagClusterError

log = logging.getLogger(__name__)

CHECK_SECONDS = 5.0


class Readiness:
    """Checks by name. One that hangs is asked once, not once a poll: its thread is waited for, and no other started."""

    def __init__(self, checks: Mapping[str, Callable[[], object]], *, seconds: float = CHECK_SECONDS) -> None:
        self._checks = checks
        self._seconds = seconds
        self._running: dict[str, asyncio.Future[object]] = {}

    async def __call__(self) -> dict[str, str]:
        """Name -> "ok" or a stable word for what is wrong; details, which may name hosts, are in the log."""
        outcomes = await asyncio.gather(*map(self._outcome, self._checks))
        return dict(zip(self._checks, outcomes, strict=True))

    async def _outcome(self, name: str) -> str:
        running = self._running.get(name)
        if running is None:
            running = self._running[name] = asyncio.ensure_future(asyncio.to_thread(self._checks[name]))
            running.add_done_callback(lambda _: self._running.pop(name))
        done, _ = await asyncio.wait({running}, timeout=self._seconds)
        if not done:
            return "no answer"
        error = running.exception()
        if error is None:
            return "ok"
        log.warning("%s is not ready", name, exc_info=error)
        return error.type if isinstance(error, RagClusterError) else "failed"
