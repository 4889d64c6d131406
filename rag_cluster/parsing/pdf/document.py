"""Opening a PDF and what it says about itself: errors, metadata, outline."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from rag_cluster.domain.blocks import DocumentSource
from rag_cluster.errors import CorruptDocumentError, EncryptedDocumentError, UnsupportedDocumentTypeError
from rag_cluster.parsing.limits import ParseLimits, check_file_size, check_page_count
from rag_cluster.parsing.pdf.headings import squeeze

MAX_OUTLINE = 5000


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
