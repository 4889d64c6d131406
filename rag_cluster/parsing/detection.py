"""What a file really is, from its first bytes and, for ZIP and OLE containers, its directory.

Extension and content must agree within a family: text-like formats (txt, md, csv, html) are one family, JPEG and PNG
are not told apart by a person and are another. A renamed file is refused before any parser sees it.
"""

from __future__ import annotations

import mmap
import re
from pathlib import Path

from rag_cluster.errors import (
    CorruptDocumentError,
    EncryptedDocumentError,
    UnsupportedDocumentTypeError,
)
from rag_cluster.parsing.archive import check_archive, read_member
from rag_cluster.parsing.limits import ParseLimits, check_file_size
from rag_cluster.parsing.registry import extension_of

HEAD = 64 * 1024
OLE_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"

FAMILIES = {
    "pdf": ".pdf",
    "docx": ".docx .docm .dotx .dotm",
    "xlsx": ".xlsx .xlsm .xltx .xltm",
    "pptx": ".pptx .pptm .ppsx .ppsm .potx .potm",
    "doc": ".doc .dot .rtf",
    "xls": ".xls .xlt",
    "xlsb": ".xlsb",
    "ppt": ".ppt .pps .pot",
    "odt": ".odt .ott",
    "ods": ".ods .ots",
    "odp": ".odp .otp",
    "text": ".html .htm .xhtml .md .markdown .txt .text .log .csv .tsv .tab",
    "image": ".png .jpg .jpeg .tif .tiff .webp .gif .bmp",
}
ALIKE = {"rtf": "doc"}
"""Kinds that count as another family: Word has long saved RTF under the name of .doc."""
EXPECTED = {extension: family for family, extensions in FAMILIES.items() for extension in extensions.split()}

NAMES = {
    "pdf": "PDF",
    "docx": "a Word document (DOCX)",
    "xlsx": "an Excel workbook (XLSX)",
    "pptx": "a PowerPoint presentation (PPTX)",
    "text": "text",
    "image": "an image",
    "encrypted": "a password-protected Office document",
    "doc": "a Word 97-2003 document (DOC)",
    "xls": "an Excel 97-2003 workbook (XLS)",
    "ppt": "a PowerPoint 97-2003 presentation (PPT)",
    "xlsb": "a binary Excel workbook (XLSB)",
    "ole": "an OLE container",
    "odt": "an OpenDocument text",
    "ods": "an OpenDocument spreadsheet",
    "odp": "an OpenDocument presentation",
    "odf": "an OpenDocument file",
    "epub": "an EPUB book",
    "zip": "a ZIP archive",
    "rtf": "RTF",
    "executable": "an executable program",
    "binary": "unknown binary data",
}

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image"),
    (b"\xff\xd8\xff", "image"),
    (b"II*\x00", "image"),
    (b"MM\x00*", "image"),
    (b"II+\x00", "image"),
    (b"MM\x00+", "image"),
    (b"GIF87a", "image"),
    (b"GIF89a", "image"),
    (b"{\\rtf", "rtf"),
    (b"\x7fELF", "executable"),
    (b"\xfe\xed\xfa\xce", "executable"),
    (b"\xfe\xed\xfa\xcf", "executable"),
    (b"\xcf\xfa\xed\xfe", "executable"),
    (b"\xca\xfe\xba\xbe", "executable"),
)
_OFFICE = frozenset({"docx", "xlsx", "pptx", "doc", "xls", "xlsb", "ppt", "odt", "ods", "odp"})
_MAIN_PARTS = (
    (
        rb"wordprocessingml\.(?:document|template)\.main\+xml|ms-word\.(?:document|template)\.macroEnabled\w*\.main",
        "docx",
    ),
    (rb"ms-excel\.sheet\.binary\.macroEnabled\.main", "xlsb"),
    (rb"spreadsheetml\.(?:sheet|template)\.main\+xml|ms-excel\.(?:sheet|template)\.macroEnabled\.main", "xlsx"),
    (
        rb"presentationml\.(?:presentation|slideshow|template)\.main\+xml"
        rb"|ms-powerpoint\.(?:presentation|slideshow|template)\.macroEnabled\.main",
        "pptx",
    ),
)


