"""PDF: texts in drawn boxes side by side are read box by box."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rag_cluster.domain.blocks import BlockType, DocumentSource, ParsedDocument
from rag_cluster.parsing.pdf import PdfParser
from tests.parsing.pdf_pages import HEIGHT, PROSE, Sheet

Parse = Callable[..., ParsedDocument]


@pytest.fixture
def parse(tmp_path: Path) -> Parse:
    def run(content: bytes, **options: object) -> ParsedDocument:
        path = tmp_path / "made.pdf"
        path.write_bytes(content)
        return PdfParser(**options).parse(DocumentSource("doc", 1, "made.pdf", str(path)))

    return run


def panel(sheet: Sheet, x: float, top: float, width: float, height: float, *, filled: bool) -> None:
    if filled:
        sheet.canvas.setFillGray(0.92)
        sheet.canvas.rect(x, HEIGHT - top - height, width, height, stroke=0, fill=1)
        sheet.canvas.setFillGray(0)
    else:
        sheet.canvas.roundRect(x, HEIGHT - top - height, width, height, 8)


@pytest.mark.parametrize("filled", [True, False], ids=["filled", "framed"])
def test_short_lines_of_panels_side_by_side_are_not_mixed_nor_a_table(parse: Parse, filled: bool) -> None:
    sheet = Sheet().text(72, 40, "Gauges of the River", 18, "Helvetica-Bold")
    for n, (x, top) in enumerate([(60, 90), (310, 90), (60, 300), (310, 300)]):
        panel(sheet, x, top, 230, 180, filled=filled)
        sheet.text(x + 60, top + 12, f"Gauge number {n}", 12, "Helvetica-Bold")
        for i, (label, value) in enumerate([("Height", "1.92"), ("Flow", "18"), ("Frost", "no")]):
            # The labels of the right panels stand as high as those of the left ones.
            sheet.text(x + 12, top + 50 + 20 * i, f"{label}{n}").text(x + 120, top + 50 + 20 * i, f"{value}{n}")
    document = parse(sheet.page().bytes())
    text = " ".join(block.content for block in document.blocks)
    places = [text.index(mark) for n in range(4) for mark in (f"Gauge number {n}", f"Height{n}", f"Frost{n}")]
    assert places == sorted(places)
    titles = [b.content for b in document.blocks if b.type is BlockType.HEADING]
    assert titles == ["Gauges of the River", *(f"Gauge number {n}" for n in range(4))]


def test_a_box_around_the_middle_of_a_text_changes_nothing(parse: Parse) -> None:
    sheet = Sheet()
    sheet.prose(72, 60, 450, "FIRST " + PROSE)
    panel(sheet, 66, 130, 462, 70, filled=True)
    sheet.prose(72, 140, 450, "SECOND " + PROSE)
    sheet.prose(72, 220, 450, "THIRD " + PROSE)
    document = parse(sheet.page().bytes())
    assert [b.content.split()[0] for b in document.blocks] == ["FIRST", "SECOND", "THIRD"]


def test_the_shaded_columns_of_a_table_are_no_panels(parse: Parse) -> None:
    sheet = Sheet()
    sheet.prose(72, 40, 450, PROSE * 2)
    panel(sheet, 215, 145, 75, 120, filled=True)
    panel(sheet, 375, 145, 75, 120, filled=True)
    rows = [("Station", "1997", "1998", "1999")]
    rows += [(f"Gauge number {n}", f"{n}.4", f"{n}.5", f"1,{n}00") for n in range(1, 7)]
    for r, row in enumerate(rows):
        for x, cell in zip((72, 220, 300, 380), row, strict=True):
            sheet.text(x, 150 + 14 * r, cell)
    document = parse(sheet.page().bytes())
    (table,) = (b for b in document.blocks if b.type is BlockType.TABLE)
    assert table.metadata["rows"] == [list(row) for row in rows]
