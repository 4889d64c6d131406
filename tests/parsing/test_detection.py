from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from rag_cluster.errors import (
    CorruptDocumentError,
    DocumentTooLargeError,
    EmptyDocumentError,
    EncryptedDocumentError,
    RagClusterError,
    UnsupportedDocumentTypeError,
)
from rag_cluster.parsing.archive import check_archive
from rag_cluster.parsing.detection import OLE_MAGIC, check_content
from rag_cluster.parsing.limits import ParseLimits


def ooxml(main: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("[Content_Types].xml", f'<Types><Override PartName="/x" ContentType="{main}"/></Types>')
        archive.writestr("x", "<x/>")
    return out.getvalue()


def ole(*entries: str) -> bytes:
    directory = b""
    for entry in entries:
        name = entry.encode("utf-16-le") + b"\x00\x00"
        directory += name.ljust(64, b"\x00") + struct.pack("<H", len(name)) + b"\x00" * 62
    return OLE_MAGIC.ljust(512, b"\x00") + directory.ljust(4096, b"\x00")


def encrypted_word() -> bytes:
    """A directory whose WordDocument starts in sector 8, with the flag of a password set there."""
    content = bytearray(ole("Root Entry", "WordDocument").ljust(512 * 10, b"\x00"))
    content[30:32] = struct.pack("<H", 9)
    entry = content.index("WordDocument".encode("utf-16-le"))
    content[entry + 116 : entry + 120] = struct.pack("<I", 8)
    content[512 * 9 : 512 * 9 + 12] = b"\xec\xa5" + bytes(9) + b"\x01"
    return bytes(content)


def odf(document: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("mimetype", f"application/vnd.oasis.opendocument.{document}")
        archive.writestr("content.xml", "<x/>")
    return out.getvalue()


def template(language: str) -> bytes:
    return ooxml(f"application/vnd.openxmlformats-officedocument.{language}.template.main+xml")


def image(form: str) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (4, 4)).save(out, form)
    return out.getvalue()


WORD = ooxml("application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml")
MACRO_WORD = ooxml("application/vnd.ms-word.document.macroEnabled.main+xml")
EXCEL = ooxml("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml")
MACRO_EXCEL = ooxml("application/vnd.ms-excel.sheet.macroEnabled.main+xml")
BINARY_EXCEL = ooxml("application/vnd.ms-excel.sheet.binary.macroEnabled.main")
SLIDES = ooxml("application/vnd.openxmlformats-officedocument.presentationml.presentation.main+xml")
SHOW = ooxml("application/vnd.openxmlformats-officedocument.presentationml.slideshow.main+xml")
ENCRYPTED = ole("Root Entry", "EncryptionInfo", "EncryptedPackage")
EXECUTABLE = b"MZ\x90\x00\x03\x00\x00\x00" + bytes(range(256)) * 4
ELF = b"\x7fELF\x02\x01\x01" + b"\x00" * 500


def check(tmp_path: Path, name: str, content: bytes, limits: ParseLimits = ParseLimits()) -> str:
    path = tmp_path / "content"
    path.write_bytes(content)
    return check_content(str(path), name, limits)


@pytest.mark.parametrize(
    ("name", "content", "family"),
    [
        ("a.pdf", b"%PDF-1.7\n", "pdf"),
        ("a.pdf", b"garbage before\n%PDF-1.4\n", "pdf"),
        ("a.DOCX", WORD, "docx"),
        ("a.docm", MACRO_WORD, "docx"),
        ("a.xlsx", EXCEL, "xlsx"),
        ("a.xlsm", MACRO_EXCEL, "xlsx"),
        ("a.pptx", SLIDES, "pptx"),
        ("a.pptx", SHOW, "pptx"),
        ("a.dotx", template("wordprocessingml"), "docx"),
        ("a.xltx", template("spreadsheetml"), "xlsx"),
        ("a.potx", template("presentationml"), "pptx"),
        ("a.ppsm", ooxml("application/vnd.ms-powerpoint.slideshow.macroEnabled.main+xml"), "pptx"),
        ("a.potm", ooxml("application/vnd.ms-powerpoint.template.macroEnabled.main+xml"), "pptx"),
        ("a.dotm", ooxml("application/vnd.ms-word.template.macroEnabledTemplate.main+xml"), "docx"),
        ("a.xltm", ooxml("application/vnd.ms-excel.template.macroEnabled.main+xml"), "xlsx"),
        ("a.xlsb", BINARY_EXCEL, "xlsb"),
        ("a.xls", ole("Root Entry", "Workbook"), "xls"),
        ("a.doc", ole("Root Entry", "WordDocument"), "doc"),
        ("a.doc", b"{\\rtf1 hello}", "doc"),
        ("a.rtf", b"{\\rtf1 hello}", "doc"),
        ("a.ppt", ole("Root Entry", "PowerPoint Document"), "ppt"),
        ("a.odt", odf("text"), "odt"),
        ("a.ott", odf("text-template"), "odt"),
        ("a.ods", odf("spreadsheet"), "ods"),
        ("a.odp", odf("presentation"), "odp"),
        ("a.txt", "中文".encode("gb18030"), "text"),
        ("a.txt", "text".encode("utf-16"), "text"),
        ("a.txt", b"a line with \x00\x00 inside of it\n" * 10, "text"),
        ("a.md", b"<html><p>HTML in a text family</p></html>", "text"),
        ("a.html", b"# no html", "text"),
        ("a.txt", b"MZ is how this sentence begins.", "text"),
        ("a.png", image("PNG"), "image"),
        ("a.png", image("JPEG"), "image"),
        ("a.tiff", image("TIFF"), "image"),
        ("a.webp", image("WEBP"), "image"),
        ("a.bmp", image("BMP"), "image"),
    ],
)
def test_content_that_agrees_with_its_name_is_accepted(tmp_path: Path, name: str, content: bytes, family: str) -> None:
    assert check(tmp_path, name, content) == family


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("a.txt", b"", EmptyDocumentError),
        ("a.pdf", image("JPEG"), UnsupportedDocumentTypeError),
        ("a.pdf", b"<html>404</html>", UnsupportedDocumentTypeError),
        ("a.pdf", bytes(range(256)) * 8, CorruptDocumentError),
        ("a.docx", b"{\\rtf1 hello}", UnsupportedDocumentTypeError),
        ("a.docx", EXCEL, UnsupportedDocumentTypeError),
        ("a.xlsx", BINARY_EXCEL, UnsupportedDocumentTypeError),
        ("a.docx", ole("Root Entry", "WordDocument"), UnsupportedDocumentTypeError),
        ("a.xlsx", ole("Root Entry", "Workbook"), UnsupportedDocumentTypeError),
        ("a.docx", ENCRYPTED, EncryptedDocumentError),
        ("a.pptx", ENCRYPTED, EncryptedDocumentError),
        ("a.txt", ENCRYPTED, UnsupportedDocumentTypeError),
        ("a.doc", encrypted_word(), EncryptedDocumentError),
        ("a.ppt", ole("Root Entry", "EncryptedSummary", "PowerPoint Document"), EncryptedDocumentError),
        ("a.xls", EXCEL, UnsupportedDocumentTypeError),
        ("a.xlsb", EXCEL, UnsupportedDocumentTypeError),
        ("a.ppt", ole("Root Entry", "WordDocument"), UnsupportedDocumentTypeError),
        ("a.odt", odf("spreadsheet"), UnsupportedDocumentTypeError),
        ("a.docx", WORD[: len(WORD) // 2], CorruptDocumentError),
        ("a.txt", EXECUTABLE, UnsupportedDocumentTypeError),
        ("a.txt", ELF, UnsupportedDocumentTypeError),
        ("a.docx", EXECUTABLE, UnsupportedDocumentTypeError),
        ("a.custom", ELF, UnsupportedDocumentTypeError),
        ("a.txt", bytes(range(256)) * 8, UnsupportedDocumentTypeError),
        ("a.csv", b"%PDF-1.4\n", UnsupportedDocumentTypeError),
        ("a.pdf", b"GIF89a" + b"\x00" * 20, UnsupportedDocumentTypeError),
        ("a.png", b"plain text", UnsupportedDocumentTypeError),
        ("a.txt", WORD, UnsupportedDocumentTypeError),
    ],
)
def test_content_that_contradicts_its_name_is_refused(
    tmp_path: Path, name: str, content: bytes, error: type[RagClusterError]
) -> None:
    with pytest.raises(error):
        check(tmp_path, name, content)


def test_the_refusal_names_extension_and_content(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedDocumentTypeError, match=r"'\.docx'.*RTF"):
        check(tmp_path, "a.docx", b"{\\rtf1 hello}")


def test_a_file_above_the_limit_is_too_large(tmp_path: Path) -> None:
    with pytest.raises(DocumentTooLargeError):
        check(tmp_path, "a.txt", b"x" * 101, ParseLimits(max_file_bytes=100))


def bomb(tmp_path: Path, size: int, name: str = "word/document.xml") -> str:
    path = tmp_path / "bomb.docx"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, b"\x00" * size)
    return str(path)


def test_an_archive_that_expands_beyond_the_limit_is_too_large(tmp_path: Path) -> None:
    with pytest.raises(DocumentTooLargeError, match="expands to"):
        check_archive(bomb(tmp_path, 2_000_000), ParseLimits(max_expanded_bytes=1_000_000))


def test_an_archive_with_an_absurd_ratio_is_too_large(tmp_path: Path) -> None:
    with pytest.raises(DocumentTooLargeError, match="times"):
        check_archive(bomb(tmp_path, 40_000_000), ParseLimits())


def test_a_small_archive_may_compress_well(tmp_path: Path) -> None:
    assert check_archive(bomb(tmp_path, 1_000_000), ParseLimits())


def test_an_archive_that_names_a_path_outside_itself_is_corrupt(tmp_path: Path) -> None:
    with pytest.raises(CorruptDocumentError, match="outside"):
        check_archive(bomb(tmp_path, 10, "../../etc/passwd"), ParseLimits())
