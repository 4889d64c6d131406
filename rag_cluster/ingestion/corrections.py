"""Managed corrections (seed 004): a question and its answer, written by the write path itself, in one call.

A correction is a small Markdown document: the question is its heading, so that it stands in every chunk, the answer
is its text, under the question whatever headings of its own it has. The same question again is the next version of the
same document.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rag_cluster.domain import ids
from rag_cluster.domain.access import AccessAttributes
from rag_cluster.domain.blocks import DocumentSource, ParsedDocument
from rag_cluster.domain.documents import Receipt, Source, SourceFile
from rag_cluster.errors import (
    DocumentBusyError,
    EmptyDocumentError,
    InternalError,
    InvalidRequestError,
    error_types,
)
from rag_cluster.ingestion import steps
from rag_cluster.ingestion.write_path import Parser, RetryPolicy, WritePath

CORRECTIONS_SOURCE = "corrections"
"""Name of the source of corrections that name none."""
MAX_QUESTION = 1000
MAX_ANSWER = 20_000
_UNNAMEABLE = re.compile(r"[\x00-\x1f\x7f/\\<>:\"|?*]+")


@dataclass(frozen=True, slots=True)
class Correction:
    """What is to be answered from now on. InvalidRequestError for an empty or endless one."""

    question: str
    answer: str
    access: AccessAttributes | None = None
    """None: as they are where the question was answered before, and a new correction gets the base's default."""
    metadata: Mapping[str, Any] | None = None
    """None: as they are. The question is one of them in any case."""

    def __post_init__(self) -> None:
        for name, text, most in (("question", self.question, MAX_QUESTION), ("answer", self.answer, MAX_ANSWER)):
            if not text.strip() or len(text) > most:
                raise InvalidRequestError(f"A correction's {name} has 1 to {most:,} characters.")

    @property
    def heading(self) -> str:
        """The question on one line."""
        return " ".join(self.question.split())

    @property
    def markdown(self) -> bytes:
        """The document."""
        return f"# {_escaped(self.heading)}\n\n{self.answer.strip()}\n".encode()

    @property
    def filename(self) -> str:
        """What citations show."""
        return f"{_UNNAMEABLE.sub(' ', self.heading)[:60].strip(' .') or 'correction'}.md"


def write_correction(
    write_path: WritePath, knowledge_base_id: str, source: Source, correction: Correction, parser: Parser
) -> Receipt:
    """Chunk, embed, index and publish, before this returns: the next query finds it.

    parser: reads Markdown in this process; the text is an administrator's, and short. DocumentBusyError while another
    call writes the same question; otherwise the error that kept it from being published.
    """
    text, question = correction.markdown, correction.heading
    uri = f"correction://{source.name}/{ids.fingerprint(question=question.casefold())}"
    file = SourceFile(
        uri,
        correction.filename,
        len(text),
        hashlib.sha256(text).hexdigest(),
        correction.access or AccessAttributes(),
        {**(correction.metadata or {}), "question": question},
        keeps_access=correction.access is None,
        keeps_metadata=correction.metadata is None,
    )
    under_question = _UnderQuestion(parser)
    here = replace(
        write_path,
        inputs=_Given(text),
        parser=lambda: under_question,
        text_parser=None,
        describer=None,
        retry=RetryPolicy(retries=0),  # somebody waits: what is away is told, not waited for
    )
    strategy = source.default_chunking_strategy
    document_id = ids.bulk_document_id(knowledge_base_id, uri)
    fingerprint = here.content_fingerprint(file.filename, strategy)
    record = steps.open_index(here)
    work = steps.Work(knowledge_base_id, source.id, document_id, file, fingerprint, strategy)
    prepared = steps.prepare(here, work, owner=f"correction-{uuid.uuid4()}")
    if isinstance(prepared, list):
        ended = [row for row in steps.index(here, record, prepared) if isinstance(row, Receipt)]
        prepared = ended[-1] if ended else Receipt(uri, document_id, "busy")
    if not isinstance(prepared, Receipt):  # text has nothing to be recognised in it
        raise EmptyDocumentError("the correction holds no text")
    return _published(prepared)


def _published(receipt: Receipt) -> Receipt:
    """The receipt of a document that queries see. The error of one that they do not."""
    if receipt.outcome == "failed":
        raise error_types().get(receipt.error_type or "", InternalError)(receipt.message)
    if receipt.outcome == "busy":
        raise DocumentBusyError("The same question is being corrected at this moment; try again.")
    return receipt


def _escaped(text: str) -> str:
    """A line that Markdown shows as it is: no markup of its own, no closing #."""
    return re.sub(r"([\\`*_\[\]<>#&|~!$])", r"\\\1", text)


@dataclass(frozen=True, slots=True)
class _UnderQuestion:
    """A parser of corrections: a heading as high as the question would end it, and the answer would lack its words."""

    parser: Parser

    def parse(self, source: DocumentSource) -> ParsedDocument:
        """With everything under the first heading."""
        parsed = self.parser.parse(source)
        places = [block.locator for block in parsed.blocks]
        question = places[0].heading_path[:1]
        under = [
            place if place.heading_path[:1] == question else replace(place, heading_path=question + place.heading_path)
            for place in places
        ]
        blocks = [replace(block, locator=place) for block, place in zip(parsed.blocks, under, strict=True)]
        return replace(parsed, blocks=tuple(blocks))


class _Given:
    """InputFiles of the one text that is there already."""

    def __init__(self, text: bytes) -> None:
        self._text = text

    def fetch(self, uri: str, path: str) -> tuple[str, int]:
        """Write it to the path."""
        Path(path).write_bytes(self._text)
        return hashlib.sha256(self._text).hexdigest(), len(self._text)

    def list(self, location: str) -> Any:
        """There is nothing to list."""
        return iter(())

    def covers(self, location: str) -> Any:
        """Nor to be listed."""
        return lambda uri: False
