"""/v1/knowledge-bases/{kb}/documents and /v1/documents/{id}: upload, list, get, patch, delete, original content."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, unquote

from fastapi import APIRouter, File, Form, Header, Query, Request, UploadFile
from fastapi.responses import StreamingResponse
from pydantic import TypeAdapter, ValidationError

from rag_cluster.domain import ids, keys
from rag_cluster.domain.documents import UPLOAD_SOURCE, DocumentStatus, IngestionJob, SourceKind
from rag_cluster.domain.plain_values import check_plain
from rag_cluster.domain.ports import UploadRequest
from rag_cluster.errors import (
    DocumentTooLargeError,
    EmptyDocumentError,
    ExternalServiceError,
    InvalidRequestError,
    NotFoundError,
    OverloadedError,
    RagClusterError,
)
from rag_cluster.parsing.detection import check_content
from rag_cluster.serving.auth import Administrator, Caller, Services, administrator, principal
from rag_cluster.serving.backend import Backend
from rag_cluster.serving.routes.knowledge_bases import Cursor, Limit, granted
from rag_cluster.serving.schemas import (
    AccessModel,
    Acl,
    DeleteResponse,
    Department,
    DocumentPage,
    DocumentPatch,
    DocumentResponse,
    JobResponse,
    Metadata,
    UploadResponse,
    binary,
)

router = APIRouter(prefix="/v1", tags=["documents"])

MAX_FILENAME_BYTES = 255
_PIECE = 1024 * 1024
_ACL: TypeAdapter[list[str] | None] = TypeAdapter(Acl | None)
_METADATA: TypeAdapter[dict[str, Any]] = TypeAdapter(Metadata)
_MIME_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+-]{1,100}")
_HIDING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Direction overrides: with them "gpj.exe" can be shown as "exe.jpg"."""


def safe_filename(name: str | None) -> str:
    """The upload's name, if it is a plain file name: InvalidRequestError for a path, a control character or nothing.

    A path is refused rather than cut to its last part: a client that sends one does not mean what we would store.
    """
    if not name or not name.strip():
        raise InvalidRequestError("The upload has no file name.")
    if len(name.encode("utf-8", "surrogatepass")) > MAX_FILENAME_BYTES:
        raise InvalidRequestError(f"The file name is longer than {MAX_FILENAME_BYTES} bytes.")
    plain = _decoded(name).strip()
    if any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") or char in _HIDING for char in plain):
        raise InvalidRequestError("The file name contains control characters.")
    if "/" in plain or "\\" in plain or plain in (".", ".."):
        raise InvalidRequestError("The file name must not contain a path.")
    return name.strip()


def _decoded(name: str) -> str:
    """The name as the most generous reader would decode its percent signs."""
    while (decoded := unquote(name)) != name:
        name = decoded
    return name


def _json_form(adapter: TypeAdapter[Any], text: str | None, field: str) -> Any:
    if text is None or not text.strip():
        return None
    try:
        return adapter.validate_python(check_plain(json.loads(text)))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(piece)[:100] for piece in (field, *first["loc"]))
        reason = f"{where}: {first['msg'].removeprefix('Value error, ')}"
    except RecursionError:
        reason = f"{field}: is nested too deeply"
    except ValueError as error:
        reason = f"{field}: is not the JSON that it should be: {error}"
    raise InvalidRequestError(reason)


def _spool(upload: UploadFile, path: Path, limit: int) -> tuple[str, int]:
    """Copy the upload to a file in pieces: (sha256, bytes)."""
    digest, size = hashlib.sha256(), 0
    with path.open("wb") as out:
        while piece := upload.file.read(_PIECE):
            size += len(piece)
            if size > limit:
                raise DocumentTooLargeError(f"The file is larger than the limit of {limit:,} bytes.")
            digest.update(piece)
            out.write(piece)
    if size == 0:
        raise EmptyDocumentError("The file is empty.")
    return digest.hexdigest(), size


def admit_upload(request: Request, services: Backend) -> None:
    """What can be said before the body is read: who may upload, and whether there is room in the queue."""
    administrator(principal(request, services))
    if services.uploads.backlog() >= services.settings.upload_backlog:
        raise OverloadedError("Too many uploads are waiting; retry later.", retry_after=10)


