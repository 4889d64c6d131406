"""Files become blocks, and blocks become chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rag_cluster.domain.blocks import DocumentSource, ParsedDocument
from rag_cluster.domain.chunks import ChunkedDocument


class DocumentParser(Protocol):
    """Bytes -> blocks for one family of formats. Runs in the isolated child; pure but for reading `source.path`."""

    name: str
    version: str
    """Raised whenever output changes: it is part of the content fingerprint."""
    extensions: frozenset[str]
    """Lower case with the dot, e.g. {".docx", ".docm"}."""

    def parse(self, source: DocumentSource) -> ParsedDocument:
        """Parse a local file. Raises a DocumentError subclass; an empty result raises EmptyDocumentError."""
        ...


class TextRecognizer(Protocol):
    """OCR of one page image."""

    def recognize(self, image: bytes) -> Sequence[RecognizedLine]:
        """Lines in reading order. image: PNG or JPEG bytes, already within the pixel limit."""
        ...


@dataclass(frozen=True, slots=True)
class RecognizedLine:
    """One OCR line; bbox in pixels of the given image, top-left origin; confidence 0-1."""

    text: str
    bbox: tuple[float, float, float, float]
    confidence: float
    angle: float = 0.0
    """Degrees by which the line falls to the right, of a page that is not quite straight."""


class VisionDescriber(Protocol):
    """Describes a picture in words. Its failure is a warning, never a failed document."""

    name: str
    """Model and prompt: part of the content fingerprint."""

    def describe(self, image: bytes, media_type: str) -> str:
        """Plain text, never empty. image: bytes of that type. ModelUnavailableError."""
        ...


class Tokenizer(Protocol):
    """Counts as the embedder counts."""

    name: str

    def count(self, text: str) -> int:
        """Number of tokens, without special tokens and prefixes."""
        ...

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """`count` of each text, in one call."""
        ...

    def offsets(self, text: str) -> list[tuple[int, int]] | None:
        """Character span (start, end) of every token, or None when the tokenizer only counts."""
        ...


class Chunker(Protocol):
    """Blocks -> chunks and parents."""

    name: str
    parameters: Mapping[str, Any]
    """Everything that changes the output; part of the content fingerprint."""

    def split(self, document: ParsedDocument, *, knowledge_base_id: str, fingerprint: str) -> ChunkedDocument:
        """Deterministic. Ids come from `domain.ids` with the document's id, version and the content fingerprint."""
        ...
