"""What the ingestion benchmark puts in place of stores, and how it sees where a run's time goes."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
import psutil

from rag_cluster.domain import ids
from rag_cluster.domain.chunks import IndexRow
from rag_cluster.domain.documents import IndexRecord, SourceFile
from rag_cluster.engines.tokenizers import RegexTokenizer
from rag_cluster.errors import IndexMismatchError, NotFoundError
from rag_cluster.ingestion.write_path import WritePath
from rag_cluster.settings import Settings
from rag_cluster.stores.fakes import MemoryChunkIndex
from rag_cluster.telemetry import CHUNKS_TOTAL, STAGE_SECONDS
from rag_cluster.wiring import ServiceFactory

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Matrix, Tokenizer

SAMPLE_SECONDS = 0.2
SAMPLES_PER_SEARCH = 25


@dataclass(frozen=True)
class MeasuredFactory:
    """A `WritePathFactory` whose stages are logged below `log`; with `fake_index`, rows are checked and dropped."""

    settings: Settings
    log: str
    fake_index: bool

    def __call__(self) -> WritePath:
        """The process's write path."""
        write_path = replace(ServiceFactory(self.settings)().write_path(), metrics=StageLog(self.log))
        return replace(write_path, index=DroppingIndex()) if self.fake_index else write_path


class FreeEmbedder:
    """An `Embedder` that costs nothing: every text is the first basis vector."""

    dimension = 384
    max_tokens = 512
    fingerprint = ids.fingerprint(model="free", dimension=dimension)

    def __init__(self, *, threads: int = 1, batch_size: int = 1) -> None:
        self.tokenizer: Tokenizer = RegexTokenizer()

    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """float32 (len(texts), 384), unit norm."""
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        vectors[:, 0] = 1.0
        return vectors

    def embed_queries(self, texts: Sequence[str]) -> Matrix:
        """The same."""
        return self.embed_documents(texts)


FREE_EMBEDDER = f"{FreeEmbedder.__module__}:{FreeEmbedder.__name__}"
"""As RAG_EMBEDDER names it."""


class DroppingIndex(MemoryChunkIndex):
    """A `ChunkIndex` that costs nothing: it looks at the shapes, and forgets."""

    def __init__(self) -> None:
        super().__init__()
        self._dimension = 0

    def exists(self, collection: str) -> bool:
        """Always: there is nothing to forget."""
        return True

    def ensure(self, index: IndexRecord) -> None:
        """Remember the dimension."""
        self._dimension = index.dimension

    def upsert(self, collection: str, rows: Sequence[IndexRow], vectors: Matrix) -> None:
        """IndexMismatchError for another shape."""
        if vectors.shape != (len(rows), self._dimension):
            raise IndexMismatchError(f"{collection} takes ({len(rows)}, {self._dimension}), not {vectors.shape}")


class SimulatedListing:
    """`InputFiles` of so many S3 objects that nobody has, as a listing of a bucket would give them."""

    def __init__(self, count: int) -> None:
        self._count = count

    def list(self, location: str) -> Iterator[SourceFile]:
        """Keys in order, a thousand to a folder."""
        for number in range(self._count):
            name = f"{number:07}.md"
            yield SourceFile(f"{location}/{number // 1000:04}/{name}", name, 4000 + number % 997, f"{number:032x}")

    def covers(self, location: str) -> Callable[[str], bool]:
        """Whether a URI is below the location."""
        return lambda uri: uri.startswith(f"{location}/")

    def fetch(self, uri: str, path: str) -> tuple[str, int]:
        """There is nothing to copy."""
        raise NotFoundError(f"{uri} is simulated")


class StageLog:
    """A MetricSink that appends to one file for each process: stages with wall and CPU time of their thread, and
    chunks as they are written, each with the time of day."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._descriptor = -1
        self._own = threading.local()

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Log a stage that ended."""
        if name == STAGE_SECONDS:
            now = time.thread_time()
            used, self._own.cpu = now - getattr(self._own, "cpu", now), now
            self._append(labels["stage"], value, min(used, value))

    def count(self, name: str, value: float = 1.0, **labels: str) -> None:
        """Log chunks that were written."""
        if name == CHUNKS_TOTAL:
            self._append("+chunks", value, 0.0)

    def _append(self, what: str, value: float, cpu: float) -> None:
        if self._descriptor < 0:
            path = Path(self._folder) / f"{os.getpid()}.stages"
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        # One small write: it survives the actor, which Ray ends without a word.
        os.write(self._descriptor, f"{time.time():.6f} {what} {value:.9f} {cpu:.9f}\n".encode())


