"""XLSX: every cell of a large sheet, defined tables, layouts of several tables, what is hidden, what hangs on cells."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from openpyxl.comments import Comment
from openpyxl.worksheet.table import Table

from rag_cluster.domain.blocks import Block
from rag_cluster.errors import CorruptDocumentError
from rag_cluster.parsing.xlsx import regions
from tests.parsing.test_xlsx import parse, raw_sheet, saved, sheet_with, tables


def at(sheet: Any, cell: str, rows: list[list[Any]]) -> None:
    """Write rows from a cell on."""
    top, left = sheet[cell].row, sheet[cell].column
    for r, row in enumerate(rows):
        for c, value in enumerate(row):
            sheet.cell(top + r, left + c, value)


def shapes(blocks: list[Block]) -> list[tuple[str | None, int, list[str]]]:
    return [(b.locator.cell_range, b.metadata["header_rows"], b.metadata["rows"][0]) for b in blocks]


ROWS = [["site", "flow"], ["north", 1.5], ["south", 2.5]]


# -- nothing is lost --


def test_every_cell_of_a_long_sheet_is_there_with_what_it_shows(tmp_path: Path) -> None:
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("readings")
    rows = [[f"column {c}" for c in range(12)]]
    rows += [[f"r{r}c{c}" if c % 3 else str(r * c) for c in range(12)] for r in range(1, 7001)]
    for row in rows:
        sheet.append([int(v) if v.isdecimal() else v for v in row])
    read: list[list[str]] = []
    for block in tables(saved(book, tmp_path)):
        read += block.metadata["rows"][block.metadata["header_rows"] if read else 0 :]
    assert read == rows


def test_a_formula_takes_its_error_text_and_truth_value(tmp_path: Path) -> None:
    path = raw_sheet(
        tmp_path,
        '<row r="1"><c r="A1" t="str"><f>A2&amp;""</f><v>joined</v></c><c r="B1" t="e"><f>1/0</f><v>#DIV/0!</v></c>'
        '<c r="C1" t="b"><f>TRUE()</f><v>1</v></c><c r="D1" t="b"><v>0</v></c>'
        '<c r="E1" t="d"><v>2024-03-15T08:30:00</v></c></row>'
        '<row r="2"><c r="A2" t="n"><v>1E3</v></c><c r="B2"><f>{1}</f><v></v></c>'
        '<c r="C2" t="str"><v>007</v></c></row>',
    )
    assert tables(parse(path))[0].metadata["rows"] == [
        ["joined", "#DIV/0!", "TRUE", "FALSE", "2024-03-15 08:30:00"],
        ["1000", "={1}", "007", "", ""],
    ]


# -- hidden --


def test_very_hidden_sheets_and_filtered_rows_are_out(tmp_path: Path) -> None:
    book = sheet_with([["site", "flow"], ["north", 1], ["filtered", 2], ["south", 3]])
    book.active.auto_filter.ref = "A1:B4"
    book.active.row_dimensions[3].hidden = True
    book.create_sheet("vba").append(["very hidden"])
    book["vba"].sheet_state = "veryHidden"
    parsed = saved(book, tmp_path)
    assert [b.metadata["rows"] for b in parsed.blocks] == [[["site", "flow"], ["north", "1"], ["south", "3"]]]


def test_collapsed_groups_and_columns_of_no_width_are_out(tmp_path: Path) -> None:
    path = raw_sheet(
        tmp_path,
        '<row r="1"><c r="A1" t="str"><v>a</v></c><c r="B1" t="str"><v>narrow</v></c>'
        '<c r="C1" t="str"><v>c</v></c></row>'
        '<row r="2" outlineLevel="1" hidden="1"><c r="A2"><v>1</v></c></row>'
        '<row r="3" ht="0" customHeight="1"><c r="A3"><v>2</v></c></row>'
        '<row r="4" collapsed="1"><c r="A4"><v>3</v></c><c r="C4"><v>4</v></c></row>',
        extra='<cols><col min="2" max="2" width="0" customWidth="1"/></cols>',
    )
    assert tables(parse(path))[0].metadata["rows"] == [["a", "c"], ["3", "4"]]


# -- several tables --


def test_tables_side_by_side_with_one_blank_column_and_of_different_heights(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    at(book.active, "A1", ROWS)
    at(book.active, "D1", [["pump", "state"], ["P1", "on"], ["P2", "off"], ["P3", "on"]])
    assert shapes(tables(saved(book, tmp_path))) == [("A1:B3", 1, ["site", "flow"]), ("D1:E4", 1, ["pump", "state"])]


def test_tables_below_each_other_with_titles_between(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for cell, title in (("A1", "一、东区"), ("A7", "二、西区")):
        at(book.active, cell, [[title], *ROWS])
    parsed = saved(book, tmp_path)
    assert [(b.type.value, b.locator.cell_range) for b in parsed.blocks] == [
        ("text", "A1"), ("table", "A2:B4"), ("text", "A7"), ("table", "A8:B10"),
    ]  # fmt: skip


def test_a_header_of_three_rows_with_merges_across_and_down(tmp_path: Path) -> None:
    book = sheet_with(
        [
            ["地区", "2024年", None, None, None],
            [None, "上半年", None, "下半年", None],
            [None, "计划", "实际", "计划", "实际"],
            ["东区", 1, 2, 3, 4],
            ["西区", 5, 6, 7, 8],
        ]
    )
    for merged in ("A1:A3", "B1:E1", "B2:C2", "D2:E2"):
        book.active.merge_cells(merged)
    (block,) = tables(saved(book, tmp_path))
    assert block.metadata["header_rows"] == 3
    assert block.metadata["rows"][:3] == [
        ["地区", "2024年", "2024年", "2024年", "2024年"],
        ["地区", "上半年", "上半年", "下半年", "下半年"],
        ["地区", "计划", "实际", "计划", "实际"],
    ]


# -- defined tables --


def defined(book: Any, name: str, ref: str, header: bool = True) -> None:
    table = Table(displayName=name, ref=ref)
    if not header:
        table.headerRowCount = 0
    book.active.add_table(table)


def test_defined_tables_that_touch_are_two_tables(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    at(book.active, "A1", ROWS)
    at(book.active, "C1", [["pump", "state"], ["P1", "on"], ["P2", "off"]])
    at(book.active, "A4", [["tank", "level"], ["T1", 3], ["T2", 4]])
    for name, ref in (("sites", "A1:B3"), ("pumps", "C1:D3"), ("tanks", "A4:B6")):
        defined(book, name, ref)
    found = tables(saved(book, tmp_path))
    assert shapes(found) == [
        ("A1:B3", 1, ["site", "flow"]),
        ("C1:D3", 1, ["pump", "state"]),
        ("A4:B6", 1, ["tank", "level"]),
    ]
    assert [b.metadata["table"] for b in found] == ["sites", "pumps", "tanks"]


def test_a_defined_table_says_whether_it_has_a_header(tmp_path: Path) -> None:
    book = sheet_with([["north", "east"], ["south", "west"], ["up", "down"]])
    defined(book, "bare", "A1:B3", header=False)
    assert tables(saved(book, tmp_path))[0].metadata["header_rows"] == 0


def test_a_blank_row_inside_a_defined_table_does_not_end_it(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    at(book.active, "B2", ROWS)
    at(book.active, "B7", [["east", 4]])
    defined(book, "sites", "B2:C7")
    (block,) = tables(saved(book, tmp_path))
    assert block.metadata["rows"] == [["site", "flow"], ["north", "1.5"], ["south", "2.5"], ["east", "4"]]
    assert block.locator.cell_range == "B2:C7"


def test_what_stands_around_a_defined_table_stays(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    at(book.active, "A1", [["Report"], *ROWS, ["Checked by nobody"]])
    defined(book, "sites", "A2:B4")
    parsed = saved(book, tmp_path)
    assert [(b.type.value, b.locator.cell_range) for b in parsed.blocks] == [
        ("text", "A1"),
        ("table", "A2:B4"),
        ("text", "A5"),
    ]


def test_a_long_defined_table_repeats_its_header(tmp_path: Path) -> None:
    book = sheet_with([["id", "site"], *([n, f"s{n}"] for n in range(4500))])
    defined(book, "long", "A1:B4501")
    found = tables(saved(book, tmp_path))
    assert all(b.metadata["rows"][0] == ["id", "site"] and b.metadata["header_rows"] == 1 for b in found)
    assert sum(len(b.metadata["rows"]) - 1 for b in found) == 4500


# -- what hangs on cells --


def test_columns_that_a_long_sheet_fills_only_in_a_part_do_not_tear_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regions, "ROWS_PER_TABLE", 20)
    book = openpyxl.Workbook()
    sheet = book.active
    at(sheet, "A1", [["order", "customer", "discount", "note", "amount", "region"]])
    for n in range(2, 61):
        at(sheet, f"A{n}", [[f"N{n}", f"C{n}", *(["10 %", "urgent"] if n < 25 else [None, None]), n, "east"]])
    at(sheet, "G50", [["late remark"]])
    at(sheet, "J1", [["code", "site"]] + [[f"k{n}", f"site {n}"] for n in range(2, 31)])
    found = tables(saved(book, tmp_path))
    assert [block.locator.cell_range for block in found] == [
        "A1:F20", "J1:K20", "A21:F40", "J21:K30", "A41:G60",
    ]  # fmt: skip
    header = ["order", "customer", "discount", "note", "amount", "region"]
    assert [block.metadata["rows"][0] for block in found] == [
        header, ["code", "site"], header, ["code", "site"], [*header, ""],
    ]  # fmt: skip
    assert found[2].metadata["rows"][20] == ["N40", "C40", "", "", "40", "east"]
    assert found[4].metadata["rows"][10] == ["N50", "C50", "", "", "50", "east", "late remark"]


def test_links_show_their_text_and_notes_are_out(tmp_path: Path) -> None:
    book = sheet_with([["site", "page"], ["north", "see here"], ["south", "none"]])
    book.active["B2"].hyperlink = "http://example.org/north"
    book.active["A2"].comment = Comment("check this", "me")
    parsed = saved(book, tmp_path)
    assert [b.metadata["rows"] for b in parsed.blocks] == [[["site", "page"], ["north", "see here"], ["south", "none"]]]


@pytest.mark.parametrize("dimension", ["A1", "A1:B1", "C5:D6", "nonsense", ""])
def test_a_wrong_dimension_hides_nothing(tmp_path: Path, dimension: str) -> None:
    rows = "".join(
        f'<row r="{r}"><c r="A{r}" t="str"><v>x{r}</v></c><c r="B{r}"><v>{r}</v></c></row>' for r in range(1, 9)
    )
    path = raw_sheet(tmp_path, rows, extra=f'<dimension ref="{dimension}"/>')
    assert len(tables(parse(path))[0].metadata["rows"]) == 8


def with_strings(path: Path, target: Path, strings: str) -> Path:
    """A copy of a workbook with a table of shared strings."""
    link = (
        '<Relationship Id="sst" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/'
        'sharedStrings" Target="sharedStrings.xml"/></Relationships>'
    )
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "xl/_rels/workbook.xml.rels":
                content = content.replace(b"</Relationships>", link.encode())
            if name != "xl/sharedStrings.xml":
                new.writestr(name, content)
        new.writestr("xl/sharedStrings.xml", strings)
    return target


SPACE = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"


def test_strings_of_the_shared_table_keep_runs_breaks_and_spaces(tmp_path: Path) -> None:
    cells = "".join(f'<c r="{column}1" t="s"><v>{index}</v></c>' for index, column in enumerate("ABC"))
    path = raw_sheet(tmp_path, f'<row r="1">{cells}</row><row r="2"><c r="A2"><v>1</v></c></row>')
    strings = (
        f'<sst xmlns="{SPACE}"><si><r><rPr><b/></rPr><t xml:space="preserve">bold </t></r><r><t>and\nplain</t></r></si>'
        "<si><r><t>km</t></r><r><rPr><vertAlign val='superscript'/></rPr><t>2</t></r></si>"
        "<si><t>東京</t><rPh sb='0' eb='2'><t>トウキョウ</t></rPh></si></sst>"
    )
    parsed = parse(with_strings(path, tmp_path / "shared.xlsx", strings))
    assert tables(parsed)[0].metadata["rows"][0] == ["bold and\nplain", "km²", "東京"]


def test_figures_without_their_labels_mislead_so_that_broken_strings_are_a_corrupt_document(tmp_path: Path) -> None:
    path = raw_sheet(tmp_path, '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1"><v>7</v></c></row>')
    with pytest.raises(CorruptDocumentError):
        parse(with_strings(path, tmp_path / "broken.xlsx", f'<sst xmlns="{SPACE}"><si><t>flow'))
