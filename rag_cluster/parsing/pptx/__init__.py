"""PPTX by its XML: slides in order, each in reading order, with tables, charts, SmartArt, pictures and notes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rag_cluster.domain.blocks import DocumentSource, ParsedDocument
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.illustrated import IllustratedParser
from rag_cluster.parsing.limits import check_page_count
from rag_cluster.parsing.ooxml import Package, qn
from rag_cluster.parsing.pages import each_page
from rag_cluster.parsing.pptx.slide import Layout, SlideReader


class PptxParser(IllustratedParser):
    """PowerPoint presentations.

    Hidden slides are left out but counted; date, footer and slide number placeholders, comments and what stands only
    on layouts and masters are left out. A slide's title opens its section; speaker notes are one block per slide
    with metadata["notes"].
    """

    name = "pptx"
    version = "4"
    extensions = frozenset({".pptx", ".pptm", ".ppsx", ".ppsm", ".potx", ".potm"})

    def parse(self, source: DocumentSource) -> ParsedDocument:
        """Blocks slide by slide; locators hold the 1-based slide."""
        builder = self._builder(source)
        with Package(source, self._limits, builder.warn) as package:
            part = package.main_part("ppt/presentation.xml")
            slides = list(_slide_parts(package, part))
            check_page_count(len(slides), self._limits)
            layouts: dict[str | None, Layout] = {}
            for number in each_page(source, len(slides), "Slide {}".format):
                slide = slides[number - 1]
                builder.reset_headings()
                if package.has(slide):
                    _read_slide(package, slide, number, builder, layouts)
                else:
                    package.damaged(f"Slide {number} is missing in the file")
            package.check_found(builder.has_blocks)
            return builder.build({**package.properties(), "slides": len(slides)})


def _slide_parts(package: Package, part: str) -> Iterator[str]:
    links = package.relationships(part)
    for slide in package.xml(part).iter(qn("p:sldId")):
        link = links.get(slide.get(qn("r:id"), ""))
        if link is not None:
            yield link.target


def _read_slide(
    package: Package, part: str, number: int, builder: BlockBuilder, layouts: dict[str | None, Layout]
) -> None:
    root: Any = package.optional_xml(part)
    if root is None or root.get("show") in ("0", "false"):
        return
    layout_part = package.related(part, "slideLayout")
    if layout_part not in layouts:
        master = package.related(layout_part, "slideMaster") if layout_part else None
        layouts[layout_part] = Layout(package.optional_xml(layout_part), package.optional_xml(master))
    reader = SlideReader(package, part, number, builder, layouts[layout_part])
    reader.read(root)
    notes = package.optional_xml(package.related(part, "notesSlide"))
    if notes is not None:
        reader.notes(notes)


__all__ = ["PptxParser"]
