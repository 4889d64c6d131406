"""Opening a PDF and what it says about itself: errors, metadata, outline, structure tags."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from rag_cluster.domain.blocks import DocumentSource
from rag_cluster.errors import CorruptDocumentError, EncryptedDocumentError, UnsupportedDocumentTypeError
from rag_cluster.parsing.limits import ParseLimits, check_file_size, check_page_count
from rag_cluster.parsing.pdf import native
from rag_cluster.parsing.pdf.headings import squeeze

MAX_OUTLINE = 5000
MAX_TAG_DEPTH = 60
MAX_TAGS = 30_000


@contextmanager
def open_pdf(source: DocumentSource, limits: ParseLimits) -> Iterator[Any]:
    """An open pypdfium2 document. EncryptedDocumentError, CorruptDocumentError, EmptyDocumentError and
    DocumentTooLargeError before anything is read; a file without a PDF header is an UnsupportedDocumentTypeError."""
    check_file_size(source.path, source.filename, limits)
    with Path(source.path).open("rb") as file:
        head = file.read(4096)
    try:
        document = pdfium.PdfDocument(source.path)
    except pdfium.PdfiumError as error:
        raise _open_error(source, head) from error
    try:
        count = len(document)
        if count == 0:
            raise CorruptDocumentError(f"{source.filename!r} has no pages that can be read")
        check_page_count(count, limits)
        if pdfium_c.FPDF_GetFormType(document) != pdfium_c.FORMTYPE_NONE:
            document.init_forms()  # before any page is opened
        yield document
    finally:
        document.close()


def _open_error(source: DocumentSource, head: bytes) -> Exception:
    code = pdfium_c.FPDF_GetLastError()
    if code in (pdfium_c.FPDF_ERR_PASSWORD, pdfium_c.FPDF_ERR_SECURITY):
        return EncryptedDocumentError(f"{source.filename!r} needs a password; store a copy without one")
    if b"%PDF-" not in head:
        return UnsupportedDocumentTypeError(f"{source.filename!r} is called a PDF but its content is not one")
    return CorruptDocumentError(f"{source.filename!r} is damaged: no page can be recovered")


def facts(document: Any) -> dict[str, object]:
    """pages, and title, author, subject, language where stated."""
    out: dict[str, object] = {"pages": len(document)}
    try:
        stated = document.get_metadata_dict(skip_empty=True)
    except (pdfium.PdfiumError, UnicodeDecodeError):
        stated = {}
    for key, name in (("Title", "title"), ("Author", "author"), ("Subject", "subject"), ("CreationDate", "created")):
        value = str(stated.get(key, "")).replace("\x00", "").strip()
        if value:
            out[name] = value[:1000]
    return out


def outline(document: Any) -> dict[tuple[int, str], int]:
    """(1-based page, squeezed title) -> level 1-6 of the bookmarks."""
    out: dict[tuple[int, str], int] = {}
    try:
        for count, mark in enumerate(document.get_toc(max_depth=8)):
            if count >= MAX_OUTLINE:
                break
            dest = mark.get_dest()
            page = dest.get_index() if dest is not None else None
            title = squeeze(mark.get_title())
            if page is not None and title:
                out.setdefault((page + 1, title), min(mark.level + 1, 6))
    except (pdfium.PdfiumError, UnicodeDecodeError, RecursionError):
        return out
    return out


def page_tags(document: Any, page: Any) -> dict[int, str]:
    """Marked content id -> structure role of one page ("H1", "P", "LI", "TD", "Figure" ...); {} without tags."""
    if not pdfium_c.FPDFCatalog_IsTagged(document):
        return {}
    tree = pdfium_c.FPDF_StructTree_GetForPage(page)
    if not tree:
        return {}
    walk = _TagWalk()
    try:
        for i in range(max(pdfium_c.FPDF_StructTree_CountChildren(tree), 0)):
            walk.visit(native.address(pdfium_c.FPDF_StructTree_GetChildAtIndex(tree, i)), "", 0)
    finally:
        pdfium_c.FPDF_StructTree_Close(tree)
    return walk.roles


_LEAVES = frozenset({"Span", "Link", "Reference", "Em", "Strong", "NonStruct", "Quote", "StyleSpan", "Div", "Sect"})
_TYPE_BYTES = 128
_HOLDERS = ("LBody", "LI", "TD", "TH", "Caption", "Note")


class _TagWalk:
    """Collects roles; bounded in depth and number, since damaged trees refer to themselves."""

    def __init__(self) -> None:
        self.roles: dict[int, str] = {}
        self._left = MAX_TAGS
        self._buffer = ctypes.create_string_buffer(_TYPE_BYTES)
        self._address = ctypes.addressof(self._buffer)

    def visit(self, element: int, role: str, depth: int) -> None:
        self._left -= 1
        if not element or depth > MAX_TAG_DEPTH or self._left < 0:
            return
        own = self._type(element)
        # The role that says most wins: a P inside a list item is list text, a Span inside a heading is heading text.
        if own and own not in _LEAVES and not (own == "P" and role in _HOLDERS):
            role = own
        for i in range(max(native.tag_child_count(element), 0)):
            child = native.tag_child(element, i)
            if child:
                self.visit(child, role, depth + 1)
            else:
                mcid = native.tag_child_mcid(element, i)
                if mcid >= 0:
                    self.roles[mcid] = role

    def _type(self, element: int) -> str:
        size = native.tag_type(element, self._address, _TYPE_BYTES)
        if not 2 < size <= _TYPE_BYTES:
            return ""
        return _role(ctypes.string_at(self._address, size - 2))


@lru_cache(maxsize=256)
def _role(name: bytes) -> str:
    return name.decode("utf-16-le", "replace")


def heading_level(role: str) -> int | None:
    """Level of a heading role, None for the others. "H" and "Title" are level 1."""
    if match := re.fullmatch(r"H([1-9])", role):
        return min(int(match[1]), 6)
    return 1 if role in ("H", "Title") else None
