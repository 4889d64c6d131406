"""One bulk run as its driver sees it: plan, waves, receipts, the run row. Knows no Ray: `pipeline` gives it the stream.

A wave bounds what the driver keeps: the documents that still lack a receipt. Whatever a wave does not account for (a
document that another owner held, a worker lost with its results) is tried again in a last wave.
"""

from __future__ import annotations

import itertools
import logging
import math
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rag_cluster.domain.access import AccessAttributes
from rag_cluster.domain.documents import PlanAction, PlannedFile, Receipt, RunStatus
from rag_cluster.errors import ExternalServiceError, StoreUnavailableError
from rag_cluster.ingestion.heartbeat import Heartbeat
from rag_cluster.ingestion.listing import EXCLUDED, Patterns
from rag_cluster.ingestion.manifest import ManifestWriter, read_manifest
from rag_cluster.ingestion.plan import PlanOptions, plan
from rag_cluster.ingestion.progress import RunProgress
from rag_cluster.ingestion.recognition import Recognition
from rag_cluster.ingestion.report import IngestionReport, Tally, unsupported_line
from rag_cluster.ingestion.rows import AwaitingRecognition, PartDone, Row, StagesDone
from rag_cluster.ingestion.stage_times import StageSpan
from rag_cluster.ingestion.sync import Sync
from rag_cluster.ingestion.write_path import RetryPolicy, WritePath
from rag_cluster.telemetry import log_level

log = logging.getLogger("rag_cluster.ingestion")

WAVE = 10_000
"""Documents of one stream, which starts its actors anew: about 15 MB of the driver."""
LOST_LEASES = 3.0
"""A run without a heartbeat for so many leases has lost its driver."""
BUSY_LEASES = 1.5
"""Wait this many leases for another owner's claims to lapse before its documents are reported busy."""
OUTAGE_FAILURES = 20
"""Documents that fail one after the other by an outage end the run."""
KEPT_RECEIPTS = 200
"""Failed, skipped and busy receipts held back for one write."""

PROGRESS_ROWS = 1000


@dataclass(frozen=True, slots=True)
class IngestionOptions:
    """A run's choices."""

    access: AccessAttributes | None = None
    """Of every document. None: a document keeps what it has; a new one follows its knowledge base's default."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    source: str = "bulk"
    chunking_strategy: str | None = None
    """None: the source's default, else the settings'."""
    retry_failed: bool = False
    verify_content: bool = False
    manifests: tuple[str, ...] = ()
    """Locations of user manifests (`user_manifest`), besides the inputs."""
    patterns: Patterns = Patterns()
    reference: bool = False
    """Originals stay where they lie: of what this run prepares no copies are made."""
    sync: bool = False
    """Delete the source's documents that the inputs cover and no longer hold."""
    time_limit: float = 0.0
    """Seconds after which the run ends as if it were cancelled: what is done stays, the next run goes on. 0: none."""
    progress: bool = True
    """Show a bar on a terminal."""

    def plan(self, strategy: str | None) -> PlanOptions:
        """What of this decides what is to do. strategy: the run's or its source's."""
        return PlanOptions(
            access=self.access,
            metadata=self.metadata,
            chunking_strategy=strategy,
            retry_failed=self.retry_failed,
            verify_content=self.verify_content,
            manifests=self.manifests,
            patterns=self.patterns,
            reference=self.reference,
        )

    def to_dict(self) -> dict[str, Any]:
        """As kept with the run."""
        access = self.access
        return {
            "access": access
            and {
                "acl": None if access.acl is None else list(access.acl),
                "department": access.department,
                "security_level": access.security_level,
            },
            "metadata": dict(self.metadata),
            "source": self.source,
            "chunking_strategy": self.chunking_strategy,
            "retry_failed": self.retry_failed,
            "verify_content": self.verify_content,
            "manifests": list(self.manifests),
            "include": list(self.patterns.include),
            "exclude": list(self.patterns.exclude),
            "reference": self.reference,
            "sync": self.sync,
            "time_limit": self.time_limit,
        }


@dataclass(frozen=True, slots=True)
class RunContext:
    """What every worker of a run knows."""

    run_id: str
    """Also the owner of the run's claims."""
    knowledge_base_id: str
    source_id: str
    strategy: str | None
    retry: RetryPolicy = RetryPolicy()
    """How an actor that starts during an outage meets it."""
    log_level: str = field(default_factory=log_level)
    """Of its workers: the driver's."""


Stream = Callable[[Sequence[PlannedFile]], Iterator[Row]]
"""Prepares and indexes one wave of documents; yields PartDone, AwaitingRecognition and Receipt rows as they come."""


@dataclass(frozen=True, slots=True)
class Stages:
    """What a run's waves go through."""

    text: Stream
    """Everything; what needs recognition comes back as AwaitingRecognition."""
    recognition: Stream
    """The OCR stage."""
    beside: Callable[[], bool]
    """Whether there is room for recognition beside the text."""


