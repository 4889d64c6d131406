"""What `rag-cluster eval` asks: a data set that it ingests, a knowledge base that is there, or ways of chunking."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rag_cluster.cli.output import fail
from rag_cluster.cli.session import configure_logging, services
from rag_cluster.domain.access import LOCAL, AccessAttributes
from rag_cluster.errors import InvalidRequestError

if TYPE_CHECKING:
    from rag_cluster.evaluation.datasets import Dataset
    from rag_cluster.evaluation.embedding_cache import CachedEmbedder
    from rag_cluster.evaluation.results import Cost
    from rag_cluster.evaluation.target import Target
    from rag_cluster.evaluation.variants import Variant
    from rag_cluster.ingestion.report import IngestionReport
    from rag_cluster.wiring import Services


@dataclass(frozen=True, slots=True)
class Subject:
    """Targets, one after the other, and how they were made."""

    services: Services
    embedder: CachedEmbedder
    targets: Iterator[Target]
    facts: str
    """Where the facts of the second check lie."""


@contextlib.contextmanager
def in_process(dataset: Dataset, variants: tuple[Variant, ...], cache: Path | None) -> Iterator[Subject]:
    """Ways of chunking, each indexed once, without ingestion. Needs no PostgreSQL."""
    from rag_cluster.evaluation.embedding_cache import CachedEmbedder
    from rag_cluster.evaluation.laboratory import Laboratory
    from rag_cluster.settings import get_settings
    from rag_cluster.wiring import Services

    configure_logging(get_settings().log_level)
    opened = Services(get_settings())
    before = opened.embedded.running()
    embedder = CachedEmbedder(opened.embedder, cache)

    def targets() -> Iterator[Target]:
        laboratory = Laboratory(opened, dataset, embedder)
        for variant in variants or (None,):
            with laboratory.target(variant) as target:
                yield target

    found = targets()
    try:
        yield Subject(opened, embedder, found, "memory")
    finally:
        found.close()  # type: ignore[attr-defined]
        embedder.close()
        opened.embedded.down(keep=before)


@contextlib.contextmanager
def in_stores(dataset: Dataset, knowledge_base: str | None, cache: Path | None, *, quiet: bool) -> Iterator[Subject]:
    """The whole system: a knowledge base of its own that the bulk job fills, or one that is there."""
    from rag_cluster.evaluation.embedding_cache import CachedEmbedder

    opened = services()
    embedder = CachedEmbedder(opened.embedder, cache)

    def targets() -> Iterator[Target]:
        base, cost = (knowledge_base, None) if knowledge_base else _ingested(opened, dataset, quiet)
        yield _target(opened, dataset, base, embedder, cost)

    try:
        yield Subject(opened, embedder, targets(), "PostgreSQL")
    finally:
        embedder.close()


def _target(opened: Services, dataset: Dataset, base: str, embedder: CachedEmbedder, cost: Cost | None) -> Target:
    from rag_cluster.engines.threaded import ThreadedEmbedder
    from rag_cluster.evaluation.target import Target

    knowledge_base_id = opened.catalog.knowledge_base(base).id
    names = _names(opened, knowledge_base_id)
    known = Counter(names.values())
    expected = sorted({name for question in dataset.questions for name in question.documents})
    if missing := [name for name in expected if not known[name]]:
        raise InvalidRequestError(
            f"{base} has no {missing[0]!r}; of the expected documents {len(missing)} are missing."
        )
    if doubled := [name for name in expected if known[name] > 1]:
        raise InvalidRequestError(f"{base} has {known[doubled[0]]} documents named {doubled[0]!r}: which is expected?")
    return Target(
        retriever=opened.retriever(ThreadedEmbedder(embedder)),
        timed=opened.retriever(opened.async_embedder),
        knowledge_base_id=knowledge_base_id,
        names=names,
        cost=cost,
        answerer=opened.answerer(opened.async_embedder),
        calibration=opened.calibration,
    )


def _names(opened: Services, knowledge_base_id: str) -> Mapping[str, str]:
    names: dict[str, str] = {}
    cursor: str | None = None
    while True:
        documents, cursor = opened.catalog.list_documents(knowledge_base_id, LOCAL, cursor=cursor, limit=200)
        names.update((document.id, document.filename) for document in documents)
        if cursor is None:
            return names


def _ingested(opened: Services, dataset: Dataset, quiet: bool) -> tuple[str, Cost]:
    """(name of the knowledge base, its cost). A second run finds nothing changed and embeds nothing."""
    from rag_cluster.cli.ray_session import ray_address, ray_stopped_afterwards
    from rag_cluster.ingestion.pipeline import IngestionOptions, run_ingestion
    from rag_cluster.wiring import WritePathFactory

    settings = opened.settings
    name = f"eval-{dataset.fingerprint}"
    folder = settings.home / "evaluation" / dataset.fingerprint
    folder.mkdir(parents=True, exist_ok=True)
    for document in dataset.documents:
        if document.path is None and not (folder / document.name).exists():
            (folder / document.name).write_text(document.text, encoding="utf-8")
    inputs = [str(document.path) for document in dataset.documents if document.path is not None]
    if len(inputs) < len(dataset.documents):
        inputs.append(str(folder))
    opened.ensure_knowledge_base(name)
    options = IngestionOptions(AccessAttributes(()), progress=not quiet)
    with ray_stopped_afterwards():
        report = run_ingestion(WritePathFactory(settings), name, inputs, options, address=ray_address(settings, None))
    if not report.ok:
        raise fail(f"ingesting the documents failed: {report.headline()}", as_json=quiet, kind="ingestion_failed")
    return name, _cost(opened, opened.catalog.knowledge_base(name).id, report)


def _cost(opened: Services, knowledge_base_id: str, report: IngestionReport) -> Cost:
    """Of what is in the knowledge base; seconds, and the share that was embedded, of the run that filled it."""
    from rag_cluster.evaluation.results import Cost

    chunks, texts = 0, set[str]()
    for id_ in _names(opened, knowledge_base_id):
        document = opened.inventory.document(id_)
        assert document is not None and document.published_version is not None, "it is listed and was ingested"
        for part in opened.inventory.contents(id_, document.published_version):
            chunks += len(part.chunks)
            texts.update(chunk.content for chunk in part.chunks)
    tokens = sum(opened.tokenizer.count_many(sorted(texts)))
    seconds = {use.stage: use.seconds for use in report.timeline.stages}
    return Cost(
        chunks=chunks,
        tokens=tokens,
        chunking_seconds=seconds.get("chunk", 0.0),
        embedded_tokens=round(tokens * report.embedded_chunks / max(chunks, 1)),
        embedding_seconds=seconds.get("embed", 0.0),
    )
