"""Pictures as documents: recognised text with its place, and the picture itself as an asset."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rag_cluster.domain.blocks import BlockType, DocumentSource, ParsedDocument, SourceLocator
from rag_cluster.errors import CorruptDocumentError, DocumentTooLargeError, EmptyDocumentError
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.illustrated import IllustratedParser
from rag_cluster.parsing.limits import check_image_size, check_page_count
from rag_cluster.parsing.ocr import OcrMode, OcrParagraph, read_page, rgb
from rag_cluster.parsing.pages import each_page
from rag_cluster.parsing.scan_tables import header_rows

if TYPE_CHECKING:
    from PIL import Image

_SHOWN_AS_IS = {
    "PNG": "image/png", "JPEG": "image/jpeg", "MPO": "image/jpeg", "WEBP": "image/webp", "GIF": "image/gif",
}  # fmt: skip
_THUMBNAIL = 254
"""The TIFF tag that marks a frame as another one, smaller."""


class ImageParser(IllustratedParser):
    """PNG, JPEG, TIFF (every page), WebP, GIF, BMP. Boxes are pixels of the picture as displayed (EXIF applied).

    Of an animation the first frame is read: the others mostly repeat it. Lines that are too uncertain are left out,
    and a warning says how many.
    """

    name = "image"
    version = "3"
    extensions = frozenset({".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp", ".gif", ".bmp"})
    only_recognition = True

    def parse(self, source: DocumentSource) -> ParsedDocument:
        """EmptyDocumentError when no text is recognised, or none may be; DocumentTooLargeError before decoding.

        Without a recognizer: no blocks, all pages awaiting recognition.
        """
        from PIL import Image

        if self._ocr is OcrMode.OFF:
            raise EmptyDocumentError(
                f"{source.filename!r} is a picture, and text recognition is off (--ocr auto, RAG_OCR=auto)"
            )
        builder = BlockBuilder(source)
        found = 0
        with reading(source):
            picture = Image.open(source.path)
        with picture:
            with reading(source):
                frames = getattr(picture, "n_frames", 1)
            check_page_count(frames, self._limits)
            if frames > 1 and picture.format != "TIFF":
                # The others of a photograph (MPO) are previews.
                if picture.format != "MPO":
                    builder.warn(f"Only the first of the {frames} frames of the animation was read")
                frames = 1
            if self._recognizer is None:
                builder.warn("The picture awaits text recognition")
                return builder.build({"unrecognized_pages": list(range(1, frames + 1))}, unfinished=True)
            for number in each_page(source, frames):
                frame = self._frame(source, picture, number - 1)
                found += self._page(builder, source, frame, number if frames > 1 else None)
            form = picture.format or ""
        if not found:
            raise EmptyDocumentError(f"No text was recognised in {source.filename!r}")
        return builder.build({"format": form, "pages": frames, "ocr_pages": list(range(1, frames + 1))})

    def _frame(self, source: DocumentSource, picture: Image.Image, index: int) -> Image.Image:
        with reading(source):
            picture.seek(index)
        check_image_size(picture.width, picture.height, self._limits)
        with reading(source):
            picture.load()
        return picture

    def _page(self, builder: BlockBuilder, source: DocumentSource, frame: Image.Image, page: int | None) -> int:
        """The blocks of one frame; how many paragraphs were recognised."""
        from PIL import ImageOps

        assert self._recognizer is not None
        with reading(source):
            if getattr(frame, "tag_v2", {}).get(_THUMBNAIL, 0) & 1:
                return 0
            upright = ImageOps.exif_transpose(frame)
        read = read_page(self._recognizer, upright)
        if read.warning:
            builder.warn(read.warning if page is None else f"Page {page}: {read.warning}")
        content, media_type = _shown(source, frame, upright, page)
        builder.image(
            content,
            media_type,
            caption=Path(source.filename).stem if page is None else f"{Path(source.filename).stem}, {page}",
            width=upright.width,
            height=upright.height,
            locator=SourceLocator(page=page, bbox=(0.0, 0.0, float(upright.width), float(upright.height))),
        )
        for paragraph in read.paragraphs:
            _add(builder, paragraph, page)
        return len(read.paragraphs)


@contextmanager
def reading(source: DocumentSource) -> Iterator[None]:
    """Around what Pillow reads: damaged files end in whatever its readers' arithmetic runs into."""
    from PIL import Image

    try:
        yield
    except Image.DecompressionBombError as error:
        raise DocumentTooLargeError(str(error)) from error
    except (OSError, EOFError, SyntaxError, ValueError, TypeError, LookupError, ArithmeticError, struct.error) as error:
        raise CorruptDocumentError(f"{source.filename!r} is not a readable picture: {error}") from error


def _add(builder: BlockBuilder, paragraph: OcrParagraph, page: int | None) -> None:
    metadata: dict[str, object] = {"ocr": True, "confidence": round(paragraph.confidence, 3)}
    if paragraph.rotation:
        metadata["rotation"] = paragraph.rotation
    locator = SourceLocator(page=page, bbox=paragraph.bbox)
    if paragraph.rows:
        builder.table(paragraph.rows, header_rows(paragraph.rows), locator, **metadata)
    else:
        builder.add(BlockType.TEXT, paragraph.text, locator, metadata)


def _shown(source: DocumentSource, frame: Image.Image, upright: Image.Image, page: int | None) -> tuple[bytes, str]:
    """(bytes, media type) that a browser can show: the file itself where it can, PNG otherwise."""
    media_type = _SHOWN_AS_IS.get(frame.format or "")
    if media_type and page is None:
        return Path(source.path).read_bytes(), media_type
    encoded = io.BytesIO()
    (upright if upright.mode in ("1", "L", "LA", "P", "RGB", "RGBA") else rgb(upright)).save(encoded, "PNG")
    return encoded.getvalue(), "image/png"
