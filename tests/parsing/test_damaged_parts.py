"""Office files with one damaged part: what the document can do without costs a warning, never the document."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import docx
import openpyxl
import pptx
import pytest
from openpyxl.chart import BarChart, Reference
from openpyxl.drawing.image import Image as SheetImage
from PIL import Image
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Cm

from rag_cluster.domain.blocks import ParsedDocument
from rag_cluster.errors import CorruptDocumentError
from tests.parsing.test_docx import REL, W, body_xml, with_parts

Parse = Callable[..., ParsedDocument]

CHART = (
    '<c:chartSpace xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart"><c:chart><c:plotArea><c:barChart>'
    "<c:ser><c:tx><c:v>Flow</c:v></c:tx><c:cat><c:strLit><c:pt idx='0'><c:v>May</c:v></c:pt></c:strLit></c:cat>"
    "<c:val><c:numLit><c:pt idx='0'><c:v>7</c:v></c:pt></c:numLit></c:val></c:ser></c:barChart></c:plotArea></c:chart>"
    "</c:chartSpace>"
)
GRAPHIC = (
    '<w:p><w:r><w:drawing><wp:inline><a:graphic><a:graphicData><c:chart r:id="c1" '
    'xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart"/></a:graphicData></a:graphic></wp:inline>'
    "</w:drawing></w:r></w:p>"
)
NOTES = f'<w:footnotes {W}><w:footnote w:id="7"><w:p><w:r><w:t>a note</w:t></w:r></w:p></w:footnote></w:footnotes>'


def picture() -> io.BytesIO:
    stream = io.BytesIO()
    Image.new("RGB", (60, 40), "red").save(stream, "PNG")
    stream.seek(0)
    return stream


def word(tmp_path: Path) -> bytes:
    inner = docx.Document()
    inner.add_paragraph("inner text")
    stream = io.BytesIO()
    inner.save(stream)
    body = (
        '<w:p><w:r><w:t>Body text</w:t></w:r><w:r><w:footnoteReference w:id="7"/></w:r></w:p>'
        '<w:p><w:pPr><w:pStyle w:val="ListNumber"/></w:pPr><w:r><w:t>step</w:t></w:r></w:p>'
        f'{GRAPHIC}<w:altChunk r:id="h1"/><w:altChunk r:id="h2"/>'
    )
    parts = {
        "word/charts/chart1.xml": CHART.encode(),
        "word/footnotes.xml": NOTES.encode(),
        "word/chunk.html": b"<html><body><p>html text</p></body></html>",
        "word/inner.docx": stream.getvalue(),
    }
    kinds = {"charts/chart1.xml": ("c1", "chart"), "footnotes.xml": ("n1", "footnotes"),
             "chunk.html": ("h1", "aFChunk"), "inner.docx": ("h2", "aFChunk")}  # fmt: skip
    links = "".join(REL.format(identifier, kind, target) for target, (identifier, kind) in kinds.items())
    return with_parts(tmp_path, body, parts, links).read_bytes()


def workbook(_: Path) -> bytes:
    book = openpyxl.Workbook()
    for row in (["site", "flow"], ["Body text", 12.5], ["south", 7]):
        book.active.append(row)
    book.active["B2"].number_format = "0.00"
    chart = BarChart()
    chart.title = "Flow"
    chart.add_data(Reference(book.active, min_col=2, min_row=1, max_row=3), titles_from_data=True)
    book.active.add_chart(chart, "E2")
    book.active.add_image(SheetImage(picture()), "C5")
    book.create_sheet("second").append(["more", "cells"])
    stream = io.BytesIO()
    book.save(stream)
    return stream.getvalue()


def deck(_: Path) -> bytes:
    made = pptx.Presentation()
    for number in range(2):
        slide = made.slides.add_slide(made.slide_layouts[1])
        slide.shapes.title.text = f"Slide {number + 1}"
        slide.placeholders[1].text = "Body text"
        slide.notes_slide.notes_text_frame.text = "said aloud"
        data = CategoryChartData()
        data.categories = ["May"]
        data.add_series("Flow", (7,))
        slide.shapes.add_chart(XL_CHART_TYPE.BAR_CLUSTERED, Cm(4), Cm(4), Cm(3), Cm(2), data)
        slide.shapes.add_picture(picture(), Cm(1), Cm(9))
    stream = io.BytesIO()
    made.save(stream)
    return stream.getvalue()


MAKERS: dict[str, Callable[[Path], bytes]] = {"docx": word, "xlsx": workbook, "pptx": deck}
OPTIONAL = {
    "docx": ["word/styles.xml", "word/numbering.xml", "word/footnotes.xml", "word/charts/chart1.xml",
             "word/chunk.html", "word/inner.docx", "docProps/core.xml", "_rels/.rels", "word/_rels/document.xml.rels",
             "word/settings.xml"],
    "xlsx": ["xl/styles.xml", "xl/drawings/drawing1.xml", "xl/charts/chart1.xml", "docProps/core.xml", "_rels/.rels",
             "xl/worksheets/_rels/sheet1.xml.rels", "xl/media/image1.png", "xl/theme/theme1.xml",
             "xl/worksheets/sheet2.xml"],
    "pptx": ["ppt/slideLayouts/slideLayout2.xml", "ppt/slideMasters/slideMaster1.xml", "ppt/charts/chart*.xml",
             "ppt/notesSlides/notesSlide1.xml", "docProps/core.xml", "_rels/.rels", "ppt/slides/slide2.xml",
             "ppt/slides/_rels/slide1.xml.rels", "ppt/media/image1.png", "ppt/theme/theme1.xml"],
}  # fmt: skip
CASES = [(form, part) for form, parts in OPTIONAL.items() for part in parts]
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda content: content[: len(content) // 2],
    "garbage": lambda content: b"\x00\xff<" * 20,
    "empty": lambda content: b"",
    "wrong element": lambda content: b"<x><y z='1'/></x>",
}


def with_damage(package: bytes, part: str, damage: Callable[[bytes], bytes]) -> bytes:
    """The package, one part of which went through `damage`; a star stands for any name."""
    out, hit = io.BytesIO(), 0
    with zipfile.ZipFile(io.BytesIO(package)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if Path(name).match(part):
                content, hit = damage(content), hit + 1
            new.writestr(name, content)
    assert hit, f"{part} is not in {zipfile.ZipFile(io.BytesIO(package)).namelist()}"
    return out.getvalue()


def with_wrong_checksum(package: bytes, part: str) -> bytes:
    """The package, of which one part's bytes are not those that its checksum is of."""
    out = bytearray(with_damage(package, part, lambda content: content))
    with zipfile.ZipFile(io.BytesIO(out)) as archive:
        info = archive.getinfo(part)
    start = info.header_offset + 30 + len(info.filename)
    out[start + info.file_size // 2] ^= 1
    return bytes(out)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(("form", "part"), CASES)
def test_a_damaged_optional_part_costs_no_more_than_itself(
    parse: Parse, tmp_path: Path, form: str, part: str, damage: str
) -> None:
    parsed = parse(f"a.{form}", with_damage(MAKERS[form](tmp_path), part, DAMAGES[damage]))
    assert any("Body text" in block.content for block in parsed.blocks)


@pytest.mark.parametrize(
    ("form", "part"),
    [(form, part) for form, part in CASES if not part.endswith(("*.xml", "settings.xml", "theme1.xml"))],
)
def test_a_part_with_a_wrong_checksum_costs_a_warning(parse: Parse, tmp_path: Path, form: str, part: str) -> None:
    parsed = parse(f"a.{form}", with_wrong_checksum(MAKERS[form](tmp_path), part))
    assert any("Body text" in block.content for block in parsed.blocks)
    assert parsed.warnings


@pytest.mark.parametrize(
    ("form", "part", "said"),
    [
        ("docx", "word/styles.xml", "word/styles.xml was read only in part"),
        ("docx", "word/charts/chart1.xml", "word/charts/chart1.xml was read only in part"),
        ("docx", "word/inner.docx", "An embedded document was left out"),
        ("xlsx", "xl/styles.xml", "xl/styles.xml was read only in part"),
        ("xlsx", "xl/worksheets/sheet2.xml", "xl/worksheets/sheet2.xml was read only as far as row"),
        ("pptx", "ppt/slides/slide2.xml", "ppt/slides/slide2.xml was read only in part"),
    ],
)
def test_the_warning_names_what_is_damaged(parse: Parse, tmp_path: Path, form: str, part: str, said: str) -> None:
    parsed = parse(f"a.{form}", with_damage(MAKERS[form](tmp_path), part, DAMAGES["cut"]))
    assert any(said in warning for warning in parsed.warnings), parsed.warnings


def test_what_can_be_read_of_a_damaged_part_counts(parse: Parse, tmp_path: Path) -> None:
    made = docx.Document()
    made.add_heading("Still a heading", 1)
    made.save(tmp_path / "a.docx")
    cut = with_damage((tmp_path / "a.docx").read_bytes(), "word/styles.xml", lambda content: content[:-30])
    assert parse("b.docx", cut).blocks[0].metadata["level"] == 1


def test_a_sheet_that_is_named_but_missing_is_a_warning(parse: Parse, tmp_path: Path) -> None:
    package = io.BytesIO(workbook(tmp_path))
    out = io.BytesIO()
    with zipfile.ZipFile(package) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            if name != "xl/worksheets/sheet2.xml":
                new.writestr(name, old.read(name))
    assert "The sheet 'second' is missing in the file" in parse("a.xlsx", out.getvalue()).warnings


@pytest.mark.parametrize(
    ("form", "part"),
    [("docx", "word/document.xml"), ("xlsx", "xl/workbook.xml"), ("pptx", "ppt/presentation.xml")],
)
def test_without_its_main_part_a_document_is_corrupt(parse: Parse, tmp_path: Path, form: str, part: str) -> None:
    with pytest.raises(CorruptDocumentError):
        parse(f"a.{form}", with_damage(MAKERS[form](tmp_path), part, DAMAGES["cut"]))


def test_a_document_of_which_damage_leaves_nothing_is_corrupt_and_not_empty(parse: Parse, tmp_path: Path) -> None:
    with pytest.raises(CorruptDocumentError):
        parse("a.pptx", with_damage(deck(tmp_path), "ppt/slides/slide*.xml", DAMAGES["garbage"]))


def test_a_broken_document_inside_a_document_is_left_out(parse: Parse, tmp_path: Path) -> None:
    made = docx.Document()
    made.add_paragraph("outer")
    body_xml(made, '<w:altChunk r:id="missing"/>')
    made.save(tmp_path / "a.docx")
    assert [block.content for block in parse("b.docx", (tmp_path / "a.docx").read_bytes()).blocks] == ["outer"]
