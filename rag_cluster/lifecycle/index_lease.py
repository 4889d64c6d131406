"""One job at a time fills an index. A second one is refused while the first gives signs of life, and takes over after
it was killed, when its lease ends."""

from __future__ import annotations

import logging
import os
import socket
import time
import uuid
from types import TracebackType
from typing import Self

from rag_cluster.domain.documents import IndexRecord
from rag_cluster.errors import ConflictError, NotFoundError
from rag_cluster.ingestion.heartbeat import Heartbeat
from rag_cluster.ingestion.write_path import WritePath

log = logging.getLogger("rag_cluster.lifecycle")

POLL_SECONDS = 0.5


class IndexLease:
    """`with IndexLease(write_path, record) as lease:` - and `lease.check()` before each thing that counts."""

    def __init__(self, write_path: WritePath, record: IndexRecord) -> None:
        self._write_path, self._record = write_path, record
        self.owner = f"{socket.gethostname()}, process {os.getpid()}, {uuid.uuid4().hex[:8]}"
        self.lost = False
        """Another job has it by now, or it was dropped."""
        self._heartbeat = Heartbeat(
            self._extend, write_path.lease_seconds, insist=lambda: write_path.retry.call(self._extend)
        )

    def __enter__(self) -> Self:
        """ConflictError when another job is alive that fills this index; waits for the end of a dead one's lease."""
        held = self._claim()
        if held is not None:
            log.info("index %s is held by %s: is it alive?", self._record.collection, held[0])
        while held is not None:
            time.sleep(min(POLL_SECONDS, held[1]))
            now = self._claim()
            if now is not None and (now[0] != held[0] or now[1] > held[1]):  # somebody extended it
                raise ConflictError(
                    f"index {self._record.collection} is being filled by another job ({now[0]}): wait for its end"
                )
            held = now
        self._heartbeat.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._heartbeat.__exit__(kind, error, traceback)
        self._write_path.retry.call(lambda: self._write_path.catalog.release_index(self._record.id, self.owner))

    def check(self) -> None:
        """ConflictError when another job took the index over: this one was silent for longer than its lease."""
        self._heartbeat.check()
        if self.lost:
            raise ConflictError(f"index {self._record.collection} was taken over by another job, or dropped")

    def _claim(self) -> tuple[str, float] | None:
        path = self._write_path
        return path.retry.call(lambda: path.catalog.lease_index(self._record.id, self.owner, path.lease_seconds))

    def _extend(self) -> None:
        catalog, seconds = self._write_path.catalog, self._write_path.lease_seconds
        try:
            held = catalog.lease_index(self._record.id, self.owner, seconds)
        except NotFoundError:  # dropped meanwhile; `check` says so
            self.lost = True
        else:
            self.lost = self.lost or held is not None
