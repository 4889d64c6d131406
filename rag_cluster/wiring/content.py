"""Parsers and chunkers. Neither needs a store."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from rag_cluster.domain.ports import Chunker, DocumentParser
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.settings import Settings
from rag_cluster.wiring.engines import EngineServices

if TYPE_CHECKING:
    from rag_cluster.parsing.isolation import IsolatedParser


TEXT_CHILDREN = 3
"""Of a prepare actor: so many less one slow documents keep nobody waiting. Recognition fills its CPUs and memory."""


def parse_limits(settings: Settings) -> ParseLimits:
    """The limits of parsing, as settings."""
    return ParseLimits(
        max_file_bytes=settings.max_file_bytes,
        max_expanded_bytes=settings.max_expanded_bytes,
        max_expansion_ratio=settings.max_expansion_ratio,
        max_pages=settings.max_pages,
        max_image_pixels=settings.max_image_pixels,
        max_ocr_pictures=settings.ocr_max_pictures,
        timeout=settings.document_timeout,
        page_timeout=settings.page_timeout,
        conversion_timeout=settings.libreoffice_timeout,
        memory_bytes=settings.parse_memory_bytes,
    )


def isolated_parser(settings: Settings, *, postpone_ocr: bool = False) -> IsolatedParser:
    """The parser of every format, in its own process. Needs no store.

    postpone_ocr: it recognises no text, sees no GPU, and says what awaits recognition.
    """
    from rag_cluster.parsing.isolation import IsolatedParser
    from rag_cluster.parsing.ocr import OcrMode

    return IsolatedParser(
        parse_limits(settings),
        # When to recognise is the run's affair; what is recognised is the same.
        ocr=OcrMode.AUTO if settings.ocr == "deferred" else OcrMode(settings.ocr),
        parsers=settings.parsers,
        ocr_threads=settings.ocr_threads,
        ocr_gpu=settings.ocr_gpu and not postpone_ocr,
        postpone_ocr=postpone_ocr,
        libreoffice=settings.libreoffice,
        children=TEXT_CHILDREN if postpone_ocr else 1,
    )


def chunking_parameters(settings: Settings, name: str) -> dict[str, int | float]:
    """What the settings say of a strategy."""
    by_strategy: dict[str, dict[str, int | float]] = {
        "structured": {"parent_tokens": settings.parent_tokens, "child_tokens": settings.child_tokens},
        "fixed_size": {"size": settings.chunk_size, "overlap": settings.chunk_overlap},
        "recursive": {"size": settings.chunk_size, "overlap": settings.chunk_overlap},
        "sentence": {"size": settings.chunk_size, "max_sentences": settings.sentence_max_per_chunk},
        "paragraph": {"size": settings.paragraph_size, "max_paragraphs": settings.paragraph_max_per_chunk},
        "semantic": {
            "threshold": settings.semantic_threshold,
            "min_size": settings.semantic_min_size,
            "max_size": settings.semantic_max_size,
        },
    }
    return by_strategy.get(name, {})


class ContentServices(EngineServices):
    """How one process makes chunks of files; chunkers count with the embedder's tokenizer."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._chunkers: dict[str, Chunker] = {}

    @cached_property
    def parser(self) -> IsolatedParser:
        """The parser of every format."""
        return isolated_parser(self.settings)

    @cached_property
    def text_parser(self) -> IsolatedParser:
        """The same without text recognition."""
        return isolated_parser(self.settings, postpone_ocr=True)

    @cached_property
    def markdown_parser(self) -> DocumentParser:
        """Of Markdown, in this process: for texts that an administrator writes."""
        from rag_cluster.parsing.registry import ParserRegistry

        registry = ParserRegistry(limits=parse_limits(self.settings), parsers=self.settings.parsers)
        return registry.parser_for("correction.md")

    def chunker(self, strategy: str | None = None) -> Chunker:
        """The chunker of a strategy; None: the configured one."""
        from rag_cluster.chunking.registry import create_chunker

        name = strategy or self.settings.chunking_strategy
        if name not in self._chunkers:
            self._chunkers[name] = create_chunker(
                name, chunking_parameters(self.settings, name), self.tokenizer, self.embedder
            )
        return self._chunkers[name]
