"""Legacy formats: refused with a word on how to enable them, or read through a confined LibreOffice."""

from __future__ import annotations

import http.server
import io
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from rag_cluster.domain.blocks import DocumentSource, ParsedDocument
from rag_cluster.errors import (
    CorruptDocumentError,
    EncryptedDocumentError,
    ParseTimeoutError,
    UnsupportedDocumentTypeError,
)
from rag_cluster.parsing.isolation import IsolatedParser
from rag_cluster.parsing.legacy import CONVERTED
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.parsing.ocr import OcrMode
from rag_cluster.parsing.registry import ParserRegistry
from tests.parsing.conftest import MakeSource

OFFICE = shutil.which("soffice")
needs_office = pytest.mark.skipif(OFFICE is None, reason="LibreOffice is not installed")
LIMITS = ParseLimits(timeout=120)
RTF = rb"{\rtf1\ansi {\b Title}\par The quay crane lifts 41 tonnes.\par \u23736?\u26725? Ende\par}"
ODT_NAMES = (
    'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" '
    'xmlns:script="urn:oasis:names:tc:opendocument:xmlns:script:1.0" '
    'xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0" '
    'xmlns:xlink="http://www.w3.org/1999/xlink"'
)


def odt(body: str, manifest: str = "") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.text")
        archive.writestr(
            "content.xml",
            f'<office:document-content {ODT_NAMES} office:version="1.2"><office:body><office:text>{body}'
            "</office:text></office:body></office:document-content>",
        )
        archive.writestr(
            "META-INF/manifest.xml",
            '<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0">'
            '<manifest:file-entry manifest:full-path="/"'
            ' manifest:media-type="application/vnd.oasis.opendocument.text"/>'
            '<manifest:file-entry manifest:full-path="content.xml" manifest:media-type="text/xml"/>'
            f"{manifest}</manifest:manifest>",
        )
    return out.getvalue()


@pytest.fixture
def office() -> Iterator[IsolatedParser]:
    with IsolatedParser(LIMITS, ocr=OcrMode.OFF, libreoffice="true") as parser:
        yield parser


@pytest.fixture
def convert(tmp_path: Path) -> Callable[[Path, str], Path]:
    """A file in another format, by LibreOffice."""

    def run(path: Path, form: str) -> Path:
        profile = (tmp_path / "profile").as_uri()
        command = ["soffice", "--headless", f"-env:UserInstallation={profile}", "--convert-to", form]
        subprocess.run([*command, "--outdir", str(tmp_path), str(path)], check=True, capture_output=True, timeout=120)
        return path.with_suffix(f".{form}")

    return run


def source(path: Path) -> DocumentSource:
    return DocumentSource("document", 1, path.name, str(path))


@pytest.mark.parametrize("extension", sorted(CONVERTED))
def test_without_permission_a_legacy_format_is_refused_and_told_how_to_enable_it(extension: str) -> None:
    registry = ParserRegistry()
    assert extension not in registry.extensions
    with pytest.raises(UnsupportedDocumentTypeError, match="RAG_LIBREOFFICE=true") as refusal:
        registry.info(f"a{extension.upper()}")
    assert extension in refusal.value.message


def test_the_child_refuses_it_too(make_source: MakeSource) -> None:
    with IsolatedParser() as parser, pytest.raises(UnsupportedDocumentTypeError, match="RAG_LIBREOFFICE"):
        parser.parse(make_source("a.rtf", RTF))


def test_with_permission_but_without_libreoffice_the_refusal_says_what_is_missing(tmp_path: Path) -> None:
    registry = ParserRegistry(libreoffice=str(tmp_path / "soffice"))
    with pytest.raises(UnsupportedDocumentTypeError, match="not installed"):
        registry.info("a.doc")


@pytest.mark.parametrize("setting", ["false", "0", "no", "off", " ", "FALSE"])
def test_what_means_no_is_no(setting: str) -> None:
    with pytest.raises(UnsupportedDocumentTypeError, match="not allowed"):
        ParserRegistry(libreoffice=setting).info("a.doc")


def test_a_parser_of_ones_own_needs_no_libreoffice() -> None:
    assert ParserRegistry({".rtf": "rag_cluster.parsing.text:TextParser"}).info("a.rtf").name == "text"


