"""Pictures of a file's pages for the blocks view, made in the isolated child as a parser would be."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rag_cluster.domain.blocks import DocumentSource, ParsedAsset, ParsedDocument, SourceLocator
from rag_cluster.errors import DocumentError
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.images import reading
from rag_cluster.parsing.isolation import IsolatedParser
from rag_cluster.parsing.limits import ParseLimits, check_image_size
from rag_cluster.parsing.registry import extension_of

if TYPE_CHECKING:
    from PIL import Image

MAX_PAGES = 60
"""More pages than these have no picture: the view is for looking, and one file."""
WIDTH = 1000
"""Pixels; a page's picture is never wider."""
IMAGES = frozenset({".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp", ".gif", ".bmp"})
TARGET = "rag_cluster.parsing.page_pictures:PagePictures"


def page_pictures(source: DocumentSource, limits: ParseLimits = ParseLimits()) -> dict[int, ParsedAsset]:
    """1-based page -> JPEG, its locator's bbox being the page in the units of the blocks' boxes.

    Empty for formats without pages, and for files whose pages cannot be drawn.
    """
    extension = extension_of(source.filename)
    if extension != ".pdf" and extension not in IMAGES:
        return {}
    with IsolatedParser(limits, parsers={extension: TARGET}) as parser:
        try:
            parsed = parser.parse(source)
        except DocumentError:
            # Blocks without pictures are still worth looking at.
            return {}
    assets = {asset.id: asset for asset in parsed.assets}
    return {
        block.locator.page: assets[block.metadata["asset_id"]]
        for block in parsed.blocks
        if block.locator.page is not None
    }


class PagePictures:
    """DocumentParser that gives every page as one IMAGE block."""

    name = "page-pictures"
    version = "1"
    extensions = IMAGES | {".pdf"}

    def __init__(self, limits: ParseLimits = ParseLimits()) -> None:
        self._limits = limits

    def parse(self, source: DocumentSource) -> ParsedDocument:
        """The first pages, as JPEG; DocumentErrors as the format's own parser raises them."""
        builder = BlockBuilder(source)
        pages = _pdf_pages if extension_of(source.filename) == ".pdf" else _frames
        for number, (picture, width, height) in enumerate(pages(source, self._limits), 1):
            encoded = io.BytesIO()
            picture.convert("RGB").save(encoded, "JPEG", quality=72, optimize=True)
            builder.image(
                encoded.getvalue(),
                "image/jpeg",
                width=picture.width,
                height=picture.height,
                locator=SourceLocator(page=number, bbox=(0.0, 0.0, width, height)),
            )
            if number == MAX_PAGES:
                break
        return builder.build()


def _pdf_pages(source: DocumentSource, limits: ParseLimits) -> Iterator[tuple[Image.Image, float, float]]:
    """(picture, width and height in points as displayed). A page that cannot be drawn is a white one."""
    import pypdfium2
    from PIL import Image

    from rag_cluster.parsing.pdf.document import open_pdf
    from rag_cluster.parsing.pdf.units import user_units

    with open_pdf(source, limits) as document:
        units = user_units(source.path, len(document))
        for index in range(len(document)):
            try:
                page = document[index]
                width, height = page.get_size()
                picture = page.render(scale=min(WIDTH / width, 2 * WIDTH / height)).to_pil()
                unit = units.get(index, 1.0)
                yield picture, width * unit, height * unit
            except pypdfium2.PdfiumError:
                yield Image.new("RGB", (595, 842), "white"), 595.0, 842.0


def _frames(source: DocumentSource, limits: ParseLimits) -> Iterator[tuple[Image.Image, float, float]]:
    """(picture, width and height in pixels of the file)."""
    from PIL import Image, ImageOps, ImageSequence

    with reading(source), Image.open(source.path) as picture:
        for frame in ImageSequence.Iterator(picture):
            check_image_size(frame.width, frame.height, limits)
            upright = ImageOps.exif_transpose(frame)
            width, height = float(upright.width), float(upright.height)
            upright.thumbnail((WIDTH, 2 * WIDTH))
            yield upright, width, height
