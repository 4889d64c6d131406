"""One tree of errors, each with a stable type, a numeric code, an HTTP status, and whether a retry can help.

    RagClusterError
    ├── InvalidRequestError            1000 invalid_request             400
    │   ├── InvalidFilterError         1010 invalid_filter              400
    │   ├── InvalidSettingError        1011 invalid_setting             400
    │   └── ContextOverflowError       1012 context_overflow            400
    ├── NotFoundError                  1001 not_found                   404
    ├── DocumentError                  (a document's content is at fault; permanent)
    │   ├── UnsupportedDocumentTypeError 1002 unsupported_document_type 415
    │   ├── DocumentTooLargeError      1003 document_too_large          413
    │   ├── EmptyDocumentError         1004 empty_document              400
    │   ├── CorruptDocumentError       1005 corrupt_document            400
    │   ├── EncryptedDocumentError     1006 encrypted_document          400
    │   ├── ParseTimeoutError          1007 parse_timeout               400
    │   └── ParseCrashError            1008 parse_crash                 400
    ├── AuthenticationError            2001 unauthenticated             401
    ├── ForbiddenError                 2002 forbidden                   403
    ├── ConflictError                  3001 conflict                    409
    │   ├── DocumentBusyError          3002 document_busy               409
    │   └── IdempotencyConflictError   3003 idempotency_conflict        409
    ├── OverloadedError                3004 overloaded                  429
    ├── OriginalChangedError           3005 original_changed            409
    ├── OriginalGoneError              3006 original_gone               410
    ├── ExternalServiceError           (an outage; retryable)
    │   ├── StoreUnavailableError      4001 store_unavailable           502
    │   ├── ModelUnavailableError      4002 model_unavailable           502
    │   └── SourceUnavailableError     4003 source_unavailable          502
    ├── DeadlineExceededError          4004 deadline_exceeded           504
    ├── ClaimLostError                 4005 claim_lost                  409
    ├── IndexMismatchError             4006 index_mismatch              503
    ├── MissingDependencyError         4007 missing_dependency          500
    ├── CorruptSnapshotError           4008 corrupt_snapshot            500
    ├── JobFailedError                 4009 job_failed                  502
    ├── CorruptObjectError             4010 corrupt_object              502
    └── InternalError                  5000 internal_error              500

Numeric codes continue seed 003's (1002, 1003, 5000).
"""

from __future__ import annotations

from functools import partial


