"""What annotations show on a page: text boxes, and the values of form fields as a person sees them."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pypdfium2.raw as pdfium_c

from rag_cluster.domain.blocks import BBox
from rag_cluster.parsing.pdf.geometry import PageSpace
from rag_cluster.parsing.pdf.styles import Style
from rag_cluster.parsing.pdf.text import Word

MAX_ANNOTATIONS = 5000
MAX_OPTIONS = 2000
CHECKED, UNCHECKED = "☒", "☐"
CHOSEN, NOT_CHOSEN = "◉", "◯"
"""Radio buttons."""
_HIDDEN = 2 | 32
"""Flags Hidden and NoView."""
_PASSWORD = 1 << 13
"""Field flag: a person sees stars."""
_FILLER = re.compile(r"[\W_]+")


def annotation_words(document: Any, page: Any, space: PageSpace, present: Sequence[Word]) -> list[Word]:
    """One word per line of annotation text, placed in its box; [] for most pages. Values that the page's own text
    shows (in a flattened form) are not doubled."""
    out: list[Word] = []
    for text, box in _texts(document, page, space):
        if any(_FILLER.sub("", word.text) and _inside(word, box) for word in present):
            continue
        lines = [line for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n") if line.strip()]
        height = (box[3] - box[1]) / max(len(lines), 1)
        size = min(max(height * 0.8, 6.0), 11.0)
        for i, line in enumerate(lines):
            out.append(_word(line.strip(), (box[0], box[1] + i * height, box[2], box[1] + (i + 1) * height), size))
    return out


def _word(text: str, box: BBox, size: float) -> Word:
    """A word in a field's line, as wide as its text is likely to be."""
    width = sum(0.55 if ord(character) < 0x2E80 else 1.0 for character in text) * size
    place = (box[0], box[1], min(box[2], box[0] + max(width, 0.5 * size)), box[3])
    return Word(text, place, Style(size, "", False, False, False, 0, False, 0, -1), True, False, 1 << 30)


def _inside(word: Word, box: BBox) -> bool:
    x, y = (word.x0 + word.x1) / 2, (word.y0 + word.y1) / 2
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]


def _texts(document: Any, page: Any, space: PageSpace) -> Iterator[tuple[str, BBox]]:
    for index in range(min(max(pdfium_c.FPDFPage_GetAnnotCount(page), 0), MAX_ANNOTATIONS)):
        annotation = pdfium_c.FPDFPage_GetAnnot(page, index)
        if not annotation:
            continue
        try:
            found = _text(document.formenv, annotation)
            rect = pdfium_c.FS_RECTF()
            if found and pdfium_c.FPDFAnnot_GetRect(annotation, rect):
                low, high = sorted((rect.bottom, rect.top))
                yield found, space.box(rect.left, low, rect.right, high)
        finally:
            pdfium_c.FPDFPage_CloseAnnot(annotation)


def _text(form: Any, annotation: Any) -> str:
    kind = pdfium_c.FPDFAnnot_GetSubtype(annotation)
    if kind not in (pdfium_c.FPDF_ANNOT_FREETEXT, pdfium_c.FPDF_ANNOT_WIDGET):
        return ""
    if pdfium_c.FPDFAnnot_GetFlags(annotation) & _HIDDEN:
        return ""
    if kind == pdfium_c.FPDF_ANNOT_FREETEXT:
        return _string(pdfium_c.FPDFAnnot_GetStringValue, annotation, b"Contents")
    return _field(form, annotation) if form is not None else ""


def _field(form: Any, annotation: Any) -> str:
    """What the field shows. Buttons and signatures show nothing that is told."""
    kind = pdfium_c.FPDFAnnot_GetFormFieldType(form, annotation)
    if kind == pdfium_c.FPDF_FORMFIELD_CHECKBOX:
        return CHECKED if pdfium_c.FPDFAnnot_IsChecked(form, annotation) else UNCHECKED
    if kind == pdfium_c.FPDF_FORMFIELD_RADIOBUTTON:
        return CHOSEN if pdfium_c.FPDFAnnot_IsChecked(form, annotation) else NOT_CHOSEN
    if kind in (pdfium_c.FPDF_FORMFIELD_COMBOBOX, pdfium_c.FPDF_FORMFIELD_LISTBOX):
        chosen = [label for label in _chosen(form, annotation) if label]
        return ", ".join(chosen) or _string(pdfium_c.FPDFAnnot_GetFormFieldValue, form, annotation)
    if kind == pdfium_c.FPDF_FORMFIELD_TEXTFIELD:
        if pdfium_c.FPDFAnnot_GetFormFieldFlags(form, annotation) & _PASSWORD:
            return ""
        return _string(pdfium_c.FPDFAnnot_GetFormFieldValue, form, annotation)
    return ""


def _chosen(form: Any, annotation: Any) -> Iterator[str]:
    """Labels of the options that are selected (a value is often only a code)."""
    for index in range(min(max(pdfium_c.FPDFAnnot_GetOptionCount(form, annotation), 0), MAX_OPTIONS)):
        if pdfium_c.FPDFAnnot_IsOptionSelected(form, annotation, index):
            yield _string(pdfium_c.FPDFAnnot_GetOptionLabel, form, annotation, index)


def _string(read: Any, *arguments: Any) -> str:
    """A UTF-16 string by one of pdfium's functions that say the size first."""
    size = read(*arguments, None, 0)
    if not 2 < size < 200_000:
        return ""
    buffer = (ctypes.c_ushort * (size // 2))()
    read(*arguments, buffer, size)
    return bytes(buffer)[: size - 2].decode("utf-16-le", "replace").strip("\x00 ")
