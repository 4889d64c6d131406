"""From a listed file to a committed snapshot: claim, fetch, parse, chunk, store (design section 5)."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rag_cluster.domain import ids, keys
from rag_cluster.domain.blocks import DocumentSource, ParsedDocument
from rag_cluster.domain.chunks import ChunkedDocument, Snapshot, part_boundaries
from rag_cluster.domain.documents import Claim, DocumentAsset, DocumentStatus, Receipt, SourceFile
from rag_cluster.errors import ClaimLostError, DocumentTooLargeError, EmptyDocumentError
from rag_cluster.ingestion.failures import Failure, deleted_meanwhile, failed, is_ready, leave
from rag_cluster.ingestion.rows import AwaitingRecognition, PreparedPart
from rag_cluster.ingestion.steps.description import describe_images
from rag_cluster.ingestion.write_path import WritePath
from rag_cluster.telemetry import BYTES_TOTAL, DOCUMENTS_TOTAL, PAGES_TOTAL, STAGE_SECONDS, bound

Fetch = Callable[[str], tuple[str, int]]
"""Copy the original to a local path: (sha256 hex, bytes)."""


@dataclass(frozen=True, slots=True)
class Work:
    """One document to prepare."""

    knowledge_base_id: str
    source_id: str
    document_id: str
    file: SourceFile
    content_fingerprint: str
    strategy: str | None = None
    original_stored: bool = False
    """True for uploads, whose original lies under its key before there is a job."""


class Stage:
    """Where the work on a document stands. `watch` sees every step, and may stop the work by raising."""

    def __init__(
        self, write_path: WritePath, watch: Callable[[str, int], None] | None = None, *, name: str = "claim"
    ) -> None:
        self.name = name
        self._write_path = write_path
        self._watch = watch
        self._since = time.perf_counter()

    def enter(self, name: str, percent: int) -> None:
        """The step that starts now; percent of the whole document done before it."""
        now = time.perf_counter()
        if name != self.name:
            self._write_path.metrics.observe(STAGE_SECONDS, now - self._since, stage=self.name)
        self.name, self._since = name, now
        if self._watch is not None:
            self._watch(name, percent)


Prepared = list[PreparedPart] | AwaitingRecognition | Receipt
"""A document's parts, or its way to the OCR stage, or the receipt that ends it."""


def prepare(write_path: WritePath, work: Work, *, owner: str, recognize: bool = False) -> Prepared:
    """Claim one listed file and prepare it. Never raises for a document.

    owner: of the claim, the run's id. recognize: here is the OCR stage. Elsewhere no text is recognised if
    `write_path.text_parser` says so.
    """
    with bound(run_id=owner, document_id=work.document_id):
        return _prepare(write_path, work, owner, recognize)


def _prepare(write_path: WritePath, work: Work, owner: str, recognize: bool) -> Prepared:
    started = time.perf_counter()
    stage = Stage(write_path)
    claim: Claim | None = None
    try:
        claim = write_path.retry.call(
            lambda: write_path.ledger.claim(
                work.knowledge_base_id,
                work.source_id,
                work.file,
                work.content_fingerprint,
                owner=owner,
                lease_seconds=write_path.lease_seconds,
            )
        )
        if claim is None:
            return _not_ours(write_path, work)
        if claim.resumed:
            return resume(write_path, work, claim)
        text_only = write_path.text_parser is not None and not recognize
        fetch = partial(write_path.inputs.fetch, work.file.uri)
        return prepare_claimed(write_path, work, claim, stage, fetch, started, text_only=text_only)
    except ClaimLostError as error:
        if claim is not None:
            leave(write_path, work.knowledge_base_id, claim)
        return Receipt(work.file.uri, work.document_id, "busy", stage=stage.name, message=error.message)
    except Exception as error:  # becomes the document's failure row
        failure, seconds = Failure.of(error, stage.name), time.perf_counter() - started
        return failed(write_path, work.knowledge_base_id, work.file.uri, work.document_id, claim, failure, seconds)


def _not_ours(write_path: WritePath, work: Work) -> Receipt:
    """Somebody has it in hand, or it was deleted or failed for good since the run began."""
    if write_path.retry.call(lambda: write_path.catalog.index_row_facts(work.document_id)) is None:
        return deleted_meanwhile(work.file.uri, work.document_id, "claim")
    versions = write_path.retry.call(lambda: write_path.catalog.versions(work.document_id))
    newest = versions[-1] if versions else None
    if newest is None or newest.status is not DocumentStatus.FAILED:
        return Receipt(work.file.uri, work.document_id, "busy", stage="claim", message="claimed by another owner")
    return Receipt(
        work.file.uri,
        work.document_id,
        "failed",
        newest.version,
        stage=newest.error_stage or "",
        error_type=newest.error_type,
        message=newest.error_message or "",
    )


