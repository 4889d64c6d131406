"""Text recognition of page images: upright or not, straight or not, in any colour mode.

    image -> rgb -> ocr_lines.read_lines -> reading_order.paragraphs -> PageReading

Boxes are always pixels of the image as it was given, top-left origin, whichever way it had to be turned.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from rag_cluster.domain.blocks import BBox
from rag_cluster.domain.ports import RecognizedLine, TextRecognizer
from rag_cluster.parsing.ocr_lines import PageLines, read_lines
from rag_cluster.parsing.ocr_models import text_models, uses_cuda
from rag_cluster.parsing.reading_order import OcrParagraph, paragraphs

if TYPE_CHECKING:
    from PIL import Image

    from rag_cluster.parsing.ocr_cuts import Pixels

__all__ = ["LEGIBLE", "OcrMode", "OcrParagraph", "PageReading", "RapidOcr", "read_page", "recognize_page", "uses_cuda"]

LEGIBLE = 0.5
"""Confidence below which a line is left out and counted: what is seen in textures, stamps and handwriting."""


class OcrMode(StrEnum):
    """auto: where a page or picture has no text of its own. force: every page. off: never.

    deferred: as auto, but later: a parser gives the text that is there and says what awaits recognition.
    """

    AUTO = "auto"
    OFF = "off"
    FORCE = "force"
    DEFERRED = "deferred"


@dataclass(frozen=True, slots=True)
class PageReading:
    """What was read on a page, in reading order, and how many lines were too uncertain to be kept."""

    paragraphs: tuple[OcrParagraph, ...]
    illegible: int = 0

    @property
    def warning(self) -> str:
        """What a person should know about it; "" when nothing was left out."""
        if not self.illegible:
            return ""
        lines = "1 line was" if self.illegible == 1 else f"{self.illegible} lines were"
        return f"{lines} too uncertain to keep (confidence below {LEGIBLE})"


class RapidOcr:
    """TextRecognizer by PP-OCR models (Chinese, English, Latin scripts, Japanese, digits).

    Picklable: the models are loaded once per process, at the first use. threads: of onnxruntime, on the CPU. gpu: use
    CUDA where onnxruntime offers it and a device is visible; what cannot be set up there runs on the CPU.
    """

    def __init__(self, threads: int = 2, *, gpu: bool = False) -> None:
        self.threads = threads
        self.gpu = gpu

    def recognize(self, image: bytes) -> Sequence[RecognizedLine]:
        """Lines of an upright page, from top to bottom. MissingDependencyError without the `local` extra."""
        return self.lines(_decode(image), upright=True).lines

    def lines(self, image: Image.Image, *, upright: bool = False) -> PageLines:
        """Lines of a page that may lie on its side, stand upside down or be set from top to bottom."""
        return read_lines(text_models(self.threads, self.gpu), _pixels(image), upright=upright)


def read_page(recognizer: TextRecognizer, image: bytes | Image.Image, *, upright: bool = False) -> PageReading:
    """One page image in reading order (columns one after the other).

    image: PNG or JPEG bytes, or a PIL image; EXIF orientation is the caller's to apply. A page that lies on its side
    or upside down is read as if turned; `rotation` of each paragraph says how far clockwise. upright: it is known to
    be. Recognisers other than RapidOcr get the image as it is.
    """
    picture = _decode(image) if isinstance(image, bytes) else image
    if isinstance(recognizer, RapidOcr):
        page = recognizer.lines(picture, upright=upright)
    else:
        encoded = io.BytesIO()
        rgb(picture).save(encoded, "PNG", compress_level=1)
        page = PageLines(tuple(recognizer.recognize(encoded.getvalue())))
    legible = [line for line in page.lines if line.confidence >= LEGIBLE]
    found = (_turn_back(p, page, picture.width, picture.height) for p in paragraphs(legible))
    return PageReading(tuple(found), len(page.lines) - len(legible))


def recognize_page(
    recognizer: TextRecognizer, image: bytes | Image.Image, *, upright: bool = False
) -> list[OcrParagraph]:
    """The paragraphs of read_page; [] when nothing is legible."""
    return list(read_page(recognizer, image, upright=upright).paragraphs)


def rgb(picture: Image.Image) -> Image.Image:
    """The picture as a person sees it, in RGB: 16 bits scaled to 8, transparent ground as paper, CMYK as printed.

    Light ink on transparent ground gets dark paper, so that it stays visible.
    """
    import numpy as np
    from PIL import Image, ImageStat

    if picture.has_transparency_data:
        rgba = picture.convert("RGBA")
        ink = rgba.getchannel("A").point(lambda value: 255 if value > 128 else 0)
        light = ink.getbbox() is not None and ImageStat.Stat(rgba.convert("L"), ink).mean[0] > 170
        opaque = ImageStat.Stat(ink).mean[0] > 0.9 * 255
        paper = "black" if light and not opaque else "white"
        return Image.alpha_composite(Image.new("RGBA", rgba.size, paper), rgba).convert("RGB")
    if picture.mode.startswith(("I", "F")):
        # Pillow cuts off at 255 what has more bits.
        values = np.asarray(picture).astype(np.float32)
        low, high = (0.0, 65535.0) if picture.mode.startswith("I;16") else (float(values.min()), float(values.max()))
        scaled = (values - low) * (255 / (high - low)) if high > low else np.full_like(values, 255)
        return Image.fromarray(np.clip(scaled, 0, 255).astype(np.uint8)).convert("RGB")
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def _turn_back(paragraph: OcrParagraph, page: PageLines, width: int, height: int) -> OcrParagraph:
    """Boxes of the page as it was read -> boxes of the image as given (width x height)."""
    if not page.way:
        return paragraph
    return replace(
        paragraph,
        rotation=int(page.way),
        bbox=_box_back(paragraph.bbox, page.way, width, height),
        lines=tuple(replace(ln, bbox=_box_back(ln.bbox, page.way, width, height)) for ln in paragraph.lines),
    )


def _box_back(box: BBox, rotation: int, width: int, height: int) -> BBox:
    x0, y0, x1, y1 = box
    if rotation == 90:
        return (y0, height - x1, y1, height - x0)
    if rotation == 180:
        return (width - x1, height - y1, width - x0, height - y0)
    return (width - y1, x0, width - y0, x1)


def _decode(image: bytes) -> Image.Image:
    from PIL import Image

    return Image.open(io.BytesIO(image))


def _pixels(picture: Image.Image) -> Pixels:
    """(height, width, 3), blue first."""
    import numpy as np

    return np.ascontiguousarray(np.asarray(rgb(picture))[:, :, ::-1])
