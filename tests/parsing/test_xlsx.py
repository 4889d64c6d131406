"""XLSX: cells as displayed, tables where a person sees them, every block with its sheet and cells."""

from __future__ import annotations

import datetime as dt
import io
import zipfile
from pathlib import Path

import openpyxl
import pytest
from openpyxl.chart import BarChart, Reference
from openpyxl.comments import Comment
from openpyxl.drawing.image import Image as SheetImage
from openpyxl.styles import Font
from PIL import Image

from rag_cluster.domain.blocks import BlockType, DocumentSource, ParsedDocument
from rag_cluster.errors import CorruptDocumentError, DocumentTooLargeError, EmptyDocumentError
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.parsing.number_format import NumberFormat
from rag_cluster.parsing.xlsx import XlsxParser
from rag_cluster.parsing.xlsx.regions import ROWS_PER_TABLE


def parse(path: Path, limits: ParseLimits = ParseLimits()) -> ParsedDocument:
    return XlsxParser(limits=limits).parse(DocumentSource("doc", 1, path.name, str(path)))


def saved(book: openpyxl.Workbook, tmp_path: Path) -> ParsedDocument:
    path = tmp_path / "made.xlsx"
    book.save(path)
    return parse(path)


def tables(parsed: ParsedDocument):
    return [block for block in parsed.blocks if block.type is BlockType.TABLE]


def sheet_with(rows, book: openpyxl.Workbook | None = None):
    book = book or openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    return book


def raw_sheet(tmp_path: Path, sheet_data: str, extra: str = "") -> Path:
    """A workbook whose sheet XML is written by hand."""
    book = openpyxl.Workbook()
    book.active["A1"] = "x"
    book.save(tmp_path / "plain.xlsx")
    path = tmp_path / "raw.xlsx"
    with zipfile.ZipFile(tmp_path / "plain.xlsx") as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "xl/worksheets/sheet1.xml":
                space = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
                content = f'<worksheet xmlns="{space}">{extra}<sheetData>{sheet_data}</sheetData></worksheet>'.encode()
            new.writestr(name, content)
    return path


@pytest.mark.parametrize(
    ("code", "raw", "shown"),
    [
        ("0.0%", "0.965", "96.5%"),
        ('"¥"#,##0.00', "1234.5", "¥1,234.50"),
        ("[$€-407]#,##0.00", "-1234.5", "-€1,234.50"),
        ("#,##0;(#,##0)", "-1234", "(1,234)"),
        ('_(* #,##0.00_);_(* (#,##0.00);_(* "-"??_);_(@_)', "0", "-"),
        ("General", "1.2010000000000001", "1.201"),
        ("General", "17.0", "17"),
        ("General", "1E-3", "0.001"),
        ("0.00E+00", "12345", "1.23E+04"),
        ("# ?/?", "1.5", "1 1/2"),
        ("000-0000", "1234567", "123-4567"),
        ("yyyy/m/d", "45366", "2024-03-15"),
        ('yyyy"年"m"月"d"日"', "45366", "2024-03-15"),
        ("m/d/yy h:mm", "41224.99999", "2012-11-11 23:59:59"),
        ("h:mm AM/PM", "0.75", "18:00:00"),
        ("[h]:mm", "1.5", "36:00"),
        ("[<=9999999]###-####;(###) ###-####", "5551234567", "(555) 123-4567"),
        ("General;[Red]-General", "-5", "-5"),
        ('0" units"', "12", "12 units"),
        ("0", "no number", "no number"),
    ],
)  # fmt: skip
def test_numbers_read_as_displayed_and_dates_as_iso(code, raw, shown):
    assert NumberFormat(code).display(raw) == shown


def test_values_of_all_types_read_as_a_person_reads_them(tmp_path):
    book = sheet_with([["k", "v"], ["int", 3], ["float", 2.5], ["bool", True], ["date", dt.date(2024, 3, 15)]])
    book.active.append(["time", dt.datetime(2024, 3, 15, 8, 30)])
    book.active.append(["error", "#DIV/0!"])
    rows = dict(tables(saved(book, tmp_path))[0].metadata["rows"])
    assert rows == {"k": "v", "int": "3", "float": "2.5", "bool": "TRUE", "date": "2024-03-15",
                    "time": "2024-03-15 08:30:00", "error": "#DIV/0!"}  # fmt: skip


def test_the_1904_date_system_is_respected(tmp_path):
    book = sheet_with([["day", "n"], [dt.date(2021, 1, 1), 1]])
    book.epoch = openpyxl.utils.datetime.CALENDAR_MAC_1904
    assert tables(saved(book, tmp_path))[0].metadata["rows"][1][0] == "2021-01-01"


