"""PDF: a structure tree that is sane and complete says what is read when, and as what; otherwise the page does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rag_cluster.domain.blocks import Block, BlockType, DocumentSource, ParsedDocument
from rag_cluster.parsing.pdf import PdfParser
from tests.parsing.pdf_pages import HEIGHT, PROSE, photo, wrap
from tests.parsing.tagged_pages import Tag, TaggedSheet

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


def prose(sheet: TaggedSheet, x: float, top: float, width: float, text: str = PROSE) -> list[int]:
    return [sheet.mark(x, top + 12 * i, line) for i, line in enumerate(wrap(text, width))]


def test_headings_of_the_tree_need_not_look_like_headings(parse: Parse) -> None:
    sheet = TaggedSheet()
    first = sheet.mark(72, 60, "The river and its gauges")
    body = prose(sheet, 72, 80, 450)
    second = sheet.mark(72, 160, "The old bridge")
    rest = prose(sheet, 72, 180, 450)
    document = parse(sheet.tagged(Tag("H1", [first]), Tag("P", body), Tag("H3", [second]), Tag("P", rest)))
    headings = of(document, BlockType.HEADING)
    assert [(h.content, h.metadata["level"]) for h in headings] == [
        ("The river and its gauges", 1),
        ("The old bridge", 3),
    ]
    assert document.blocks[-1].locator.heading_path == ("The river and its gauges", "The old bridge")


def test_the_order_of_reading_is_that_of_the_tree(parse: Parse) -> None:
    sheet = TaggedSheet()
    boxes = {name: prose(sheet, x, top, 200, f"{name} {PROSE}") for name, x, top in
             [("SECOND", 72, 60), ("FIRST", 310, 60), ("THIRD", 72, 400), ("FOURTH", 310, 400)]}  # fmt: skip
    names = ["FIRST", "SECOND", "THIRD", "FOURTH"]
    document = parse(sheet.tagged(*(Tag("P", boxes[name]) for name in names)))
    assert [block.content.split()[0] for block in document.blocks] == names


def test_a_paragraph_of_the_tree_is_one_block_though_it_looks_like_two(parse: Parse) -> None:
    sheet = TaggedSheet()
    lines = [sheet.mark(72, 60, "The keeper writes down the height."), sheet.mark(90, 90, "Then he goes home.")]
    other = prose(sheet, 72, 130, 450)
    document = parse(sheet.tagged(Tag("P", lines), Tag("P", other)))
    assert [b.content for b in document.blocks] == [
        "The keeper writes down the height. Then he goes home.",
        PROSE.strip(),
    ]


def test_lists_of_the_tree_have_their_nesting_and_whole_items(parse: Parse) -> None:
    sheet = TaggedSheet()
    intro = prose(sheet, 72, 60, 450)

    def item(x: float, top: float, marker: str, *lines: str) -> Tag:
        label = sheet.mark(x, top, marker)
        body = [sheet.mark(x + 12, top + 12 * i, line) for i, line in enumerate(lines)]
        return Tag("LI", [Tag("Lbl", [label]), Tag("LBody", [Tag("P", body)])])

    first = item(90, 130, "•", "Bring the gauge book.", "And a pencil, as the ink may freeze.")
    inner = item(120, 160, "–", "Read the lower mark.")
    second = item(90, 175, "•", "Write it down.")
    document = parse(sheet.tagged(Tag("P", intro), Tag("L", [first, Tag("L", [inner]), second])))
    items = of(document, BlockType.LIST)
    assert [(i.content, i.metadata["marker"], i.metadata["level"]) for i in items] == [
        ("Bring the gauge book. And a pencil, as the ink may freeze.", "•", 0),
        ("Read the lower mark.", "–", 1),
        ("Write it down.", "•", 0),
    ]


def cell(
    sheet: TaggedSheet, x: float, top: float, *lines: str, role: str = "TD", columns: int = 1, rows: int = 1
) -> Tag:
    marks = [sheet.mark(x, top + 11 * i, line, 9) for i, line in enumerate(lines) if line]
    return Tag(role, [Tag("P", marks)] if marks else [], columns=columns, rows=rows)


def test_a_table_of_the_tree_has_its_spans_and_headers_without_any_rule(parse: Parse) -> None:
    sheet = TaggedSheet()
    before = prose(sheet, 72, 60, 450)
    rows = [
        Tag("TR", [cell(sheet, 72, 130, "Gauge", role="TH", rows=2),
                   cell(sheet, 240, 130, "Height", role="TH", columns=2)]),
        Tag("TR", [cell(sheet, 220, 150, "low", role="TH"), cell(sheet, 320, 150, "high", role="TH")]),
        Tag("TR", [cell(sheet, 72, 170, "The old bridge, read", "by the keeper"), cell(sheet, 220, 170, "0.3"),
                   cell(sheet, 320, 170, "")]),
        Tag("TR", [cell(sheet, 72, 200, "Mill"), cell(sheet, 220, 200, "0.1"), cell(sheet, 320, 200, "1.9")]),
    ]  # fmt: skip
    after = prose(sheet, 72, 230, 450)
    document = parse(sheet.tagged(Tag("P", before), Tag("Table", rows), Tag("P", after)))
    (table,) = of(document, BlockType.TABLE)
    assert table.metadata["rows"] == [
        ["Gauge", "Height", "Height"],
        ["Gauge", "low", "high"],
        ["The old bridge, read by the keeper", "0.3", ""],
        ["Mill", "0.1", "1.9"],
    ]
    assert table.metadata["header_rows"] == 2
    assert [b.type for b in document.blocks] == [BlockType.TEXT, BlockType.TABLE, BlockType.TEXT]


def test_a_table_of_the_tree_whose_rows_are_not_equally_long_is_left_to_the_eye(parse: Parse) -> None:
    sheet = TaggedSheet()
    sheet.grid(68, 126, [100, 100, 100], 20, 3)
    texts = [[f"R{r}C{c}" for c in range(3)] for r in range(3)]
    rows = [Tag("TR", [cell(sheet, 72 + 100 * c, 130 + 20 * r, texts[r][c]) for c in range(3)]) for r in range(3)]
    rows[1] = Tag("TR", list(rows[1].kids)[:2])
    after = prose(sheet, 72, 230, 450)
    (table,) = of(parse(sheet.tagged(Tag("Table", rows), Tag("P", after))), BlockType.TABLE)
    assert table.metadata["rows"] == texts


def test_alternative_text_is_the_caption_of_a_picture(parse: Parse) -> None:
    sheet = TaggedSheet()
    body = prose(sheet, 72, 60, 450)
    with sheet.marked("Figure") as picture:
        sheet.canvas.drawImage(photo(), 150, HEIGHT - 350, 200, 150)
    document = parse(sheet.tagged(Tag("P", body), Tag("Figure", [picture], alternative="The bridge in spring")))
    (image,) = of(document, BlockType.IMAGE)
    assert image.metadata["caption"] == "The bridge in spring"
    assert image.content.startswith("![The bridge in spring](asset://")


def test_actual_text_stands_for_what_is_drawn(parse: Parse) -> None:
    sheet = TaggedSheet()
    before = sheet.mark(72, 60, "The gauge at the")
    drawn = sheet.mark(145, 60, "0ld br1dge")
    after = sheet.mark(195, 60, "is read twice a day.")
    rest = prose(sheet, 72, 90, 450)
    document = parse(sheet.tagged(Tag("P", [before, Tag("Span", [drawn], actual="old bridge"), after]), Tag("P", rest)))
    assert document.blocks[0].content == "The gauge at the old bridge is read twice a day."


def test_a_tree_that_holds_only_a_part_of_the_page_is_not_followed(parse: Parse) -> None:
    sheet = TaggedSheet()
    second = prose(sheet, 310, 60, 200, "RIGHT " + PROSE)
    sheet.prose(72, 60, 200, "LEFT " + PROSE)
    document = parse(sheet.tagged(Tag("P", second[:4]), Tag("P", second[4:])))
    assert [block.content.split()[0] for block in document.blocks] == ["LEFT", "RIGHT"]


def test_a_tree_that_has_every_line_as_a_paragraph_is_not_followed(parse: Parse) -> None:
    sheet = TaggedSheet()
    lines = prose(sheet, 72, 60, 300, PROSE * 2)
    document = parse(sheet.tagged(*(Tag("P", [line]) for line in lines)))
    assert [block.content for block in document.blocks] == [(PROSE * 2).strip()]


def test_a_tree_that_runs_against_the_page_is_not_followed(parse: Parse) -> None:
    sheet = TaggedSheet()
    pieces = [prose(sheet, 72, 60 + 90 * n, 450, f"Part{n} {PROSE}") for n in range(6)]
    document = parse(sheet.tagged(*(Tag("P", piece) for piece in reversed(pieces))))
    assert [block.content.split()[0] for block in document.blocks] == [f"Part{n}" for n in range(6)]


def test_a_tree_that_refers_to_itself_ends(parse: Parse) -> None:
    sheet = TaggedSheet()
    body = prose(sheet, 72, 60, 450)
    inner = Tag("P", body)
    content = sheet.tagged(Tag("Div", [inner]), Tag("P", []))
    loop = content.replace(f"/K [{' '.join(map(str, body))}]".encode(), f"/K [{inner.number - 1} 0 R 0 1 2]".encode())
    assert parse(loop).blocks
