"""What is to do: list the inputs, ask the ledger, apply what needs no parsing. Reads no byte of any file."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from rag_cluster.domain.access import AccessAttributes
from rag_cluster.domain.documents import PlanAction, PlannedFile, Receipt, SourceFile
from rag_cluster.domain.ports import InputProblem
from rag_cluster.errors import NotFoundError, RagClusterError, UnsupportedDocumentTypeError
from rag_cluster.ingestion.failures import deleted_meanwhile
from rag_cluster.ingestion.listing import Patterns, list_inputs
from rag_cluster.ingestion.write_path import WritePath

BATCH = 1000
"""Listed files per question to the ledger."""


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """A run's choices that decide what is to do."""

    access: AccessAttributes | None = None
    """Of every document of the run. None: a document keeps what it has."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Added to every document's metadata."""
    chunking_strategy: str | None = None
    retry_failed: bool = False
    """Try again what failed permanently."""
    verify_content: bool = False
    """Read and hash every file, also those whose size and etag are unchanged."""
    manifests: Sequence[str] = ()
    """Locations of user manifests; what they say of a file comes before what the inputs say."""
    patterns: Patterns = Patterns()
    reference: bool = False
    """Originals stay where they lie; no copies are made of what this run prepares."""
    dry_run: bool = False
    """Change nothing: access and metadata changes are told, not applied."""


def plan(
    write_path: WritePath, knowledge_base_id: str, inputs: Sequence[str], options: PlanOptions = PlanOptions()
) -> Iterator[PlannedFile | Receipt]:
    """Stream over the inputs: a PlannedFile (PREPARE or INDEX) for what is to do, a Receipt for what is settled.

    Access and metadata changes are applied here, at once. Memory is bounded by one batch.
    """
    listed = list_inputs(write_path.inputs, inputs, options.manifests, options.patterns)
    while batch := list(islice(listed, BATCH)):
        files: list[SourceFile] = []
        fingerprints: list[str] = []
        for entry in batch:
            if isinstance(entry, InputProblem):
                yield _problem(entry)
                continue
            try:
                strategy = entry.chunking_strategy or options.chunking_strategy
                fingerprints.append(write_path.content_fingerprint(entry.filename, strategy))
            except RagClusterError as error:  # becomes the file's row
                outcome = "skipped" if isinstance(error, UnsupportedDocumentTypeError) else "failed"
                yield Receipt(entry.uri, "", outcome, stage="plan", error_type=error.type, message=error.message)
                continue
            files.append(_with_options(entry, options))
        yield from _compare(write_path, knowledge_base_id, files, fingerprints, options)


def _problem(problem: InputProblem) -> Receipt:
    # Left out on purpose, by a rule that a person can read; anything else is a file that somebody wanted.
    by_rule = problem.error_type.startswith("skipped_") or problem.error_type == "special_file"
    outcome = "skipped" if by_rule else "failed"
    return Receipt(problem.uri, "", outcome, stage="list", error_type=problem.error_type, message=problem.message)


def _with_options(file: SourceFile, options: PlanOptions) -> SourceFile:
    # A listing that says nothing about access leaves a document as it is: what a person set over HTTP must survive
    # the next run, and a changed file must not open what was closed. What a manifest says of one file comes first.
    stated = file.access != AccessAttributes()
    metadata = {**options.metadata, **file.metadata}
    return replace(
        file,
        access=file.access if stated else options.access or file.access,
        metadata=metadata,
        keeps_access=options.access is None and not stated,
        keeps_metadata=not metadata,
        referenced=options.reference,
    )


def _compare(
    write_path: WritePath,
    knowledge_base_id: str,
    files: Sequence[SourceFile],
    fingerprints: Sequence[str],
    options: PlanOptions,
) -> Iterator[PlannedFile | Receipt]:
    if not files:
        return
    verdicts = write_path.retry.call(
        lambda: write_path.ledger.compare(knowledge_base_id, files, fingerprints, retry_failed=options.retry_failed)
    )
    for planned in verdicts:
        yield _settle(write_path, planned, options)


def _settle(write_path: WritePath, planned: PlannedFile, options: PlanOptions) -> PlannedFile | Receipt:
    file, document_id = planned.file, planned.document_id
    match planned.action:
        case PlanAction.PREPARE if write_path.recognizes_only(file.filename):
            return replace(planned, action=PlanAction.RECOGNIZE)
        case PlanAction.RECOGNIZE:
            # Its text is visible already and may wait for long: who may read it changes now.
            if not options.dry_run and not (file.keeps_access and file.keeps_metadata):
                applied = _apply_attributes(write_path, planned)
                return applied if applied.outcome == "skipped" else planned
            return planned
        case PlanAction.PREPARE | PlanAction.INDEX:
            return planned
        case PlanAction.SKIP_FAILED:
            return Receipt(
                file.uri,
                document_id,
                "skipped",
                stage="plan",
                error_type=planned.error_type,
                message=f"{planned.reason or 'failed for good'}; so before, --retry-failed tries again",
            )
        case PlanAction.ATTRIBUTES:
            if options.dry_run:
                return Receipt(file.uri, document_id, "attributes")
            return _apply_attributes(write_path, planned)
        case PlanAction.UNCHANGED:
            if options.verify_content:
                return replace(planned, action=PlanAction.PREPARE)
            return Receipt(file.uri, document_id, "unchanged")


def _apply_attributes(write_path: WritePath, planned: PlannedFile) -> Receipt:
    file, document_id = planned.file, planned.document_id
    started = time.perf_counter()
    access = None if file.keeps_access else file.access
    metadata = None if file.keeps_metadata else file.metadata
    try:
        write_path.retry.call(lambda: write_path.catalog.update_document(document_id, access=access, metadata=metadata))
    except NotFoundError:
        return deleted_meanwhile(file.uri, document_id, "plan")
    return Receipt(file.uri, document_id, "attributes", seconds=time.perf_counter() - started)