def check_content(path: str, filename: str, limits: ParseLimits = ParseLimits()) -> str:
    """The family of the content (a key of FAMILIES), after size, archive and agreement with the name were checked.

    EmptyDocumentError, DocumentTooLargeError, EncryptedDocumentError (Office container with a password),
    CorruptDocumentError (not readable as anything), UnsupportedDocumentTypeError (something else; names both).
    An extension that is not built in agrees with everything but executables.
    """
    check_file_size(path, filename, limits)
    expected = EXPECTED.get(extension_of(filename))
    found = sniff(path, limits)
    if expected is None and found != "executable":
        return found
    if ALIKE.get(found, found) == expected:
        return expected
    if found == "encrypted" and expected in _OFFICE:
        raise EncryptedDocumentError(f"{filename!r} is protected by a password")
    if found == "binary" and expected != "text":
        raise CorruptDocumentError(f"{filename!r} is not readable as {NAMES[expected or 'binary']}")
    raise UnsupportedDocumentTypeError(
        f"{filename!r} has the extension {extension_of(filename)!r} but its content is {NAMES[found]}"
    )


def sniff(path: str, limits: ParseLimits = ParseLimits()) -> str:
    """A key of NAMES. CorruptDocumentError for a ZIP that cannot be read, DocumentTooLargeError for a ZIP bomb."""
    with Path(path).open("rb") as file:
        head = file.read(HEAD)
    if head.startswith(b"PK\x03\x04"):
        return _sniff_zip(path, limits)
    if head.startswith(OLE_MAGIC):
        return _sniff_ole(path)
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image"
    if head[:2] == b"BM" and int.from_bytes(head[14:18], "little") in (12, 40, 52, 56, 64, 108, 124):
        return "image"
    if head[:2] == b"MZ" and not looks_like_text(head):
        return "executable"
    if b"%PDF-" in head[:1024]:
        return "pdf"
    return "text" if looks_like_text(head) else "binary"


def looks_like_text(head: bytes) -> bool:
    """Few control characters; UTF-16 counts, and so does a text with stray NUL bytes."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")):
        return True
    even, odd = head[0::2].count(0), head[1::2].count(0)
    if max(even, odd) > len(head) * 0.25 and min(even, odd) < len(head) * 0.02:
        return True
    controls = len(re.findall(rb"[\x01-\x08\x0e-\x1a\x1c-\x1f\x7f]", head))
    return controls <= len(head) * 0.02 and head.count(0) <= len(head) * 0.1


def _sniff_zip(path: str, limits: ParseLimits) -> str:
    names = check_archive(path, limits)
    types = read_member(path, "[Content_Types].xml")
    if types is not None:
        for pattern, kind in _MAIN_PARTS:
            if re.search(pattern, types):
                return kind
    for member, kind in (("word/document.xml", "docx"), ("xl/workbook.xml", "xlsx"), ("ppt/presentation.xml", "pptx")):
        if member in names:
            return kind
    return _sniff_mimetype(path) if "mimetype" in names else "zip"


def _sniff_mimetype(path: str) -> str:
    """EPUB and OpenDocument say what they are in a member of their own; what is encrypted is named in the manifest."""
    stated = (read_member(path, "mimetype", limit=4096) or b"").decode("ascii", "replace")
    if "epub" in stated:
        return "epub"
    if b"encryption-data" in (read_member(path, "META-INF/manifest.xml") or b""):
        return "encrypted"
    document = stated.strip().removeprefix("application/vnd.oasis.opendocument.").removesuffix("-template")
    return {"text": "odt", "spreadsheet": "ods", "presentation": "odp"}.get(document, "odf")


def _sniff_ole(path: str) -> str:
    """By the names in its directory, whose entries are of 128 bytes: name (UTF-16), its length at 64, sector at 116."""
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for name, kind in (
            ("EncryptedPackage", "encrypted"),
            ("EncryptedSummary", "encrypted"),
            ("WordDocument", "doc"),
            ("Workbook", "xls"),
            ("Book", "xls"),
            ("PowerPoint Document", "ppt"),
        ):
            if (entry := _ole_entry(content, name)) is not None:
                return "encrypted" if kind == "doc" and _is_encrypted_doc(content, entry) else kind
    return "ole"


def _ole_entry(content: mmap.mmap, name: str) -> int | None:
    """Where a directory entry of this name begins."""
    entry = name.encode("utf-16-le") + b"\x00\x00"
    position = content.find(entry, 512)
    while position >= 0:
        if position % 128 == 0 and content[position + 64 : position + 66] == len(entry).to_bytes(2, "little"):
            return position
        position = content.find(entry, position + 2)
    return None


def _is_encrypted_doc(content: mmap.mmap, entry: int) -> bool:
    """By the flag in the block that a Word document begins with."""
    sector = int.from_bytes(content[entry + 116 : entry + 120], "little")
    size = 1 << min(int.from_bytes(content[30:32], "little"), 16)
    begin = (sector + 1) * size
    head = content[begin : begin + 12]
    return head.startswith(b"\xec\xa5") and len(head) == 12 and bool(head[11] & 1)
