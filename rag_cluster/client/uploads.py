"""Texts and files of this machine, sent through /v1 as uploads and followed until they can be searched."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, ClassVar
from urllib.parse import unquote, urlsplit

from rag_cluster.client.http import Api, segment
from rag_cluster.client.ingest import groups, is_frame, records
from rag_cluster.client.views import Row, Tabular
from rag_cluster.domain.documents import JobStatus
from rag_cluster.errors import DeadlineExceededError, DocumentError, InvalidRequestError, OverloadedError
from rag_cluster.serving.schemas import JobResponse, UploadResponse

COLUMNS = ("text", "uri", "filename", "metadata", "acl", "department", "security_level", "chunking")
TEXT_SUFFIXES = (".txt", ".md")
POLL_SECONDS = 0.3
MAX_NAME_BYTES = 200
REFUSED = "REFUSED"
"""Status of what was not taken, besides those of jobs."""


@dataclass(frozen=True, slots=True)
class Upload:
    """One document to send."""

    filename: str
    content: bytes | Path
    acl: str | Sequence[str] | None = None
    department: str | None = None
    security_level: int = 0
    metadata: Mapping[str, Any] | None = None
    chunking: str | None = None

    def fields(self) -> dict[str, str]:
        """The form's other fields. InvalidRequestError for metadata that is no JSON."""
        try:
            values = {
                "acl": None if self.acl is None else json.dumps(groups(self.acl), ensure_ascii=False),
                "department": self.department,
                "security_level": str(self.security_level) if self.security_level else None,
                "metadata": json.dumps(dict(self.metadata), ensure_ascii=False) if self.metadata else None,
                "chunking": self.chunking,
            }
        except TypeError as error:
            raise InvalidRequestError(f"{self.filename}: metadata: {error}") from None
        return {name: value for name, value in values.items() if value is not None}

    @contextlib.contextmanager
    def opened(self) -> Iterator[bytes | IO[bytes]]:
        """The bytes, or the file to read them from."""
        if isinstance(self.content, bytes):
            yield self.content
        else:
            try:
                file = self.content.open("rb")
            except OSError as error:  # gone or not to be read: the others go on
                raise InvalidRequestError(f"{self.content} cannot be read: {error.strerror}") from None
            with file:
                yield file


class UploadsView(Tabular):
    """What became of each upload, in the order given."""

    columns: ClassVar[tuple[str, ...]] = (
        "filename",
        "status",
        "deduplicated",
        "error_type",
        "error_message",
        "document_id",
        "job_id",
    )

    def __init__(self, items: Sequence[Row]) -> None:
        self.items = tuple(items)

    @property
    def ok(self) -> bool:
        """Whether all can be searched."""
        return all(item["status"] == JobStatus.SUCCEEDED for item in self.items)

    @property
    def document_ids(self) -> list[str]:
        """Of what was taken."""
        return [item["document_id"] for item in self.items if item["document_id"]]

    def rows(self) -> list[Row]:
        """One an upload."""
        return [dict(item) for item in self.items]

    def _headline(self) -> str:
        done = sum(item["status"] == JobStatus.SUCCEEDED for item in self.items)
        return f"{done} of {len(self.items)} documents ready"


