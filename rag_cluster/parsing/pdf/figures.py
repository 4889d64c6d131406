"""Pictures on a page: which of them a reader would call a figure, and their bytes."""

from __future__ import annotations

import ctypes
import io
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from rag_cluster.domain.blocks import BBox
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.parsing.pdf.geometry import PageSpace, area, overlap, union
from rag_cluster.parsing.pdf.shapes import Picture, Shapes

BACKGROUND = 0.85
"""Share of the page from which a picture is no figure."""
MIN_SIDE = 28.0
"""Points; smaller pictures are decoration."""
MAX_FIGURES = 60
"""Of one page."""
RENDER_SCALE = 2.0
"""Pixels per point of a rendered figure: 144 dpi."""
JPEG_QUALITY = 90
"""Of rendered pictures whose own data is lossy already."""
_LOSSY = frozenset({b"DCTDecode", b"JPXDecode"})
_BILEVEL = frozenset({b"CCITTFaxDecode", b"JBIG2Decode"})


@dataclass(slots=True)
class Figure:
    """A figure with its PNG or JPEG bytes. box: displayed page; text: recognised in the picture."""

    box: BBox
    content: bytes
    media_type: str
    width: int
    height: int
    caption: str = ""
    alternative: str = ""
    """What the structure tree says that it shows."""
    text: str = ""
    confidence: float = 1.0
    recognized: bool = False
    """The text comes from recognition, not from the page."""
    page: int = 0


def find(shapes: Shapes, space: PageSpace) -> list[Picture]:
    """Pictures that are figures; pieces that touch each other (strips, tiles) are one. Page backgrounds are none."""
    page_area = space.width * space.height
    groups: list[list[Picture]] = []
    for picture in shapes.pictures:
        if area(picture.box) > BACKGROUND * page_area:
            continue
        near = [g for g in groups if any(_touch(picture.box, other.box) for other in g)]
        merged = [picture, *[p for g in near for p in g]]
        groups = [g for g in groups if g not in near]
        groups.append(merged)
        if len(groups) > 20 * MAX_FIGURES:
            break
    out = []
    for group in groups:
        box = union(p.box for p in group)
        if box[2] - box[0] >= MIN_SIDE and box[3] - box[1] >= MIN_SIDE and area(box) >= 0.004 * page_area:
            single = group[0] if len(group) == 1 else Picture(box, 0, True)
            out.append(single)
    out.sort(key=lambda p: (p.box[1], p.box[0]))
    return out[:MAX_FIGURES]


def _touch(a: BBox, b: BBox) -> bool:
    return overlap((a[0] - 1, a[1] - 1, a[2] + 1, a[3] + 1), b) > 0


def extract(document: Any, page: Any, space: PageSpace, picture: Picture, limits: ParseLimits) -> Figure | None:
    """The picture as the page shows it: its own JPEG where that is exactly it, else the page's region as PNG."""
    jpeg = _jpeg(picture, space, limits)
    if jpeg is not None:
        return jpeg
    image = render(page, space, _scale(picture), limits, picture.box, grey=_is_grey(page, picture))
    if image is None or image.width < 8 or image.height < 8 or _blank(image):
        return None
    if picture.handle and not _LOSSY.isdisjoint(_filters(picture)):
        out = io.BytesIO()
        image.save(out, "JPEG", quality=JPEG_QUALITY)
        return Figure(picture.box, out.getvalue(), "image/jpeg", image.width, image.height)
    return Figure(picture.box, png(image), "image/png", image.width, image.height)


