"""PDF: what a person sees on the page becomes blocks with their places."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from reportlab.lib.colors import Color
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont

from rag_cluster.domain.blocks import Block, BlockType, DocumentSource, ParsedDocument
from rag_cluster.errors import (
    CorruptDocumentError,
    DocumentTooLargeError,
    EmptyDocumentError,
    EncryptedDocumentError,
    UnsupportedDocumentTypeError,
)
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.parsing.pdf import PdfParser
from tests.parsing.pdf_pages import HEIGHT, PROSE, SANS, WIDTH, Sheet, chinese_font, encrypted, photo

Parse = Callable[..., ParsedDocument]


@pytest.fixture
def parse(tmp_path: Path) -> Parse:
    def run(content: bytes, **options: object) -> ParsedDocument:
        path = tmp_path / "made.pdf"
        path.write_bytes(content)
        return PdfParser(**options).parse(DocumentSource("doc", 1, "made.pdf", str(path)))

    return run


def of(document: ParsedDocument, kind: BlockType) -> list[Block]:
    return [block for block in document.blocks if block.type is kind]


def whole(document: ParsedDocument) -> str:
    return "\n".join(block.content for block in document.blocks)


def test_lines_of_a_paragraph_are_joined_and_hyphenation_is_undone(parse: Parse) -> None:
    sheet = Sheet()
    sheet.prose(72, 72, 200, hyphenate=3)
    document = parse(sheet.page().bytes())
    assert [b.content for b in document.blocks] == [PROSE.strip()]


def test_a_box_is_measured_from_the_top_left_of_the_page(parse: Parse) -> None:
    document = parse(Sheet().text(100, 200, "A single line of text", 12).page().bytes())
    x0, y0, x1, y1 = document.blocks[0].locator.bbox
    assert document.blocks[0].locator.page == 1
    assert x0 == pytest.approx(100, abs=1.5) and 100 < x1 < 300
    assert 198 <= y0 <= 205 and 211 <= y1 <= 217


def test_two_columns_are_read_one_after_the_other_below_a_heading_over_both(parse: Parse) -> None:
    sheet = Sheet().text(72, 50, "A Study of the River in Two Columns", 18, "Helvetica-Bold")
    left = "LEFTBEGIN " + PROSE * 2 + "LEFTEND."
    right = "RIGHTBEGIN " + PROSE * 2 + "RIGHTEND."
    sheet.prose(72, 90, 210, left)
    sheet.prose(310, 90, 210, right)
    text = whole(parse(sheet.page().bytes()))
    places = [text.index(mark) for mark in ("A Study", "LEFTBEGIN", "LEFTEND", "RIGHTBEGIN", "RIGHTEND")]
    assert places == sorted(places)
    assert " ".join(left.split()) in " ".join(text.split())


def test_three_columns_whose_lines_were_drawn_row_by_row_are_still_read_by_column(parse: Parse) -> None:
    from tests.parsing.pdf_pages import wrap

    sheet = Sheet()
    columns = [wrap(f"COLUMN{n} " + PROSE + f"END{n}.", 140, 9) for n in (1, 2, 3)]
    for i in range(max(map(len, columns))):
        for n, lines in enumerate(columns):
            if i < len(lines):
                sheet.text(60 + n * 165, 80 + i * 11, lines[i], 9)
    text = whole(parse(sheet.page().bytes()))
    places = [text.index(mark) for mark in ("COLUMN1", "END1", "COLUMN2", "END2", "COLUMN3", "END3")]
    assert places == sorted(places)


def test_headings_get_their_level_from_size_and_numbering_and_open_a_path(parse: Parse) -> None:
    sheet = Sheet().text(72, 60, "River Report", 22, "Helvetica-Bold")
    sheet.text(72, 110, "1 Source", 15, "Helvetica-Bold")
    sheet.prose(72, 140, 450)
    sheet.text(72, 220, "1.1 Gauges", 12, "Helvetica-Bold")
    sheet.prose(72, 245, 450)
    document = parse(sheet.page().bytes())
    headings = of(document, BlockType.HEADING)
    assert [h.content for h in headings] == ["River Report", "1 Source", "1.1 Gauges"]
    assert [h.metadata["level"] for h in headings] == [1, 2, 3]
    assert document.blocks[-1].locator.heading_path == ("River Report", "1 Source", "1.1 Gauges")


def test_the_outline_makes_a_heading_of_a_line_that_looks_like_text(parse: Parse) -> None:
    sheet = Sheet()
    sheet.canvas.bookmarkPage("here")
    sheet.canvas.addOutlineEntry("Plain opening", "here", level=0)
    sheet.text(72, 72, "Plain opening", 10)
    sheet.prose(72, 100, 450)
    headings = of(parse(sheet.page().bytes()), BlockType.HEADING)
    assert [(h.content, h.metadata["level"]) for h in headings] == [("Plain opening", 1)]


def test_list_items_are_blocks_with_marker_and_nesting(parse: Parse) -> None:
    sheet = Sheet()
    sheet.prose(72, 60, 450)
    for i, (x, line) in enumerate(
        [
            (90, "• Bring the gauge book"),
            (108, "• and a pencil"),
            (90, "• Read the lower mark"),
            (90, "• Write it down"),
        ]
    ):
        sheet.text(x, 130 + 14 * i, line)
    items = of(parse(sheet.page().bytes()), BlockType.LIST)
    assert [i.content for i in items] == [
        "Bring the gauge book",
        "and a pencil",
        "Read the lower mark",
        "Write it down",
    ]
    assert [i.metadata["level"] for i in items] == [0, 1, 0, 0]
    assert {i.metadata["marker"] for i in items} == {"•"}


def test_a_wrapped_numbered_item_is_one_block(parse: Parse) -> None:
    sheet = Sheet()
    sheet.prose(72, 60, 450)
    sheet.text(90, 130, "1. Open the sluice and wait until the water behind the gate stands at the same")
    sheet.text(104, 142, "height as the water before it.")
    sheet.text(90, 154, "2. Close the sluice.")
    items = of(parse(sheet.page().bytes()), BlockType.LIST)
    assert [i.metadata["marker"] for i in items] == ["1.", "2."]
    assert items[0].content.endswith("stands at the same height as the water before it.")


def test_a_ruled_table_becomes_a_grid(parse: Parse) -> None:
    sheet = Sheet()
    sheet.prose(72, 60, 450)
    rows = [("Gauge", "Height", "Date"), ("Old bridge", "1.92", "2024-03-01"), ("Mill pond", "0.87", "2024-03-02")]
    sheet.grid(72, 150, [120, 80, 100], 20, 3)
    for r, row in enumerate(rows):
        for x, cell in zip((76, 196, 276), row, strict=True):
            sheet.text(x, 154 + 20 * r, cell)
    document = parse(sheet.page().bytes())
    table = of(document, BlockType.TABLE)[0]
    assert table.metadata["rows"] == [list(row) for row in rows]
    assert table.locator.bbox == pytest.approx((72, 150, 372, 210), abs=1)
    assert "Old bridge" not in of(document, BlockType.TEXT)[0].content


def test_a_merged_cell_stands_in_every_cell_that_it_covers(parse: Parse) -> None:
    sheet = Sheet()
    canvas = sheet.canvas
    for y in (150, 190):
        canvas.line(72, HEIGHT - y, 372, HEIGHT - y)
    canvas.line(172, HEIGHT - 170, 372, HEIGHT - 170)
    for x, top in ((72, 150), (172, 150), (272, 170), (372, 150)):
        canvas.line(x, HEIGHT - top, x, HEIGHT - 210)
    canvas.line(72, HEIGHT - 210, 372, HEIGHT - 210)
    for x, top, cell in [(76, 162, "Gauge"), (240, 154, "Height"), (176, 174, "low"), (276, 174, "high"),
                         (76, 194, "Bridge"), (176, 194, "0.3"), (276, 194, "1.9")]:  # fmt: skip
        sheet.text(x, top, cell)
    table = of(parse(sheet.page().bytes()), BlockType.TABLE)[0]
    assert table.metadata["rows"] == [["Gauge", "Height", "Height"], ["Gauge", "low", "high"], ["Bridge", "0.3", "1.9"]]
    assert table.metadata["header_rows"] == 2


def test_a_table_without_rules_is_found_by_alignment(parse: Parse) -> None:
    sheet = Sheet()
    sheet.prose(72, 60, 450)
    rows = [("Station", "1997", "1998", "1999")]
    rows += [(f"Gauge number {n}", f"{n}.4", f"{n}.5", f"1,{n}00") for n in range(1, 7)]
    for r, row in enumerate(rows):
        for x, cell in zip((72, 220, 300, 380), row, strict=True):
            sheet.text(x, 150 + 14 * r, cell)
    sheet.prose(72, 280, 450)
    document = parse(sheet.page().bytes())
    assert of(document, BlockType.TABLE)[0].metadata["rows"] == [list(row) for row in rows]
    assert [b.type for b in document.blocks] == [BlockType.TEXT, BlockType.TABLE, BlockType.TEXT]


def test_running_headers_footers_and_page_numbers_go_but_unique_lines_in_the_margin_stay(parse: Parse) -> None:
    sheet = Sheet()
    for number in range(1, 5):
        sheet.text(72, 30, "River Authority, Annual Report", 9)
        sheet.prose(72, 90, 450, f"Page text {number}. " + PROSE * 3)
        sheet.text(280, 800, f"Page {number} of 4", 9)
        if number == 3:
            sheet.text(72, 780, "Printed on recycled paper in this edition only", 8)
        sheet.page()
    text = whole(parse(sheet.bytes()))
    assert "Annual Report" not in text
    assert "of 4" not in text
    assert "Printed on recycled paper" in text
    assert all(f"Page text {number}." in text for number in range(1, 5))


@pytest.mark.parametrize(
    ("top", "lines", "size", "font"),
    [
        (60, ["Day 1", "Day 2", "Day 3"], 20, "Times-Bold"),
        (60, ["Invoice 1001", "Invoice 1002"], 10, "Times-Roman"),
        (60, ["Certificate of Analysis 1001", "Certificate of Analysis 1002"], 16, "Times-Roman"),
        (60, [f"Exhibit {number}" for number in range(1, 5)], 16, "Times-Roman"),
        (770, ["Total: 1", "Total: 2", "Total: 3"], 9, "Times-Roman"),
        (770, [f"Total: {number}" for number in range(1, 6)], 9, "Times-Roman"),
    ],
)
def test_titles_and_sums_whose_numbers_count_with_the_pages_stay(
    parse: Parse, top: float, lines: list[str], size: float, font: str
) -> None:
    sheet = Sheet()
    for number, line in enumerate(lines):
        sheet.text(72, top, line, size, font).prose(72, 130, 450, f"Page text {number}. " + PROSE)
        sheet.text(280, 800, str(number + 1)).page()
    document = parse(sheet.bytes())
    assert [b.content for b in document.blocks if b.content in lines] == lines
    assert not any(b.content.isdigit() for b in document.blocks)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(
    ("line", "pages", "certain"),
    [
        ("ACME Page {} of 3", 3, True),
        ("Acme Ltd | {}", 3, True),
        ("{} | Acme Ltd", 3, True),
        ("员工手册 第{}页", 3, True),
        ("员工手册 第{}页 共3页", 3, True),
        ("River Authority, Annual Report, p. {} of 3", 3, True),
        ("Port Guide {}", 4, False),
        ("Rev. 3 / {}", 4, False),
        ("Port Guide {} of 4", 4, False),
        ("港口手册 {}", 4, False),
    ],
)
def test_a_short_line_with_the_pages_number_goes_where_it_says_so_or_no_other_number_counts_the_pages(
    parse: Parse, line: str, pages: int, certain: bool, own: bool
) -> None:
    sheet = Sheet()
    for number in range(1, pages + 1):
        sheet.text(72, 40, line.format(number), 9, chinese_font()).prose(72, 130, 450, f"Text {number}. " + PROSE)
        sheet.text(280, 800, str(number) if own else "").page()
    left = [b.content for b in parse(sheet.bytes()).blocks if not b.content.startswith("Text")]
    assert left == ([] if certain or not own else [line.format(number) for number in range(1, pages + 1)])


@pytest.mark.parametrize(
    ("line", "pages", "size"),
    [("Invoice 100{}", 5, 10), ("Day {}", 3, 10), ("Pump P{}", 3, 10), ("File 2024/{}", 2, 10), ("Exhibit {}", 5, 16)],
)
def test_a_short_line_whose_number_is_far_from_the_pages_or_on_few_pages_or_large_stays(
    parse: Parse, line: str, pages: int, size: float
) -> None:
    sheet = Sheet()
    for number in range(1, pages + 1):
        sheet.text(72, 60, line.format(number), size).prose(72, 130, 450, f"Text {number}. " + PROSE)
        sheet.page()
    text = whole(parse(sheet.bytes()))
    assert all(line.format(number) in text for number in range(1, pages + 1))


def test_digits_without_end_beside_a_bar_are_no_page_number(parse: Parse) -> None:
    sheet = Sheet()
    for number in range(3):
        sheet.canvas.setPageSize((14_000, HEIGHT))
        sheet.text(72, 800, f"Acme {number} | " + "7" * 4400, 4).prose(72, 130, 450, f"Text {number}. " + PROSE)
        sheet.page()
    assert "Text 2." in whole(parse(sheet.bytes()))


@pytest.mark.parametrize(("size", "font"), [(20, "Times-Roman"), (12, "Times-Bold")])
def test_a_title_that_every_page_repeats_is_kept_once(parse: Parse, size: float, font: str) -> None:
    sheet = Sheet()
    for number in range(3):
        sheet.text(72, 60, "Certificate of Analysis", size, font).text(450, 60, f"page {number + 1}", size, font)
        sheet.prose(72, 130, 450, f"Page {number}. " + PROSE)
        sheet.page()
    document = parse(sheet.bytes())
    assert [b.locator.page for b in document.blocks if b.content.startswith("Certificate of Analysis")] == [1]


def test_a_sum_beside_a_word_that_repeats_stays_and_a_page_number_beside_it_does_not(parse: Parse) -> None:
    sheet = Sheet()
    for number, amount in enumerate(("310.20", "98.75", "17.00"), 1):
        sheet.prose(72, 130, 450, f"Page text {number}. " + PROSE)
        sheet.text(72, 790, "Amount due").text(400, 790, amount)
        sheet.text(72, 40, f"Annual report of the authority {number}").text(500, 40, f"{number}/3").page()
    text = whole(parse(sheet.bytes()))
    assert text.count("Amount due") == 3 and "310.20" in text and "98.75" in text and "17.00" in text
    assert "authority" not in text and "/3" not in text


def test_a_paragraph_that_crosses_pages_is_one_block_with_a_span_on_each(parse: Parse) -> None:
    sheet = Sheet()
    sheet.prose(72, 700, 450, "Before the break the sentence goes on and on, " + "and on, " * 20 + "until the")
    sheet.page()
    sheet.prose(72, 72, 450, "page ends and the next one carries it to its close.")
    document = parse(sheet.page().bytes())
    assert len(document.blocks) == 1
    assert document.blocks[0].content.endswith("until the page ends and the next one carries it to its close.")
    assert [page for page, _ in document.blocks[0].locator.spans] == [1, 2]


@pytest.mark.parametrize(
    ("rotation", "x", "baseline"), [(90, 300, 200), (180, WIDTH - 200, 300), (270, WIDTH - 300, HEIGHT - 200)]
)
def test_text_that_reads_upright_on_a_rotated_page_has_its_displayed_box(
    parse: Parse, rotation: int, x: float, baseline: float
) -> None:
    # reportlab swaps the sides of the MediaBox of a page turned by 90 or 270, so the page stays 595 x 842 as displayed.
    sheet = Sheet()
    sheet.canvas.setPageRotation(rotation)
    sheet.canvas.translate(200, 300)
    sheet.canvas.rotate(rotation)
    sheet.canvas.setFont("Times-Roman", 12)
    sheet.canvas.drawString(0, 0, "Turned with the page")
    block = parse(sheet.page().bytes()).blocks[0]
    x0, y0, x1, y1 = block.locator.bbox
    assert block.content == "Turned with the page"
    assert x0 == pytest.approx(x, abs=2) and 80 < x1 - x0 < 120
    assert y0 < baseline < y1 and y1 - y0 < 20


def test_text_turned_on_an_upright_page_is_read_too(parse: Parse) -> None:
    sheet = Sheet()
    sheet.prose(72, 72, 450)
    sheet.canvas.saveState()
    sheet.canvas.translate(40, 300)
    sheet.canvas.rotate(90)
    sheet.canvas.setFont("Times-Roman", 12)
    sheet.canvas.drawString(0, 0, "Read from bottom to top")
    sheet.canvas.restoreState()
    document = parse(sheet.page().bytes())
    turned = next(b for b in document.blocks if b.content == "Read from bottom to top")
    x0, y0, x1, y1 = turned.locator.bbox
    assert y1 - y0 > 3 * (x1 - x0)


def test_a_crop_box_moves_the_origin(parse: Parse) -> None:
    sheet = Sheet()
    sheet.canvas.setCropBox((50, 100, 500, 700))
    sheet.text(100, HEIGHT - 700 + 40, "Inside the visible part", 12)
    sheet.text(100, 20, "Above the visible part", 12)
    document = parse(sheet.page().bytes())
    assert whole(document) == "Inside the visible part"
    x0, y0, _, _ = document.blocks[0].locator.bbox
    assert (x0, y0) == (pytest.approx(50, abs=1.5), pytest.approx(42, abs=4))


def test_invisible_white_and_stamped_text_is_not_read(parse: Parse) -> None:
    sheet = Sheet()
    sheet.prose(72, 72, 450, PROSE * 3)
    hidden = sheet.canvas.beginText(72, 300)
    hidden.setTextRenderMode(3)
    hidden.textLine("Never shown to anyone")
    sheet.canvas.drawText(hidden)
    sheet.canvas.setFillColorRGB(1, 1, 1)
    sheet.text(72, 400, "White on white")
    sheet.text(72, 72, "White behind other words")
    sheet.canvas.setFillColorRGB(0.8, 0.2, 0.2)
    sheet.canvas.saveState()
    sheet.canvas.translate(100, HEIGHT - 220)
    sheet.canvas.rotate(30)
    sheet.canvas.setFont("Helvetica", 40)
    sheet.canvas.drawString(0, 0, "CONFIDENTIAL")
    sheet.canvas.restoreState()
    text = whole(parse(sheet.page().bytes()))
    assert "Never shown" not in text and "White" not in text and "CONFIDENTIAL" not in text
    assert "The river rises" in text


def test_white_text_on_a_dark_bar_is_read(parse: Parse) -> None:
    sheet = Sheet()
    sheet.canvas.setFillColorRGB(0.1, 0.1, 0.4)
    sheet.canvas.rect(60, HEIGHT - 100, 400, 40, stroke=0, fill=1)
    sheet.canvas.setFillColorRGB(1, 1, 1)
    sheet.text(72, 70, "A title on a bar", 16)
    assert "A title on a bar" in whole(parse(sheet.page().bytes()))


def test_white_text_on_a_gradient_is_read(parse: Parse) -> None:
    sheet = Sheet()
    sheet.canvas.saveState()
    band = sheet.canvas.beginPath()
    band.rect(0, HEIGHT - 150, WIDTH, 150)
    sheet.canvas.clipPath(band, stroke=0)
    sheet.canvas.linearGradient(0, HEIGHT - 150, WIDTH, HEIGHT, (Color(0, 0.2, 0.4), Color(0, 0.5, 0.8)))
    sheet.canvas.restoreState()
    sheet.canvas.setFillColorRGB(1, 1, 1)
    sheet.text(72, 62, "Annual Report 2025", 28, "Helvetica-Bold").text(72, 106, "Revenue of 4.2 million", 8)
    sheet.text(72, 300, "White below the band")
    text = whole(parse(sheet.page().bytes()))
    assert "Annual Report 2025" in text and "Revenue of 4.2 million" in text and "below the band" not in text


def test_monospaced_lines_are_code_with_their_indentation(parse: Parse) -> None:
    sheet = Sheet()
    sheet.prose(72, 60, 450, PROSE * 2)
    for i, line in enumerate(["def height(gauge):", "    return gauge.read()"]):
        sheet.text(72 + 24 * i, 200 + 12 * i, line.strip(), 10, "Courier")
    sheet.prose(72, 250, 450, PROSE * 2)
    code = of(parse(sheet.page().bytes()), BlockType.CODE)
    assert [b.content for b in code] == ["def height(gauge):\n    return gauge.read()"]


def test_a_picture_is_an_image_block_with_its_bytes_box_and_caption(parse: Parse) -> None:
    sheet = Sheet()
    sheet.prose(72, 60, 450)
    sheet.canvas.drawImage(photo(), 150, HEIGHT - 350, 200, 150)
    sheet.canvas.drawImage(photo(20, 20), 500, HEIGHT - 40, 10, 10)
    sheet.text(180, 355, "Figure 1: The bridge in spring.")
    document = parse(sheet.page().bytes())
    images = of(document, BlockType.IMAGE)
    assert len(images) == 1
    assert images[0].metadata["caption"] == "Figure 1: The bridge in spring."
    assert images[0].locator.bbox == pytest.approx((150, 200, 350, 350), abs=2)
    asset = document.assets[0]
    assert images[0].metadata["asset_id"] == asset.id and asset.content[:4] in (b"\x89PNG", b"\xff\xd8\xff\xe0")
    assert asset.width >= 200


def test_a_drawn_figure_is_rendered_as_a_picture_that_opens_with_its_size(parse: Parse) -> None:
    sheet = Sheet()
    for i in range(12):
        sheet.canvas.setFillColorRGB(0.2, 0.4, i / 12)
        sheet.canvas.circle(120 + 20 * i, HEIGHT - 200 - 5 * i, 14, fill=1)
    document = parse(sheet.text(110, 285, "Figure 1. Circles that rise", 10).page().bytes())
    (asset,) = document.assets
    with Image.open(io.BytesIO(asset.content)) as picture:
        picture.load()
        assert (asset.media_type, picture.format, picture.mode) == ("image/png", "PNG", "RGB")
        assert picture.size == (asset.width, asset.height)
        assert len(picture.getcolors(1 << 20)) > 12


def test_a_running_line_goes_where_it_repeats_and_stays_elsewhere_in_the_margin(parse: Parse) -> None:
    sheet = Sheet()
    for number in range(4):
        sheet.text(72, 30 if number else 64, "Annual Report of the Gauges", 9)
        sheet.prose(72, 120, 300)
        sheet.page()
    document = parse(sheet.bytes())
    assert whole(document).count("Annual Report of the Gauges") == 1


def test_chinese_lines_are_joined_without_blanks(parse: Parse) -> None:
    font = chinese_font()
    sheet = Sheet()
    sheet.text(72, 60, "第一章 总则", 18, font)
    sheet.lines(
        72,
        100,
        ["为了规范水文监测工作，保护水资源，防御水旱灾害，根据有关法律制", "定本办法。本办法适用于全部测站。"],
        12,
        font,
    )
    document = parse(sheet.page().bytes())
    assert document.blocks[0].type is BlockType.HEADING
    assert document.blocks[1].content.startswith(
        "为了规范水文监测工作，保护水资源，防御水旱灾害，根据有关法律制定本办法。"
    )


def test_values_of_form_fields_are_read(parse: Parse) -> None:
    sheet = Sheet()
    sheet.text(72, 100, "Name of the gauge:")
    sheet.canvas.acroForm.textfield(name="gauge", value="Old bridge", x=200, y=HEIGHT - 115, width=200, height=18)
    assert "Old bridge" in whole(parse(sheet.page().bytes()))


def test_the_files_own_facts_become_metadata(parse: Parse) -> None:
    sheet = Sheet()
    sheet.canvas.setTitle("Heights")
    sheet.canvas.setAuthor("The gauge keeper")
    document = parse(sheet.text(72, 72, "Some text").page().bytes())
    assert document.metadata["pages"] == 1
    assert (document.metadata["title"], document.metadata["author"]) == ("Heights", "The gauge keeper")


def test_a_user_password_is_an_encrypted_document(parse: Parse) -> None:
    with pytest.raises(EncryptedDocumentError):
        parse(encrypted("secret"))


def test_an_owner_password_alone_does_not_stop_reading(parse: Parse) -> None:
    assert "The river rises" in whole(parse(encrypted("")))


def test_a_damaged_cross_reference_table_is_recovered(parse: Parse) -> None:
    content = Sheet().text(72, 72, "Still readable").page().bytes()
    at = content.rindex(b"startxref")
    assert "Still readable" in whole(parse(content[:at] + b"startxref\n999999999\n%%EOF"))


@pytest.mark.parametrize("content", [b"%PDF-1.7\n" + b"\x00garbage" * 50, b"%PDF-1.4\n%%EOF"])
def test_a_file_without_any_page_is_a_corrupt_document(parse: Parse, content: bytes) -> None:
    with pytest.raises(CorruptDocumentError):
        parse(content)


def test_other_content_under_the_name_of_a_pdf_is_refused(parse: Parse) -> None:
    with pytest.raises(UnsupportedDocumentTypeError):
        parse(b"\xff\xd8\xff\xe0 not a pdf at all")


def test_no_bytes_or_no_text_is_an_empty_document(parse: Parse) -> None:
    with pytest.raises(EmptyDocumentError):
        parse(b"")
    with pytest.raises(EmptyDocumentError):
        parse(Sheet().page().bytes())


def test_more_pages_than_allowed_is_too_large(parse: Parse) -> None:
    sheet = Sheet()
    for number in range(3):
        sheet.text(72, 72, f"Page {number}").page()
    with pytest.raises(DocumentTooLargeError):
        parse(sheet.bytes(), limits=ParseLimits(max_pages=2))


def test_the_same_file_gives_the_same_blocks_and_survives_pickling(parse: Parse) -> None:
    sheet = Sheet()
    sheet.prose(72, 72, 300, PROSE * 3)
    content = sheet.page().bytes()
    assert parse(content) == pickle.loads(pickle.dumps(parse(content)))


def test_hyphens_of_compounds_and_addresses_stay_at_a_line_end(parse: Parse) -> None:
    sheet = Sheet()
    sheet.lines(
        72,
        72,
        [
            "The bridge is a state-of-",
            "the-art work; see http://example.org/old-",
            "bridge/gauges for the engi-",
            "neering.",
        ],
    )
    text = whole(parse(sheet.page().bytes()))
    assert "a state-of-the-art work; see http://example.org/old-bridge/gauges for the engineering." in text


def test_a_soft_hyphen_that_the_font_draws_within_a_line_is_no_part_of_the_word(parse: Parse) -> None:
    pdfmetrics.registerFont(TTFont("Sans", SANS))
    sheet = Sheet()
    sheet.text(72, 72, "A debate in the com\u00admunity of millers.", font="Sans")
    assert whole(parse(sheet.page().bytes())) == "A debate in the community of millers."


def test_the_next_number_of_an_outer_list_without_dots_is_no_part_of_a_nested_item(parse: Parse) -> None:
    sheet = Sheet()
    for row, (x, text) in enumerate(
        [(72, "1 Open"), (72, "2 Wait"), (90, "\u2022 until the gauge stands"), (72, "3 Close")]
    ):
        sheet.text(x, 72 + 12 * row, text)
    document = parse(sheet.page().bytes())
    assert [block.content for block in of(document, BlockType.LIST)] == ["until the gauge stands"]
    assert document.blocks[-1].content == "3 Close"


@pytest.mark.parametrize(("text", "note"), [(72, 470), (180, 72)])
def test_narrow_notes_in_small_print_beside_the_text_are_read_apart(parse: Parse, text: float, note: float) -> None:
    sheet = Sheet()
    sheet.prose(text, 72, 330, PROSE * 3)
    sheet.lines(note, 95, ["A gauge: see the", "annex, no. 12."], 7)
    contents = [block.content for block in parse(sheet.page().bytes()).blocks]
    assert sorted(contents, key=len) == ["A gauge: see the annex, no. 12.", " ".join((PROSE * 3).split())]


def test_a_line_of_a_paragraph_that_stands_on_the_next_page_at_the_same_place_is_kept(parse: Parse) -> None:
    sheet = Sheet()
    for number in range(1, 4):
        lines = [f"Line {row} of the text on page {number} goes on" for row in range(60)]
        lines[57] = "without stopping the line of the works."
        sheet.lines(72, 72, lines)
        sheet.page()
    assert whole(parse(sheet.bytes())).count("without stopping the line of the works.") == 3


def test_bold_years_over_numbers_and_what_spans_them_are_the_header_of_a_table_without_rules(parse: Parse) -> None:
    sheet = Sheet()
    sheet.text(345, 100, "Year ended in May", font="Times-Bold")
    rows = [("", "Note", "2024", "2023"), ("Tolls", "3", "12,345", "11,001"), ("Costs", "4", "(8,210)", "(7,999)")]
    rows += [("Profit", "5", "4,135", "3,002")]
    for r, row in enumerate(rows):
        sheet.canvas.setFont("Times-Roman" if r else "Times-Bold", 10)
        sheet.canvas.drawString(72, HEIGHT - 122 - 14 * r, row[0])
        for x, cell in zip((320, 390, 450), row[1:], strict=True):
            sheet.canvas.drawRightString(x, HEIGHT - 122 - 14 * r, cell)
    table = of(parse(sheet.page().bytes()), BlockType.TABLE)[0]
    assert table.metadata["rows"] == [["", "", "Year ended in May", "Year ended in May"], *map(list, rows)]
    assert table.metadata["header_rows"] == 2


def test_text_that_was_painted_over_is_not_read_and_text_painted_upon_is(parse: Parse) -> None:
    def bar(left: float, top: float, right: float, color: tuple[float, float, float]) -> None:
        sheet.canvas.setFillColorRGB(*color)
        sheet.canvas.rect(left, HEIGHT - top - 14, right - left, 16, fill=1, stroke=0)
        sheet.canvas.setFillColorRGB(0, 0, 0)

    sheet = Sheet()
    width = sheet.canvas.stringWidth
    sheet.text(72, 60, "The witness is John Miller of the old bridge.")
    start = 72 + width("The witness is ", "Times-Roman", 10)
    bar(start - 1, 60, start + width("John Miller", "Times-Roman", 10) + 1, (0, 0, 0))
    sheet.text(72, 90, "Replaced by what follows")
    bar(70, 90, 400, (1, 1, 1))
    sheet.text(72, 120, "Half of this is under")
    bar(70, 127, 400, (0.5, 0.5, 0.5))
    bar(70, 150, 400, (0.9, 0.9, 0.6))
    sheet.text(72, 150, "Shaded words are read.")
    assert [block.content for block in parse(sheet.page().bytes()).blocks] == [
        "The witness is of the old bridge.",
        "Half of this is under",
        "Shaded words are read.",
    ]


def test_an_area_that_is_clipped_or_blended_hides_nothing(parse: Parse) -> None:
    sheet = Sheet()
    sheet.text(72, 60, "Highlighted words").text(72, 90, "Words below a clipped area")
    canvas = sheet.canvas
    canvas.saveState()
    canvas.setFillColorRGB(1, 1, 0)
    canvas.setBlendMode("Multiply")
    canvas.rect(70, HEIGHT - 76, 200, 20, fill=1, stroke=0)
    canvas.restoreState()
    canvas.saveState()
    clip = canvas.beginPath()
    clip.rect(300, 300, 20, 20)
    canvas.clipPath(clip, stroke=0, fill=0)
    canvas.setFillColorRGB(0, 0, 1)
    canvas.rect(0, 0, WIDTH, HEIGHT, fill=1, stroke=0)
    canvas.restoreState()
    text = whole(parse(sheet.page().bytes()))
    assert "Highlighted words" in text and "Words below a clipped area" in text


def test_a_chinese_heading_s_number_is_followed_by_no_stray_blank(parse: Parse) -> None:
    font = chinese_font()
    sheet = Sheet()
    sheet.text(72, 60, "（一）钢丝绳", 16, font)
    sheet.lines(72, 90, ["每周检查一次钢丝绳的断丝与磨损情况并记录在案。"] * 3, 10, font)
    assert of(parse(sheet.page().bytes()), BlockType.HEADING)[0].content == "（一）钢丝绳"
