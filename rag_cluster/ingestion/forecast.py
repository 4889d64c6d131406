"""What a run would do, without doing it: counts and bytes by file type, and from a sample hours, failures and size.

plan (dry) -> counts by type -> N files drawn at random -> fetch, parse, chunk, embed here -> scaled to the whole
"""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from rag_cluster.domain.blocks import DocumentSource
from rag_cluster.domain.documents import PlanAction, PlannedFile, Receipt
from rag_cluster.errors import EmptyDocumentError, RagClusterError
from rag_cluster.ingestion.plan import PlanOptions, plan
from rag_cluster.ingestion.report import count_unsupported, readable, unsupported_line
from rag_cluster.ingestion.sync import Sync
from rag_cluster.ingestion.write_path import WritePath

EMBEDDED_CHUNKS = 64
"""Chunks of one sampled document that are embedded, at most: enough to know the speed."""
KEPT_PROBLEMS = 20
Z = 1.96
"""Of a 95 % interval."""


@dataclass(slots=True)
class TypeCount:
    """Files of one extension."""

    extension: str
    outcomes: Counter[str] = field(default_factory=Counter)
    """to_do | unchanged | attributes | skipped | failed, and of `--sync` removed -> files."""
    bytes_to_do: int = 0


@dataclass(slots=True)
class Sample:
    """What the sampled files cost, measured in this process."""

    documents: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    """By stable error type."""
    bytes: int = 0
    prepare_seconds: float = 0.0
    chunks: int = 0
    text_bytes: int = 0
    tokens: int = 0
    embedded_tokens: int = 0
    embed_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """The sample scaled by bytes to everything that is to do."""

    hours: float
    """With the configured pools: the slower of the two stages, which overlap."""
    prepare_hours: float
    embed_hours: float
    chunks: int
    tokens: int
    index_bytes: int
    """Vectors and texts; what the index adds to them depends on its type."""
    failed_share: tuple[float, float, float]
    """(low, estimate, high), 95 % Wilson interval."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """A dry run's result."""

    types: tuple[TypeCount, ...]
    problems: tuple[Receipt, ...]
    """The first inputs that would fail or be skipped."""
    sample: Sample | None = None
    estimate: Estimate | None = None
    unsupported: Mapping[str, int] = field(default_factory=dict)
    """By extension, of files that no parser reads."""

    @property
    def to_do(self) -> int:
        """Files that a run would prepare or index."""
        return sum(count.outcomes["to_do"] for count in self.types)

    @property
    def bytes_to_do(self) -> int:
        """Their bytes, as listed."""
        return sum(count.bytes_to_do for count in self.types)

    @property
    def to_remove(self) -> int:
        """Documents that `--sync` would delete."""
        return sum(count.outcomes["removed"] for count in self.types)

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "to_do": self.to_do,
            "bytes_to_do": self.bytes_to_do,
            "to_remove": self.to_remove,
            "types": [
                {"extension": count.extension, "bytes_to_do": count.bytes_to_do, **count.outcomes}
                for count in self.types
            ],
            "unsupported": dict(self.unsupported),
            "problems": [asdict(problem) for problem in self.problems],
            "sample": self.sample and asdict(self.sample),
            "estimate": self.estimate and asdict(self.estimate),
        }

    def print(self, console: Console) -> None:
        """Tables for a person."""
        removed = f", {self.to_remove} documents to remove" if self.to_remove else ""
        console.print(f"dry run: {self.to_do} files to do, {_size(self.bytes_to_do)}{removed}; nothing was changed")
        console.print(self._types_table())
        if self.unsupported:
            console.print(unsupported_line(self.unsupported), markup=False, highlight=False, soft_wrap=True)
        for receipt in self.problems:
            line = f"  {receipt.outcome} {readable(receipt.uri)}: {receipt.error_type}: {receipt.message}"
            console.print(line, markup=False, emoji=False, highlight=False, soft_wrap=True)
        if self.estimate is not None and self.sample is not None:
            console.print(self._estimate_table(self.estimate, self.sample))

    def _types_table(self) -> Table:
        columns = ("to_do", "unchanged", "attributes", "skipped", "failed", *(["removed"] if self.to_remove else []))
        table = Table("type")
        for name in (*columns, "size to do"):
            table.add_column(name.replace("_", " "), justify="right")
        for count in self.types:
            cells = (str(count.outcomes[name] or "") for name in columns)
            table.add_row(count.extension or "(none)", *cells, _size(count.bytes_to_do) if count.bytes_to_do else "")
        return table

    def _estimate_table(self, estimate: Estimate, sample: Sample) -> Table:
        low, middle, high = (f"{100 * share:.1f}" for share in estimate.failed_share)
        table = Table(f"forecast from {sample.documents} documents", "", show_header=True)
        kinds = ", ".join(f"{kind} {n}" for kind, n in sample.failures.items())
        for row in (
            ("time with these pools", _duration(estimate.hours)),
            ("  parsing and chunking", _duration(estimate.prepare_hours)),
            ("  embedding", _duration(estimate.embed_hours)),
            ("chunks", f"{estimate.chunks:,} ({estimate.tokens:,} tokens)"),
            ("vectors and texts", _size(estimate.index_bytes)),
            ("documents that fail", f"{middle} % (95 %: {low}-{high} %){': ' + kinds if kinds else ''}"),
        ):
            table.add_row(*row)
        return table


