"""PdfParser: pages one by one -> furniture out -> paragraphs, headings -> blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pypdfium2 as pdfium

from rag_cluster.domain.blocks import BBox, BlockType, DocumentSource, ParsedDocument, SourceLocator
from rag_cluster.domain.ports import TextRecognizer
from rag_cluster.errors import CorruptDocumentError
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.parsing.ocr import OcrMode
from rag_cluster.parsing.pages import each_page
from rag_cluster.parsing.pdf import assembly, document, furniture
from rag_cluster.parsing.pdf import page as pages
from rag_cluster.parsing.pdf.assembly import Part
from rag_cluster.parsing.pdf.figures import Figure
from rag_cluster.parsing.pdf.geometry import union
from rag_cluster.parsing.pdf.page import OcrText, PageContent, PlacedTable
from rag_cluster.parsing.pdf.paragraphs import Paragraph
from rag_cluster.parsing.pdf.scans import Scans
from rag_cluster.parsing.scan_tables import header_rows


class PdfParser:
    """DocumentParser for PDF. Without a recognizer, pages without a text layer are warned about, not read."""

    name = "pdf"
    version = "3"
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
        _emit(builder, assembly.assemble(contents, outline))
        return builder.build(metadata | unread, unfinished=scans.postponed and bool(unread))

    def _pages(self, source: DocumentSource, pdf: Any, builder: BlockBuilder, scans: Scans) -> list[PageContent]:
        contents = []
        for number in each_page(source, len(pdf)):
            try:
                page = pdf[number - 1]
            except pdfium.PdfiumError:
                builder.warn(f"Page {number} is damaged and was left out")
                continue
            try:
                content = self._page(pdf, page, number, scans)
            finally:
                page.close()
            for warning in content.warnings:
                builder.warn(warning)
            contents.append(content)
        if not contents:
            raise CorruptDocumentError("The document is damaged: none of its pages can be read")
        return contents

    def _page(self, pdf: Any, page: Any, number: int, scans: Scans) -> PageContent:
        raw = pages.read(page)
        reason = scans.reason(raw)
        if reason:
            content = scans.recognize(page, raw, number, reason)
            if content is not None:
                return content
        content = pages.lay_out(pdf, page, number, raw, self._limits)
        if reason:
            content.unrecognized = True
            off = "text recognition is off (--ocr, RAG_OCR)"
            content.warnings.append(f"Page {number} {reason}; it was not recognised, because {off}")
        else:
            scans.read_figures(raw, content)
        return content


def _emit(builder: BlockBuilder, parts: Sequence[Part]) -> None:
    for part in parts:
        if isinstance(part, Paragraph):
            _emit_paragraph(builder, part)
        elif isinstance(part, PlacedTable):
            table = part.table
            metadata = {"caption": part.caption} if part.caption else {}
            locator = SourceLocator(page=part.page, bbox=part.box, spans=part.spans)
            builder.table(table.rows, table.header_rows, locator, **metadata)
        elif isinstance(part, Figure):
            builder.image(
                part.content,
                part.media_type,
                caption=part.caption,
                text=part.text,
                width=part.width,
                height=part.height,
                locator=SourceLocator(page=part.page, bbox=part.box),
                **({"ocr": True, "confidence": round(part.confidence, 3)} if part.recognized else {}),
            )
        else:
            _emit_recognized(builder, part)


def _emit_recognized(builder: BlockBuilder, part: OcrText) -> None:
    locator = SourceLocator(page=part.page, bbox=part.box)
    metadata = {"ocr": True, "confidence": round(part.confidence, 3)}
    if part.rows:
        builder.table(part.rows, header_rows(part.rows), locator, **metadata)
    else:
        builder.add(BlockType.TEXT, part.text, locator, metadata)


def _emit_paragraph(builder: BlockBuilder, paragraph: Paragraph) -> None:
    locator = _locator(paragraph)
    if paragraph.kind is BlockType.HEADING:
        builder.heading(paragraph.text, paragraph.level, locator)
        return
    metadata = dict(paragraph.metadata)
    if paragraph.kind is BlockType.LIST:
        metadata |= {"level": paragraph.level, "marker": paragraph.marker}
    builder.add(paragraph.kind, paragraph.text, locator, metadata)


def _locator(paragraph: Paragraph) -> SourceLocator:
    """Page and box; spans when the lines lie on several pages or in several columns."""
    groups: dict[tuple[int, int], list[BBox]] = {}
    for line, number in zip(paragraph.lines, paragraph.pages, strict=True):
        groups.setdefault((number, line.region), []).append(line.frame.leave(line.box))
    spans = tuple((number, union(boxes)) for (number, _), boxes in groups.items())
    return SourceLocator(page=spans[0][0], bbox=spans[0][1], spans=spans if len(spans) > 1 else ())
