"""Links to the web: the text below each link annotation with its URI."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pypdfium2.raw as pdfium_c

from rag_cluster.domain.blocks import BBox
from rag_cluster.parsing.pdf.geometry import PageSpace
from rag_cluster.parsing.pdf.paragraphs import join_texts

MAX_LINKS = 5000
"""Of one page."""
MAX_URI = 4096
_Rect = tuple[float, float, float, float]


@dataclass(slots=True)
class Link:
    """Some text that leads to a URI. box: displayed page, of its first line."""

    text: str
    uri: str
    box: BBox


def read(document: Any, page: Any, textpage: Any, space: PageSpace) -> list[Link]:
    """The links of an open page with URIs, in the file's order; one that is annotated line by line is one."""
    out: list[Link] = []
    for count, (uri, rects) in enumerate(_annotated(document, page)):
        if count >= MAX_LINKS:
            break
        text = join_texts(_text(textpage, rect) for rect in rects)
        box = space.box(*rects[0])
        if out and out[-1].uri == uri and box[1] > out[-1].box[1] + 1 and box[1] < out[-1].box[3] + 30:
            out[-1].text = join_texts([out[-1].text, text])
        else:
            out.append(Link(text, uri, box))
    return out


def _annotated(document: Any, page: Any) -> Iterator[tuple[str, list[_Rect]]]:
    """(URI, rectangles in user space: left, bottom, right, top)"""
    position, link = ctypes.c_int(0), pdfium_c.FPDF_LINK()
    while pdfium_c.FPDFLink_Enumerate(page, position, link):
        uri = _uri(document, link)
        rects = _rects(link) if uri else []
        if rects:
            yield uri, rects


def _uri(document: Any, link: Any) -> str:
    action = pdfium_c.FPDFLink_GetAction(link)
    if not action or pdfium_c.FPDFAction_GetType(action) != pdfium_c.PDFACTION_URI:
        return ""
    size = pdfium_c.FPDFAction_GetURIPath(document, action, None, 0)
    if not 1 < size <= MAX_URI:
        return ""
    buffer = ctypes.create_string_buffer(size)
    pdfium_c.FPDFAction_GetURIPath(document, action, buffer, size)
    uri = "".join(buffer.value.decode("utf-8", "replace").split())
    return "" if uri.lower().startswith(("javascript:", "data:", "vbscript:")) else uri


def _rects(link: Any) -> list[_Rect]:
    out: list[_Rect] = []
    quad = pdfium_c.FS_QUADPOINTSF()
    for index in range(min(max(pdfium_c.FPDFLink_CountQuadPoints(link), 0), 50)):
        if pdfium_c.FPDFLink_GetQuadPoints(link, index, quad):
            xs, ys = (quad.x1, quad.x2, quad.x3, quad.x4), (quad.y1, quad.y2, quad.y3, quad.y4)
            out.append((min(xs), min(ys), max(xs), max(ys)))
    rect = pdfium_c.FS_RECTF()
    if not out and pdfium_c.FPDFLink_GetAnnotRect(link, rect):
        (left, right), (bottom, top) = sorted((rect.left, rect.right)), sorted((rect.bottom, rect.top))
        out.append((left, bottom, right, top))
    return [r for r in out if r[2] > r[0] and r[3] > r[1]]


def _text(textpage: Any, rect: _Rect) -> str:
    """The text in a rectangle; characters that only touch its edges belong to its neighbours."""
    left, bottom, right, top = rect
    inset = min(right - left, top - bottom)
    across, along = (0.25, 0.15) if right - left >= top - bottom else (0.15, 0.25)
    area = (left + along * inset, top - across * inset, right - along * inset, bottom + across * inset)
    size = pdfium_c.FPDFText_GetBoundedText(textpage, *area, None, 0)
    if not 0 < size < 20_000:
        return ""
    buffer = (ctypes.c_ushort * (size + 1))()
    pdfium_c.FPDFText_GetBoundedText(textpage, *area, buffer, size)
    text = bytes(buffer)[: 2 * size].decode("utf-16-le", "replace").replace("\x00", "")
    return join_texts(text.replace("\ufffe", "-").replace("\x02", "-").splitlines())
