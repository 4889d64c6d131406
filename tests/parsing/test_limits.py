"""Every limit end to end: what a file can do to a parser ends in blocks or in a named error, in time and in memory.

RAG_FULL_COUNTS=1 makes the long documents as long as they are named; without it they are small.
"""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from rag_cluster.domain.blocks import ParsedDocument
from rag_cluster.errors import (
    CorruptDocumentError,
    DocumentError,
    DocumentTooLargeError,
    EmptyDocumentError,
    ParseCrashError,
    ParseTimeoutError,
)
from rag_cluster.parsing.isolation import IsolatedParser
from rag_cluster.parsing.limits import MIB, ParseLimits
from rag_cluster.parsing.ocr import OcrMode
from tests.parsing import bombs
from tests.parsing.conftest import MakeSource

FULL = os.environ.get("RAG_FULL_COUNTS") == "1"
LIMITS = ParseLimits(timeout=30, page_timeout=5, memory_bytes=1 << 30)
PARSERS = {".paged": "tests.parsing.poison:Paged", ".tiff": "tests.parsing.fuzzing:PictureParser"}
HARMLESS = "<w:p><w:r><w:t>harmless</w:t></w:r></w:p>"


@pytest.fixture
def parser() -> Iterator[IsolatedParser]:
    with IsolatedParser(LIMITS, ocr=OcrMode.OFF, parsers=PARSERS) as made:
        yield made


def text_of(document: ParsedDocument) -> str:
    return "\n".join(block.content for block in document.blocks)


def peak_memory(parser: IsolatedParser) -> int:
    """Bytes that the parser's child occupied at most."""
    status = Path(f"/proc/{parser.child_pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


# -- what code can do ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "error"),
    [("crash", ParseCrashError), ("abort", ParseCrashError), ("hang", ParseTimeoutError),
     ("hog", DocumentTooLargeError), ("leak", DocumentTooLargeError), ("native", ParseCrashError),
     ("recurse", CorruptDocumentError), ("exit", ParseCrashError)],
)  # fmt: skip
def test_what_a_parser_does_wrong_is_a_named_error_and_the_next_document_is_read(
    how: str, error: type[DocumentError], make_source: MakeSource, tmp_path: Path
) -> None:
    plan = {"pages": 1, "bad": {"1": how}, "log": str(tmp_path / "log"), "unmarked": True}
    # Only what hangs needs the time limit; on a busy machine the others are given theirs.
    limits = ParseLimits(timeout=3 if how == "hang" else 60, memory_bytes=1 << 29)
    with IsolatedParser(limits, parsers=PARSERS) as parser:
        with pytest.raises(error):
            parser.parse(make_source("a.paged", json.dumps(plan)))
        assert parser.parse(make_source("b.txt", "still works")).blocks


# -- archives --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.docx", "a.xlsx", "a.pptx", "a.odt", "a.xlsb"])
def test_a_high_ratio_is_refused_before_anything_is_expanded(
    name: str, parser: IsolatedParser, make_source: MakeSource
) -> None:
    with pytest.raises(DocumentError) as refusal:
        parser.parse(make_source(name, bombs.flat_bomb(100 * MIB)))
    assert refusal.value.type in ("document_too_large", "unsupported_document_type")
    if name == "a.docx":
        assert "times" in refusal.value.message


def test_archives_inside_an_archive_are_never_opened(parser: IsolatedParser, make_source: MakeSource) -> None:
    started = time.monotonic()
    document = parser.parse(make_source("a.docx", bombs.nested_bomb(5, 10 * MIB)))
    assert text_of(document) == "harmless"
    assert time.monotonic() - started < 60


def test_members_that_share_their_bytes_are_refused(parser: IsolatedParser, make_source: MakeSource) -> None:
    with pytest.raises(CorruptDocumentError, match="share bytes"):
        parser.parse(make_source("a.docx", bombs.overlapping_bomb(500, 2 * MIB)))


def test_a_member_that_is_larger_than_it_says_is_damage(parser: IsolatedParser, make_source: MakeSource) -> None:
    with pytest.raises(CorruptDocumentError):
        parser.parse(make_source("a.docx", bombs.lying_bomb(50 * MIB)))