@dataclass(frozen=True, slots=True)
class StageTime:
    """One stage over a run: how often, wall and CPU seconds of the threads that did it."""

    stage: str
    count: int
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class RunLog:
    """What the stage files of one run say. The window reaches from the first stage that ended in an index actor to
    the last chunk written: what a run does when it is warm, without the start of actors."""

    stages: list[StageTime]
    begun: float
    ended: float
    """Seconds of the day clock."""


def read_log(folder: Path) -> RunLog:
    """All stage files below a folder, a line at a time: they are read in the process whose memory is measured."""
    totals: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    begun, written = float("inf"), 0.0
    for path in folder.glob("*.stages"):
        with path.open() as lines:
            for line in lines:
                at, what, value, cpu = line.split()
                if what == "+chunks":
                    written = max(written, float(at))
                    continue
                if what == "read":
                    begun = min(begun, float(at))
                total = totals[what]
                total[0] += 1
                total[1] += float(value)
                total[2] += float(cpu)
    begun = begun if begun < float("inf") else 0.0
    stages = [StageTime(what, int(n), wall, cpu) for what, (n, wall, cpu) in totals.items()]
    return RunLog(stages, begun, written or begun)


class ProcessTimes:
    """CPU seconds of this process, everything that it started, and the servers of a data directory, by kind.

    Sampled, since actors end without their parent hearing of it: the last fifth of a second of each may be missing, and
    a process that lives for less than five seconds.
    """

    def __init__(self, servers: Sequence[psutil.Process]) -> None:
        self._servers = servers
        self._last: dict[tuple[int, float], tuple[str, float]] = {}
        self._found: dict[int, tuple[psutil.Process, str]] = {}
        self._samples: list[tuple[float, dict[str, float]]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._sample()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._sample()

    def seconds(self, begun: float, ended: float) -> dict[str, float]:
        """CPU seconds between two times of day, by kind of process, most first."""
        before = self._samples[0][1]
        for at, totals in self._samples:
            if at <= begun:
                before = totals
            after = totals
            if at >= ended:
                break
        spent = {kind: used - before.get(kind, 0.0) for kind, used in after.items()}
        return dict(sorted(spent.items(), key=lambda item: -item[1]))

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self._sample()

    def _sample(self) -> None:
        """Looking for processes reads all of /proc, which is no part of what is measured: only every few samples."""
        if len(self._samples) % SAMPLES_PER_SEARCH == 0:
            self._search()
        for process, kind in list(self._found.values()):
            try:
                used = process.cpu_times()
                self._last[process.pid, process.create_time()] = (kind, used.user + used.system)
            except psutil.Error:
                del self._found[process.pid]
        totals: dict[str, float] = defaultdict(float)
        for kind, seconds in self._last.values():
            totals[kind] += seconds
        self._samples.append((time.time(), totals))

    def _search(self) -> None:
        own = psutil.Process()
        for root in [own, *self._servers]:
            with contextlib.suppress(psutil.Error):
                for process in [root, *root.children(recursive=True)]:
                    # A worker gets its name when its actor starts: looked at again each time.
                    kind = "driver" if process.pid == own.pid else _kind(process)
                    self._found[process.pid] = (process, kind)


def _kind(process: psutil.Process) -> str:
    line = " ".join(process.cmdline())
    for mark, kind in _KINDS:
        if mark in line:
            return kind
    return "ray, other"


_KINDS = (
    ("PrepareActor", "prepare actors"),
    ("IndexActor", "index actors"),
    ("parsing.child", "parse child"),
    ("milvus", "Milvus Lite"),
    ("postgres", "PostgreSQL"),
    ("raylet", "raylet"),
    ("gcs_server", "gcs"),
)
