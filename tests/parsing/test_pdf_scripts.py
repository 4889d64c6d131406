"""PDF: scripts that run from right to left come out in the order in which they are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont

from rag_cluster.domain.blocks import DocumentSource, ParsedDocument
from rag_cluster.parsing.pdf import PdfParser
from tests.parsing.pdf_pages import SANS, Sheet

Parse = Callable[..., ParsedDocument]


@pytest.fixture
def parse(tmp_path: Path) -> Parse:
    def run(content: bytes, **options: object) -> ParsedDocument:
        path = tmp_path / "made.pdf"
        path.write_bytes(content)
        return PdfParser(**options).parse(DocumentSource("doc", 1, "made.pdf", str(path)))

    return run


@pytest.fixture(scope="module")
def font() -> str:
    pdfmetrics.registerFont(TTFont("Right", SANS))
    return "Right"


def right_aligned(sheet: Sheet, lines: list[str], font: str, top: float = 100) -> None:
    """Lines as they are drawn: their characters from left to right."""
    for i, line in enumerate(lines):
        sheet.canvas.setFont(font, 12)
        sheet.canvas.drawRightString(500, 842 - top - 16 * i - 12, line)


def shown(*pieces: str) -> str:
    """How a line of pieces (each in the order of reading) is drawn: right to left, numbers and Latin kept."""
    return "".join(p if p.isascii() and p.strip() else p[::-1] for p in reversed(pieces))


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (["שלום לכם ולכל בני הבית"], "שלום לכם ולכל בני הבית"),
        (["נבנה בשנת ", "1874", " ליד הגשר"], "נבנה בשנת 1874 ליד הגשר"),
        (["הספר ", "River Gauges", " יצא לאור"], "הספר River Gauges יצא לאור"),
        (["المدينة القديمة على النهر"], "المدينة القديمة على النهر"),
        (["ارتفاع الماء ", "192", " سنتيمترا"], "ارتفاع الماء 192 سنتيمترا"),
    ],
    ids=["hebrew", "hebrew and digits", "hebrew and latin", "arabic", "arabic and digits"],
)
def test_a_line_from_right_to_left_is_read_in_its_logical_order(
    parse: Parse, font: str, pieces: list[str], text: str
) -> None:
    sheet = Sheet()
    right_aligned(sheet, [shown(*pieces)], font)
    (block,) = parse(sheet.page().bytes()).blocks
    assert block.content == text


def test_lines_of_a_paragraph_from_right_to_left_are_joined_in_order(parse: Parse, font: str) -> None:
    lines = ["הנהר עולה בגבעות הצפון וזורם תשעים מיל דרך שדות", "לפני שהוא מגיע אל הים הגדול והרחב."]
    sheet = Sheet()
    right_aligned(sheet, [line[::-1] for line in lines], font)
    (block,) = parse(sheet.page().bytes()).blocks
    assert block.content == " ".join(lines)


def test_arabic_presentation_forms_come_out_as_letters(parse: Parse, font: str) -> None:
    sheet = Sheet()
    right_aligned(sheet, ["\ufedf\ufeb0\ufee8\ufee4\ufedf\ufe8d"[::-1]], font)
    (block,) = parse(sheet.page().bytes()).blocks
    assert not any("\ufb50" <= character <= "\ufefc" for character in block.content)