@router.post("/knowledge-bases/{knowledge_base}/documents", status_code=202)
def upload(
    knowledge_base: str,
    caller: Administrator,
    services: Services,
    file: Annotated[UploadFile, File(description="The document; its extension names its format.")],
    acl: Annotated[str | None, Form(description='JSON list of groups, e.g. ["staff"].')] = None,
    department: Annotated[Department | None, Form()] = None,
    security_level: Annotated[int, Form(ge=0, le=9)] = 0,
    metadata: Annotated[str | None, Form(description="JSON object.")] = None,
    chunking: Annotated[str | None, Form(description="Chunking strategy; default: the source's.")] = None,
    idempotency_key: Annotated[str | None, Header(pattern=r"^[\x21-\x7e]{1,200}$")] = None,
) -> UploadResponse:
    """Accept a document: checked, stored and queued when this returns; parsing and indexing follow in the job."""
    base = granted(services, caller, knowledge_base)
    filename = safe_filename(file.filename)
    groups = _json_form(_ACL, acl, "acl")
    access = AccessModel(acl=groups, department=department, security_level=security_level).attributes()
    facts = _json_form(_METADATA, metadata, "metadata") or {}
    source = services.catalog.ensure_source(base.id, SourceKind.UPLOAD, UPLOAD_SOURCE)
    strategy = chunking or source.default_chunking_strategy
    with tempfile.TemporaryDirectory(prefix="rag-upload-") as folder:
        path = Path(folder) / "upload"
        sha256, size = _spool(file, path, services.settings.max_file_bytes)
        check_content(str(path), filename, services.limits)
        request = UploadRequest(
            document_id=ids.upload_document_id(),
            knowledge_base_id=base.id,
            filename=filename,
            mime_type=declared if _MIME_TYPE.fullmatch(declared := file.content_type or "") else "",
            sha256=sha256,
            size=size,
            content_fingerprint=services.content_fingerprint(filename, strategy),
            access=access,
            metadata=facts,
            idempotency_key=idempotency_key,
            chunking_strategy=strategy,
        )
        duplicate = services.uploads.find_duplicate(caller, request) if idempotency_key is None else None
        if duplicate is not None:
            return _accepted(duplicate, deduplicated=True)
        job = _store_and_submit(services, request, path)
    return _accepted(job, deduplicated=job.document_id != request.document_id)


def _store_and_submit(services: Backend, request: UploadRequest, path: Path) -> IngestionJob:
    """Object first, then facts in one transaction; the object goes again when the facts were refused. After an outage
    nobody knows whether they were written: then it stays, and fsck removes it if nothing refers to it."""
    key = keys.source_key(request.knowledge_base_id, request.document_id, 1, request.filename)
    services.objects.put_file(key, str(path))
    try:
        job = services.uploads.submit(request)
    except RagClusterError as error:
        if not isinstance(error, ExternalServiceError):
            services.objects.delete(key)
        raise
    if job.document_id != request.document_id:
        services.objects.delete(key)  # The same Idempotency-Key came before: its document stands.
    return job


def _accepted(job: IngestionJob, *, deduplicated: bool) -> UploadResponse:
    return UploadResponse(document_id=job.document_id, job_id=job.id, status=job.status, deduplicated=deduplicated)


@router.get("/knowledge-bases/{knowledge_base}/documents")
def list_page(
    knowledge_base: str,
    caller: Caller,
    services: Services,
    status: DocumentStatus | None = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> DocumentPage:
    """The documents that the caller may read."""
    base = granted(services, caller, knowledge_base)
    items, next_cursor = services.catalog.list_documents(base.id, caller, status=status, cursor=cursor, limit=limit)
    return DocumentPage(items=[DocumentResponse.of(item) for item in items], next_cursor=next_cursor)


@router.get("/documents/{document_id}")
def get(document_id: str, caller: Caller, services: Services) -> DocumentResponse:
    """One document with its newest version's status."""
    return DocumentResponse.of(services.catalog.document(document_id, caller))


@router.patch("/documents/{document_id}")
def patch(document_id: str, body: DocumentPatch, caller: Administrator, services: Services) -> DocumentResponse:
    """Change access or metadata, in force for the next request, without parsing or embedding. A correction keeps its
    `question`."""
    found, metadata = services.catalog.document(document_id, caller), body.metadata
    if metadata is not None and "question" in found.metadata:
        source = services.agents.source(found.source_id, caller)
        if source.kind is SourceKind.MANAGED_CORRECTION:
            metadata = {**metadata, "question": found.metadata["question"]}
    changed = services.catalog.update_document(
        document_id, access=body.access.attributes() if body.access else None, metadata=metadata
    )
    services.drain_outbox(document_id)
    return DocumentResponse.of(changed)


@router.post("/documents/{document_id}/retry", status_code=202)
def retry(document_id: str, caller: Administrator, services: Services) -> JobResponse:
    """Try a failed document again, also one whose failure was permanent. 409 when its newest version did not fail."""
    services.catalog.document(document_id, caller)
    return JobResponse.of(services.retry_document(document_id))


@router.delete("/documents/{document_id}")
def delete(document_id: str, caller: Administrator, services: Services) -> DeleteResponse:
    """Delete a document everywhere; the receipt says per store what was verified gone. 409 while it is processed."""
    services.catalog.document(document_id, caller)
    return DeleteResponse.of(services.delete_document(document_id))


@router.get(
    "/documents/{document_id}/content",
    response_class=StreamingResponse,
    responses=binary("The file as it was uploaded or ingested.", "application/octet-stream"),
)
def content(
    document_id: str,
    caller: Caller,
    services: Services,
    version: Annotated[int | None, Query(ge=1, description="Default: the published version.")] = None,
) -> StreamingResponse:
    """The original file, as a download. One that was referenced in place comes from there: 410 `original_gone` when it
    is not there any more, 409 `original_changed` when it is another by now."""
    document = services.catalog.document(document_id, caller)
    wanted = version or document.published_version
    if wanted is None:
        raise NotFoundError("The document has no published version yet.")
    stream, size = services.original(document, wanted)

    def pieces() -> Iterator[bytes]:
        with stream:
            while piece := stream.read(_PIECE):
                yield piece

    return StreamingResponse(
        pieces(),
        media_type="application/octet-stream",
        headers={
            "Content-Length": str(size),
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(document.filename)}",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "private, no-store",
        },
    )
