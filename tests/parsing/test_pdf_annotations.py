"""PDF: links and form fields, as a person sees them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rag_cluster.domain.blocks import Block, BlockType, DocumentSource, ParsedDocument
from rag_cluster.parsing.pdf import PdfParser
from tests.parsing.pdf_pages import HEIGHT, PROSE, Sheet, photo

Parse = Callable[..., ParsedDocument]


@pytest.fixture
def parse(tmp_path: Path) -> Parse:
    def run(content: bytes, **options: object) -> ParsedDocument:
        path = tmp_path / "made.pdf"
        path.write_bytes(content)
        return PdfParser(**options).parse(DocumentSource("doc", 1, "made.pdf", str(path)))

    return run


def link(sheet: Sheet, uri: str, x0: float, top: float, x1: float, bottom: float) -> None:
    sheet.canvas.linkURL(uri, (x0, HEIGHT - bottom, x1, HEIGHT - top))


def having(document: ParsedDocument, text: str) -> Block:
    return next(block for block in document.blocks if text in block.content)


def test_a_link_is_kept_with_the_words_it_covers_on_the_block_they_stand_in(parse: Parse) -> None:
    sheet = Sheet()
    sheet.prose(72, 60, 450)
    sheet.text(72, 150, "Heights are kept in the archive of the town and shown online.")
    width = sheet.canvas.stringWidth
    start = 72 + width("Heights are kept in ", "Times-Roman", 10)
    link(sheet, "https://example.org/archive?year=1997", start, 149,
         start + width("the archive of the town", "Times-Roman", 10), 162)  # fmt: skip
    document = parse(sheet.page().bytes())
    assert having(document, "shown online").metadata["links"] == [
        {"text": "the archive of the town", "uri": "https://example.org/archive?year=1997"}
    ]
    assert "links" not in having(document, "The river rises").metadata


def test_a_link_over_two_lines_is_one_link(parse: Parse) -> None:
    sheet = Sheet()
    sheet.text(72, 100, "The keeper writes every height into the gauge book of")
    sheet.text(72, 112, "the old bridge and sends it on.")
    end = 72 + sheet.canvas.stringWidth("The keeper writes every height into the gauge book of", "Times-Roman", 10)
    start = 72 + sheet.canvas.stringWidth("The keeper writes every height into the ", "Times-Roman", 10)
    link(sheet, "mailto:keeper@example.org", start, 99, end, 111)
    link(sheet, "mailto:keeper@example.org", 72, 111, 72 + 60, 124)
    document = parse(sheet.page().bytes())
    assert document.blocks[0].metadata["links"] == [
        {"text": "gauge book of the old bridge", "uri": "mailto:keeper@example.org"}
    ]


def test_links_in_headings_tables_and_pictures_are_kept_and_a_heading_stays_one(parse: Parse) -> None:
    sheet = Sheet().text(72, 50, "Gauges of the River", 20, "Helvetica-Bold")
    link(sheet, "https://example.org/gauges", 72, 50, 300, 75)
    sheet.prose(72, 90, 450)
    sheet.grid(72, 200, [150, 150], 20, 2)
    for i, cell in enumerate(("Gauge", "Page", "Old bridge", "see here")):
        sheet.text(76 + 150 * (i % 2), 204 + 20 * (i // 2), cell)
    link(sheet, "https://example.org/bridge", 226, 222, 262, 236)
    sheet.canvas.drawImage(photo(), 72, HEIGHT - 450, 200, 150)
    link(sheet, "https://example.org/photo", 72, 300, 272, 450)
    document = parse(sheet.page().bytes())
    linked = {b.type: b.metadata["links"] for b in document.blocks if "links" in b.metadata}
    assert linked == {
        BlockType.HEADING: [{"text": "Gauges of the River", "uri": "https://example.org/gauges"}],
        BlockType.TABLE: [{"text": "see here", "uri": "https://example.org/bridge"}],
        BlockType.IMAGE: [{"text": "", "uri": "https://example.org/photo"}],
    }


def test_links_within_the_document_and_scripts_are_left_out(parse: Parse) -> None:
    sheet = Sheet()
    sheet.canvas.bookmarkPage("top")
    sheet.text(72, 100, "Back to the top, or run this.")
    sheet.canvas.linkRect("", "top", (72, HEIGHT - 112, 140, HEIGHT - 99))
    link(sheet, "javascript:alert(1)", 150, 99, 200, 112)
    assert "links" not in parse(sheet.page().bytes()).blocks[0].metadata


def test_a_link_stays_with_its_block_when_the_page_is_turned(parse: Parse) -> None:
    sheet = Sheet()
    sheet.canvas.setPageRotation(90)
    sheet.text(100, 300, "Read more here.")
    link(sheet, "https://example.org/", 100, 300, 165, 312)
    document = parse(sheet.page().bytes())
    assert document.blocks[0].metadata["links"][0]["uri"] == "https://example.org/"


def test_text_fields_are_read_in_their_places_even_over_a_dotted_line(parse: Parse) -> None:
    sheet = Sheet()
    form = sheet.canvas.acroForm
    for row, (label, value) in enumerate([("Name:", "Old bridge"), ("River:", "Die Würm"), ("Note:", "")]):
        sheet.text(72, 100 + 30 * row, label)
        sheet.text(200, 102 + 30 * row, "." * 40)
        form.textfield(name=label, value=value, x=200, y=HEIGHT - 115 - 30 * row, width=200, height=18)
    text = "\n".join(block.content for block in parse(sheet.page().bytes()).blocks)
    assert text.index("Name:") < text.index("Old bridge") < text.index("River:") < text.index("Die Würm")


def test_a_password_field_shows_nothing(parse: Parse) -> None:
    sheet = Sheet().text(72, 100, "Secret:")
    sheet.canvas.acroForm.textfield(
        name="secret", value="swordfish", fieldFlags="password", x=200, y=HEIGHT - 115, width=200, height=18
    )
    assert "swordfish" not in having(parse(sheet.page().bytes()), "Secret").content


def test_choices_show_the_label_of_what_is_chosen(parse: Parse) -> None:
    sheet = Sheet()
    form = sheet.canvas.acroForm
    sheet.text(72, 100, "River:")
    form.choice(name="river", value="w", options=[("The Isar", "i"), ("The Wupper", "w")],
                x=200, y=HEIGHT - 115, width=150, height=18)  # fmt: skip
    sheet.text(72, 140, "Gauge:")
    form.listbox(name="gauge", value="b", options=[("Mill pond", "m"), ("Old bridge", "b")],
                 x=200, y=HEIGHT - 190, width=150, height=50)  # fmt: skip
    text = "\n".join(block.content for block in parse(sheet.page().bytes()).blocks)
    assert "The Wupper" in text and "Old bridge" in text
    assert "The Isar" not in text and "Mill pond" not in text


def test_checkboxes_and_radio_buttons_show_whether_they_are_set(parse: Parse) -> None:
    sheet = Sheet()
    form = sheet.canvas.acroForm
    for row, (label, checked) in enumerate([("Flooded", True), ("Frozen", False)]):
        form.checkbox(name=label, checked=checked, x=72, y=HEIGHT - 112 - 20 * row, size=12)
        sheet.text(90, 100 + 20 * row, f"{label} at the time of reading, as the keeper saw it from the bridge.")
    for row, (label, selected) in enumerate([("Morning", False), ("Evening", True)]):
        form.radio(name="time", value=label, selected=selected, x=72, y=HEIGHT - 212 - 20 * row, size=12)
        sheet.text(90, 200 + 20 * row, f"{label} reading, taken before the mill begins its work.")
    document = parse(sheet.page().bytes())
    assert having(document, "Flooded").content.startswith("☒ Flooded at")
    assert having(document, "Frozen").content.startswith("☐ Frozen at")
    assert having(document, "Morning").content.startswith("◯ Morning")
    assert having(document, "Evening").content.startswith("◉ Evening")


def test_hidden_fields_and_buttons_are_not_read(parse: Parse) -> None:
    sheet = Sheet()
    sheet.text(72, 100, PROSE[:60])
    sheet.canvas.acroForm.textfield(
        name="hidden", value="never shown", annotationFlags="hidden", x=200, y=HEIGHT - 215, width=200, height=18
    )
    assert "never shown" not in "\n".join(block.content for block in parse(sheet.page().bytes()).blocks)


def test_a_link_far_wider_than_its_words_is_theirs(parse: Parse) -> None:
    sheet = Sheet()
    sheet.text(72, 100, "Our site")
    sheet.text(72, 140, "The keeper writes every height into the gauge book of the old bridge.")
    link(sheet, "https://example.org/", 70, 97, 520, 115)
    document = parse(sheet.page().bytes())
    assert having(document, "Our site").metadata["links"] == [{"text": "Our site", "uri": "https://example.org/"}]
    assert "links" not in having(document, "The keeper").metadata
