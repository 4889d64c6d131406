"""Building another index beside the active one, from snapshots, and switching to it.

    register (building) -> fill what is missing, again and again -> compare -> switch, if nothing is missing

`index_parts` in PostgreSQL says which parts an index holds. The active index is written by ingestion; every other one
by this job alone, which is killed and run again at will: what is held is not embedded again. Deletes and access
changes reach every index through the outbox. A version published meanwhile is simply missing until the next pass; the
switch looks for missing parts in a transaction in which nothing can be published, and has the last few filled in.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from rag_cluster.domain.chunks import MissingPart
from rag_cluster.domain.documents import IndexRecord, Receipt
from rag_cluster.domain.ports import Catalog
from rag_cluster.errors import ModelUnavailableError
from rag_cluster.ingestion import steps
from rag_cluster.ingestion.progress import RunProgress
from rag_cluster.ingestion.rows import PreparedPart
from rag_cluster.ingestion.write_path import WritePath
from rag_cluster.lifecycle.index_lease import IndexLease
from rag_cluster.lifecycle.recall import Comparison

log = logging.getLogger("rag_cluster.lifecycle")

WAVE = 10_000
"""Parts of one stream, which starts its actors anew; all that the driver holds."""
LOCAL_CHUNKS = 256
"""So few are embedded in the driver: actors take longer to start."""
SWITCH_ATTEMPTS = 20
GIVE_UP = 20
"""So many failures in a row, without one success before, are an outage and not the parts' fault."""
KEPT_FAILURES = 100


@dataclass(frozen=True, slots=True)
class ReembedOptions:
    """A job's choices."""

    switch: bool = True
    """False: build and compare only."""
    max_loss: float = 0.02
    """By how much Recall@k or MRR may be worse, in any mode, for a switch."""
    force: bool = False
    """Switch although it is worse by more."""
    progress: bool = True


