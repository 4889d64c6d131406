"""DOCX by its XML: styles, numbering, tables, notes, boxes, revisions, equations, drawings (issue: parsing)."""

from __future__ import annotations

from rag_cluster.domain.blocks import DocumentSource, ParsedDocument
from rag_cluster.parsing.docx.body import BodyReader
from rag_cluster.parsing.illustrated import IllustratedParser
from rag_cluster.parsing.ooxml import Package, find


class DocxParser(IllustratedParser):
    """Word documents, strict or transitional.

    Headers, footers, comments, deleted and hidden text, prompts and generated tables of contents are left out;
    insertions, notes, text boxes, charts and SmartArt are in. Notes stand as "[^1]: ..." behind the paragraph that
    refers to them as "[^1]".
    """

    name = "docx"
    version = "5"
    extensions = frozenset({".docx", ".docm", ".dotx", ".dotm"})

    def parse(self, source: DocumentSource) -> ParsedDocument:
        """Blocks of the document's body in reading order; locators hold the heading path."""
        builder = self._builder(source)
        with Package(source, self._limits, builder.warn) as package:
            part = package.main_part("word/document.xml")
            body = find(package.xml(part), "w:body")
            if body is not None:
                BodyReader(package, part, builder).read(body)
            package.check_found(builder.has_blocks)
            return builder.build(package.properties())


__all__ = ["DocxParser"]
