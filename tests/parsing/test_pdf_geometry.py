"""PDF: boxes are those of the page as a viewer shows it, whatever its boxes, rotation and units; the ink proves it."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pypdfium2 as pdfium
import pytest

from rag_cluster.domain.blocks import BlockType, DocumentSource, ParsedDocument
from rag_cluster.parsing.pdf import PdfParser
from rag_cluster.parsing.pdf.units import user_units
from tests.parsing.pdf_pages import HEIGHT, WIDTH, Sheet, chinese_font, photo

Parse = Callable[..., ParsedDocument]
Box = tuple[float, float, float, float]


@pytest.fixture
def parse(tmp_path: Path) -> Parse:
    def run(content: bytes, **options: object) -> ParsedDocument:
        path = tmp_path / "made.pdf"
        path.write_bytes(content)
        return PdfParser(**options).parse(DocumentSource("doc", 1, "made.pdf", str(path)))

    return run


def ink(content: bytes, page: int = 0) -> tuple[Box, float, float]:
    """(box of everything dark, width, height) of a page as it is rendered, in units of user space."""
    shown = pdfium.PdfDocument(content)[page]
    picture = np.asarray(shown.render(scale=4).to_pil().convert("L"))
    ys, xs = np.nonzero(picture < 128)
    return (xs.min() / 4, ys.min() / 4, xs.max() / 4, ys.max() / 4), *shown.get_size()


def sheet_of(rotation: int, crop: Box | None, unit: float, draw: Callable[[Sheet], object]) -> bytes:
    sheet = Sheet()
    draw(sheet)
    if crop is not None:
        sheet.canvas.setCropBox(crop)
    content = sheet.page().bytes()
    entries = f"/Rotate {rotation} /UserUnit {unit:g} /MediaBox".encode()
    # The cross-reference table is then wrong, and is rebuilt by whoever opens the file.
    return content.replace(b"/Rotate 0", b"").replace(b"/MediaBox", entries)


@pytest.mark.parametrize("unit", [1, 2.5])
@pytest.mark.parametrize("crop", [None, (40, 60, 500, 700), (-30, -20, 700, 900)], ids=["media", "crop", "beyond"])
@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_the_box_of_a_text_holds_its_ink(parse: Parse, rotation: int, crop: Box | None, unit: float) -> None:
    content = sheet_of(rotation, crop, unit, lambda sheet: sheet.text(120, 260, "THE GAUGE AT THE BRIDGE", 14))
    (x0, y0, x1, y1), width, height = ink(content)
    (block,) = parse(content).blocks
    left, top, right, bottom = (edge / unit for edge in block.locator.bbox)
    assert (left - 1, top - 1) <= (x0, y0) and x1 <= right + 1 and y1 <= bottom + 1
    assert top - 1 <= y0
    assert (right - left) - (x1 - x0) < 8 and (bottom - top) - (y1 - y0) < 8
    assert 0 <= left < right <= width and 0 <= top < bottom <= height


@pytest.mark.parametrize("unit", [1, 2.5])
@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_the_box_of_a_picture_holds_its_ink_and_its_bytes_show_it_upright(
    parse: Parse, rotation: int, unit: float
) -> None:
    def draw(sheet: Sheet) -> None:
        sheet.canvas.drawImage(photo(), 120, 300, 200, 150)
        sheet.canvas.setFillGray(0.8)  # too light to count as ink
        sheet.text(120, 300, "Every spring the gauges at the old bridge record the height.")

    content = sheet_of(rotation, (40, 60, 500, 700), unit, draw)
    (x0, y0, x1, y1), _, _ = ink(content)
    document = parse(content)
    (block,) = (b for b in document.blocks if b.type is BlockType.IMAGE)
    left, top, right, bottom = (edge / unit for edge in block.locator.bbox)
    assert left - 1 <= x0 and top - 1 <= y0 and x1 <= right + 1 and y1 <= bottom + 1
    assert right - left == pytest.approx(200 if rotation % 180 == 0 else 150, abs=1)
    asset = document.assets[0]
    assert (asset.width > asset.height) == (rotation % 180 == 0)


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_a_table_is_read_upright_on_a_turned_page_in_its_place(parse: Parse, rotation: int) -> None:
    def draw(sheet: Sheet) -> None:
        canvas = sheet.canvas
        canvas.translate(*{0: (0, 0), 90: (WIDTH, 0), 180: (WIDTH, HEIGHT), 270: (0, HEIGHT)}[rotation])
        canvas.rotate(rotation)
        for i in range(4):
            canvas.line(60, 300 + 20 * i, 360, 300 + 20 * i)
            canvas.line(60 + 100 * i, 300, 60 + 100 * i, 360)
        for r in range(3):
            for c in range(3):
                canvas.drawString(66 + 100 * c, 346 - 20 * r, f"R{r}C{c}")

    content = sheet_of(rotation, None, 1, draw)
    (x0, y0, x1, y1), _, _ = ink(content)
    (table,) = parse(content).blocks
    assert table.metadata["rows"] == [[f"R{r}C{c}" for c in range(3)] for r in range(3)]
    assert table.locator.bbox == pytest.approx((x0, y0, x1, y1), abs=2)


def test_the_unit_of_one_page_says_nothing_of_the_others(parse: Parse) -> None:
    sheet = Sheet()
    for number in range(3):
        sheet.text(100, 200, f"Plan number {number}", 12).page()
    content = sheet.bytes()
    at = content.index(b"/MediaBox", content.index(b"/MediaBox") + 1)
    content = content[:at] + b"/UserUnit 3 " + content[at:]
    tops = [block.locator.bbox[1] for block in parse(content).blocks]
    assert tops[1] == pytest.approx(3 * tops[0], rel=0.01) and tops[2] == pytest.approx(tops[0], rel=0.01)


def test_chinese_in_vertical_lines_is_read_from_top_to_bottom_and_right_to_left(parse: Parse) -> None:
    font = chinese_font()
    sheet = Sheet()
    columns = ["黄河发源于青海省，流经九个省区", "最后注入渤海，全长五千四百余公里，", "是中国第二长的河流。"]
    for i, column in enumerate(columns):
        for j, character in enumerate(column):
            sheet.text(450 - 24 * i, 100 + 14 * j, character, 12, font)
    text = "".join(block.content for block in parse(sheet.page().bytes()).blocks)
    assert text.replace(" ", "").replace("\n", "") == "".join(columns)


def test_a_unit_in_a_packed_object_counts(tmp_path: Path) -> None:
    content = Sheet().text(100, 200, "Plan", 12).page().bytes()
    match = re.search(rb"(\d+) 0 obj\s*(<<(?:(?!endobj).)*?/Type /Page\s.*?>>)\s*endobj", content, re.DOTALL)
    assert match is not None
    head, body = match[1] + b" 0 ", match[2].replace(b"/Type /Page", b"/UserUnit 2 /Type /Page")
    packed = zlib.compress(head + body)
    facts = b"/Type /ObjStm /N 1 /First %d /Filter /FlateDecode /Length %d" % (len(head), len(packed))
    stream = b"900 0 obj\n<<" + facts + b">>\nstream\n" + packed + b"\nendstream\nendobj\n"
    path = tmp_path / "packed.pdf"
    path.write_bytes(content[: match.start()] + stream + content[match.end() :])
    assert user_units(str(path), 1) == {0: 2.0}