def forecast(
    write_path: WritePath,
    knowledge_base_id: str,
    inputs: Sequence[str],
    options: PlanOptions = PlanOptions(),
    *,
    sample: int = 0,
    sync: Sync | None = None,
    seed: int = 0,
) -> Forecast:
    """Plan without changing anything. sample: files to parse, chunk and embed here, in memory, for an estimate.

    sync: of the same inputs, for a dry run; what it would remove is counted.
    """
    counting = _Counting(sample, random.Random(seed))  # noqa: S311 -- a sample, no secret
    for item in plan(write_path, knowledge_base_id, inputs, replace(options, dry_run=True)):
        if sync is not None:
            sync.note(item)
        counting.add(item)
    for receipt in sync.remove() if sync is not None else ():
        counting.add(receipt)
    rows = tuple(sorted(counting.types.values(), key=lambda count: -count.bytes_to_do))
    found = Forecast(rows, tuple(counting.problems), unsupported=counting.unsupported)
    if not counting.drawn:
        return found
    measured = _measure(write_path, counting.drawn, options.chunking_strategy)
    return replace(found, sample=measured, estimate=_estimate(write_path, found, measured))


class _Counting:
    """Counts a plan, keeps its first problems and draws a sample, in memory that does not grow with it."""

    def __init__(self, sample: int, draw: random.Random) -> None:
        self.types: dict[str, TypeCount] = {}
        self.problems: list[Receipt] = []
        self.unsupported: Counter[str] = Counter()
        self.drawn: list[PlannedFile] = []
        self._sample, self._draw, self._seen = sample, draw, 0

    def add(self, item: PlannedFile | Receipt) -> None:
        uri = item.uri if isinstance(item, Receipt) else item.file.uri
        count = self.types.setdefault(extension := Path(uri).suffix.lower(), TypeCount(extension))
        if isinstance(item, Receipt):
            count.outcomes[item.outcome] += 1
            count_unsupported(self.unsupported, item)
            if item.outcome in ("failed", "skipped") and len(self.problems) < KEPT_PROBLEMS:
                self.problems.append(item)
            return
        count.outcomes["to_do"] += 1
        count.bytes_to_do += item.file.size
        if item.action is not PlanAction.INDEX:  # reservoir sampling: every file has the same chance, in one pass
            self._seen += 1
            place = len(self.drawn) if len(self.drawn) < self._sample else self._draw.randrange(self._seen)
            if place < self._sample:
                self.drawn[place : place + 1] = [item]


def _measure(write_path: WritePath, drawn: Sequence[PlannedFile], strategy: str | None) -> Sample:
    sample = Sample()
    for item in drawn:
        sample.documents += 1
        sample.bytes += item.file.size
        started = time.perf_counter()
        try:
            texts = list(_texts(write_path, item, item.file.chunking_strategy or strategy))
        except RagClusterError as error:  # counted: what would fail is part of the forecast
            sample.failures[error.type] += 1
            continue
        finally:
            sample.prepare_seconds += time.perf_counter() - started
        counts = write_path.tokenizer.count_many(texts)
        sample.chunks += len(texts)
        sample.text_bytes += sum(len(text.encode()) for text in texts)
        sample.tokens += sum(counts)
        sample.embedded_tokens += sum(counts[:EMBEDDED_CHUNKS])
        embedder = write_path.embedder()  # loading it is not the documents' time
        started = time.perf_counter()
        embedder.embed_documents(texts[:EMBEDDED_CHUNKS])
        sample.embed_seconds += time.perf_counter() - started
    return sample


def _texts(write_path: WritePath, item: PlannedFile, strategy: str | None) -> Iterator[str]:
    """The contents of the chunks that one file would give."""
    file = item.file
    with tempfile.TemporaryDirectory(prefix="rag-cluster-") as directory:
        path = str(Path(directory) / f"source{Path(file.filename).suffix.lower()[:16]}")
        _, size = write_path.inputs.fetch(file.uri, path)
        if size == 0:
            raise EmptyDocumentError(f"{file.filename} has no bytes")
        parsed = write_path.parser().parse(DocumentSource(item.document_id, 1, file.filename, path, size=size))
        chunked = write_path.chunker(strategy).split(
            parsed, knowledge_base_id=item.document_id, fingerprint=item.content_fingerprint
        )
    if not chunked.chunks:
        raise EmptyDocumentError(f"No text was found in {file.filename}")
    for chunk in chunked.chunks:
        yield chunk.content


def _estimate(write_path: WritePath, found: Forecast, sample: Sample) -> Estimate:
    scale = found.bytes_to_do / max(sample.bytes, 1)
    pools = write_path.pools
    prepare = sample.prepare_seconds * scale / 3600 / pools.prepare_actors
    per_token = sample.embed_seconds / max(sample.embedded_tokens, 1)
    embed = sample.tokens * per_token * scale / 3600 / pools.index_actors
    chunks = round(sample.chunks * scale)
    vectors = chunks * 4 * write_path.embedder().dimension
    return Estimate(
        hours=max(prepare, embed),
        prepare_hours=prepare,
        embed_hours=embed,
        chunks=chunks,
        tokens=round(sample.tokens * scale),
        index_bytes=round(vectors + sample.text_bytes * scale),
        failed_share=_wilson(sum(sample.failures.values()), sample.documents),
    )


def _wilson(hits: int, count: int) -> tuple[float, float, float]:
    """(low, share, high): 95 % interval of a share (Wilson 1927), which also holds for none of few."""
    share = hits / count
    base = 1 + Z * Z / count
    middle = (share + Z * Z / (2 * count)) / base
    half = Z * ((share * (1 - share) + Z * Z / (4 * count)) / count) ** 0.5 / base
    return max(middle - half, 0.0), share, min(middle + half, 1.0)


def _duration(hours: float) -> str:
    for unit, seconds in (("h", 3600), ("min", 60)):
        if hours * 3600 >= 2 * seconds:
            return f"{hours * 3600 / seconds:.1f} {unit}"
    return f"{hours * 3600:.1f} s"


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
