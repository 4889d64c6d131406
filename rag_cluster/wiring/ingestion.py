"""The write path: bulk runs, uploads, retries, corrections, originals."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING, BinaryIO

from rag_cluster.domain.documents import Document, IngestionJob, KnowledgeBase, Receipt, SourceKind
from rag_cluster.domain.ports import Embedder
from rag_cluster.errors import ConflictError, DocumentBusyError, NotFoundError
from rag_cluster.settings import Settings
from rag_cluster.wiring.content import ContentServices
from rag_cluster.wiring.deletion import DeletionServices

if TYPE_CHECKING:
    from rag_cluster.ingestion.corrections import Correction
    from rag_cluster.ingestion.uploads import UploadWorker
    from rag_cluster.ingestion.write_path import Pools, WritePath


def pools(settings: Settings) -> Pools:
    """How many actors a run has, and what each takes."""
    from rag_cluster.ingestion.write_path import Pools

    return Pools(
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
    )


class IngestionServices(DeletionServices, ContentServices):
    """What brings documents in."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._correcting = Lock()

    def write_path(self, embedder: Embedder | None = None) -> WritePath:
        """The write path; `embedder` replaces the local engine (the upload worker embeds through Serve)."""
        from rag_cluster.ingestion.write_path import RetryPolicy, WritePath

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
            pools=pools(settings),
            drain=self.drain_outbox,
            describer=(lambda: self.describer) if settings.vision_url else None,
            max_described=settings.vision_max_pictures,
            text_parser=lambda: self.text_parser,
            text_first=settings.ocr == "deferred",
        )

    def upload_worker(self, embedder: Embedder) -> UploadWorker:
        """A worker of the upload queue that embeds with `embedder`."""
        from rag_cluster.ingestion.uploads import UploadWorker

        return UploadWorker(self.write_path(embedder), self.uploads, job_timeout=self.settings.upload_job_timeout)

    def retry_document(self, document_id: str) -> IngestionJob:
        """Queue a failed document again."""
        from rag_cluster.ingestion.uploads import retry_document

        return retry_document(self.write_path(), self.uploads, document_id)

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
        DocumentBusyError when it is not its turn within a request's time.
        """
        from rag_cluster.ingestion.corrections import write_correction

        found = self.catalog.ensure_source(knowledge_base_id, SourceKind.MANAGED_CORRECTION, source)
        if not self._correcting.acquire(timeout=self.settings.request_timeout):
            raise DocumentBusyError("Other corrections are being written at this moment; try again.")
        try:
            parser = self.markdown_parser
            receipt = write_correction(self.write_path(embedder), knowledge_base_id, found, correction, parser)
        finally:
            self._correcting.release()
        for agent_id, priority in mounts.items():
            self.agents.mount(agent_id, found.id, priority)
        self.drain_outbox(receipt.document_id)
        return receipt

    def original(self, document: Document, version: int) -> tuple[BinaryIO, int]:
        """A version's original as an open stream, and its bytes. NotFoundError; CorruptObjectError;
        OriginalGoneError and OriginalChangedError of one that was referenced in place."""
        from rag_cluster.ingestion.originals import open_original

        found = next((entry for entry in self.catalog.versions(document.id) if entry.version == version), None)
        if found is None:
            raise NotFoundError(f"document {document.id} has no version {version}")
        return open_original(self.inputs, self.objects, document, found)

    def ensure_knowledge_base(self, name: str) -> KnowledgeBase:
        """The knowledge base of this name or id, created when there is none."""
        try:
            return self.catalog.knowledge_base(name)
        except NotFoundError:
            try:
                return self.catalog.create_knowledge_base(name)
            except ConflictError:  # somebody else was faster
                return self.catalog.knowledge_base(name)