def test_a_formula_shows_its_stored_value_or_itself(tmp_path):
    path = raw_sheet(
        tmp_path,
        '<row r="1"><c r="A1"><f>1+1</f><v>2</v></c><c r="B1"><f>SUM(A1:A9)</f></c></row>'
        '<row r="2"><c r="A2"><f t="shared" si="0" ref="A2:A3">B2*2</f></c><c r="B2"><v>1</v></c></row>'
        '<row r="3"><c r="A3"><f t="shared" si="0"/></c><c r="B3"><v>1</v></c></row>',
    )
    parsed = parse(path)
    assert tables(parsed)[0].metadata["rows"] == [["2", "=SUM(A1:A9)"], ["=B2*2", "1"], ["=B3*2", "1"]]
    assert parsed.warnings == ("3 formulas without a stored value in 'Sheet'",)


def test_inline_rich_and_phonetic_strings_and_missing_references_are_read(tmp_path):
    path = raw_sheet(
        tmp_path,
        '<row><c t="inlineStr"><is><r><t>rich </t></r><r><t>text</t></r><rPh><t>ruby</t></rPh></is></c>'
        '<c t="str"><v>a_x000D_b</v></c></row><row><c><v>1</v></c><c><v>2</v></c></row>',
        extra='<dimension ref="A1:XFD1048576"/>',
    )
    block = tables(parse(path))[0]
    assert block.metadata["rows"] == [["rich text", "a\rb"], ["1", "2"]]
    assert block.locator.cell_range == "A1:B2"


def test_merged_cells_fill_the_grid_and_make_a_header_of_two_rows(tmp_path):
    book = sheet_with([["产品", "上半年", None], [None, "计划", "实际"], ["水泵", 1200, 1315.5]])
    book.active.merge_cells("A1:A2")
    book.active.merge_cells("B1:C1")
    block = tables(saved(book, tmp_path))[0]
    assert block.metadata["rows"][:2] == [["产品", "上半年", "上半年"], ["产品", "计划", "实际"]]
    assert block.metadata["header_rows"] == 2


def test_hidden_sheets_rows_columns_and_comments_are_out(tmp_path):
    book = sheet_with([["a", "secret", "c"], [1, 2, 3], [4, 5, 6], [7, 8, 9]])
    sheet = book.active
    sheet.column_dimensions["B"].hidden = True
    sheet.row_dimensions[3].hidden = True
    sheet["A1"].comment = Comment("please check", "me")
    book.create_sheet("draft").append(["draft"])
    book["draft"].sheet_state = "hidden"
    parsed = saved(book, tmp_path)
    (block,) = parsed.blocks
    assert block.metadata["rows"] == [["a", "c"], ["1", "3"], ["7", "9"]]
    assert block.locator.cell_range == "A1:C4"
    assert parsed.metadata["sheets"] == ["Sheet"]


def test_tables_side_by_side_and_below_each_other_are_separate(tmp_path):
    book = openpyxl.Workbook()
    sheet = book.active
    for top, left, name in ((1, 1, "a"), (1, 6, "b"), (8, 2, "c")):
        for row in range(3):
            for column in range(3):
                sheet.cell(top + row, left + column, f"{name}{column}" if row == 0 else row * column)
    found = {b.metadata["rows"][0][0]: b.locator.cell_range for b in tables(saved(book, tmp_path))}
    assert found == {"a0": "A1:C3", "b0": "F1:H3", "c0": "B8:D10"}


def test_titles_notes_and_stray_cells_are_text_with_their_cells(tmp_path):
    book = sheet_with([["Sales 2024", None], ["item", "sum"], ["pump", 3], ["(a) provisional", None]])
    book.active["H20"] = "made by office"
    parsed = saved(book, tmp_path)
    found = [(b.type.value, b.locator.cell_range) for b in parsed.blocks]
    assert found == [("text", "A1"), ("table", "A2:B3"), ("text", "A4"), ("text", "H20")]


def test_figures_under_a_blank_row_keep_their_header(tmp_path):
    book = sheet_with(
        [["In millions", "2023", "2022"], [None, "sales", "sales"], [], ["Zone A", 12.5, 13], ["Zone B", 9, 8]]
    )
    block = tables(saved(book, tmp_path))[0]
    assert (block.metadata["header_rows"], len(block.metadata["rows"])) == (2, 4)


def test_a_bold_row_of_years_is_a_header(tmp_path):
    book = sheet_with([["", 2019, 2020], ["ducks", 120, 80], ["geese", 10, 8]])
    for cell in book.active[1]:
        cell.font = Font(bold=True)
    assert tables(saved(book, tmp_path))[0].metadata["header_rows"] == 1


