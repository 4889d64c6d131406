"""Settings -> objects: the only importer of concrete engines and stores.

`Services` builds each object once, when it is first asked for. `ServiceFactory` and `WritePathFactory` are what travels
to deployments and actors: picklable, and giving one `Services` per process.

What takes long to import (Milvus's client, Arrow, engines) is imported where it is needed: `kb list` needs none of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, BinaryIO

from rag_cluster.domain.documents import (
    DeleteReceipt,
    Document,
    IndexRecord,
    IngestionJob,
    KnowledgeBase,
    Receipt,
    Source,
    SourceKind,
)
from rag_cluster.domain.ports import (
    AsyncEmbedder,
    AsyncReranker,
    Chunker,
    DocumentParser,
    Embedder,
    Generator,
    HostedGenerator,
    MetricSink,
    QueryRewriter,
    Reranker,
    Tokenizer,
    VisionDescriber,
)
from rag_cluster.errors import ConflictError, IndexMismatchError, NotFoundError
from rag_cluster.lifecycle.delete import delete_document, delete_knowledge_base, delete_source
from rag_cluster.lifecycle.indexes import drop, switch
from rag_cluster.lifecycle.outbox import drain
from rag_cluster.lifecycle.stores import Stores
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.settings import Settings, get_settings
from rag_cluster.stores.embedded import EmbeddedStores
from rag_cluster.stores.postgres.agents import PostgresAgents
from rag_cluster.stores.postgres.catalog import PostgresCatalog
from rag_cluster.stores.postgres.chunk_search import PostgresChunkSearch
from rag_cluster.stores.postgres.conversations import PostgresConversations
from rag_cluster.stores.postgres.database import Database
from rag_cluster.stores.postgres.evidence import PostgresEvidence
from rag_cluster.stores.postgres.inventory import PostgresInventory
from rag_cluster.stores.postgres.ledger import PostgresLedger
from rag_cluster.stores.postgres.migration import migrate
from rag_cluster.stores.postgres.outbox import PostgresOutbox
from rag_cluster.stores.postgres.uploads import PostgresUploadQueue
from rag_cluster.telemetry import NullMetrics

if TYPE_CHECKING:
    from rag_cluster.answering.answerer import Answerer
    from rag_cluster.engines.check import ModelCheck
    from rag_cluster.engines.options import EngineOptions
    from rag_cluster.engines.query_cache import QueryCache
    from rag_cluster.engines.threaded import ThreadedEmbedder
    from rag_cluster.ingestion.corrections import Correction
    from rag_cluster.ingestion.uploads import UploadWorker
    from rag_cluster.ingestion.write_path import WritePath
    from rag_cluster.lifecycle.fsck import FsckOptions
    from rag_cluster.lifecycle.recall import Comparison, Question
    from rag_cluster.lifecycle.reembed import Compare
    from rag_cluster.lifecycle.report import Entry, FsckReport
    from rag_cluster.parsing.isolation import IsolatedParser
    from rag_cluster.retrieval.retriever import Retriever
    from rag_cluster.stores.inputs import FsspecInputFiles
    from rag_cluster.stores.milvus import MilvusChunkIndex
    from rag_cluster.stores.objects import FsspecObjectStore
    from rag_cluster.stores.snapshots import ParquetSnapshotStore


def parse_limits(settings: Settings) -> ParseLimits:
    """The limits of parsing, as settings."""
    return ParseLimits(
        max_file_bytes=settings.max_file_bytes,
        max_expanded_bytes=settings.max_expanded_bytes,
        max_expansion_ratio=settings.max_expansion_ratio,
        max_pages=settings.max_pages,
        max_image_pixels=settings.max_image_pixels,
        max_ocr_pictures=settings.ocr_max_pictures,
        timeout=settings.document_timeout,
        page_timeout=settings.page_timeout,
        conversion_timeout=settings.libreoffice_timeout,
        memory_bytes=settings.parse_memory_bytes,
    )


def isolated_parser(settings: Settings, *, postpone_ocr: bool = False) -> IsolatedParser:
    """The parser of every format, in its own process. Needs no store.

    postpone_ocr: it recognises no text, sees no GPU, and says what awaits recognition.
    """
    from rag_cluster.parsing.isolation import IsolatedParser
    from rag_cluster.parsing.ocr import OcrMode

    return IsolatedParser(
        parse_limits(settings),
        # When to recognise is the run's affair; what is recognised is the same.
        ocr=OcrMode.AUTO if settings.ocr == "deferred" else OcrMode(settings.ocr),
        parsers=settings.parsers,
        ocr_threads=settings.ocr_threads,
        ocr_gpu=settings.ocr_gpu and not postpone_ocr,
        postpone_ocr=postpone_ocr,
        libreoffice=settings.libreoffice,
    )


def embedder_options(settings: Settings) -> EngineOptions:
    """What the settings say of the embedder, besides its name."""
    from rag_cluster.engines.options import Endpoint, EngineOptions

    return EngineOptions(
        threads=settings.embedder_threads,
        batch_size=settings.embedder_batch_size,
        device=settings.model_device,
        dtype=settings.model_dtype,
        load_timeout=settings.model_load_timeout,
        max_tokens=settings.embedder_max_tokens,
        dimension=settings.embedder_dimension,
        query_prefix=settings.embedder_query_prefix,
        document_prefix=settings.embedder_document_prefix,
        endpoint=Endpoint(
            settings.embedder_url,
            settings.embedder_api_key.get_secret_value(),
            settings.embedder_timeout,
            settings.retries,
            settings.retry_min_wait,
            settings.retry_max_wait,
        ),
    )


def reranker_options(settings: Settings) -> EngineOptions:
    """What the settings say of the reranker, besides its name. One attempt: the fused order is there, and waits."""
    from rag_cluster.engines.options import Endpoint, EngineOptions

    return EngineOptions(
        threads=settings.reranker_threads,
        batch_size=settings.reranker_batch_size,
        device=settings.model_device,
        dtype=settings.model_dtype,
        load_timeout=settings.model_load_timeout,
        max_tokens=settings.reranker_max_tokens,
        endpoint=Endpoint(
            settings.reranker_url, settings.reranker_api_key.get_secret_value(), settings.reranker_timeout, retries=0
        ),
    )


def check_models(settings: Settings) -> list[ModelCheck]:
    """What the embedder and the reranker of the settings are and do on this machine. Needs no store."""
    from rag_cluster.engines.check import check_embedder, check_reranker

    services = Services(settings)
    checks = [check_embedder(settings.embedder, services.embedder, embedder_options(settings))]
    if services.reranker is not None:
        checks.append(check_reranker(settings.reranker, services.reranker, reranker_options(settings)))
    return checks


class Services:
    """Everything one process may need, built when first asked for."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._chunkers: dict[str, Chunker] = {}
        self._correcting = Lock()

    # -- stores ------------------------------------------------------------------------------------------------------

    @cached_property
    def embedded(self) -> EmbeddedStores:
        """The servers below the data directory."""
        return EmbeddedStores(self.settings.home)

    @cached_property
    def database(self) -> Database:
        """PostgreSQL, migrated. The embedded server is started if it is ours and gone, now and whenever it is lost."""
        settings = self.settings
        if settings.embedded_postgres:
            dsn, revive = self.embedded.ensure_postgres(), self._revive_postgres
        else:
            dsn, revive = settings.postgres_dsn.get_secret_value(), None
        migrate(dsn)
        return Database(dsn, pool_size=settings.postgres_pool_size, timeout=settings.postgres_timeout, revive=revive)

    @cached_property
    def index(self) -> MilvusChunkIndex:
        """Milvus."""
        from rag_cluster.stores.milvus import MilvusChunkIndex

        settings = self.settings
        return MilvusChunkIndex(
            settings.milvus_uri,
            settings.milvus_token.get_secret_value(),
            timeout=settings.milvus_timeout,
            index_type=settings.milvus_index_type,
            index_params=settings.milvus_index_params,
            mmap=settings.milvus_mmap,
            replicas=settings.milvus_replicas,
            revive=self.embedded.ensure_milvus if settings.embedded_milvus else None,
        )

    @cached_property
    def objects(self) -> FsspecObjectStore:
        """Our objects."""
        from rag_cluster.stores.objects import FsspecObjectStore

        settings = self.settings
        return FsspecObjectStore(
            settings.objects,
            endpoint_url=settings.s3_endpoint_url,
            access_key=settings.s3_access_key.get_secret_value(),
            secret_key=settings.s3_secret_key.get_secret_value(),
            region=settings.s3_region,
            timeout=settings.object_timeout,
        )

    @cached_property
    def inputs(self) -> FsspecInputFiles:
        """The user's files."""
        from rag_cluster.stores.inputs import FsspecInputFiles

        settings = self.settings
        return FsspecInputFiles(
            endpoint_url=settings.s3_endpoint_url,
            access_key=settings.s3_access_key.get_secret_value(),
            secret_key=settings.s3_secret_key.get_secret_value(),
            region=settings.s3_region,
            timeout=settings.object_timeout,
        )

    @cached_property
    def snapshots(self) -> ParquetSnapshotStore:
        """Snapshots in the object store."""
        from rag_cluster.stores.snapshots import ParquetSnapshotStore

        return ParquetSnapshotStore(self.objects)

    @cached_property
    def catalog(self) -> PostgresCatalog:
        """Knowledge bases, documents, assets, indexes, keys."""
        return PostgresCatalog(self.database)

    @cached_property
    def ledger(self) -> PostgresLedger:
        """Versions, claims, parts, runs."""
        return PostgresLedger(self.database)

    @cached_property
    def inventory(self) -> PostgresInventory:
        """Everything that PostgreSQL holds, page by page."""
        return PostgresInventory(self.database)

    @cached_property
    def uploads(self) -> PostgresUploadQueue:
        """Upload jobs."""
        return PostgresUploadQueue(self.database, max_attempts=self.settings.upload_max_attempts)

    @cached_property
    def outbox(self) -> PostgresOutbox:
        """Effects owed to other stores."""
        return PostgresOutbox(self.database)

    @cached_property
    def evidence(self) -> PostgresEvidence:
        """Facts of the read path."""
        return PostgresEvidence(self.database)

    @cached_property
    def agents(self) -> PostgresAgents:
        """Sources, agents and mounts."""
        return PostgresAgents(self.database)

    @cached_property
    def chunk_search(self) -> PostgresChunkSearch:
        """Chunks by their words."""
        return PostgresChunkSearch(self.database)

    @cached_property
    def conversations(self) -> PostgresConversations:
        """Messages and records."""
        return PostgresConversations(self.database)

    @cached_property
    def metrics(self) -> MetricSink:
        """Where counters go."""
        return NullMetrics()

    def stop_embedded_stores(self) -> None:
        """Close connections and stop the embedded servers."""
        if "database" in self.__dict__:
            self.database.close()
        self.embedded.down()

    # -- content and engines -----------------------------------------------------------------------------------------

    @cached_property
    def parser(self) -> IsolatedParser:
        """The parser of every format."""
        return isolated_parser(self.settings)

    @cached_property
    def text_parser(self) -> IsolatedParser:
        """The same without text recognition."""
        return isolated_parser(self.settings, postpone_ocr=True)

    @cached_property
    def embedder(self) -> Embedder:
        """The engine itself; loaded at its first call."""
        from rag_cluster.engines.registry import create_embedder

        return create_embedder(self.settings.embedder, options=embedder_options(self.settings))

    @cached_property
    def async_embedder(self) -> ThreadedEmbedder:
        """The engine in a thread of this process: of a replica that serves it, and of commands without Serve."""
        from rag_cluster.engines.threaded import ThreadedEmbedder

        settings = self.settings
        return ThreadedEmbedder(
            self.embedder,
            batch_tokens=settings.embedder_batch_tokens,
            query_target=settings.embed_p95_target,
            metrics=self.metrics,
        )

    def remembering(self, embedder: AsyncEmbedder) -> AsyncEmbedder:
        """The same, with the vectors of the questions that this process was asked last."""
        from rag_cluster.engines.query_cache import CachingEmbedder

        return CachingEmbedder(embedder, self._query_cache)

    @cached_property
    def _query_cache(self) -> QueryCache:
        from rag_cluster.engines.query_cache import QueryCache

        return QueryCache(self.settings.query_cache_size)

    @cached_property
    def reranker(self) -> Reranker | None:
        """The engine itself, loaded at its first call; None where the settings name none."""
        from rag_cluster.engines.registry import create_reranker

        return create_reranker(self.settings.reranker, reranker_options(self.settings))

    @cached_property
    def async_reranker(self) -> AsyncReranker | None:
        """The engine in a thread of this process."""
        from rag_cluster.engines.threaded import ThreadedReranker

        return ThreadedReranker(self.reranker) if self.reranker else None

    @property
    def tokenizer(self) -> Tokenizer:
        """The embedder's own tokenizer."""
        return self.embedder.tokenizer

    def chunker(self, strategy: str | None = None) -> Chunker:
        """The chunker of a strategy; None: the configured one."""
        from rag_cluster.chunking.registry import create_chunker

        name = strategy or self.settings.chunking_strategy
        if name not in self._chunkers:
            self._chunkers[name] = create_chunker(name, self._chunking_parameters(name), self.tokenizer, self.embedder)
        return self._chunkers[name]

    def generator(self, embedder: AsyncEmbedder) -> Generator:
        """The generator that the settings name, in this process."""
        from rag_cluster.chunking.boundaries import sentences
        from rag_cluster.engines.generators import create_generator

        return create_generator(self.settings, embedder, sentences, self.metrics)

    @property
    def hosts_generator(self) -> bool:
        """Whether the generator is a model that one process loads for all, which is then a deployment of its own."""
        from rag_cluster.engines.generators import is_hosted

        return is_hosted(self.settings)

    def hosted_generator(self) -> HostedGenerator:
        """That generator. InvalidSettingError where `hosts_generator` is False."""
        from rag_cluster.engines.generators import create_hosted_generator

        return create_hosted_generator(self.settings, self.metrics)

    def rewriter(self, generator: Generator) -> QueryRewriter | None:
        """The endpoint that the settings name, else the generator, if that is a model. None where neither is."""
        from rag_cluster.engines.rewriting import GeneratorQueryRewriter, OpenAIQueryRewriter

        settings = self.settings
        if settings.rewrite_url:
            key = settings.rewrite_api_key.get_secret_value()
            return OpenAIQueryRewriter(
                settings.rewrite_url, settings.rewrite_model, key, timeout=settings.rewrite_timeout
            )
        return None if settings.generator == "extractive" else GeneratorQueryRewriter(generator)

    @cached_property
    def describer(self) -> VisionDescriber:
        """The vision endpoint that the settings name."""
        from rag_cluster.engines.vision import OpenAIVisionDescriber

        settings = self.settings
        return OpenAIVisionDescriber(
            settings.vision_url,
            settings.vision_model,
            settings.vision_api_key.get_secret_value(),
            timeout=settings.vision_timeout,
            retries=settings.retries,
            min_wait=settings.retry_min_wait,
            max_wait=settings.retry_max_wait,
        )

    # -- the paths ---------------------------------------------------------------------------------------------------

    def retriever(
        self, embedder: AsyncEmbedder, reranker: AsyncReranker | None = None, generator: Generator | None = None
    ) -> Retriever:
        """The read path up to evidence. reranker, generator: None takes the settings' engine, in this process."""
        from rag_cluster.retrieval.retriever import Retriever

        settings = self.settings
        return Retriever(
            self.evidence,
            self.index,
            embedder,
            reranker=reranker or self.async_reranker,
            rewriter=self.rewriter(generator or self.generator(embedder)),
            search=self.chunk_search,
            rewrite_seconds=settings.rewrite_timeout,
            rerank_seconds=settings.rerank_timeout,
            keyword_seconds=settings.keyword_timeout,
            metrics=self.metrics,
        )

    def answerer(
        self, embedder: AsyncEmbedder, reranker: AsyncReranker | None = None, generator: Generator | None = None
    ) -> Answerer:
        """The whole read path. reranker, generator: as in `retriever`."""
        from rag_cluster.answering.answerer import Answerer, AnswerLimits
        from rag_cluster.answering.calibration import calibration_for
        from rag_cluster.retrieval.explain import Explainer

        generator = generator or self.generator(embedder)  # one, which may rewrite too
        retriever = self.retriever(embedder, reranker, generator)
        return Answerer(
            retriever,
            generator,
            self.conversations,
            calibration=calibration_for(self.settings.embedder),
            limits=AnswerLimits(
                context_tokens=self._context_tokens,
                max_question_chars=self.settings.max_question_chars,
                temperature=self.settings.temperature,
                max_answer_tokens=self.settings.max_answer_tokens,
            ),
            count_tokens=self.tokenizer.count,
            explainer=Explainer(retriever, self.evidence, self.index, self.chunk_search, self.index),
        )

    @property
    def _context_tokens(self) -> int:
        """What sources may take. A quarter of what the generator reads is for rules, question, and for tokenizers that
        count differently; what still does not fit is left out when the generator says so."""
        window, most = self.settings.generator_context_tokens, self.settings.context_tokens
        if not window:
            return most
        return min(most, (window - min(self.settings.max_answer_tokens, window // 4)) * 3 // 4)

    def write_path(self, embedder: Embedder | None = None) -> WritePath:
        """The write path; `embedder` replaces the local engine (the upload worker embeds through Serve)."""
        from rag_cluster.ingestion.write_path import Pools, RetryPolicy, WritePath

        settings = self.settings
        engine = embedder or self.embedder
        return WritePath(
            ledger=self.ledger,
            catalog=self.catalog,
            outbox=self.outbox,
            inputs=self.inputs,
            objects=self.objects,
            snapshots=self.snapshots,
            index=self.index,
            parser=lambda: self.parser,
            parser_info=lambda filename: self.parser.info(filename),
            chunker=self.chunker,
            tokenizer=self.tokenizer,
            embedder=lambda: engine,
            metrics=self.metrics,
            lease_seconds=settings.claim_lease,
            retry=RetryPolicy(
                settings.retries, settings.retry_min_wait, settings.retry_max_wait, settings.store_outage
            ),
            max_file_bytes=settings.max_file_bytes,
            pools=Pools(
                prepare_actors=settings.prepare_actors,
                index_actors=settings.index_actors,
                prepare_cpus=settings.prepare_cpus,
                index_cpus=settings.index_cpus,
                index_gpus=settings.index_gpus,
                batch_parts=settings.index_batch_parts,
                ocr_actors=settings.ocr_actors,
                ocr_cpus=settings.ocr_cpus,
                ocr_gpus=settings.ocr_gpus,
                ocr_gpu=settings.ocr_gpu,
            ),
            drain=self.drain_outbox,
            describer=(lambda: self.describer) if settings.vision_url else None,
            max_described=settings.vision_max_pictures,
            text_parser=lambda: self.text_parser,
            text_first=settings.ocr == "deferred",
        )

    @cached_property
    def stores(self) -> Stores:
        """What a delete reaches through."""
        return Stores(self.catalog, self.outbox, self.index, self.snapshots, self.objects)

    def drain_outbox(self, document_id: str | None = None) -> int:
        """Carry out what is owed (for one document); how many entries."""
        return drain(self.stores, document_id=document_id)

    def delete_document(self, document_id: str) -> DeleteReceipt:
        """Delete everywhere, verified."""
        return delete_document(self.stores, document_id)

    def delete_knowledge_base(self, knowledge_base_id: str) -> list[DeleteReceipt]:
        """Delete a base with all its documents."""
        return delete_knowledge_base(self.stores, knowledge_base_id)

    def delete_source(self, source: Source) -> list[DeleteReceipt]:
        """Delete all documents of a source."""
        return delete_source(self.stores, source)

    def write_correction(
        self,
        knowledge_base_id: str,
        correction: Correction,
        source: str,
        mounts: Mapping[str, int | None],
        embedder: Embedder | None = None,
    ) -> Receipt:
        """Write a managed correction to a source of that name, mounted by these agents: id -> priority, None keeps it.

        embedder: as in `write_path`. One at a time in a process: chunkers and engines are not shared by threads.
        """
        from rag_cluster.ingestion.corrections import write_correction

        found = self.catalog.ensure_source(knowledge_base_id, SourceKind.MANAGED_CORRECTION, source)
        with self._correcting:
            parser = self.markdown_parser
            receipt = write_correction(self.write_path(embedder), knowledge_base_id, found, correction, parser)
        for agent_id, priority in mounts.items():
            self.agents.mount(agent_id, found.id, priority)
        self.drain_outbox(receipt.document_id)
        return receipt

    @cached_property
    def markdown_parser(self) -> DocumentParser:
        """Of Markdown, in this process: for texts that an administrator writes."""
        from rag_cluster.parsing.registry import ParserRegistry

        registry = ParserRegistry(limits=parse_limits(self.settings), parsers=self.settings.parsers)
        return registry.parser_for("correction.md")

    def fsck(self, options: FsckOptions, listener: Callable[[Entry], None] | None = None) -> FsckReport:
        """Compare the stores, and repair where told to."""
        from rag_cluster.lifecycle.fsck import fsck

        return fsck(self.write_path(), self.inventory, options, listener)

    def compare_indexes(self, new: Services, questions: Sequence[Question], top_k: int) -> Compare:
        """How this settings' embedder finds what the questions expect, beside that of `new`, each in its own index."""
        from rag_cluster.lifecycle.recall import PinnedEvidence, compare_recall
        from rag_cluster.retrieval.retriever import Retriever

        def compare(active: IndexRecord, record: IndexRecord) -> Comparison:
            old, other = (
                Retriever(PinnedEvidence(self.evidence, index), self.index, services.async_embedder)
                for services, index in ((self, active), (new, record))
            )
            return asyncio.run(compare_recall(old, other, questions, top_k))

        return compare

    def switch_index(self, name: str) -> IndexRecord:
        """Make an index, by collection or embedder fingerprint, the active one."""
        return switch(self.catalog, name)

    def drop_index(self, name: str) -> IndexRecord:
        """Delete an index that is not active."""
        return drop(self.catalog, self.index, name)

    def original(self, document: Document, version: int) -> tuple[BinaryIO, int]:
        """A version's original as an open stream, and its bytes. NotFoundError; OriginalGoneError and
        OriginalChangedError of one that was referenced in place."""
        from rag_cluster.ingestion.originals import open_original

        found = next((entry for entry in self.catalog.versions(document.id) if entry.version == version), None)
        if found is None:
            raise NotFoundError(f"document {document.id} has no version {version}")
        return open_original(self.inputs, self.objects, document, found)

    def retry_document(self, document_id: str) -> IngestionJob:
        """Queue a failed document again."""
        from rag_cluster.ingestion.uploads import retry_document

        return retry_document(self.write_path(), self.uploads, document_id)

    def upload_worker(self, embedder: Embedder) -> UploadWorker:
        """A worker of the upload queue that embeds with `embedder`."""
        from rag_cluster.ingestion.uploads import UploadWorker

        return UploadWorker(self.write_path(embedder), self.uploads, job_timeout=self.settings.upload_job_timeout)

    def ensure_knowledge_base(self, name: str) -> KnowledgeBase:
        """The knowledge base of this name or id, created when there is none."""
        try:
            return self.catalog.knowledge_base(name)
        except NotFoundError:
            try:
                return self.catalog.create_knowledge_base(name)
            except ConflictError:  # somebody else was faster
                return self.catalog.knowledge_base(name)

    def readiness_checks(self) -> dict[str, Callable[[], object]]:
        """Dependency -> a call that returns when it answers and raises when it does not."""
        return {
            "postgres": self.database.ping,
            "milvus": self.index.ping,
            "objects": lambda: self.objects.exists("readiness"),
            "index": self._require_own_index,
        }

    def _require_own_index(self) -> None:
        """IndexMismatchError when queries find no index of this settings' embedder, while there are others."""
        usable = [record for record in self.catalog.indexes() if record.state in ("active", "retired")]
        if usable and self.embedder.fingerprint not in {record.embedder_fingerprint for record in usable}:
            raise IndexMismatchError(f"no index that queries may use belongs to embedder {self.settings.embedder}")

    def _revive_postgres(self) -> None:
        self.embedded.ensure_postgres()

    def _chunking_parameters(self, name: str) -> dict[str, int | float]:
        settings = self.settings
        by_strategy: dict[str, dict[str, int | float]] = {
            "structured": {"parent_tokens": settings.parent_tokens, "child_tokens": settings.child_tokens},
            "fixed_size": {"size": settings.chunk_size, "overlap": settings.chunk_overlap},
            "recursive": {"size": settings.chunk_size, "overlap": settings.chunk_overlap},
            "sentence": {"size": settings.chunk_size, "max_sentences": settings.sentence_max_per_chunk},
            "paragraph": {"size": settings.paragraph_size, "max_paragraphs": settings.paragraph_max_per_chunk},
            "semantic": {
                "threshold": settings.semantic_threshold,
                "min_size": settings.semantic_min_size,
                "max_size": settings.semantic_max_size,
            },
        }
        return by_strategy.get(name, {})


_services: dict[str, Services] = {}
_lock = Lock()


@dataclass(frozen=True)
class ServiceFactory:
    """Picklable; gives the one `Services` of a process for these settings."""

    settings: Settings

    def __call__(self) -> Services:
        """The process's services."""
        # Secrets must count too, so the key is built from the raw values and kept in this process only.
        key = repr(sorted((name, _raw(value)) for name, value in self.settings))
        with _lock:
            return _services.setdefault(key, Services(self.settings))


def _raw(value: object) -> str:
    reveal = getattr(value, "get_secret_value", None)
    return repr(reveal() if reveal else value)


@dataclass(frozen=True)
class WritePathFactory:
    """Picklable; gives an ingestion actor its write path."""

    settings: Settings

    def __call__(self) -> WritePath:
        """A write path on the process's services."""
        return ServiceFactory(self.settings)().write_path()


def local_services(settings: Settings | None = None) -> Services:
    """The services of a command, with the embedded stores running and the schema migrated."""
    services = ServiceFactory(settings or get_settings())()
    services.catalog.has_api_keys()  # Fails here, with a clear error, when PostgreSQL cannot be had.
    return services
