"""What the write path needs from the outside, as ports, and how it meets an outage.

`wiring` builds one `WritePath` per process (driver, actor, upload worker); nothing here knows a vendor. Engines are
given as callables, so that a process loads only what it uses: the driver of a run with nothing to do loads none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from tenacity import RetryCallState, Retrying, before_sleep_log, retry_if_exception_type, wait_exponential

from rag_cluster.domain import ids
from rag_cluster.domain.blocks import DocumentSource, ParsedDocument
from rag_cluster.domain.ports import (
    Catalog,
    Chunker,
    ChunkIndex,
    Embedder,
    InputFiles,
    Ledger,
    MetricSink,
    ObjectStore,
    Outbox,
    SnapshotStore,
    Tokenizer,
    VisionDescriber,
)
from rag_cluster.errors import ExternalServiceError, StoreUnavailableError
from rag_cluster.telemetry import NullMetrics

T = TypeVar("T")
log = logging.getLogger("rag_cluster.ingestion")


class ParserInfo(Protocol):
    """Which parser reads a file; both are part of the content fingerprint."""

    @property
    def name(self) -> str:
        """The parser's name."""
        ...

    @property
    def version(self) -> str:
        """Raised whenever its output changes."""
        ...

    @property
    def recognition(self) -> str:
        """auto | off | force for a parser that can recognise text, else ""."""
        ...

    @property
    def only_recognition(self) -> bool:
        """Without recognition nothing comes out: pictures."""
        ...


class Parser(Protocol):
    """The isolated child, seen from outside: any format, time and memory limited."""

    def parse(self, source: DocumentSource) -> ParsedDocument:
        """Blocks of a local file. A DocumentError subclass when the content is at fault."""
        ...


@dataclass(slots=True)
class Patience:
    """Whether an outage was waited for in vain, in this process: then nobody waits as long again until it is over."""

    spent: bool = False


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounded exponential backoff for outages of stores, models and sources."""

    retries: int = 3
    min_wait: float = 1.0
    max_wait: float = 10.0
    outage_seconds: float = 0.0
    """A store that does not answer is waited for so long, however many retries that takes: everything needs it, so
    that going on with the next document would only fail that too."""
    patience: Patience = field(default_factory=Patience, compare=False)

    def call(self, function: Callable[[], T]) -> T:
        """The function's result. An ExternalServiceError is retried; the last one is raised as it is."""
        attempts = Retrying(
            retry=retry_if_exception_type(ExternalServiceError),
            stop=self._enough,
            wait=wait_exponential(multiplier=self.min_wait, max=self.max_wait),
            before_sleep=before_sleep_log(log, logging.WARNING),
            reraise=True,
        )
        result = attempts(function)
        self.patience.spent = False
        return result

    def _enough(self, state: RetryCallState) -> bool:
        if state.attempt_number <= self.retries:
            return False
        error = state.outcome.exception() if state.outcome else None
        if not isinstance(error, StoreUnavailableError) or self.patience.spent:
            return True
        self.patience.spent = (state.seconds_since_start or 0.0) >= self.outage_seconds
        return self.patience.spent


@dataclass(frozen=True, slots=True)
class Pools:
    """Sizes of the actor pools of a bulk run, fixed for each stage: a fast stage must not starve a slow one."""

    prepare_actors: int = 1
    index_actors: int = 1
    prepare_cpus: float = 0.5
    prepare_gpus: float = 0.0
    index_cpus: float = 0.5
    index_gpus: float = 0.0
    batch_parts: int = 16
    """Parts of one embed call, at most."""
    ocr_actors: int = 1
    ocr_cpus: float = 0.5
    ocr_gpus: float = 0.0
    ocr_gpu: bool = False
    """Recognition may use a GPU; otherwise it sees none."""

    @property
    def cpus(self) -> float:
        """Logical CPUs that preparing and indexing hold while a run goes on."""
        return self.prepare_actors * self.prepare_cpus + self.index_actors * self.index_cpus

    @property
    def gpus(self) -> float:
        """Logical GPUs, likewise."""
        return self.prepare_actors * self.prepare_gpus + self.index_actors * self.index_gpus

    @property
    def for_recognition(self) -> Pools:
        """The same for the execution that recognises: its prepare pool is the OCR pool, and it indexes little."""
        return replace(
            self,
            prepare_actors=self.ocr_actors,
            prepare_cpus=self.ocr_cpus,
            prepare_gpus=self.ocr_gpus,
            index_actors=1,
        )


def _nothing_owed() -> int:
    return 0


@dataclass(frozen=True, slots=True)
class WritePath:
    """Ports and choices of one process of the write path. Not shared between threads that embed or parse."""

    ledger: Ledger
    catalog: Catalog
    outbox: Outbox
    inputs: InputFiles
    objects: ObjectStore
    snapshots: SnapshotStore
    index: ChunkIndex
    parser: Callable[[], Parser]
    """Called for each document: return the same one again, made at the first call."""
    parser_info: Callable[[str], ParserInfo]
    """The parser of a filename. UnsupportedDocumentTypeError when there is none."""
    chunker: Callable[[str | None], Chunker]
    """The chunker of a strategy name; None is the configured default. InvalidSettingError for an unknown one."""
    tokenizer: Tokenizer
    embedder: Callable[[], Embedder]
    """Called for each batch: return the same one again, loaded at the first call."""
    metrics: MetricSink = field(default_factory=NullMetrics)
    lease_seconds: float = 30.0
    retry: RetryPolicy = RetryPolicy()
    max_file_bytes: int = 200 * 1024 * 1024
    pools: Pools = Pools()
    drain: Callable[[], int] = _nothing_owed
    """Carries out what the outbox owes (`lifecycle.outbox.drain`, which this layer cannot import); how many."""
    describer: Callable[[], VisionDescriber] | None = None
    """Called for each document: return the same one again. None describes no pictures."""
    max_described: int = 20
    """Pictures of one document that are described, at most."""
    text_parser: Callable[[], Parser] | None = None
    """A parser that recognises no text and says what awaits it (`ParsedDocument.unrecognized`). With it a bulk run
    has an OCR stage of its own, unless recognition is off. None: `parser` recognises inline."""
    text_first: bool = False
    """Publish a document's text before the rest is recognised (`--ocr deferred`)."""

    def recognizes_only(self, filename: str) -> bool:
        """Whether a file goes straight to the OCR stage, because nothing comes out before it."""
        info = self.parser_info(filename)
        return self.text_parser is not None and info.only_recognition and info.recognition != "off"

    def content_fingerprint(self, filename: str, strategy: str | None) -> str:
        """What decides the chunks of this file's bytes. UnsupportedDocumentTypeError without a parser."""
        parser = self.parser_info(filename)
        chunker = self.chunker(strategy)
        vision = self.describer().name if self.describer is not None else ""
        return ids.content_fingerprint(
            parser=parser.name,
            parser_version=f"{parser.version}/vision-{vision}" if vision else parser.version,
            chunker=chunker.name,
            parameters=chunker.parameters,
            tokenizer=self.tokenizer.name,
            recognition=parser.recognition,
        )


Factory = Callable[[], WritePath]
"""Picklable: called once in each process of the write path."""