class RagClusterError(Exception):
    """Root. `type` and `code` never change meaning; `message` is for people and says what to do."""

    type: str = "internal_error"
    code: int = 5000
    http_status: int = 500
    permanent: bool = False
    """True when the same input would fail again, so that a retry is useless."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after = retry_after
        """Seconds after which a retry may succeed, where that is known."""

    def __reduce__(self) -> tuple[object, ...]:
        # Ray and the parse child pickle errors; keyword-only arguments need a hand.
        return (_rebuild, (type(self), self.message, self.retry_after))


def _rebuild(cls: type[RagClusterError], message: str, retry_after: float | None) -> RagClusterError:
    return cls(message, retry_after=retry_after)


class InvalidRequestError(RagClusterError):
    """The request is not of the form that the API takes."""

    type, code, http_status, permanent = "invalid_request", 1000, 400, True


class InvalidFilterError(InvalidRequestError):
    """A metadata filter cannot be compiled."""

    type, code = "invalid_filter", 1010


class InvalidSettingError(InvalidRequestError):
    """A setting is missing, contradicts another one or cannot be met on this machine."""

    type, code = "invalid_setting", 1011


class ContextOverflowError(InvalidRequestError):
    """Question and sources are longer than what the language model reads."""

    type, code = "context_overflow", 1012

    def __init__(self, message: str, *, tokens: int = 0, limit: int = 0, retry_after: float | None = None) -> None:
        super().__init__(message, retry_after=retry_after)
        self.tokens = tokens
        """Of the prompt; 0 where the model did not say."""
        self.limit = limit
        """For the prompt, with room for an answer; 0 where the model did not say."""

    def __reduce__(self) -> tuple[object, ...]:
        return (
            partial(ContextOverflowError, tokens=self.tokens, limit=self.limit, retry_after=self.retry_after),
            (self.message,),
        )


class NotFoundError(RagClusterError):
    """The thing does not exist, or the caller may not know that it does."""

    type, code, http_status, permanent = "not_found", 1001, 404, True


class DocumentError(RagClusterError):
    """The content of one document is at fault."""

    http_status, permanent = 400, True


class UnsupportedDocumentTypeError(DocumentError):
    """No parser, or extension and content disagree; the message names both."""

    type, code, http_status = "unsupported_document_type", 1002, 415


class DocumentTooLargeError(DocumentError):
    """A size, page, pixel or expansion limit would be passed."""

    type, code, http_status = "document_too_large", 1003, 413


class EmptyDocumentError(DocumentError):
    """No text was found."""

    type, code = "empty_document", 1004


class CorruptDocumentError(DocumentError):
    """The file cannot be read as its format."""

    type, code = "corrupt_document", 1005


class EncryptedDocumentError(DocumentError):
    """The file needs a password."""

    type, code = "encrypted_document", 1006


class ParseTimeoutError(DocumentError):
    """Parsing passed its time limit on every attempt."""

    type, code = "parse_timeout", 1007


class ParseCrashError(DocumentError):
    """The parser process died on every attempt."""

    type, code = "parse_crash", 1008


class AuthenticationError(RagClusterError):
    """No valid API key."""

    type, code, http_status, permanent = "unauthenticated", 2001, 401, True


class ForbiddenError(RagClusterError):
    """The key is valid but not for this."""

    type, code, http_status, permanent = "forbidden", 2002, 403, True


class ConflictError(RagClusterError):
    """The request contradicts what is there."""

    type, code, http_status = "conflict", 3001, 409


class DocumentBusyError(ConflictError):
    """Somebody holds a live claim on the document."""

    type, code = "document_busy", 3002


class IdempotencyConflictError(ConflictError):
    """The same Idempotency-Key came with another request."""

    type, code = "idempotency_conflict", 3003


class OverloadedError(RagClusterError):
    """Over capacity; retry after `retry_after` seconds."""

    type, code, http_status = "overloaded", 3004, 429


class OriginalChangedError(RagClusterError):
    """A referenced original holds other bytes than its document was made of; ingest it again."""

    type, code, http_status = "original_changed", 3005, 409


class OriginalGoneError(RagClusterError):
    """A referenced original is not where it was ingested from any more."""

    type, code, http_status = "original_gone", 3006, 410


class ExternalServiceError(RagClusterError):
    """Something outside this process failed; the work can be tried again."""

    http_status = 502


class StoreUnavailableError(ExternalServiceError):
    """PostgreSQL, Milvus or the object store did not answer."""

    type, code = "store_unavailable", 4001


class ModelUnavailableError(ExternalServiceError):
    """An embedder, reranker or generator failed."""

    type, code = "model_unavailable", 4002


class SourceUnavailableError(ExternalServiceError):
    """An input could not be fetched."""

    type, code = "source_unavailable", 4003


class DeadlineExceededError(RagClusterError):
    """The request's deadline passed."""

    type, code, http_status = "deadline_exceeded", 4004, 504


class ClaimLostError(RagClusterError):
    """The lease ended or the document was deleted while it was worked on; the result was not written."""

    type, code, http_status = "claim_lost", 4005, 409


class IndexMismatchError(RagClusterError):
    """A collection has another dimension or embedder fingerprint than the settings name (seed 003)."""

    type, code, http_status, permanent = "index_mismatch", 4006, 503, True


class MissingDependencyError(RagClusterError):
    """An optional package is not installed; the message names the extra."""

    type, code, permanent = "missing_dependency", 4007, True


class CorruptSnapshotError(RagClusterError):
    """A snapshot is torn or damaged; `rag-cluster fsck --repair` rebuilds it."""

    type, code, permanent = "corrupt_snapshot", 4008, True


class JobFailedError(RagClusterError):
    """A job on a cluster ended without its result; its log tells why."""

    type, code, http_status = "job_failed", 4009, 502


class CorruptObjectError(RagClusterError):
    """A stored original or image is damaged: `rag-cluster fsck --deep --repair`, or upload the document again."""

    type, code, http_status, permanent = "corrupt_object", 4010, 502, True


class InternalError(RagClusterError):
    """A fault of this program. The log has the stack trace."""


def _tree(root: type[RagClusterError]) -> dict[str, type[RagClusterError]]:
    found = {root.type: root} if "type" in vars(root) else {}
    for child in root.__subclasses__():
        found.update(_tree(child))
    return found


def told(error: BaseException) -> str:
    """What a caller may read of a failure: an error of this program has a message for people; of any other only the
    class is told, because its text may hold a stack trace, paths and addresses."""
    return error.message if isinstance(error, RagClusterError) else type(error).__name__


def error_types() -> dict[str, type[RagClusterError]]:
    """Stable type -> class, for rebuilding an error that came from another process, and for the docs' table."""
    return _tree(RagClusterError) | {"internal_error": InternalError}