class Run:
    """State of one run: counters, a manifest on disk, one wave of ids; nothing that grows with the corpus."""

    def __init__(self, write_path: WritePath, context: RunContext, options: IngestionOptions, stages: Stages) -> None:
        self.tally = Tally()
        self._write_path = write_path
        self._context = context
        self._options = options
        self._stages = stages
        self._recognition = Recognition(self._recognize, stages.beside)
        self._lock = threading.RLock()
        """Around what a row changes: recognition beside the text has a thread of its own."""
        self._kept: list[Receipt] = []
        self._progress = RunProgress("ingesting", self._store_counts, terminal=None if options.progress else False)
        self._total: int | None = None
        lease = write_path.lease_seconds
        self._heartbeat = Heartbeat(
            lambda: write_path.ledger.extend(context.run_id, lease),
            lease,
            lambda: write_path.ledger.cancel_requested(context.run_id) or self._out_of_time(),
            insist=lambda: write_path.retry.call(lambda: write_path.ledger.extend(context.run_id, lease)),
        )
        self._ends_at = time.monotonic() + options.time_limit if options.time_limit else math.inf
        self._store_failures = 0
        """Documents that failed by an outage, one after the other."""
        self._met_others = False
        """Whether another owner held a document."""

    @property
    def cancelled(self) -> str | None:
        """Why the run is to end: somebody asked for it, from any machine, or its time is over."""
        if not self._heartbeat.cancelled:
            return None
        return f"its {self._options.time_limit:g} s are over" if self._out_of_time() else "cancelled by request"

    def _out_of_time(self) -> bool:
        return time.monotonic() > self._ends_at

    def execute(self, inputs: Sequence[str]) -> None:
        """Plan, then process what there is to do. What the outbox owes is carried out before and after."""
        with self._heartbeat:
            self._end_lost_runs()
            self._drain()
            self._bring_up_to_date(inputs)
            self._drain()

    def _drain(self) -> None:
        self._write_path.retry.call(self._write_path.drain)

    def _bring_up_to_date(self, inputs: Sequence[str]) -> None:
        directory_ = tempfile.TemporaryDirectory(prefix="rag-cluster-run-")
        with directory_ as directory, self._progress, self._recognition:
            path = str(Path(directory) / "manifest.parquet")
            sync = self._sync(inputs) if self._options.sync else None
            planned = self._timed_plan(inputs, path, sync)
            if self.tally.unsupported:
                self._progress.say(unsupported_line(self.tally.unsupported))
            if planned:
                self._total = self.tally.listed + planned
                self._process(path)
            for receipt in sync.remove() if sync is not None else ():
                self._settle(receipt)

    def _end_lost_runs(self) -> None:
        ledger, seconds = self._write_path.ledger, LOST_LEASES * self._write_path.lease_seconds
        base = self._context.knowledge_base_id
        for run_id in self._write_path.retry.call(lambda: ledger.end_lost_runs(base, seconds)):
            log.warning("run %s was lost by its driver; this run goes on from there", run_id)

    def _sync(self, inputs: Sequence[str]) -> Sync:
        context, manifests = self._context, self._options.manifests
        base, source = context.knowledge_base_id, context.source_id
        return Sync(self._write_path, base, source, inputs, manifests, run_id=context.run_id)

    def _timed_plan(self, inputs: Sequence[str], path: str, sync: Sync | None) -> int:
        begun = time.time()
        planned = self._plan(inputs, path, sync)
        ended = time.time()
        self.tally.timeline.add([StageSpan("plan", begun, ended, ended - begun, self.tally.listed + planned)])
        return planned

    def _plan(self, inputs: Sequence[str], path: str, sync: Sync | None) -> int:
        choices = self._options.plan(self._context.strategy)
        with ManifestWriter(path) as writer:
            for number, item in enumerate(plan(self._write_path, self._context.knowledge_base_id, inputs, choices)):
                if sync is not None:
                    sync.note(item)
                if isinstance(item, Receipt):
                    self._settle(item)
                else:
                    writer.add(item)
                if number % PROGRESS_ROWS == 0:
                    self._progress.update(self._counts(), None)
            return writer.count

    def _process(self, path: str) -> None:
        started = time.monotonic()
        planned, left = read_manifest(path), list[PlannedFile]()
        while wave := list(itertools.islice(planned, WAVE)):
            left += self._wave(wave)
            wave.clear()  # before the next one is read
            for item in left[WAVE:]:  # a whole wave waits already: another run works on the same corpus
                self._settle(_receipt(item, "busy", "claimed by another owner"))
            del left[WAVE:]
        if any(self._recognition.counts().values()):
            self._flush_index()  # the text is there to be searched while the rest is recognised
        left += self._recognition.finish()
        if left:
            if self._met_others:
                self._await_lapse(started)
            for item in self._wave(left, last=True) + self._recognition.finish(last=True):
                self._settle(_receipt(item, "failed", "no result came back from the workers; run again"))
        self._flush_index()

    def _wave(self, wave: Iterable[PlannedFile], *, last: bool = False) -> list[PlannedFile]:
        """Process one wave; gives back what it could not settle yet."""
        open_: dict[str, PlannedFile] = {}
        for item in wave:
            if item.document_id in open_:
                self._settle(_receipt(item, "skipped", "listed twice"))
            else:
                open_[item.document_id] = item
        for item in [item for item in open_.values() if item.action is PlanAction.RECOGNIZE]:
            self._recognition.add(open_.pop(item.document_id))
        busy: list[PlannedFile] = []
        for row in self._stages.text(list(open_.values())) if open_ else ():
            busy += self._account(row, open_, last=last)
            self._recognition.poll()
        return busy + list(open_.values())  # the latter were lost together with a worker

    def _recognize(self, batch: list[PlannedFile], last: bool) -> list[PlannedFile]:
        """One batch through the OCR stage; gives back what it could not settle yet."""
        open_ = {item.document_id: item for item in batch}
        busy: list[PlannedFile] = []
        for row in self._stages.recognition(list(open_.values())):
            if self._recognition.stopped:
                return []
            busy += self._account(row, open_, last=last)
            if isinstance(row, Receipt | AwaitingRecognition):
                self._recognition.done(row.document_id)
        return busy + list(open_.values())

    def _account(self, row: Row, open_: dict[str, PlannedFile], *, last: bool) -> list[PlannedFile]:
        """Take one row in; the document that is to be tried again later."""
        with self._lock:
            again: list[PlannedFile] = []
            if isinstance(row, StagesDone):
                self.tally.timeline.add(row.spans())
            elif isinstance(row, PartDone):
                self.tally.embedded_chunks += row.chunks
            elif isinstance(row, AwaitingRecognition) and row.document_id in open_:
                self.tally.bytes_read += row.bytes
                item = replace(open_.pop(row.document_id), action=PlanAction.RECOGNIZE)
                self._recognition.add(item, row.pages)
            elif isinstance(row, Receipt) and row.document_id in open_:
                item = open_.pop(row.document_id)
                if row.outcome == "busy" and not last:
                    again.append(item)
                    self._met_others = True
                else:
                    self._settle(row)
                    self._watch_stores(row)
            self._heartbeat.check()
            self._progress.update(self._counts(), self._total)
            return again

    def _watch_stores(self, receipt: Receipt) -> None:
        """What outlasts the waiting is no document's fault: the run ends before it has failed them all."""
        failed = receipt.outcome == "failed" and receipt.error_type == StoreUnavailableError.type
        self._store_failures = self._store_failures + 1 if failed else 0
        if self._store_failures >= OUTAGE_FAILURES:
            many = f"{OUTAGE_FAILURES} documents in a row failed by an outage"
            raise StoreUnavailableError(f"{many}; run again when it is over: {receipt.message}")

    def _counts(self) -> dict[str, int]:
        return self.tally.counts() | self._recognition.counts()

    def _await_lapse(self, started: float) -> None:
        lapse = started + BUSY_LEASES * self._write_path.lease_seconds
        log.info("waiting for another owner's claims to lapse")
        while (wait := lapse - time.monotonic()) > 0:
            time.sleep(min(wait, 0.5))

    def _settle(self, receipt: Receipt) -> None:
        self.tally.add(receipt)
        log.debug("%s: %s", receipt.outcome, receipt.uri, extra={"document_id": receipt.document_id})
        if receipt.outcome in ("failed", "skipped", "busy"):
            level = logging.ERROR if receipt.outcome == "failed" else logging.INFO
            fields = {name: getattr(receipt, name) for name in ("uri", "document_id", "stage", "error_type")}
            log.log(level, "%s: %s", receipt.outcome, receipt.message, extra=fields)
            if receipt.error_type != EXCLUDED:  # counted; a person asked for it, and it may be a million
                self._kept.append(receipt)
            if len(self._kept) >= KEPT_RECEIPTS:
                self._store_receipts()

    def _store_receipts(self) -> None:
        kept, self._kept = self._kept, []
        if kept:
            self._write_path.retry.call(lambda: self._write_path.ledger.record_receipts(self._context.run_id, kept))

    def _store_counts(self, counts: Mapping[str, int]) -> None:
        self._write_path.retry.call(lambda: self._write_path.ledger.update_run(self._context.run_id, counts))

    def _flush_index(self) -> None:
        for record in self._write_path.catalog.indexes():
            self._write_path.retry.call(partial(self._write_path.index.flush, record.collection))

    def close(self, report: IngestionReport) -> None:
        """Give every claim back and write the run's end."""
        ledger, run_id, retry = self._write_path.ledger, self._context.run_id, self._write_path.retry
        try:
            self._store_receipts()
            retry.call(lambda: ledger.release(run_id))
            kept = report.to_dict()
            retry.call(lambda: ledger.finish_run(run_id, report.status, self._counts(), report.error_message, kept))
        except ExternalServiceError as error:
            # The claims lapse with their lease; the error that ended the run matters more than this one.
            log.warning("the run's end was not written: %s", error.message)
            if report.status is RunStatus.SUCCEEDED:
                raise


def _receipt(item: PlannedFile, outcome: str, message: str) -> Receipt:
    error_type = {"failed": "internal_error", "skipped": "listed_twice"}.get(outcome)
    return Receipt(item.file.uri, item.document_id, outcome, stage="pipeline", error_type=error_type, message=message)