def test_a_named_sheet_opens_a_section_and_a_default_name_does_not(tmp_path):
    book = sheet_with([["a", "b"], [1, 2]])
    book.create_sheet("价格表").append(["DN50", 3])
    parsed = saved(book, tmp_path)
    assert [b.locator.heading_path for b in tables(parsed)] == [(), ("价格表",)]
    assert {b.locator.sheet for b in parsed.blocks} == {"Sheet", "价格表"}


def test_long_tables_are_split_with_their_header_repeated(tmp_path):
    count = ROWS_PER_TABLE * 2 + 10
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("events")
    sheet.append(["id", "site"])
    for number in range(count):
        sheet.append([number, f"site-{number % 7}"])
    found = tables(saved(book, tmp_path))
    assert len(found) == 3
    assert all(b.metadata["rows"][0] == ["id", "site"] and b.metadata["header_rows"] == 1 for b in found)
    assert sum(len(b.metadata["rows"]) - 1 for b in found) == count
    assert found[-1].locator.cell_range == f"A{2 * ROWS_PER_TABLE + 1}:B{count + 1}"


def test_charts_give_titles_and_pictures_become_assets_at_their_cell(tmp_path):
    book = sheet_with([["year", "ducks"], [2019, 120], [2020, 80]])
    chart = BarChart()
    chart.title = "Ducks by year"
    chart.add_data(Reference(book.active, min_col=2, min_row=1, max_row=3), titles_from_data=True)
    book.active.add_chart(chart, "E2")
    stream = io.BytesIO()
    Image.new("RGB", (50, 50), "blue").save(stream, "PNG")
    book.active.add_image(SheetImage(stream), "C5")
    parsed = saved(book, tmp_path)
    chart_block = next(b for b in parsed.blocks if b.metadata.get("role") == "chart")
    image = next(b for b in parsed.blocks if b.type is BlockType.IMAGE)
    assert "Ducks by year" in chart_block.content
    assert (image.locator.cell_range, len(parsed.assets)) == ("C5", 1)


def test_a_chart_sheet_shows_its_title(tmp_path):
    book = sheet_with([["year", "ducks"], [2019, 120]])
    chart = BarChart()
    chart.title = "On its own sheet"
    chart.add_data(Reference(book.active, min_col=2, min_row=1, max_row=2), titles_from_data=True)
    book.create_chartsheet("Graph").add_chart(chart)
    assert any("On its own sheet" in b.content and b.locator.sheet == "Graph" for b in saved(book, tmp_path).blocks)


def test_strict_workbooks_read_like_transitional_ones(tmp_path):
    sheet_with([["a", "b"], ["x", 1.5]]).save(tmp_path / "usual.xlsx")
    with zipfile.ZipFile(tmp_path / "usual.xlsx") as old, zipfile.ZipFile(tmp_path / "strict.xlsx", "w") as new:
        for name in old.namelist():
            content = old.read(name)
            for kind in (b"spreadsheetml", b"officeDocument"):
                usual = b"http://schemas.openxmlformats.org/" + kind + b"/2006/"
                content = content.replace(usual, b"http://purl.oclc.org/ooxml/" + kind + b"/")
            new.writestr(name, content)
    assert tables(parse(tmp_path / "strict.xlsx"))[0].metadata["rows"] == [["a", "b"], ["x", "1.5"]]


def test_scattered_cells_and_huge_merges_do_not_blow_up_the_grid(tmp_path):
    cells = "".join(
        f'<row r="{n}"><c r="{openpyxl.utils.get_column_letter(n * 3)}{n}" t="str"><v>v{n}</v></c></row>'
        for n in range(1, 2000)
    )
    path = raw_sheet(tmp_path, cells + '<row r="2100"><c r="A2100" t="str"><v>wide</v></c></row>')
    parsed = parse(path)
    assert sum(len(b.content) for b in parsed.blocks) < 100_000
    assert parsed.blocks[-1].content == "wide"


def test_empty_damaged_and_oversized_workbooks_have_their_own_errors(tmp_path):
    path = tmp_path / "empty.xlsx"
    openpyxl.Workbook().save(path)
    with pytest.raises(EmptyDocumentError):
        parse(path)
    with pytest.raises(DocumentTooLargeError):
        parse(path, ParseLimits(max_expanded_bytes=100))
    (tmp_path / "cut.xlsx").write_bytes(path.read_bytes()[:-300])
    with pytest.raises(CorruptDocumentError):
        parse(tmp_path / "cut.xlsx")
    with pytest.raises(CorruptDocumentError):
        parse(raw_sheet(tmp_path, '<row r="1"><c r="A1"><v>1</v></row>'))
