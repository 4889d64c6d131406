"""Where lost content may be had again: the stored original parsed once more, or the place that it was fetched from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rag_cluster.domain import ids, keys
from rag_cluster.domain.blocks import DocumentSource, ParsedDocument
from rag_cluster.domain.chunks import ChunkedDocument, Snapshot, part_boundaries
from rag_cluster.domain.inventory import DocumentFacts, Finding, VersionFacts
from rag_cluster.errors import (
    CorruptObjectError,
    DocumentError,
    NotFoundError,
    OriginalChangedError,
    OriginalGoneError,
    RagClusterError,
)
from rag_cluster.ingestion.originals import fetch_referenced, fetch_stored
from rag_cluster.ingestion.write_path import WritePath
from rag_cluster.lifecycle.comparison import View


class Lost(Exception):
    """Nothing is left to repair these findings from (all of the group when none are named)."""

    def __init__(self, message: str, findings: Sequence[Finding] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.findings = tuple(findings)


@dataclass(frozen=True, slots=True)
class Reparsed:
    """The original, read again by the parser and chunker that made the version."""

    parsed: ParsedDocument
    snapshot: Snapshot


def parse_again(write_path: WritePath, view: View, strategy: str | None) -> Reparsed:
    """Lost when the original is not there, is not the version's, or parser or chunker have moved on since."""
    facts, version = view.facts, view.facts.published
    if version is None:
        raise Lost("the version's row is lost, so that nothing tells how it was made")
    try:
        fingerprint = write_path.content_fingerprint(facts.filename, strategy)
    except RagClusterError as error:
        raise Lost(f"it cannot be parsed again: {error.message}") from error
    if not ids.serves(version.content_fingerprint, fingerprint):
        raise Lost("it was made by another parser or chunker than today's: ingest it again")
    with _original(write_path, view, version) as path:
        source = DocumentSource(facts.id, version.version, facts.filename, path, size=version.size)
        try:
            parsed = write_path.parser().parse(source)
        except DocumentError as error:
            raise Lost(f"the original cannot be parsed again: {error.message}") from error
    return Reparsed(parsed, _snapshot(write_path, facts, version, parsed, strategy))


def fetch_again(write_path: WritePath, facts: DocumentFacts, version: VersionFacts, key: str) -> None:
    """Copy the original from where it was ingested. Lost when it is not there or has changed: a referenced one is the
    user's, and only they can put it back."""
    if facts.uri.startswith("upload://"):
        raise Lost("it was uploaded: only the uploader has it")
    with TemporaryDirectory(prefix="rag-cluster-") as directory:
        path = str(Path(directory) / "source")
        try:
            sha256, _ = write_path.inputs.fetch(facts.uri, path)
        except NotFoundError as error:
            raise Lost(f"its source is gone too: {error.message}") from error
        if sha256 != version.sha256:
            raise Lost("its source has changed since: the next ingest makes a new version")
        if version.referenced:
            return  # it is there again
        write_path.objects.put_file(key, path)


@contextmanager
def _original(write_path: WritePath, view: View, version: VersionFacts) -> Iterator[str]:
    facts = view.facts
    if version.referenced:
        with _referenced(write_path, facts, version) as copy:
            yield copy
        return
    prefix = keys.source_prefix(facts.knowledge_base_id, facts.id, version.version)
    key = next((entry.key for entry in view.objects if entry.key.startswith(prefix)), None)
    if key is None:
        raise Lost("the original is lost too")
    with TemporaryDirectory(prefix="rag-cluster-") as directory:
        path = str(Path(directory) / f"source{Path(facts.filename).suffix.lower()[:16]}")
        try:
            fetch_stored(write_path.objects, key, version.sha256 or None, path)
        except CorruptObjectError:
            raise Lost("the original is damaged too") from None
        yield path


@contextmanager
def _referenced(write_path: WritePath, facts: DocumentFacts, version: VersionFacts) -> Iterator[str]:
    with TemporaryDirectory(prefix="rag-cluster-") as directory:
        path = str(Path(directory) / f"source{Path(facts.filename).suffix.lower()[:16]}")
        try:
            fetch_referenced(write_path.inputs, facts.uri, version.sha256, path)
        except (OriginalGoneError, OriginalChangedError) as error:
            raise Lost(error.message) from error
        yield path


def _snapshot(
    write_path: WritePath, facts: DocumentFacts, version: VersionFacts, parsed: ParsedDocument, strategy: str | None
) -> Snapshot:
    chunker, parser = write_path.chunker(strategy), write_path.parser_info(facts.filename)
    split = chunker.split(parsed, knowledge_base_id=facts.knowledge_base_id, fingerprint=version.content_fingerprint)
    chunks = tuple(replace(chunk, metadata={**chunk.metadata, "filename": facts.filename}) for chunk in split.chunks)
    chunked = ChunkedDocument(chunks, split.parents)
    return Snapshot(
        knowledge_base_id=facts.knowledge_base_id,
        document_id=facts.id,
        version=version.version,
        filename=facts.filename,
        sha256=version.sha256 or "",
        content_fingerprint=version.content_fingerprint,
        parser_name=parser.name,
        parser_version=parser.version,
        chunking_strategy=chunker.name,
        blocks=parsed.blocks,
        chunked=chunked,
        parts=part_boundaries(chunked, facts.id, version.version),
        metadata=parsed.metadata,
        warnings=parsed.warnings,
    )
