"""A document that stops: its failure row, and what a lost claim leaves behind."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial

from rag_cluster.domain.access import LOCAL
from rag_cluster.domain.documents import Claim, DocumentStatus, DocumentVersion, OutboxKind, Receipt
from rag_cluster.errors import ClaimLostError, DocumentError, ExternalServiceError, NotFoundError, RagClusterError
from rag_cluster.ingestion.write_path import WritePath
from rag_cluster.telemetry import DOCUMENTS_TOTAL, ERRORS_TOTAL

log = logging.getLogger("rag_cluster.ingestion")

DELETED_MEANWHILE = "deleted_meanwhile"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a document stopped, as it stands in the ledger and in the run report."""

    stage: str
    error_type: str
    message: str
    permanent: bool
    """The same bytes would fail again. Only a document's content can be at fault for ever; what the surroundings did
    is worth another run."""

    @classmethod
    def of(cls, error: BaseException, stage: str) -> Failure:
        """Stable type of an error. What is not ours is an internal_error, worth another try with the next release."""
        if isinstance(error, RagClusterError):
            return cls(stage, error.type, error.message, isinstance(error, DocumentError))
        log.error("unexpected error", exc_info=error, extra={"stage": stage})
        return cls(stage, "internal_error", f"{type(error).__name__}: {error}"[:500], False)


def failed(
    write_path: WritePath,
    knowledge_base_id: str,
    uri: str,
    document_id: str,
    claim: Claim | None,
    failure: Failure,
    seconds: float = 0.0,
) -> Receipt:
    """Write a failure to the ledger and give its receipt. Without a claim there is nothing to write."""
    write_path.metrics.count(ERRORS_TOTAL, stage=failure.stage, type=failure.error_type)
    receipt = Receipt(
        uri,
        document_id,
        "failed",
        version=claim.version if claim else 0,
        seconds=seconds,
        stage=failure.stage,
        error_type=failure.error_type,
        message=failure.message,
    )
    if claim is None:
        return receipt
    try:
        if not record_failure(write_path, claim, failure):
            leave(write_path, knowledge_base_id, claim)
            return replace(receipt, outcome="busy", error_type=None, message="the claim was lost")
    except ExternalServiceError:
        # The ledger itself is out of reach: the version stays unfinished, so that the next run resumes it.
        log.warning("failure not written to the ledger", exc_info=True, extra={"uri": uri, "document_id": document_id})
    write_path.metrics.count(DOCUMENTS_TOTAL, outcome=receipt.outcome)
    return receipt


def deleted_meanwhile(uri: str, document_id: str, stage: str) -> Receipt:
    """Of a document that somebody deleted after the run began: it stays deleted until a later run lists it."""
    message = "deleted since this run began; the next run that lists it brings it back"
    return Receipt(uri, document_id, "skipped", stage=stage, error_type=DELETED_MEANWHILE, message=message)


def record_failure(write_path: WritePath, claim: Claim, failure: Failure) -> bool:
    """FAILED in the ledger. False when the claim is no longer ours, so that nothing was written."""
    try:
        write_path.retry.call(
            lambda: write_path.ledger.fail(
                claim,
                stage=failure.stage,
                error_type=failure.error_type,
                message=failure.message,
                permanent=failure.permanent,
            )
        )
    except ClaimLostError:
        return False
    return True


def leave(write_path: WritePath, knowledge_base_id: str, claim: Claim) -> None:
    """After a lost claim: a delete is owed of what this owner wrote to other stores for a version that is over.

    That is a version of a deleted document (which may have been ingested again since), one that a later version
    replaced, or one that failed for good: nobody takes those up again. Any other new owner writes the same ids again.
    Version numbers are never reused, so the delete can never meet later rows.
    """
    try:
        document = write_path.retry.call(lambda: write_path.catalog.document(claim.document_id, LOCAL))
    except NotFoundError:
        document = None
    found = version_of(write_path, claim)
    gone = document is None or found is None or (document.published_version or 0) > claim.version
    owed: list[OutboxKind] = []
    if gone or (found is not None and found.status is DocumentStatus.FAILED and found.error_permanent):
        owed.append(OutboxKind.INDEX_DELETE)
    if gone:
        owed.append(OutboxKind.PURGE_VERSION)
    add, payload = write_path.outbox.add, {"version": claim.version}
    for kind in owed:
        write_path.retry.call(partial(add, kind, claim.document_id, knowledge_base_id, payload))


def version_of(write_path: WritePath, claim: Claim) -> DocumentVersion | None:
    """The claimed version as it is now; None when it is gone."""
    versions = write_path.retry.call(lambda: write_path.catalog.versions(claim.document_id))
    return next((found for found in versions if found.version == claim.version), None)


def is_ready(write_path: WritePath, claim: Claim) -> bool:
    """Whether the claimed version was published meanwhile."""
    found = version_of(write_path, claim)
    return found is not None and found.status is DocumentStatus.READY
