"""PDF: footnotes are blocks of their own, marked, and never stand inside a paragraph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rag_cluster.domain.blocks import Block, DocumentSource, ParsedDocument
from rag_cluster.parsing.pdf import PdfParser
from tests.parsing.pdf_pages import HEIGHT, PROSE, Sheet, chinese_font

Parse = Callable[..., ParsedDocument]


@pytest.fixture
def parse(tmp_path: Path) -> Parse:
    def run(content: bytes, **options: object) -> ParsedDocument:
        path = tmp_path / "made.pdf"
        path.write_bytes(content)
        return PdfParser(**options).parse(DocumentSource("doc", 1, "made.pdf", str(path)))

    return run


def marked(sheet: Sheet, x: float, top: float, *pieces: str, size: float = 10, font: str = "Times-Roman") -> None:
    """Text and raised marks in turn on one line."""
    text = sheet.canvas.beginText(x, HEIGHT - top - size)
    for i, piece in enumerate(pieces):
        raised = i % 2 == 1
        text.setFont("Times-Roman" if raised else font, 0.6 * size if raised else size)
        text.setRise(0.4 * size if raised else 0)
        text.textOut(piece)
    sheet.canvas.drawText(text)


def rule(sheet: Sheet, top: float, x: float = 72, width: float = 120) -> None:
    sheet.canvas.line(x, HEIGHT - top, x + width, HEIGHT - top)


def notes(document: ParsedDocument) -> dict[str, Block]:
    return {b.metadata["footnote"]: b for b in document.blocks if "footnote" in b.metadata}


def test_a_raised_mark_at_the_foot_makes_a_note_and_the_mark_in_the_text_refers_to_it(parse: Parse) -> None:
    sheet = Sheet()
    sheet.prose(72, 72, 450, PROSE * 2)
    marked(
        sheet,
        72,
        200,
        "The gauge at the old bridge",
        "1",
        " is read twice a day, the one at the mill.",
        "2",
        " Both are old.",
    )
    marked(sheet, 72, 740, "", "1", " Built in 1874 and repaired after the flood.", size=8)
    marked(sheet, 72, 750, "", "2", " Closed since 1990; the readings are", size=8)
    sheet.text(72, 760, "kept in the town's archive.", 8)
    document = parse(sheet.page().bytes())
    found = notes(document)
    assert found["1"].content == "[^1]: Built in 1874 and repaired after the flood."
    assert found["2"].content == "[^2]: Closed since 1990; the readings are kept in the town's archive."
    running = next(b.content for b in document.blocks if "twice a day" in b.content and "footnote" not in b.metadata)
    assert "bridge[^1] is read twice a day, the one at the mill.[^2] Both are old." in running


def test_a_paragraph_goes_on_over_the_page_without_the_notes_in_its_middle(parse: Parse) -> None:
    sheet = Sheet()
    sheet.prose(72, 600, 450, PROSE + "The height of the water was measured", 10)
    rule(sheet, 735)
    marked(sheet, 72, 740, "", "1", " See the report of the gauge keeper.", size=8)
    marked(sheet, 72, 750, "", "2", " In metres.", size=8)
    sheet.page()
    sheet.prose(72, 72, 450, "every morning before the mill began to work. " + PROSE)
    document = parse(sheet.page().bytes())
    assert [b.metadata.get("footnote") for b in document.blocks] == [None, "1", "2"]
    assert "was measured every morning before the mill" in document.blocks[0].content
    assert [page for page, _ in document.blocks[0].locator.spans] == [1, 2]


def test_small_text_below_a_short_rule_is_a_note_with_or_without_a_mark(parse: Parse) -> None:
    sheet = Sheet()
    sheet.prose(72, 72, 450, PROSE * 3)
    rule(sheet, 735)
    sheet.text(72, 740, "3. Readings before 1900 are not exact.", 8)
    sheet.page()
    sheet.prose(72, 72, 450, PROSE * 3)
    rule(sheet, 735)
    sheet.text(72, 740, "Readings of this year are provisional.", 8)
    document = parse(sheet.page().bytes())
    found = notes(document)
    assert found["3"].content == "[^3]: Readings before 1900 are not exact."
    assert found[""].content == "Readings of this year are provisional."


def test_notes_of_two_columns_stay_with_their_columns(parse: Parse) -> None:
    sheet = Sheet()
    sheet.prose(72, 60, 210, "LEFT " + PROSE * 3 + "The left column goes on")
    sheet.prose(310, 60, 210, "in the right one, as the reader sees. " + PROSE * 3)
    marked(sheet, 72, 740, "", "1", " Note of the left column.", size=8)
    marked(sheet, 310, 740, "", "2", " Note of the right column.", size=8)
    document = parse(sheet.page().bytes())
    assert [b.metadata.get("footnote") for b in document.blocks] == [None, "1", "2"]
    assert "column goes on in the right one" in document.blocks[0].content


def test_letters_and_stars_are_marks_too(parse: Parse) -> None:
    sheet = Sheet()
    marked(sheet, 72, 72, "A study by the keeper", "*", " and his daughter.")
    sheet.prose(72, 100, 450, PROSE * 3)
    marked(sheet, 72, 740, "", "*", " At the gauge since 1990.", size=8)
    document = parse(sheet.page().bytes())
    assert notes(document)["*"].content == "[^*]: At the gauge since 1990."
    assert any("keeper[^*] and his daughter" in b.content for b in document.blocks)


def test_an_exponent_and_a_number_of_the_same_digit_are_no_references(parse: Parse) -> None:
    sheet = Sheet()
    sheet.prose(72, 72, 450, PROSE * 2)
    marked(sheet, 72, 200, "An area of 10", "2", " metres, gauge 2, read by the keeper", "2", ".")
    marked(sheet, 72, 740, "", "2", " Appointed in 1990.", size=8)
    document = parse(sheet.page().bytes())
    assert any("10" in b.content and "gauge 2, read by the keeper[^2]." in b.content for b in document.blocks)


def test_small_text_with_larger_text_below_is_no_note(parse: Parse) -> None:
    sheet = Sheet()
    sheet.prose(72, 72, 450, PROSE * 3)
    marked(sheet, 72, 400, "", "1", " A remark in small type in the middle of the page.", size=8)
    sheet.prose(72, 430, 450, PROSE * 3)
    assert not notes(parse(sheet.page().bytes()))


def test_a_running_foot_below_a_rule_is_still_removed(parse: Parse) -> None:
    sheet = Sheet()
    for number in range(4):
        sheet.prose(72, 72, 450, f"Page text {number}. " + PROSE * 3)
        rule(sheet, 785)
        sheet.text(72, 790, "River Authority, for internal use", 8).page()
    document = parse(sheet.bytes())
    assert not any("internal use" in block.content for block in document.blocks)


def test_chinese_notes_with_circled_numbers(parse: Parse) -> None:
    font = chinese_font()
    sheet = Sheet()
    lines = ["为了规范水文监测工作，保护水资源，防御水旱灾害，根据有关法律制定", "本办法。本办法适用于全部测站。"]
    sheet.lines(72, 72, lines * 4, 12, font)
    rule(sheet, 735)
    sheet.text(72, 740, "①本办法自发布之日起施行。", 8, font)
    document = parse(sheet.page().bytes())
    assert notes(document)["①"].content == "[^①]: 本办法自发布之日起施行。"


def test_a_note_goes_on_below_the_rule_of_the_next_column(parse: Parse) -> None:
    sheet = Sheet()
    sheet.prose(72, 60, 210, PROSE * 4)
    sheet.prose(294, 60, 210, PROSE * 4)
    rule(sheet, 735)
    marked(sheet, 72, 740, "", "1", " The gauge was moved in the spring of", size=8)
    rule(sheet, 735, x=294)
    sheet.text(294, 740, "the year in which the bridge was closed.", 8)
    found = notes(parse(sheet.page().bytes()))
    assert list(found) == ["1"]
    assert found["1"].content == ("[^1]: The gauge was moved in the spring of the year in which the bridge was closed.")
    assert len(found["1"].locator.spans) == 2
