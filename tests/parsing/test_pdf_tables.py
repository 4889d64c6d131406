"""PDF: tables that go on over pages are one table; tables that merely follow are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rag_cluster.chunking.tables import cell_locator
from rag_cluster.domain.blocks import Block, BlockType, DocumentSource, ParsedDocument
from rag_cluster.parsing.pdf import PdfParser
from tests.parsing.pdf_pages import PROSE, Sheet

Parse = Callable[..., ParsedDocument]
HEADER = ("Station", "Remarks", "Height")
WIDTHS = (120, 220, 80)


@pytest.fixture
def parse(tmp_path: Path) -> Parse:
    def run(content: bytes, **options: object) -> ParsedDocument:
        path = tmp_path / "made.pdf"
        path.write_bytes(content)
        return PdfParser(**options).parse(DocumentSource("doc", 1, "made.pdf", str(path)))

    return run


def tables(document: ParsedDocument) -> list[Block]:
    return [block for block in document.blocks if block.type is BlockType.TABLE]


def stations(first: int, last: int) -> list[tuple[str, str, str]]:
    return [(f"Station {n}", f"Read by keeper {n}.", f"{n}.25") for n in range(first, last)]


def draw(sheet: Sheet, top: float, rows: Sequence[Sequence[str]], *, x: float = 72, bold: bool = True) -> float:
    """A ruled table with 20 points per row, its first row bold; the bottom."""
    sheet.grid(x, top, WIDTHS, 20, len(rows))
    for r, row in enumerate(rows):
        at = x
        for width, cell in zip(WIDTHS, row, strict=True):
            font = "Times-Bold" if bold and r == 0 else "Times-Roman"
            sheet.text(at + 4, top + 4 + 20 * r, cell, 10, font)
            at += width
    return top + 20 * len(rows)


def test_a_table_over_three_pages_is_one_table_whose_header_is_kept_once(parse: Parse) -> None:
    sheet = Sheet()
    sheet.prose(72, 80, 450, PROSE * 2)
    draw(sheet, 500, [HEADER, *stations(1, 13)])
    draw(sheet.page(), 60, [HEADER, *stations(13, 48)])
    bottom = draw(sheet.page(), 60, [HEADER, *stations(48, 53)])
    sheet.prose(72, bottom + 30, 450)
    document = parse(sheet.page().bytes())
    (table,) = tables(document)
    assert table.metadata["rows"] == [list(row) for row in (HEADER, *stations(1, 53))]
    assert table.metadata["header_rows"] == 1
    assert [page for page, _ in table.locator.spans] == [1, 2, 3]
    assert table.locator.page == 1 and table.locator.bbox == table.locator.spans[0][1]
    assert table.locator.spans[2][1] == pytest.approx((72, 60, 492, 180), abs=1)


def test_every_row_of_a_table_over_pages_is_cited_on_its_own_page(parse: Parse) -> None:
    sheet = Sheet()
    draw(sheet, 500, [HEADER, *stations(1, 13)])
    draw(sheet.page(), 60, [HEADER, *stations(13, 48)])
    draw(sheet.page(), 60, [HEADER, *stations(48, 53)])
    (table,) = tables(parse(sheet.page().bytes()))
    assert table.metadata["row_starts"] == [0, 13, 48]
    places = [cell_locator(table, row) for row in (1, 12, 13, 47, 48, 52)]
    assert [place.page for place in places if place] == [1, 1, 2, 2, 3, 3]
    assert all(place is not None and not place.spans for place in places)


def test_a_table_that_goes_on_without_its_header_is_one_table(parse: Parse) -> None:
    sheet = Sheet()
    draw(sheet, 500, [HEADER, *stations(1, 13)])
    draw(sheet.page(), 60, stations(13, 20), bold=False)
    (table,) = tables(parse(sheet.page().bytes()))
    assert table.metadata["rows"] == [list(row) for row in (HEADER, *stations(1, 20))]


def test_running_lines_page_numbers_and_a_note_between_the_pages_do_not_part_a_table(parse: Parse) -> None:
    sheet = Sheet()
    for page, rows in enumerate([stations(1, 30), stations(30, 60), stations(60, 80)]):
        sheet.text(72, 30, "Annual Report of the River Authority", 9)
        draw(sheet, 60, [HEADER, *rows])
        if page == 1:
            sheet.canvas.line(72, 842 - 742, 172, 842 - 742)
            sheet.text(72, 744, "1", 5).text(76, 745, "Heights are in metres above the sea.", 8)
        sheet.text(280, 800, f"Page {page + 1} of 3", 9).page()
    document = parse(sheet.bytes())
    (table,) = tables(document)
    assert len(table.metadata["rows"]) == 80
    assert [b.metadata["footnote"] for b in document.blocks if "footnote" in b.metadata] == ["1"]


@pytest.mark.parametrize("label", ["Table 2 (continued)", "(continued)", "Table 2 - Heights of the gauges (cont'd)"])
def test_a_line_that_says_continued_is_dropped_with_the_break(parse: Parse, label: str) -> None:
    sheet = Sheet()
    sheet.text(72, 480, "Table 2: Heights of the gauges")
    draw(sheet, 500, [HEADER, *stations(1, 13)])
    sheet.page().text(72, 60, label)
    draw(sheet, 80, [HEADER, *stations(13, 20)])
    document = parse(sheet.page().bytes())
    (table,) = tables(document)
    assert len(table.metadata["rows"]) == 20
    assert table.metadata["caption"] == "Table 2: Heights of the gauges"
    assert not any("cont" in block.content for block in document.blocks)


def test_a_table_without_rules_goes_on_over_pages(parse: Parse) -> None:
    sheet = Sheet()
    sheet.prose(72, 60, 450, PROSE * 2)

    def rows(top: float, numbers: range) -> None:
        body = [(f"Gauge number {n}", f"{n}.4", f"{n}.5", f"1,{n}00") for n in numbers]
        for r, row in enumerate([("Station", "1997", "1998", "1999"), *body]):
            for x, cell in zip((72, 220, 300, 380), row, strict=True):
                sheet.text(x, top + 14 * r, cell)

    rows(400, range(10, 35))
    rows_before = 26
    sheet.page()
    rows(60, range(35, 50))
    (table,) = tables(parse(sheet.page().bytes()))
    assert len(table.metadata["rows"]) == rows_before + 15
    assert [page for page, _ in table.locator.spans] == [1, 2]


def test_a_row_that_the_end_of_the_page_breaks_is_made_whole(parse: Parse) -> None:
    sheet = Sheet()
    draw(sheet, 500, [HEADER, *stations(1, 12), ("Station 12", "The keeper found the gauge under the ice and", "1.25")])
    draw(sheet.page(), 60, [HEADER, ("", "could not read it before the thaw.", ""), *stations(13, 20)])
    (table,) = tables(parse(sheet.page().bytes()))
    assert table.metadata["rows"][12] == [
        "Station 12",
        "The keeper found the gauge under the ice and could not read it before the thaw.",
        "1.25",
    ]
    assert table.metadata["rows"][13][0] == "Station 13"


def test_a_row_with_an_empty_label_that_starts_anew_stays_a_row(parse: Parse) -> None:
    sheet = Sheet()
    draw(sheet, 500, [HEADER, *stations(1, 13)])
    draw(sheet.page(), 60, [HEADER, ("", "Read again at noon.", "2.10"), *stations(13, 20)])
    (table,) = tables(parse(sheet.page().bytes()))
    assert table.metadata["rows"][13] == ["", "Read again at noon.", "2.10"]


def test_another_table_with_a_header_of_its_own_is_not_joined(parse: Parse) -> None:
    sheet = Sheet()
    draw(sheet, 500, [HEADER, *stations(1, 13)])
    draw(sheet.page(), 60, [("Bridge", "Built by", "Length"), *stations(13, 20)])
    assert len(tables(parse(sheet.page().bytes()))) == 2


def test_a_table_below_a_caption_or_a_paragraph_is_not_joined(parse: Parse) -> None:
    sheet = Sheet()
    draw(sheet, 500, [HEADER, *stations(1, 13)])
    sheet.page().text(72, 60, "Table 3: Heights in the second year")
    draw(sheet, 80, [HEADER, *stations(13, 20)])
    assert len(tables(parse(sheet.page().bytes()))) == 2


def test_a_table_of_other_columns_is_not_joined(parse: Parse) -> None:
    sheet = Sheet()
    draw(sheet, 500, [HEADER, *stations(1, 13)])
    sheet.page().grid(72, 60, (200, 220), 20, 3)
    for r in range(3):
        sheet.text(76, 64 + 20 * r, f"Station {r}").text(276, 64 + 20 * r, "Closed for the winter.")
    assert len(tables(parse(sheet.page().bytes()))) == 2


def test_a_table_that_ended_high_on_its_page_is_not_joined(parse: Parse) -> None:
    sheet = Sheet()
    draw(sheet, 60, [HEADER, *stations(1, 4)])
    draw(sheet.page(), 60, [HEADER, *stations(4, 8)])
    assert len(tables(parse(sheet.page().bytes()))) == 2


def test_chinese_tables_go_on_over_pages(parse: Parse) -> None:
    from tests.parsing.pdf_pages import chinese_font

    font = chinese_font()
    sheet = Sheet()

    def table(top: float, rows: Sequence[Sequence[str]]) -> None:
        sheet.grid(72, top, WIDTHS, 20, len(rows))
        for r, row in enumerate(rows):
            for x, cell in zip((76, 196, 416), row, strict=True):
                sheet.text(x, top + 4 + 20 * r, cell, 10, font)

    header = ("测站", "备注", "水位")
    body = [(f"第{n}测站", "由看护员读数。", f"{n}.25") for n in range(1, 20)]
    table(500, [header, *body[:12]])
    sheet.page().text(72, 60, "续表1", 10, font)
    table(80, [header, *body[12:]])
    document = parse(sheet.page().bytes())
    (found,) = tables(document)
    assert found.metadata["rows"] == [list(row) for row in (header, *body)]