# -- XML -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(bombs.xml_bombs("", 1)))
@pytest.mark.parametrize(("kind", "uses"), [("laughs", 1), ("quadratic", 5000), ("outside", 1)])
def test_entities_of_a_document_are_never_expanded(
    kind: str, uses: int, name: str, parser: IsolatedParser, make_source: MakeSource, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("hunter2")
    doctypes = {
        "laughs": bombs.LAUGHS,
        "quadratic": bombs.QUADRATIC,
        "outside": bombs.outside(str(tmp_path / "secret")),
    }
    source = make_source(name, bombs.xml_bombs(doctypes[kind], uses)[name])
    started = time.monotonic()
    try:
        text = text_of(parser.parse(source))
        assert "harmless" in text and "hahaha" not in text.replace(doctypes[kind], "") and "hunter2" not in text
    except CorruptDocumentError:
        pass  # libxml2 counts what entities would come to, and ends there
    assert time.monotonic() - started < 60
    assert peak_memory(parser) < 400 * MIB


# -- pictures --------------------------------------------------------------------------------------------------------


def test_a_picture_of_too_many_pixels_is_refused_before_it_is_decoded(make_source: MakeSource) -> None:
    with IsolatedParser(LIMITS) as parser:
        with pytest.raises(DocumentTooLargeError, match="pixels"):
            parser.parse(make_source("a.png", bombs.large_png(30_000)))
        assert peak_memory(parser) < 400 * MIB


def test_a_huge_picture_of_a_tiff_costs_that_picture(parser: IsolatedParser, make_source: MakeSource) -> None:
    frames = [Image.new("1", size) for size in ((60, 40), (12_000, 12_000), (60, 40))]
    out = io.BytesIO()
    frames[0].save(out, "TIFF", save_all=True, append_images=frames[1:], compression="group4")
    document = parser.parse(make_source("a.tiff", out.getvalue()))
    assert {block.locator.page for block in document.blocks} == {1, 3}
    assert "Page 2 was left out" in document.warnings[0] and "12000 x 12000" in document.warnings[0]


@pytest.mark.parametrize("form", ["docx", "pptx", "xlsx", "html", "md", "pdf"])
def test_a_huge_picture_inside_a_document_costs_that_picture(
    form: str, parser: IsolatedParser, make_source: MakeSource
) -> None:
    document = parser.parse(make_source(f"a.{form}", with_picture(form, bombs.large_png(20_000))))
    assert "harmless" in text_of(document)
    assert peak_memory(parser) < 600 * MIB


def with_picture(form: str, png: bytes) -> bytes:
    import base64
    import zlib

    out, small = io.BytesIO(), io.BytesIO()
    Image.new("1", (9, 9)).save(small, "PNG")
    if form == "docx":
        import docx

        document = docx.Document()
        document.add_paragraph("harmless")
        document.add_picture(io.BytesIO(png))
        document.save(out)
    elif form == "pptx":
        import pptx

        deck = pptx.Presentation()
        slide = deck.slides.add_slide(deck.slide_layouts[5])
        slide.shapes.title.text = "harmless"
        slide.shapes.add_picture(small, 0, 0, 99_999, 99_999)
        deck.save(out)
        return replaced(out.getvalue(), "ppt/media/image1.png", png)
    elif form == "xlsx":
        import openpyxl
        from openpyxl.drawing.image import Image as Picture

        book = openpyxl.Workbook()
        book.active.append(["harmless"])
        book.active.add_image(Picture(small), "B2")
        book.save(out)
        return replaced(out.getvalue(), "xl/media/image1.png", png)
    elif form == "pdf":
        side = 20_000
        pixels = zlib.compress(b"\0" * (side * side // 8))
        entries = b"/Type /XObject /Subtype /Image /Width %d /Height %d /ColorSpace /DeviceGray /BitsPerComponent 1"
        image = bombs.stream(pixels, entries % (side, side) + b" /Filter /FlateDecode")
        content = bombs.line("harmless words of a page that has a picture") + b"q 400 0 0 400 60 200 cm /I Do Q"
        return bombs.pdf_pages({1: (content, b"/I 100000 0 R")}, {100_000: image})
    else:
        uri = "data:image/png;base64," + base64.b64encode(png).decode()
        text = f"<p>harmless</p><img src='{uri}' alt='x'>" if form == "html" else f"harmless\n\n![x]({uri})\n"
        return text.encode()
    return out.getvalue()


def replaced(archive: bytes, name: str, content: bytes) -> bytes:
    import zipfile

    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as before, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as after:
        for member in before.namelist():
            after.writestr(member, content if member == name else before.read(member))
    return out.getvalue()


# -- depth -----------------------------------------------------------------------------------------------------------


def docx_tables(depth: int) -> bytes:
    start, end = "<w:tbl><w:tr><w:tc>", f"{HARMLESS}</w:tc></w:tr></w:tbl>"
    return bombs.docx(HARMLESS + start * depth + end * depth + HARMLESS)


def pptx_groups(depth: int) -> bytes:
    return bombs.pptx(bombs.shape("harmless") + "<p:grpSp>" * depth + bombs.shape("deep") + "</p:grpSp>" * depth)


DEEP = {
    "docx": docx_tables,
    "pptx": pptx_groups,
    "html": lambda depth: b"<p>harmless</p>" + b"<div>" * depth + b"deep" + b"</div>" * depth,
    "md": lambda depth: b"harmless\n\n" + b">" * depth + b" deep\n",
    "csv": lambda depth: b"harmless,b\n" + b'"' * depth + b"\n",
}


@pytest.mark.parametrize("depth", [50, 2000, 100_000])
@pytest.mark.parametrize("form", DEEP)
def test_nesting_of_any_depth_ends_in_blocks_or_a_named_error(
    form: str, depth: int, parser: IsolatedParser, make_source: MakeSource, caplog: pytest.LogCaptureFixture
) -> None:
    started = time.monotonic()
    try:
        assert "harmless" in text_of(parser.parse(make_source(f"a.{form}", DEEP[form](depth))))
    except (CorruptDocumentError, DocumentTooLargeError):
        assert depth > 50
    assert not any(getattr(record, "trace", "") for record in caplog.records), "no error that nobody meant"
    assert not any("died" in record.message for record in caplog.records)
    assert time.monotonic() - started < 60


def test_forms_inside_forms_of_a_pdf_are_read(parser: IsolatedParser, make_source: MakeSource) -> None:
    document = parser.parse(make_source("a.pdf", bombs.nested_forms(20, 1)))
    assert [word in text_of(document) for word in ("first page", "second page", "deep", "third page")] == [True] * 4


def test_forms_that_draw_forms_without_end_cost_their_page(parser: IsolatedParser, make_source: MakeSource) -> None:
    document = parser.parse(make_source("a.pdf", bombs.nested_forms(12, 10)))
    assert "first page" in text_of(document) and "third page" in text_of(document)
    assert [warning for warning in document.warnings if warning.startswith("Page 2 was left out: ")]


def test_a_form_that_draws_itself_is_drawn_once(parser: IsolatedParser, make_source: MakeSource) -> None:
    entries = b"/Type /XObject /Subtype /Form /BBox [0 0 595 842] /Resources << /XObject << /X 100000 0 R >> >>"
    content = bombs.pdf_pages(
        {1: (bombs.line("harmless") + b"/X Do", b"/X 100000 0 R")}, {100_000: bombs.stream(b"/X Do", entries)}
    )
    assert "harmless" in text_of(parser.parse(make_source("a.pdf", content)))


# -- length ----------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(1200)
def test_a_pdf_of_ten_thousand_pages_is_read_in_bounded_memory(make_source: MakeSource) -> None:
    count = 10_000 if FULL else 300
    words = "The gauge at the old bridge was read at noon and the figure was kept with care"
    pages = {
        number: (b"".join(bombs.line(f"{words} {number} {row}.", 760 - 16 * row) for row in range(40)), b"")
        for number in range(1, count + 1)
    }
    source = make_source("long.pdf", bombs.pdf_pages(pages))
    with IsolatedParser(ParseLimits(), ocr=OcrMode.OFF) as parser:
        started = time.monotonic()
        document = parser.parse(source)
        seconds = time.monotonic() - started
        peak = peak_memory(parser)
    print(f"{count} pages, {seconds:.1f} s, {count / seconds:.0f} pages/s, peak {peak // MIB} MiB")
    assert {block.locator.page for block in document.blocks} == set(range(1, count + 1))
    assert peak < (300 + count * 0.12) * MIB
    assert seconds < 30 + count * 0.05


def test_a_pdf_of_too_many_pages_is_refused(make_source: MakeSource) -> None:
    source = make_source("a.pdf", bombs.pdf_pages({n: (bombs.line("x"), b"") for n in range(1, 12)}))
    with IsolatedParser(ParseLimits(max_pages=10)) as parser, pytest.raises(DocumentTooLargeError, match="11 pages"):
        parser.parse(source)


@pytest.mark.timeout(1200)
def test_a_sheet_of_a_million_rows_is_read_whole_or_refused_by_name(make_source: MakeSource) -> None:
    count = 1_000_000 if FULL else 20_000
    source = make_source("long.xlsx", bombs.xlsx("".join(bombs.rows(count, 6))))
    with IsolatedParser(ParseLimits(), ocr=OcrMode.OFF) as parser:
        started = time.monotonic()
        document = parser.parse(source)
        seconds = time.monotonic() - started
        peak = peak_memory(parser)
    print(f"{count} rows, {seconds:.1f} s, {6 * count / seconds:.0f} cells/s, peak {peak // MIB} MiB")
    tables = [block for block in document.blocks if "rows" in block.metadata]
    assert sum(len(block.metadata["rows"]) - block.metadata["header_rows"] for block in tables) == count - 1
    assert tables[-1].metadata["rows"][-1][0] == str(count * 7)
    assert peak < (300 + count * 0.0025) * MIB


def test_a_sheet_that_does_not_fit_into_memory_is_refused_by_name(make_source: MakeSource) -> None:
    limits = ParseLimits(memory_bytes=120 * MIB)
    source = make_source("long.xlsx", bombs.xlsx("".join(bombs.rows(120_000, 6))))
    with IsolatedParser(limits, ocr=OcrMode.OFF) as parser, pytest.raises(DocumentTooLargeError, match="memory"):
        parser.parse(source)


def test_nothing_is_no_document(parser: IsolatedParser, make_source: MakeSource) -> None:
    for name, content in (("a.docx", bombs.docx("")), ("a.pdf", bombs.pdf_pages({1: (b"", b"")}))):
        with pytest.raises(EmptyDocumentError):
            parser.parse(make_source(name, content))
