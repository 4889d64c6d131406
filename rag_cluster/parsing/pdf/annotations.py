"""What annotations show on a page: text boxes, and values of form fields that the page's own text does not show."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import pypdfium2.raw as pdfium_c

from rag_cluster.domain.blocks import BBox
from rag_cluster.parsing.pdf.geometry import PageSpace
from rag_cluster.parsing.pdf.styles import Style
from rag_cluster.parsing.pdf.text import Word

MAX_ANNOTATIONS = 5000
_HIDDEN = 2 | 32
"""Flags Hidden and NoView."""


def annotation_words(page: Any, space: PageSpace, present: Sequence[Word]) -> list[Word]:
    """One word per line of annotation text, placed in its box; [] for most pages."""
    out: list[Word] = []
    for text, box in _texts(page, space):
        if any(_inside(word, box) for word in present):
            continue
        lines = [line for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n") if line.strip()]
        height = (box[3] - box[1]) / max(len(lines), 1)
        size = min(max(height * 0.8, 6.0), 11.0)
        for i, line in enumerate(lines):
            top = box[1] + i * height
            place = (box[0], top, box[2], top + height)
            out.append(
                Word(line.strip(), place, Style(size, "", False, False, False, 0, False, 0, -1), True, False, 1 << 30)
            )
    return out


def _inside(word: Word, box: BBox) -> bool:
    x, y = (word.x0 + word.x1) / 2, (word.y0 + word.y1) / 2
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]


def _texts(page: Any, space: PageSpace) -> Iterator[tuple[str, BBox]]:
    for index in range(min(max(pdfium_c.FPDFPage_GetAnnotCount(page), 0), MAX_ANNOTATIONS)):
        annotation = pdfium_c.FPDFPage_GetAnnot(page, index)
        if not annotation:
            continue
        try:
            found = _text(annotation)
            rect = pdfium_c.FS_RECTF()
            if found and pdfium_c.FPDFAnnot_GetRect(annotation, rect):
                low, high = sorted((rect.bottom, rect.top))
                yield found, space.box(rect.left, low, rect.right, high)
        finally:
            pdfium_c.FPDFPage_CloseAnnot(annotation)


def _text(annotation: Any) -> str:
    if pdfium_c.FPDFAnnot_GetFlags(annotation) & _HIDDEN:
        return ""
    kind = pdfium_c.FPDFAnnot_GetSubtype(annotation)
    if kind == pdfium_c.FPDF_ANNOT_FREETEXT:
        return _string(annotation, b"Contents")
    if kind != pdfium_c.FPDF_ANNOT_WIDGET:
        return ""
    value = _string(annotation, b"V")
    return value if value not in ("Off", "Yes", "On") else ""


def _string(annotation: Any, key: bytes) -> str:
    size = pdfium_c.FPDFAnnot_GetStringValue(annotation, key, None, 0)
    if not 2 < size < 200_000:
        return ""
    buffer = (ctypes.c_ushort * (size // 2))()
    pdfium_c.FPDFAnnot_GetStringValue(annotation, key, buffer, size)
    return bytes(buffer)[: size - 2].decode("utf-16-le", "replace").strip("\x00 ")