def fake_office(tmp_path: Path, script: str) -> str:
    """A program that is called as LibreOffice is; `out` is the folder for what it makes."""
    path = tmp_path / "soffice"
    imports = "import os, signal, subprocess, sys, time, pathlib"
    start = "out = pathlib.Path(sys.argv[sys.argv.index('--outdir') + 1])"
    path.write_text(f"#!{sys.executable}\n{imports}\n{start}\n{textwrap.dedent(script)}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_conversion_tells_in_the_fingerprint(tmp_path: Path) -> None:
    registry = ParserRegistry(libreoffice=fake_office(tmp_path, ""))
    converted, direct = registry.info("a.doc"), registry.info("a.docx")
    assert (converted.name, converted.version) == (f"libreoffice+{direct.name}", f"1+{direct.version}")
    assert {".doc", ".ppt", ".rtf", ".odt", ".ods", ".odp"} <= registry.extensions


def test_a_conversion_that_hangs_is_ended_with_its_children(tmp_path: Path, make_source: MakeSource) -> None:
    path = fake_office(
        tmp_path,
        f"""
        child = subprocess.Popen(["sleep", "300"])
        pathlib.Path({str(tmp_path / "pids")!r}).write_text(f"{{os.getpid()}} {{child.pid}}")
        time.sleep(300)
        """,
    )
    limits = ParseLimits(timeout=60, conversion_timeout=2)
    with IsolatedParser(limits, libreoffice=path) as parser:
        started = time.monotonic()
        with pytest.raises(ParseTimeoutError, match="more than 2 s to convert"):
            parser.parse(make_source("a.rtf", RTF))
        assert time.monotonic() - started < 20
        assert not any(alive(int(pid)) for pid in (tmp_path / "pids").read_text().split())
        assert parser.parse(make_source("b.txt", "still works")).blocks


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_conversion_dies_with_the_parser_and_leaves_no_files(tmp_path: Path, make_source: MakeSource) -> None:
    path = fake_office(
        tmp_path,
        f"""
        pathlib.Path({str(tmp_path / "pids")!r}).write_text(f"{{os.getpid()}} {{os.getcwd()}}")
        time.sleep(300)
        """,
    )
    # The document's time ends before the conversion's: the parser is killed, not asked.
    with IsolatedParser(ParseLimits(timeout=3, conversion_timeout=3.5), libreoffice=path) as parser:
        with pytest.raises(ParseTimeoutError):
            parser.parse(make_source("a.rtf", RTF))
        pid, directory = (tmp_path / "pids").read_text().split()
        deadline = time.monotonic() + 5
        while alive(int(pid)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not alive(int(pid))
    assert not Path(directory).exists()


def test_a_conversion_that_dies_is_tried_again_and_then_the_documents_fault(
    tmp_path: Path, make_source: MakeSource
) -> None:
    log = tmp_path / "log"
    path = fake_office(
        tmp_path,
        f"""
        open({str(log)!r}, "a").write("x")
        os.kill(os.getpid(), signal.SIGSEGV)
        """,
    )
    with IsolatedParser(libreoffice=path) as parser, pytest.raises(CorruptDocumentError, match="SIGSEGV"):
        parser.parse(make_source("a.rtf", RTF))
    assert log.read_text() == "xxx"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("x = bytearray(4 << 30)", "MemoryError"),
        ("out.mkdir()\nwith open(out / 'source.docx', 'wb') as f:\n    f.write(b'x' * (2 << 20))", "File too large"),
        ("print('Error: source file could not be loaded')", "could not be loaded"),
        ("", "made no file"),
    ],
)
def test_a_conversion_beyond_its_limits_is_the_documents_fault(
    script: str, reason: str, tmp_path: Path, make_source: MakeSource
) -> None:
    limits = ParseLimits(memory_bytes=1 << 30, max_expanded_bytes=1 << 20)
    with (
        IsolatedParser(limits, libreoffice=fake_office(tmp_path, script)) as parser,
        pytest.raises(CorruptDocumentError, match=reason),
    ):
        parser.parse(make_source("a.rtf", RTF))


def test_a_conversion_sees_no_secrets_and_no_network(
    tmp_path: Path, make_source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    if subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode:
        pytest.skip("network namespaces are not permitted here")
    monkeypatch.setenv("RAG_POSTGRES_DSN", "postgresql://user:hunter2@host/db")
    path = fake_office(
        tmp_path,
        f"""
        links = [line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]]
        pathlib.Path({str(tmp_path / "seen")!r}).write_text(f"{{dict(os.environ)}}\\n{{' '.join(links)}}")
        """,
    )
    with IsolatedParser(libreoffice=path) as parser, pytest.raises(CorruptDocumentError):
        parser.parse(make_source("a.rtf", RTF))
    environment, links = (tmp_path / "seen").read_text().split("\n")
    assert "hunter2" not in environment and "RAG_" not in environment
    assert set(links.split()) <= {"lo"}


def test_an_encrypted_opendocument_file_is_said_to_be_encrypted(tmp_path: Path, make_source: MakeSource) -> None:
    encrypted = odt("<text:p>x</text:p>", '<manifest:encryption-data manifest:checksum="x"/>')
    parser = IsolatedParser(libreoffice=fake_office(tmp_path, ""))
    with parser, pytest.raises(EncryptedDocumentError):
        parser.parse(make_source("a.odt", encrypted))


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.odt", RTF), ("a.ppt", RTF), ("a.ods", odt("")), ("a.rtf", b"%PDF-1.4"), ("a.doc", b"<html></html>")],
)
def test_content_of_another_family_is_refused(
    name: str, content: bytes, tmp_path: Path, make_source: MakeSource
) -> None:
    parser = IsolatedParser(libreoffice=fake_office(tmp_path, ""))
    with parser, pytest.raises(UnsupportedDocumentTypeError, match="content is"):
        parser.parse(make_source(name, content))


