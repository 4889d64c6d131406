"""PdfParser: pages one by one -> furniture out -> paragraphs, headings -> blocks."""

from __future__ import annotations

from typing import Any

import pypdfium2 as pdfium

from rag_cluster.domain.blocks import DocumentSource, ParsedDocument
from rag_cluster.domain.ports import TextRecognizer
from rag_cluster.errors import CorruptDocumentError
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.parsing.ocr import OcrMode
from rag_cluster.parsing.pages import each_page
from rag_cluster.parsing.pdf import assembly, document, emission, furniture, places
from rag_cluster.parsing.pdf import page as pages
from rag_cluster.parsing.pdf.page import PageContent
from rag_cluster.parsing.pdf.scans import STAMPED, Scans
from rag_cluster.parsing.pdf.units import user_units


class PdfParser:
    """DocumentParser for PDF. Without a recognizer, pages without a text layer are warned about, not read."""

    name = "pdf"
    version = "8"
    extensions = frozenset({".pdf"})

    def __init__(
        self,
        limits: ParseLimits = ParseLimits(),
        ocr: OcrMode | str = OcrMode.AUTO,
        recognizer: TextRecognizer | None = None,
    ) -> None:
        self._limits = limits
        self._ocr = OcrMode(ocr)
        self._recognizer = recognizer

    def parse(self, source: DocumentSource) -> ParsedDocument:
        """Blocks in reading order; see `domain.ports.DocumentParser`."""
        with document.open_pdf(source, self._limits) as pdf:
            builder = BlockBuilder(source)
            scans = Scans(self._ocr, self._recognizer, self._limits)
            contents = self._pages(source, pdf, builder, scans)
            metadata = document.facts(pdf)
            outline = document.outline(pdf)
        recognized = [content.number for content in contents if content.ocr]
        if recognized:
            metadata["ocr_pages"] = recognized
        unread, warnings = scans.unread(contents)
        for warning in warnings:
            builder.warn(warning)
        furniture.remove(contents)
        parts = assembly.assemble(contents, outline)
        emission.emit(builder, parts, places.links(parts, {c.number: c.links for c in contents if c.links}))
        return builder.build(metadata | unread, unfinished=scans.postponed and bool(unread))

    def _pages(self, source: DocumentSource, pdf: Any, builder: BlockBuilder, scans: Scans) -> list[PageContent]:
        contents = []
        units = user_units(source.path, len(pdf))
        for number in each_page(source, len(pdf)):
            try:
                page = pdf[number - 1]
            except pdfium.PdfiumError:
                builder.warn(f"Page {number} is damaged and was left out")
                continue
            try:
                content = self._page(pdf, page, number, scans, units.get(number - 1, 1.0))
            finally:
                page.close()
            for warning in content.warnings:
                builder.warn(warning)
            contents.append(content)
        if not contents:
            raise CorruptDocumentError("The document is damaged: none of its pages can be read")
        return contents

    def _page(self, pdf: Any, page: Any, number: int, scans: Scans, unit: float) -> PageContent:
        raw = pages.read(pdf, page, unit)
        reason = scans.reason(raw)
        read = scans.recognize(page, raw, number, reason) if reason else None
        if read is not None and (read.unrecognized or reason != STAMPED):
            return read
        content = pages.lay_out(pdf, page, number, raw, self._limits)
        if read is not None:
            content.items = read.items + content.items
            content.ocr = True
            content.warnings += read.warnings
        elif reason:
            content.unrecognized = True
            off = "text recognition is off (--ocr, RAG_OCR)"
            content.warnings.append(f"Page {number} {reason}; it was not recognised, because {off}")
        else:
            scans.read_figures(raw, content)
        return content