def resume(write_path: WritePath, work: Work, claim: Claim) -> list[PreparedPart] | Receipt:
    """Parts that are not done of a version whose snapshot is committed. Nothing is fetched or parsed."""
    pending = write_path.retry.call(lambda: write_path.ledger.pending_parts(claim.document_id, claim.version))
    if not pending:
        outcome = "ready" if is_ready(write_path, claim) else "busy"
        return Receipt(work.file.uri, work.document_id, outcome, claim.version, stage="claim")
    chunks = sum(part.end - part.start for part in pending)
    later = ids.awaiting_recognition(work.content_fingerprint)
    # How many pages await recognition stands in the snapshot; that there are some is enough here.
    first = replace(_first_part(work, claim, chunks), awaiting=int(bool(later) and claim.content_fingerprint == later))
    return [replace(first, part=part.index, start=part.start, end=part.end) for part in pending]


def _first_part(work: Work, claim: Claim, chunks: int) -> PreparedPart:
    return PreparedPart(
        work.knowledge_base_id,
        work.file.uri,
        claim.document_id,
        claim.version,
        claim.owner,
        claim.token,
        part=0,
        start=0,
        end=0,
        chunks=chunks,
    )


def prepare_claimed(
    write_path: WritePath,
    work: Work,
    claim: Claim,
    stage: Stage,
    fetch: Fetch,
    started: float,
    *,
    text_only: bool = False,
) -> Prepared:
    """From a claim to a committed snapshot. Raises a RagClusterError that belongs to `stage.name`.

    text_only: nothing is recognised. A document that needs it gives its claim back and goes to the OCR stage, at once
    or, with `write_path.text_first`, behind a version of the text that is there.
    """
    ledger, retry, file = write_path.ledger, write_path.retry, work.file
    with tempfile.TemporaryDirectory(prefix="rag-cluster-") as directory:
        # The original name may hold anything; the extension is all that a parser needs of it.
        path = str(Path(directory) / f"source{Path(file.filename).suffix.lower()[:16]}")
        retry.call(lambda: ledger.set_status(claim, DocumentStatus.PARSING))
        stage.enter("fetch", 0)
        if file.size > write_path.max_file_bytes:
            raise DocumentTooLargeError(
                f"{file.filename} has {file.size} bytes; the limit is {write_path.max_file_bytes} (RAG_MAX_FILE_BYTES)"
            )
        sha256, size = retry.call(lambda: fetch(path))
        write_path.metrics.count(BYTES_TOTAL, size)
        if claim.version > 1 and retry.call(lambda: ledger.settle_unchanged(claim, file, sha256)):
            seconds = time.perf_counter() - started
            write_path.metrics.count(DOCUMENTS_TOTAL, outcome="unchanged")
            return Receipt(file.uri, work.document_id, "unchanged", bytes=size, seconds=seconds)
        duplicate_of = retry.call(lambda: ledger.duplicate_of(claim, sha256))
        stage.enter("parse", 10)
        parsed = _parse(write_path, work, claim, path, size, text_only=text_only)
        write_path.metrics.count(PAGES_TOTAL, _pages(parsed))
        awaiting = 0
        if text_only:
            awaiting = 0 if _recognition(write_path, work) == "off" else parsed.unrecognized
            work = replace(work, content_fingerprint=_found_fingerprint(work.content_fingerprint, parsed, awaiting))
            if awaiting and not (write_path.text_first and _has_text(write_path, work, parsed)):
                retry.call(lambda: ledger.give_back(claim))
                return AwaitingRecognition(work.document_id, awaiting, size)
        if write_path.describer is not None and not awaiting:
            stage.enter("describe", 30)
            parsed = describe_images(parsed, write_path.describer(), max_pictures=write_path.max_described)
        retry.call(lambda: ledger.set_status(claim, DocumentStatus.CHUNKING))
        stage.enter("chunk", 40)
        chunked = _chunk(write_path, work, parsed)
        stage.enter("store", 50)
        _store(write_path, work, claim, parsed, path)
    stage.enter("snapshot", 55)
    snapshot = _snapshot(write_path, work, claim, parsed, chunked, sha256)
    retry.call(lambda: write_path.snapshots.save(snapshot))
    retry.call(
        lambda: ledger.commit_snapshot(
            claim, sha256=sha256, size=size, parts=snapshot.parts, content_fingerprint=work.content_fingerprint
        )
    )
    stage.enter("index", 60)
    first = replace(
        _first_part(work, claim, len(chunked.chunks)),
        pages=_pages(parsed),
        bytes=size,
        seconds=time.perf_counter() - started,
        duplicate_of=duplicate_of,
        warnings=parsed.warnings[:20],
        recognized=parsed.recognized,
        awaiting=awaiting,
    )
    return [replace(first, part=part.index, start=part.start, end=part.end) for part in snapshot.parts]


