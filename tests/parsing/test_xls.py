"""Binary workbooks: dates, merges, hidden sheets, formulas, booleans, damage."""

from __future__ import annotations

import datetime as dt
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rag_cluster.domain.blocks import DocumentSource, ParsedDocument
from rag_cluster.errors import CorruptDocumentError, UnsupportedDocumentTypeError
from rag_cluster.parsing.isolation import IsolatedParser
from rag_cluster.parsing.xls import XlsParser
from tests.parsing.conftest import MakeSource
from tests.parsing.test_detection import ole

CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus" / "office" / "files"


def workbook(path: Path) -> None:
    """An XLSX with everything that the tests look for."""
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Costs"
    sheet.append(["Item", "Price", "Share", "Day", "Time", "Stamp", "Flag", "Formula", "Elapsed", "Error"])
    sheet.append(["bolt", 1234.5, 0.153, dt.date(2024, 3, 1), dt.time(14, 30), dt.datetime(2024, 3, 1, 8, 15), True,
                  "=B2*2", dt.timedelta(hours=30), "=1/0"])  # fmt: skip
    sheet.append(["nut", 7, 0.5, dt.date(2024, 12, 31), None, None, False, "=SUM(B2:B3)", None, None])
    sheet["B2"].number_format, sheet["C2"].number_format = '#,##0.00 "€"', "0.0%"
    sheet.merge_cells("A5:C5")
    sheet["A5"] = "merged title"
    sheet.merge_cells("A6:A7")
    sheet["A6"], sheet["B6"], sheet["B7"] = "tall", "x", "y"
    hidden = book.create_sheet("Hidden")
    hidden.append(["secret"])
    hidden.sheet_state = "hidden"
    book.create_sheet("中文表").append(["名称", "值"])
    book["中文表"].append(["岸桥", 3])
    book.save(str(path))


@pytest.fixture(scope="module")
def xls(tmp_path_factory: pytest.TempPathFactory) -> ParsedDocument:
    if not shutil.which("soffice"):
        pytest.skip("LibreOffice makes the file, and is not installed")
    folder = tmp_path_factory.mktemp("xls")
    workbook(folder / "book.xlsx")
    command = ["soffice", "--headless", f"-env:UserInstallation={(folder / 'profile').as_uri()}", "--convert-to", "xls"]
    subprocess.run([*command, "--outdir", str(folder), str(folder / "book.xlsx")], check=True, capture_output=True)
    with IsolatedParser() as parser:
        return parser.parse(DocumentSource("document", 1, "book.xls", str(folder / "book.xls")))


def rows(document: ParsedDocument, sheet: str) -> list[list[str]]:
    return next(b.metadata["rows"] for b in document.blocks if b.locator.sheet == sheet and "rows" in b.metadata)


def test_dates_times_booleans_and_stored_values_read_as_in_xlsx(xls: ParsedDocument) -> None:
    assert rows(xls, "Costs")[1][:9] == [
        "bolt", "1234.5", "0.153", "2024-03-01", "14:30:00", "2024-03-01 08:15:00", "TRUE", "2469", "30:00:00",
    ]  # fmt: skip
    assert rows(xls, "Costs")[2][:8] == ["nut", "7", "0.5", "2024-12-31", "", "", "FALSE", "1241.5"]


def test_merged_cells_stand_in_every_cell_that_they_cover(xls: ParsedDocument) -> None:
    title = next(block for block in xls.blocks if block.content == "merged title")
    assert title.locator.cell_range == "A5:C5"
    tall = next(block for block in xls.blocks if "tall" in block.content)
    assert (tall.metadata["rows"], tall.locator.cell_range) == ([["tall", "x"], ["tall", "y"]], "A6:B7")


def test_hidden_sheets_are_out_and_names_of_any_script_open_sections(xls: ParsedDocument) -> None:
    assert not any("secret" in block.content for block in xls.blocks)
    assert rows(xls, "中文表") == [["名称", "值"], ["岸桥", "3"]]
    assert xls.metadata["sheets"] == ["Costs", "中文表"]


def test_a_real_file_of_excel_97(make_source: MakeSource) -> None:
    path = CORPUS / "legacy_excel97.xlsx"
    if not path.exists():
        pytest.skip("the corpus is not here")
    with IsolatedParser() as parser:
        document = parser.parse(make_source("book.xls", path.read_bytes()))
    assert rows(document, "Sheet Number 2") == [["cb=1", "cb=10", "cb=2", "cb=sum"], ["1", "10", "2", "13"]]


def test_damage_is_a_named_error(make_source: MakeSource, parse: Callable[..., ParsedDocument]) -> None:
    with pytest.raises(CorruptDocumentError, match="workbook"):
        parse("a.xls", ole("Root Entry", "Workbook"))


def test_a_workbook_of_the_wrong_generation_is_refused(make_source: MakeSource, tmp_path: Path) -> None:
    workbook(tmp_path / "book.xlsx")
    with IsolatedParser() as parser:
        for name, content in (("a.xls", (tmp_path / "book.xlsx").read_bytes()), ("a.xlsx", ole("Workbook"))):
            with pytest.raises(UnsupportedDocumentTypeError, match="content is"):
                parser.parse(make_source(name, content))


def test_a_panic_inside_calamine_is_a_corrupt_document_and_other_exits_are_not_held(
    make_source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    import python_calamine

    class PanicException(BaseException):
        """As pyo3 names what a panic of Rust becomes."""

    class Workbook:
        raised: type[BaseException] = PanicException

        @classmethod
        def from_path(cls, path: str) -> None:
            raise cls.raised("range end index 64 out of range")

    monkeypatch.setattr(python_calamine, "CalamineWorkbook", Workbook)
    source = make_source("panic.xls", b"\xd0\xcf\x11\xe0")
    with pytest.raises(CorruptDocumentError, match="out of range"):
        XlsParser().parse(source)
    Workbook.raised = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        XlsParser().parse(source)
