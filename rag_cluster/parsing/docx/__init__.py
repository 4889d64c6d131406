"""DOCX by its XML: styles, numbering, tables, notes, boxes, revisions, equations, drawings (issue: parsing)."""

from __future__ import annotations

from rag_cluster.domain.blocks import DocumentSource, ParsedDocument
from rag_cluster.domain.ports import TextRecognizer
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.docx.body import BodyReader
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.parsing.ocr import OcrMode
from rag_cluster.parsing.ooxml import Package, find
from rag_cluster.parsing.pictures import PictureReader


class DocxParser:
    """Word documents, strict or transitional.

    Headers, footers, comments, deleted and hidden text, prompts and generated tables of contents are left out;
    insertions, notes, text boxes, charts and SmartArt are in. Notes stand as "[^1]: ..." behind the paragraph that
    refers to them as "[^1]".
    """

    name = "docx"
    version = "4"
    extensions = frozenset({".docx", ".docm", ".dotx", ".dotm"})

    def __init__(
        self,
        limits: ParseLimits = ParseLimits(),
        *,
        ocr: OcrMode = OcrMode.AUTO,
        recognizer: TextRecognizer | None = None,
    ) -> None:
        self._limits = limits
        self._ocr = ocr
        self._recognizer = recognizer

    def parse(self, source: DocumentSource) -> ParsedDocument:
        """Blocks of the document's body in reading order; locators hold the heading path."""
        builder = BlockBuilder(source, PictureReader(self._limits, self._ocr, self._recognizer))
        with Package(source, self._limits, builder.warn) as package:
            part = package.main_part("word/document.xml")
            body = find(package.xml(part), "w:body")
            if body is not None:
                BodyReader(package, part, builder).read(body)
            package.check_found(builder.has_blocks)
            return builder.build(package.properties())


__all__ = ["DocxParser"]