@needs_office
@pytest.mark.parametrize("name", ["a.rtf", "a.doc"])
def test_rtf_is_read_also_where_word_called_it_doc(name: str, office: IsolatedParser, make_source: MakeSource) -> None:
    document = office.parse(make_source(name, RTF))
    assert [block.content for block in document.blocks][1:] == ["The quay crane lifts 41 tonnes.", "岸桥 Ende"]
    assert str(document.metadata["converted_by"]).startswith("LibreOffice/")


@needs_office
@pytest.mark.parametrize("form", ["doc", "odt", "rtf"])
def test_text_documents_keep_headings_tables_and_lists(
    form: str, office: IsolatedParser, convert: Callable[[Path, str], Path], tmp_path: Path
) -> None:
    import docx

    document = docx.Document()
    document.add_heading("维护手册", 1)
    document.add_paragraph("制动器间隙为 0.8 毫米。")
    document.add_heading("Limits", 2)
    document.add_paragraph("first item", style="List Bullet")
    table = document.add_table(rows=2, cols=2, style="Table Grid")
    for cell, text in zip(
        [*table.rows[0].cells, *table.rows[1].cells], ["Wind", "Limit", "gust", "72 km/h"], strict=True
    ):
        cell.text = text
    document.add_paragraph("the end")
    document.save(str(tmp_path / "manual.docx"))
    parsed = office.parse(source(convert(tmp_path / "manual.docx", form)))
    assert [(b.type.value, b.locator.heading_path) for b in parsed.blocks] == [
        ("heading", ("维护手册",)),
        ("text", ("维护手册",)),
        ("heading", ("维护手册", "Limits")),
        ("list", ("维护手册", "Limits")),
        ("table", ("维护手册", "Limits")),
        ("text", ("维护手册", "Limits")),
    ]
    assert parsed.blocks[-2].metadata["rows"] == [["Wind", "Limit"], ["gust", "72 km/h"]]


@needs_office
@pytest.mark.parametrize("form", ["ppt", "odp"])
def test_presentations_keep_their_slide_numbers_and_notes(
    form: str, office: IsolatedParser, convert: Callable[[Path, str], Path], tmp_path: Path
) -> None:
    import pptx

    deck = pptx.Presentation()
    for number in (1, 2, 3):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = f"Title {number}"
        slide.placeholders[1].text = f"point {number}"
        slide.notes_slide.notes_text_frame.text = f"note {number}"
    deck.save(str(tmp_path / "deck.pptx"))
    parsed = office.parse(source(convert(tmp_path / "deck.pptx", form)))
    found = {(b.locator.slide, b.content) for b in parsed.blocks}
    assert {(n, f"{word} {n}") for n in (1, 2, 3) for word in ("Title", "point", "note")} <= found
    assert parsed.metadata["slides"] == 3


@needs_office
def test_opendocument_spreadsheets_show_values_as_a_person_reads_them(
    office: IsolatedParser, convert: Callable[[Path, str], Path], tmp_path: Path
) -> None:
    from tests.parsing.test_xls import workbook

    workbook(tmp_path / "book.xlsx")
    parsed = office.parse(source(convert(tmp_path / "book.xlsx", "ods")))
    (table, *_) = [block for block in parsed.blocks if block.type.value == "table"]
    assert table.locator.sheet == "Costs" and table.metadata["rows"][1][:3] == ["bolt", "1,234.50 €", "15.3%"]
    assert "#DIV/0!" in table.content and not any("secret" in block.content for block in parsed.blocks)


@needs_office
def test_macros_links_and_remote_content_of_a_document_do_nothing(
    office: IsolatedParser, make_source: MakeSource, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("hunter2 is the password")
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        do_HEAD = do_OPTIONS = do_PROPFIND = do_GET

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        body = (
            f'<text:section text:name="local"><text:section-source xlink:href="{(tmp_path / "secret.txt").as_uri()}"/>'
            f'<text:p/></text:section><text:section text:name="far"><text:section-source xlink:href="{url}/a.txt"/>'
            f'<text:p/></text:section><text:p>harmless<draw:frame><draw:image xlink:href="{url}/b.png"/></draw:frame>'
            "</text:p>"
        )
        document = office.parse(make_source("a.odt", odt(body)))
    finally:
        server.shutdown()
    assert "harmless" in " ".join(block.content for block in document.blocks)
    assert not any("hunter2" in block.content for block in document.blocks)
    assert asked == []


@needs_office
@pytest.mark.parametrize("name", ["a.doc", "a.ppt"])
def test_garbage_in_a_legacy_container_is_a_named_error(
    name: str, office: IsolatedParser, make_source: MakeSource
) -> None:
    from tests.parsing.test_detection import ole

    content = ole("Root Entry", "WordDocument" if name == "a.doc" else "PowerPoint Document") + os.urandom(4096)
    with pytest.raises(CorruptDocumentError, match="LibreOffice could not read"):
        office.parse(make_source(name, content))


@needs_office
def test_nothing_is_left_behind(
    office: IsolatedParser, make_source: MakeSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    result: ParsedDocument = office.parse(make_source("a.rtf", RTF))
    assert result.blocks
    office.close()
    assert list(folder.iterdir()) == []