class Uploads:
    """Sends to one knowledge base. work: does a piece of the queue's work in this process; False: there is none."""

    def __init__(self, api: Api, knowledge_base: str, work: Callable[[], bool], timeout: float) -> None:
        self._api = api
        self._path = f"/v1/knowledge-bases/{segment(knowledge_base)}/documents"
        self._work = work
        self._deadline = time.monotonic() + timeout

    def send(self, uploads: Iterable[Upload]) -> UploadsView:
        """Send and follow. What the server refuses for its content, and jobs that fail, are rows.

        DeadlineExceededError after the timeout; what was sent by then goes on without us.
        """
        sent = [self._send(upload) for upload in uploads]
        return UploadsView([self._followed(row) if row["job_id"] else row for row in sent])

    def _send(self, upload: Upload) -> Row:
        row = dict.fromkeys(UploadsView.columns, None) | {"filename": upload.filename, "deduplicated": False}
        try:
            accepted = self._accepted(upload)
        except (DocumentError, InvalidRequestError) as error:  # becomes the upload's row
            return row | {"status": REFUSED, "error_type": error.type, "error_message": error.message}
        return row | accepted.model_dump()

    def _accepted(self, upload: Upload) -> UploadResponse:
        """Sent again as long as the queue is full."""
        while True:
            try:
                with upload.opened() as content:
                    files = {"file": (upload.filename, content)}
                    answer = self._api.request("POST", self._path, files=files, data=upload.fields())
                return UploadResponse.model_validate(answer)
            except OverloadedError as error:
                self._pause(error.retry_after or 1.0)

    def _followed(self, row: Row) -> Row:
        while True:
            job = self._api.get(f"/v1/jobs/{segment(row['job_id'])}", JobResponse)
            if job.status in (JobStatus.SUCCEEDED, JobStatus.FAILED):
                return row | job.model_dump(include={"status", "error_type", "error_message"})
            self._pause(POLL_SECONDS)

    def _pause(self, seconds: float) -> None:
        if time.monotonic() > self._deadline:
            raise DeadlineExceededError("The uploads are not ready yet; they go on. Look at documents() later.")
        if not self._work():
            time.sleep(seconds)


def texts_as_uploads(texts: Any, defaults: Mapping[str, Any]) -> list[Upload]:
    """Of a text, texts, dictionaries or a DataFrame with `COLUMNS`, of which only `text` is required.

    defaults: acl, department, security_level and chunking of rows that state none. A row's `uri` is kept in its
    metadata and names its file. InvalidRequestError names the row.
    """
    if isinstance(texts, str | Mapping):
        texts = [texts]
    rows = records(texts) if is_frame(texts) else list(texts)
    return [_text_upload(number, row, defaults) for number, row in enumerate(rows, 1)]


def _text_upload(number: int, row: object, defaults: Mapping[str, Any]) -> Upload:
    if isinstance(row, str):
        row = {"text": row}
    if not isinstance(row, Mapping):
        raise InvalidRequestError(f"Text {number} is a {type(row).__name__}, not a text or a dictionary.")
    given = {str(name): value for name, value in row.items() if value is not None}
    if unknown := sorted(given.keys() - set(COLUMNS)):
        raise InvalidRequestError(f"Text {number} has {', '.join(unknown)}; known are {', '.join(COLUMNS)}.")
    text = given.pop("text", None)
    if not isinstance(text, str) or not text.strip():
        raise InvalidRequestError(f"Text {number} has no text.")
    uri, filename = given.pop("uri", None), given.pop("filename", None)
    metadata = dict(given.pop("metadata", None) or {}) | ({"uri": str(uri)} if uri else {})
    content = text.encode("utf-8", errors="replace")
    return Upload(_filename(filename or uri, content), content, metadata=metadata, **{**defaults, **given})


def _filename(name: object, content: bytes) -> str:
    """A plain name with a text's extension."""
    base = PurePosixPath(unquote(urlsplit(str(name)).path) if name else "").name
    base = base or f"text-{hashlib.sha256(content).hexdigest()[:12]}"
    suffix = next((end for end in TEXT_SUFFIXES if base.lower().endswith(end)), "")
    stem = base[: len(base) - len(suffix)].encode()[:MAX_NAME_BYTES].decode(errors="ignore")
    return stem + (suffix or TEXT_SUFFIXES[0])


def files_as_uploads(paths: Sequence[str], defaults: Mapping[str, Any]) -> list[Upload]:
    """Files of this machine; of a folder all that are not hidden. InvalidRequestError for a path that is not there."""
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = (file for file in sorted(path.rglob("*")) if file.is_file())
            found += [f for f in inside if not any(part.startswith(".") for part in f.relative_to(path).parts)]
        elif path.is_file():
            found.append(path)
        else:
            raise InvalidRequestError(f"There is no file or folder {path}.")
    return [Upload(path.name, path, **defaults) for path in found]
