"""Tables among recognised lines, told from running text in columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from PIL import Image, ImageDraw, ImageFont

from rag_cluster.domain.blocks import BlockType, ParsedDocument
from rag_cluster.domain.ports import RecognizedLine
from rag_cluster.parsing.reading_order import OcrParagraph, paragraphs
from rag_cluster.parsing.scan_tables import header_rows
from tests.parsing.test_images import encoded

Parse = Callable[..., ParsedDocument]
SENTENCE = "the quay wall was measured again in spring and showed no movement beyond what had been expected there"
WORDS = SENTENCE.split()
PUMPS = [["Pump", "Flow", "Site"], ["P-101", "120", "North"], ["P-102", "95", "South"], ["P-103", "240", "East"]]


def line(text: str, x: float, y: float, *, width: float | None = None, height: float = 20) -> RecognizedLine:
    return RecognizedLine(text, (x, y, x + (width if width is not None else 10 * len(text)), y + height), 0.9)


def cells(
    rows: Sequence[Sequence[str]], *, y: float = 100, pitch: float = 30, step: float = 200
) -> list[RecognizedLine]:
    """A line for each text that is not empty."""
    return [
        line(text, 50 + step * column, y + pitch * row)
        for row, texts in enumerate(rows)
        for column, text in enumerate(texts)
        if text
    ]


def prose(x: float, y: float, count: int, width: float = 420, shift: int = 0) -> list[RecognizedLine]:
    """Justified lines of one column."""
    out = []
    for n in range(count):
        words = [WORDS[(n * 5 + k + shift) % len(WORDS)] for k in range(7)]
        out.append(line(" ".join(words), x, y + 24 * n, width=width))
    return out


def tables(lines: Sequence[RecognizedLine]) -> list[OcrParagraph]:
    return [paragraph for paragraph in paragraphs(lines) if paragraph.rows]


def grid(lines: Sequence[RecognizedLine]) -> list[list[str]]:
    (table,) = tables(lines)
    return [list(row) for row in table.rows]


@pytest.mark.parametrize("pitch", [22, 30, 60])
def test_lines_in_columns_are_a_grid_at_any_spacing(pitch: float) -> None:
    assert grid(cells(PUMPS, pitch=pitch)) == PUMPS


def test_lines_come_in_any_order() -> None:
    assert grid(list(reversed(cells(PUMPS)))) == PUMPS


def test_an_empty_cell_stays_empty() -> None:
    rows = [*PUMPS[:2], ["P-102", "", "South"], *PUMPS[3:], ["P-104", "30", "West"]]
    assert grid(cells(rows)) == rows


def test_what_stands_before_and_after_a_table_is_text_in_its_place() -> None:
    found = paragraphs([*prose(50, 100, 4, 900), *cells(PUMPS, y=230), line("Source: the pumps' own meters", 50, 370)])
    assert [bool(paragraph.rows) for paragraph in found] == [False, True, False]
    assert found[2].text == "Source: the pumps' own meters"


def test_a_table_in_one_column_of_a_page_is_found_and_the_other_column_is_text() -> None:
    right = [*prose(600, 100, 8), *cells_at(PUMPS, 600, 310), *prose(600, 450, 8)]
    found = paragraphs([*prose(50, 100, 22, shift=3), *right])
    assert [len(paragraph.rows) for paragraph in found if paragraph.rows] == [4]


def cells_at(rows: Sequence[Sequence[str]], x: float, y: float) -> list[RecognizedLine]:
    return [
        line(text, x + 140 * column, y + 30 * row)
        for row, texts in enumerate(rows)
        for column, text in enumerate(texts)
    ]


def test_two_tables_below_each_other_are_two() -> None:
    other = [["Berth", "Depth"], ["B1", "12.5"], ["B2", "14.0"]]
    found = tables([*cells(PUMPS), *cells(other, y=300, step=320)])
    assert [len(table.rows[0]) for table in found] == [3, 2]


def test_a_header_that_spans_columns_stands_in_each_of_them() -> None:
    lines = [line("Measured in spring and in autumn", 240, 70, width=380), *cells(PUMPS)]
    lines.append(line("Station", 50, 70))
    assert grid(lines)[0] == ["Station", "Measured in spring and in autumn", "Measured in spring and in autumn"]


def test_rules_that_were_read_as_bars_part_the_cells_of_a_header() -> None:
    rows = [line("Pump", 50, 70), line("Flow | Site", 250, 70, width=300), *cells(PUMPS[1:])]
    assert grid(rows)[0] == ["Pump", "Flow", "Site"]


def test_the_second_line_of_a_cell_belongs_to_its_row() -> None:
    lines = cells(PUMPS, pitch=60)
    lines.append(line("station", 450, 100 + 60 + 21))
    assert grid(lines)[1] == ["P-101", "120", "North station"]


def test_chinese_tables_are_tables() -> None:
    rows = [["项目", "数量", "单价"], ["水泵", "3", "1200"], ["电机", "5", "800"], ["阀门", "12", "95"]]
    assert grid(cells(rows)) == rows


@pytest.mark.parametrize("columns", [2, 3])
def test_prose_in_columns_is_no_table(columns: int) -> None:
    lines = [piece for n in range(columns) for piece in prose(50 + 480 * n, 100, 12, shift=n)]
    assert not tables(lines)


def test_prose_in_columns_below_a_title_over_both_is_no_table() -> None:
    assert not tables(
        [line("A title", 300, 40, width=500, height=30), *prose(50, 100, 9), *prose(520, 100, 9, shift=2)]
    )


@pytest.mark.parametrize(
    "marks", [["1.", "2.", "3.", "4."], ["•"] * 4, ["r"] * 4, ["(a)", "b)", "c.", "d."], ["1", "2", "3", "4"]]
)
def test_a_list_whose_marks_stand_apart_is_no_table(marks: list[str]) -> None:
    texts = ["Open the valve", "Start the pump", "Read the gauge", "Close the valve"]
    assert not tables(cells(list(zip(marks, texts, strict=True)), step=80))


def test_a_table_of_contents_is_no_table() -> None:
    rows = [[f"{n} Chapter about pumps . . . . . .", str(7 * n)] for n in range(1, 7)]
    assert not tables(cells(rows, step=600))


def test_two_rows_are_no_table() -> None:
    assert not tables(cells(PUMPS[:2]))


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        (PUMPS, 1),
        ([["", "Flow"], ["", "m3/h"], ["P-101", "120"], ["P-102", "95"], ["P-103", "7"]], 2),
        (PUMPS[1:], 0),
        ([["Name", "Role"], ["Ann", "Pilot"], ["Bo", "Master"]], 1),
        ([["one"]], 0),
    ],
)
def test_header_rows_are_those_before_the_numbers(rows: list[list[str]], count: int) -> None:
    assert header_rows(rows) == count


def drawn(rows: Sequence[Sequence[str]]) -> Image.Image:
    """A page picture with the texts in columns."""
    picture = Image.new("RGB", (900, 400), "white")
    draw = ImageDraw.Draw(picture)
    for row, texts in enumerate(rows):
        for column, text in enumerate(texts):
            draw.text((60 + 260 * column, 60 + 70 * row), text, fill="black", font=ImageFont.load_default(32))
    return picture


@pytest.mark.parametrize("form", ["PNG", "PDF"])
def test_a_picture_of_a_table_becomes_a_table_block(parse: Parse, form: str) -> None:
    blocks = parse(f"scan.{form.lower()}", encoded(drawn(PUMPS), form)).blocks
    (table,) = [block for block in blocks if block.type is BlockType.TABLE]
    assert table.metadata["rows"] == PUMPS and table.metadata["header_rows"] == 1
    assert table.metadata["ocr"] is True and table.metadata["confidence"] > 0.9 and table.locator.bbox is not None


def test_the_authors_of_a_paper_are_no_table() -> None:
    rows = [
        ["Anna Berg", "Bo Chen", "Cara Diaz"],
        ["River Institute", "River Institute", "Harbour Lab"],
        ["Kelling", "Kelling", "Port Amsel"],
        ["a.berg@river.example", "b.chen@river.example", "c.diaz@amsel.example"],
    ]
    assert not tables(cells(rows, step=300))


def test_a_list_of_contacts_is_a_table() -> None:
    rows = [
        ["Name", "Room", "Mail"],
        ["Berg", "101", "a@r.example"],
        ["Chen", "102", "b@r.example"],
        ["Diaz", "7", "c@r.example"],
    ]
    assert grid(cells(rows)) == rows


def test_text_beside_a_figure_with_labels_is_read_before_them() -> None:
    text = prose(50, 100, 12)
    labels = [line("Figure 2", 520, 120), line("inlet", 860, 170), line("A longer label", 700, 260)]
    texts = [p.text for p in paragraphs([*labels, *text])]
    assert len(texts[0]) > 400 and "Figure 2" not in texts[0]
    assert " ".join(texts[1:]) == "Figure 2 inlet A longer label"