def _recognition(write_path: WritePath, work: Work) -> str:
    return write_path.parser_info(work.file.filename).recognition


def _found_fingerprint(claimed: str, parsed: ParsedDocument, awaiting: int) -> str:
    """What parsing without recognition showed: whether recognition matters to this document at all."""
    if awaiting:
        return ids.awaiting_recognition(claimed)
    return claimed if parsed.unrecognized else ids.nothing_recognized(claimed)


def _has_text(write_path: WritePath, work: Work, parsed: ParsedDocument) -> bool:
    try:
        return bool(_chunk(write_path, work, parsed).chunks)
    except EmptyDocumentError:
        return False


def _parse(write_path: WritePath, work: Work, claim: Claim, path: str, size: int, *, text_only: bool) -> ParsedDocument:
    if size == 0:
        raise EmptyDocumentError(f"{work.file.filename} has no bytes")
    source = DocumentSource(claim.document_id, claim.version, work.file.filename, path, size=size)
    parser = write_path.text_parser if text_only and write_path.text_parser is not None else write_path.parser
    return parser().parse(source)


def _chunk(write_path: WritePath, work: Work, parsed: ParsedDocument) -> ChunkedDocument:
    chunker = write_path.chunker(work.strategy)
    chunked = chunker.split(parsed, knowledge_base_id=work.knowledge_base_id, fingerprint=work.content_fingerprint)
    if not chunked.chunks:
        missing = parsed.unrecognized
        why = f": {missing} pages or pictures would have to be recognised (--ocr auto, RAG_OCR=auto)" if missing else ""
        raise EmptyDocumentError(f"No text was found in {work.file.filename}{why}")
    named = tuple(
        replace(chunk, metadata={**chunk.metadata, "filename": work.file.filename}) for chunk in chunked.chunks
    )
    return ChunkedDocument(named, chunked.parents)


def _store(write_path: WritePath, work: Work, claim: Claim, parsed: ParsedDocument, path: str) -> None:
    """Assets, then the original: both are there before the snapshot that refers to them."""
    kb, document_id, version = work.knowledge_base_id, claim.document_id, claim.version
    objects, retry = write_path.objects, write_path.retry
    assets = [DocumentAsset.of(asset, kb, document_id, version) for asset in parsed.assets]
    for asset, parsed_asset in zip(assets, parsed.assets, strict=True):
        retry.call(partial(objects.put, asset.object_key, parsed_asset.content))
    if assets:
        retry.call(lambda: write_path.catalog.add_assets(assets))
    if not (work.original_stored or claim.referenced):
        source = keys.source_key(kb, document_id, version, work.file.filename)
        retry.call(lambda: objects.put_file(source, path))


def _snapshot(
    write_path: WritePath, work: Work, claim: Claim, parsed: ParsedDocument, chunked: ChunkedDocument, sha256: str
) -> Snapshot:
    parser = write_path.parser_info(work.file.filename)
    return Snapshot(
        knowledge_base_id=work.knowledge_base_id,
        document_id=claim.document_id,
        version=claim.version,
        filename=work.file.filename,
        sha256=sha256,
        content_fingerprint=work.content_fingerprint,
        parser_name=parser.name,
        parser_version=parser.version,
        chunking_strategy=write_path.chunker(work.strategy).name,
        blocks=parsed.blocks,
        chunked=chunked,
        parts=part_boundaries(chunked, claim.document_id, claim.version),
        metadata=parsed.metadata,
        warnings=parsed.warnings,
    )


def _pages(parsed: ParsedDocument) -> int:
    for name in ("pages", "slides", "sheets"):
        value = parsed.metadata.get(name)
        if isinstance(value, int):
            return value
    return 0