@dataclass
class ReembedReport:
    """What a job did."""

    collection: str
    outcome: str = ""
    """switched | built (complete, not switched) | active (there was nothing to switch) | refused (worse) | incomplete
    (parts failed, or more was published than could be filled in)."""
    chunks: int = 0
    """Embedded by this job."""
    tokens: int = 0
    missing: int = 0
    """Parts that the index lacks still."""
    failed: int = 0
    """Parts that failed in the last pass."""
    failures: list[Receipt] = field(default_factory=list)
    """The first `KEPT_FAILURES` of them."""
    comparison: Comparison | None = None
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the job did what it was asked for."""
        return self.outcome in ("switched", "built", "active")

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        comparison = None if self.comparison is None else self.comparison.to_dict()
        return {**asdict(self), "comparison": comparison, "ok": self.ok, "seconds": round(self.seconds, 3)}


Compare = Callable[[IndexRecord, IndexRecord], Comparison]
"""(active index, new index) -> how both do on the question set."""


def register(write_path: WritePath) -> IndexRecord:
    """The index of the write path's embedder and its collection, made when they are not there. ConflictError while it
    is being dropped."""
    embedder, retry = write_path.embedder(), write_path.retry
    record = retry.call(lambda: write_path.catalog.ensure_index(embedder.fingerprint, embedder.dimension))
    steps.ensure_collection(write_path, record)
    return record


def reembed(
    write_path: WritePath,
    record: IndexRecord,
    stream: steps.FillStream,
    options: ReembedOptions = ReembedOptions(),
    compare: Compare | None = None,
) -> ReembedReport:
    """Fill an index with all that queries see, compare it with the active one, and switch to it.

    write_path: with the index's embedder. record: by `register`. stream: fills a wave of parts
    (`ingestion.pipeline.fill_stream`). A part that fails is a row of the report and keeps the index from being
    switched to; an outage that outlasts the retries is raised, and so is KeyboardInterrupt: the next job goes on.
    ConflictError while another job fills this index.
    """
    return _Job(write_path, record, stream, options).run(compare)


class _Job:
    def __init__(
        self, write_path: WritePath, record: IndexRecord, stream: steps.FillStream, options: ReembedOptions
    ) -> None:
        self._write_path, self._record, self._stream, self._options = write_path, record, stream, options
        self._catalog: Catalog = write_path.catalog
        self._retry = write_path.retry.call
        self._report = ReembedReport(record.collection)
        self._written = 0
        """Parts of the pass in hand that did not fail."""

    def run(self, compare: Compare | None) -> ReembedReport:
        started = time.perf_counter()
        self._write_path.drain()
        with (
            IndexLease(self._write_path, self._record) as self._lease,
            RunProgress(
                "re-embedding", lambda _: None, terminal=None if self._options.progress else False
            ) as self._progress,
        ):
            self._catch_up()
            self._report.outcome = self._settle(compare)
        self._write_path.drain()
        self._report.missing = self._retry(partial(self._catalog.count_missing, self._record.id))[0]
        self._report.seconds = time.perf_counter() - started
        return self._report

    def _settle(self, compare: Compare | None) -> str:
        """Compare and switch; the outcome."""
        self._retry(lambda: self._write_path.index.flush(self._record.collection))
        active = next(record for record in self._retry(self._catalog.indexes) if record.state == "active")
        if active.id == self._record.id:
            return "active"
        if self._report.failed:
            return "incomplete"
        if compare is not None:
            self._report.comparison = comparison = compare(active, self._record)
            if comparison.loss > self._options.max_loss and not self._options.force:
                return "refused"
        if not self._options.switch:
            return "built"
        return "switched" if self._switch() else "incomplete"

    def _switch(self) -> bool:
        self._lease.check()
        # At first without this process's engine: where nothing is published meanwhile it need not be loaded.
        if not self._retry(partial(self._catalog.switch_index, self._record.id)):
            return True
        for _ in range(SWITCH_ATTEMPTS):
            self._catch_up()
            if self._report.failed:
                return False
            if not self._retry(partial(self._catalog.switch_index, self._record.id, self._fill_here)):
                return True
        return False

    def _catch_up(self) -> None:
        """Fill until nothing is missing but what failed."""
        while True:
            parts, chunks = self._retry(partial(self._catalog.count_missing, self._record.id))
            if not parts or parts <= self._report.failed:
                return
            self._report.failed = self._written = 0
            self._report.failures.clear()
            stream = self._stream if chunks > LOCAL_CHUNKS else self._here
            done = 0
            for wave in self._waves():
                for row in stream(steps.from_snapshots(wave)):
                    self._account(row)
                    done += 1
                    counts = {"embedded_chunks": self._report.chunks, "failed": self._report.failed, "listed": done}
                    self._progress.update(counts, parts)
            log.info("pass over", extra={"parts": done, "failed": self._report.failed, "chunks": self._report.chunks})

    def _account(self, row: steps.Filled) -> None:
        self._lease.check()
        report = self._report
        if isinstance(row, Receipt):
            report.failed += 1
            if len(report.failures) < KEPT_FAILURES:
                report.failures.append(row)
            if report.failed == GIVE_UP and not self._written:
                raise ModelUnavailableError(f"every part fails, the last one with {row.error_type}: {row.message}")
        else:
            self._written += 1
            report.chunks += row.chunks
            report.tokens += row.tokens

    def _waves(self) -> Iterator[list[MissingPart]]:
        after = None
        while wave := self._retry(partial(self._catalog.missing_parts, self._record.id, after, WAVE)):
            yield wave
            after = wave[-1].part

    def _here(self, parts: Sequence[PreparedPart]) -> Iterator[steps.Filled]:
        for batch in steps.batches(parts, self._write_path.pools.batch_parts):
            yield from steps.fill(self._write_path, self._record, batch)

    def _fill_here(self, missing: Sequence[MissingPart]) -> None:
        """The last few, while publishing waits."""
        for row in self._here(steps.from_snapshots(missing)):
            self._account(row)
