"""What the HTTP routes need, as one frozen value: wiring builds it in the ingress, tests build it from anything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from rag_cluster.answering.answerer import Answerer
from rag_cluster.domain.access import Principal
from rag_cluster.domain.documents import DeleteReceipt, Document, IngestionJob, Receipt, Source
from rag_cluster.domain.ports import (
    Admissions,
    Agents,
    AsyncEmbedder,
    AsyncReranker,
    Catalog,
    Embedder,
    Generator,
    Ledger,
    ObjectStore,
    UploadQueue,
)
from rag_cluster.ingestion.corrections import Correction
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.serving.model_status import Model, in_process
from rag_cluster.serving.readiness import Readiness
from rag_cluster.settings import Settings
from rag_cluster.wiring import Services, parse_limits


@dataclass(frozen=True, slots=True)
class Backend:
    """The read and write services behind /v1."""

    settings: Settings
    limits: ParseLimits
    catalog: Catalog
    admissions: Admissions
    agents: Agents
    ledger: Ledger
    uploads: UploadQueue
    objects: ObjectStore
    answerer: Answerer
    delete_document: Callable[[str], DeleteReceipt]
    """Document id -> receipt; DocumentBusyError under a live claim."""
    delete_knowledge_base: Callable[[str], list[DeleteReceipt]]
    delete_source: Callable[[Source], list[DeleteReceipt]]
    """Its documents; the empty source stays."""
    write_correction: Callable[[str, Correction, str, Mapping[str, int | None]], Receipt]
    """Knowledge base, correction, the source's name, agent id -> mount priority: published when it returns."""
    drain_outbox: Callable[[str], int]
    """Carry out what is owed for one document now, so that an access change is in Milvus when the call returns."""
    content_fingerprint: Callable[[str, str | None], str]
    """Filename, chunking strategy -> fingerprint of parser, chunker and tokenizer."""
    original: Callable[[Document, int], tuple[BinaryIO, int]]
    """Document, version -> its original as a stream, and bytes. NotFoundError, OriginalGone- and -ChangedError."""
    retry_document: Callable[[str], IngestionJob]
    """Document id -> the job that tries it again. ConflictError when it did not fail."""
    readiness: Callable[[], Awaitable[Mapping[str, str]]]
    """Dependency -> "ok" or what is wrong; within seconds, whatever hangs."""
    models: Callable[[], Awaitable[Sequence[Model]]]
    """What computes, and what its replicas did so far."""
    caller: Principal | None = None
    """Who every request comes from, where no request comes from outside the process. None: whom its key names."""


def make_backend(
    services: Services,
    embedder: AsyncEmbedder,
    *,
    reranker: AsyncReranker | None = None,
    generator: Generator | None = None,
    caller: Principal | None = None,
    blocking_embedder: Embedder | None = None,
    models: Callable[[], Awaitable[Sequence[Model]]] | None = None,
) -> Backend:
    """The routes' view of a process's services, with the embedder that its queries use. caller: see `Backend`.

    blocking_embedder: for corrections, which are embedded in the caller's thread. It, reranker, generator and models:
    None takes what this process has itself.
    """
    write_path = services.write_path()
    return Backend(
        settings=services.settings,
        limits=parse_limits(services.settings),
        catalog=services.catalog,
        admissions=services.admissions,
        agents=services.agents,
        ledger=services.ledger,
        uploads=services.uploads,
        objects=services.objects,
        original=services.original,
        answerer=services.answerer(services.remembering(embedder), reranker, generator),
        delete_document=services.delete_document,
        delete_knowledge_base=services.delete_knowledge_base,
        delete_source=services.delete_source,
        write_correction=partial(services.write_correction, embedder=blocking_embedder),
        drain_outbox=services.drain_outbox,
        content_fingerprint=write_path.content_fingerprint,
        retry_document=services.retry_document,
        readiness=Readiness(services.readiness_checks()),
        models=models or in_process(services),
        caller=caller,
    )
