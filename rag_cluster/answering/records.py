"""The audit trail: one row per retrieval and answer, whatever became of it (seed 003)."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from rag_cluster import telemetry
from rag_cluster.domain.access import Principal
from rag_cluster.domain.answers import RetrievalRecord
from rag_cluster.domain.deadlines import Deadline
from rag_cluster.domain.ports import Conversations
from rag_cluster.domain.retrieval import RetrievalOptions, RetrievalResult, RetrievalRun
from rag_cluster.errors import RagClusterError, told

log = logging.getLogger(__name__)

WRITE_SECONDS = 2.0
"""An answer waits for its row this long, at most, and not beyond its deadline."""
LATE_SECONDS = 0.05
"""What is past its deadline waits so long."""


@dataclass(slots=True)
class Audited:
    """What the row will say, filled in while the request runs."""

    outcome: str = ""
    run: RetrievalRun | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


class AuditTrail:
    """Writes rows in tasks of their own, so that neither a disconnect nor a failing database touches the answer."""

    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations
        self._writing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def audit(
        self,
        principal: Principal,
        knowledge_base_id: str,
        query: str,
        options: RetrievalOptions,
        request_id: str,
        deadline: Deadline | None = None,
    ) -> AsyncIterator[Audited]:
        """Record the block's outcome: what it set, else "failed" on an error and "disconnected" on cancellation."""
        audited, started = Audited(), time.perf_counter()
        try:
            yield audited
        except (asyncio.CancelledError, GeneratorExit):
            audited.outcome = audited.outcome or "disconnected"
            raise
        except Exception as error:
            audited.outcome = "failed"
            audited.metadata["error_type"] = error.type if isinstance(error, RagClusterError) else type(error).__name__
            audited.metadata["error_message"] = told(error)
            raise
        finally:
            record = RetrievalRecord(
                request_id=request_id or telemetry.trace_id.get() or telemetry.new_trace_id(),
                principal=principal.name,
                knowledge_base_id=knowledge_base_id,
                query=query,
                options=dataclasses.asdict(options),
                trace=dataclasses.asdict(audited.run.trace) if audited.run is not None else {},
                results=tuple(map(_summary, audited.run.results)) if audited.run is not None else (),
                outcome=audited.outcome or "disconnected",
                milliseconds=round((time.perf_counter() - started) * 1000, 3),
                metadata=audited.metadata,
            )
            await self._write(record, deadline)

    async def _write(self, record: RetrievalRecord, deadline: Deadline | None) -> None:
        task = asyncio.ensure_future(self._store(record))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        # A database that hangs does not hold the answer back: the row is then written, or given up, behind it.
        left = WRITE_SECONDS if deadline is None else deadline.at - asyncio.get_running_loop().time()
        await asyncio.wait({task}, timeout=min(WRITE_SECONDS, max(left, LATE_SECONDS)))

    async def _store(self, record: RetrievalRecord) -> None:
        try:
            await self._conversations.record(record)
        except Exception:  # becomes a log line: the answer stands without its row
            log.warning("the retrieval record was not stored", exc_info=True, extra={"request_id": record.request_id})


def _summary(result: RetrievalResult) -> dict[str, Any]:
    """Identity and scores of a result; its text is in PostgreSQL already."""
    return {
        "chunk_id": result.chunk_id,
        "document_id": result.document_id,
        "version": result.version,
        "filename": result.filename,
        "score": result.score,
        "dense_score": result.dense_score,
        "sparse_score": result.sparse_score,
        "fusion_score": result.fusion_score,
        "rerank_score": result.rerank_score,
        "retrieval_sources": list(result.retrieval_sources),
        "locator": result.locator.to_dict(),
    }
