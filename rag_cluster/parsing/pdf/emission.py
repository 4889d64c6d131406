"""Parts of a document -> blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rag_cluster.domain.blocks import BlockType
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.pdf import places
from rag_cluster.parsing.pdf.assembly import Part
from rag_cluster.parsing.pdf.figures import Figure
from rag_cluster.parsing.pdf.page import OcrText, PlacedTable
from rag_cluster.parsing.pdf.paragraphs import Paragraph
from rag_cluster.parsing.scan_tables import header_rows


def emit(builder: BlockBuilder, parts: Sequence[Part], links: Mapping[int, list[dict[str, str]]]) -> None:
    """Add one block per part. links: id of a part -> its links."""
    for part in parts:
        metadata: dict[str, Any] = {"links": links[id(part)]} if id(part) in links else {}
        if isinstance(part, Paragraph):
            _paragraph(builder, part, metadata)
        elif isinstance(part, PlacedTable):
            metadata |= {"caption": part.caption} if part.caption else {}
            metadata |= {"row_starts": part.row_starts} if part.row_starts else {}
            builder.table(part.table.rows, part.table.header_rows, places.locator(part), **metadata)
        elif isinstance(part, Figure):
            _figure(builder, part, metadata)
        else:
            _recognized(builder, part, metadata)


def _paragraph(builder: BlockBuilder, paragraph: Paragraph, metadata: dict[str, Any]) -> None:
    locator = places.locator(paragraph)
    if paragraph.kind is BlockType.HEADING:
        builder.heading(paragraph.text, paragraph.level, locator, **metadata)
        return
    metadata |= paragraph.metadata
    if paragraph.kind is BlockType.LIST:
        metadata |= {"level": paragraph.level, "marker": paragraph.marker}
    builder.add(paragraph.kind, paragraph.text, locator, metadata)


def _figure(builder: BlockBuilder, figure: Figure, metadata: dict[str, Any]) -> None:
    if figure.recognized:
        metadata |= {"ocr": True, "confidence": round(figure.confidence, 3)}
    builder.image(
        figure.content,
        figure.media_type,
        caption=figure.caption or figure.alternative,
        text="\n".join(filter(None, (figure.alternative if figure.caption else "", figure.text))),
        width=figure.width,
        height=figure.height,
        locator=places.locator(figure),
        **metadata,
    )


def _recognized(builder: BlockBuilder, part: OcrText, metadata: dict[str, Any]) -> None:
    metadata |= {"ocr": True, "confidence": round(part.confidence, 3)}
    if part.rows:
        builder.table(part.rows, header_rows(part.rows), places.locator(part), **metadata)
    else:
        builder.add(BlockType.TEXT, part.text, places.locator(part), metadata)