def png(image: Any) -> bytes:
    """A grey or RGB picture as PNG without row filters: half the time of Pillow's, which tries all five on each row."""
    pixels = np.asarray(image)
    lines = np.zeros((image.height, 1 + pixels.size // image.height), np.uint8)
    lines[:, 1:] = pixels.reshape(image.height, -1)
    header = struct.pack(">IIBBBBB", image.width, image.height, 8, 0 if image.mode == "L" else 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.data, 1)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def _scale(picture: Picture) -> float:
    """Pixels per point: the picture's own resolution, between 1 and RENDER_SCALE."""
    if not picture.handle:
        return RENDER_SCALE
    width, height = ctypes.c_uint(), ctypes.c_uint()
    handle = ctypes.cast(picture.handle, pdfium_c.FPDF_PAGEOBJECT)
    if not pdfium_c.FPDFImageObj_GetImagePixelSize(handle, width, height):
        return RENDER_SCALE
    shown = max(picture.box[2] - picture.box[0], picture.box[3] - picture.box[1], 1.0)
    return min(max(max(width.value, height.value) / shown, 1.0), RENDER_SCALE)


def _is_grey(page: Any, picture: Picture) -> bool:
    """Whether a picture has no colours, so that it is rendered and stored as grey."""
    if not picture.handle:
        return False
    if not _BILEVEL.isdisjoint(_filters(picture)):
        return True  # known without the metadata, for which pdfium decodes the picture
    facts = pdfium_c.FPDF_IMAGEOBJ_METADATA()
    handle = ctypes.cast(picture.handle, pdfium_c.FPDF_PAGEOBJECT)
    if not pdfium_c.FPDFImageObj_GetImageMetadata(handle, page, facts):
        return False
    grey = (pdfium_c.FPDF_COLORSPACE_DEVICEGRAY, pdfium_c.FPDF_COLORSPACE_CALGRAY)
    return facts.bits_per_pixel == 1 or facts.colorspace in grey


def _jpeg(picture: Picture, space: PageSpace, limits: ParseLimits) -> Figure | None:
    """The embedded JPEG as it is, when one upright DCT-coded image in RGB or grey makes the picture."""
    if not picture.handle or picture.nested or space.rotation:
        return None
    handle = ctypes.cast(picture.handle, pdfium_c.FPDF_PAGEOBJECT)
    matrix = pdfium_c.FS_MATRIX()
    pdfium_c.FPDFPageObj_GetMatrix(handle, matrix)
    if (
        _filters(picture) != [b"DCTDecode"]
        or matrix.a <= 0
        or matrix.d <= 0
        or abs(matrix.b) + abs(matrix.c) > 0.01 * matrix.a
    ):
        return None
    size = pdfium_c.FPDFImageObj_GetImageDataRaw(handle, None, 0)
    if not 0 < size <= limits.max_file_bytes:
        return None
    buffer = ctypes.create_string_buffer(size)
    pdfium_c.FPDFImageObj_GetImageDataRaw(handle, buffer, size)
    return _checked_jpeg(buffer.raw, picture.box, limits)


def _filters(picture: Picture) -> list[bytes]:
    """Names of the filters of its stream, outermost first."""
    handle = ctypes.cast(picture.handle, pdfium_c.FPDF_PAGEOBJECT)
    name = ctypes.create_string_buffer(32)
    out = []
    for index in range(min(max(pdfium_c.FPDFImageObj_GetImageFilterCount(handle), 0), 8)):
        pdfium_c.FPDFImageObj_GetImageFilter(handle, index, name, 32)
        out.append(name.value)
    return out


def _checked_jpeg(content: bytes, box: BBox, limits: ParseLimits) -> Figure | None:
    from PIL import Image

    try:
        image = Image.open(io.BytesIO(content))
    except (OSError, ValueError, Image.DecompressionBombError):
        return None
    if image.format != "JPEG" or image.mode not in ("RGB", "L") or image.width * image.height > limits.max_image_pixels:
        return None
    return Figure(box, content, "image/jpeg", image.width, image.height)


def _blank(image: Any) -> bool:
    extremes = image.getextrema()
    return all(high - low < 6 for low, high in (extremes if image.mode != "L" else [extremes]))


def render(
    page: Any, space: PageSpace, scale: float, limits: ParseLimits, box: BBox | None = None, *, grey: bool = False
) -> Any:
    """The page (or a box of it, displayed points) as an RGB picture within the pixel limit; None when it fails."""
    x0, y0, x1, y1 = box or (0.0, 0.0, space.width, space.height)
    pixels = max((x1 - x0) * (y1 - y0), 1.0) * scale * scale
    ceiling = min(limits.max_image_pixels, 40_000_000)
    if pixels > ceiling:
        scale *= (ceiling / pixels) ** 0.5
    crop = (x0, space.height - y1, space.width - x1, y0)
    try:
        bitmap = page.render(
            scale=scale * space.unit,
            crop=tuple(max(c, 0.0) / space.unit for c in crop),
            may_draw_forms=False,
            rev_byteorder=True,
            grayscale=grey,
        )
        image = bitmap.to_pil()
        image = image.copy() if image.mode == "L" else image.convert("RGB")
        bitmap.close()
    except (pdfium.PdfiumError, ValueError, MemoryError):
        return None
    return image
