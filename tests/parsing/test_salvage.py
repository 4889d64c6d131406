"""One page that breaks the parser costs that page and a warning, not the document."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rag_cluster.domain.blocks import DocumentSource, ParsedDocument
from rag_cluster.errors import DocumentTooLargeError, ParseCrashError, ParseTimeoutError
from rag_cluster.parsing.isolation import IsolatedParser
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.parsing.ocr import OcrMode
from tests.parsing.conftest import MakeSource
from tests.parsing.pdf_pages import Sheet

PARSERS = {
    ".paged": "tests.parsing.poison:Paged",
    ".pdf": "tests.parsing.poison:PoisonedPdf",
    ".pptx": "tests.parsing.poison:PoisonedPptx",
    ".tiff": "tests.parsing.poison:PoisonedTiff",
}
LIMITS = ParseLimits(timeout=30, page_timeout=2.0, memory_bytes=1 << 29)
Paged = Callable[..., DocumentSource]


def parsed(source: DocumentSource, limits: ParseLimits = LIMITS) -> ParsedDocument:
    with IsolatedParser(limits, ocr=OcrMode.OFF, parsers=PARSERS) as parser:
        return parser.parse(source)


def pages(document: ParsedDocument) -> list[int | None]:
    return [block.locator.page for block in document.blocks]


@pytest.fixture
def paged(make_source: MakeSource, tmp_path: Path) -> Paged:
    def make(count: int, **plan: Any) -> DocumentSource:
        return make_source("a.paged", json.dumps({"pages": count, "log": str(tmp_path / "log"), **plan}))

    return make


@pytest.fixture
def parses(tmp_path: Path) -> Callable[[], int]:
    return lambda: len((tmp_path / "log").read_text().splitlines())


def test_a_page_that_crashes_three_times_is_left_out_with_a_warning(paged: Paged, parses: Callable[[], int]) -> None:
    document = parsed(paged(9, bad={"3": "crash"}))
    assert pages(document) == [1, 2, 4, 5, 6, 7, 8, 9]
    assert document.warnings == ("Page 3 was left out: the parser process died on it (SIGSEGV)",)
    assert document.metadata["pages_left_out"] == [3]
    assert parses() == 3 + 1


def test_several_poison_pages_of_several_kinds_are_left_out(paged: Paged) -> None:
    document = parsed(paged(40, bad={"1": "crash", "17": "hang", "30": "hog", "31": "leak", "40": "raise"}))
    assert (
        sorted(set(range(1, 41)) - set(pages(document))) == [1, 17, 30, 31, 40] == document.metadata["pages_left_out"]
    )
    one, seventeen, thirty, next_, last = document.warnings
    assert "died" in one and "took more than 2 s" in seventeen and "memory" in thirty and "memory" in next_
    assert "KeyError" in last


def test_a_page_that_breaks_what_comes_after_the_pages_is_found_by_halving(
    paged: Paged, parses: Callable[[], int]
) -> None:
    document = parsed(paged(16, late=[11]))
    assert 11 not in pages(document) and len(pages(document)) == 15
    assert document.warnings == ("Page 11 was left out: the parser process died on it (SIGSEGV)",)
    # Three deaths of the whole; a harmless half and three deaths of the other at most, four times; the rest at last.
    assert parses() <= 3 + 4 * 4 + 1


def test_pages_that_break_the_parser_only_together_cost_the_document(paged: Paged, parses: Callable[[], int]) -> None:
    with pytest.raises(ParseCrashError, match="SIGSEGV"):
        parsed(paged(8, late=[2, 7]))
    assert parses() == 3 + 2


def test_a_document_of_nothing_but_poison_fails_as_it_did_at_first(
    paged: Paged, parses: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag_cluster.parsing.salvage.MAX_PAGES_LOST", 2)
    with pytest.raises(ParseCrashError, match="SIGSEGV"):
        parsed(paged(30, bad=dict.fromkeys(map(str, range(1, 31)), "crash")))
    assert parses() == 3 + 2 * 3


def test_a_document_whose_other_pages_hold_nothing_fails_for_its_poison(paged: Paged) -> None:
    with pytest.raises(ParseCrashError):
        parsed(paged(3, bad={"2": "crash"}, blank=[1, 3]))


def test_a_document_of_one_page_has_nothing_to_save(paged: Paged, parses: Callable[[], int]) -> None:
    with pytest.raises(ParseCrashError):
        parsed(paged(1, bad={"1": "crash"}))
    assert parses() == 3


def test_a_parser_that_announces_no_pages_is_not_searched(paged: Paged, parses: Callable[[], int]) -> None:
    with pytest.raises(ParseCrashError):
        parsed(paged(9, bad={"3": "crash"}, unmarked=True))
    assert parses() == 3


def test_memory_that_many_pages_use_up_together_is_no_single_pages_fault(
    paged: Paged, parses: Callable[[], int]
) -> None:
    # Without its predecessors the page at which memory ran out is harmless.
    with pytest.raises(DocumentTooLargeError, match="memory"):
        parsed(paged(6, grow=150_000_000))
    assert parses() == 2


def test_a_long_document_whose_time_runs_out_is_not_searched(paged: Paged, parses: Callable[[], int]) -> None:
    limits = ParseLimits(timeout=4)
    with IsolatedParser(limits, parsers=PARSERS) as parser:
        parser.parse(paged(1))  # warm
        with pytest.raises(ParseTimeoutError, match=r"Parsing .* more than 4 s"):
            parser.parse(paged(100, seconds=0.05))
    assert parses() <= 1 + 2  # a try may end before its child has begun


def test_a_hanging_page_does_not_cost_the_documents_time(paged: Paged) -> None:
    started = time.monotonic()
    document = parsed(paged(5, bad={"2": "hang"}), ParseLimits(timeout=600, page_timeout=0.5))
    assert pages(document) == [1, 3, 4, 5]
    assert time.monotonic() - started < 120  # of 600; a busy machine takes its time


def test_the_search_ends_with_its_time(
    paged: Paged, parses: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag_cluster.parsing.salvage.MAX_TIMEOUTS", 0.5)
    # Of 30 pages that each hang for a second three times, the first few.
    with pytest.raises(ParseTimeoutError, match="A page of"):
        parsed(paged(30, bad=dict.fromkeys(map(str, range(1, 31)), "hang")), ParseLimits(timeout=10, page_timeout=1))
    assert parses() <= 12


@pytest.mark.parametrize("how", ["crash", "hang", "hog", "raise"])
def test_a_poison_page_of_a_pdf_leaves_headings_and_running_lines_as_they_were(
    how: str, make_source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    sheet = Sheet()
    for number in range(1, 6):
        sheet.text(60, 20, f"Annual report                {number}", 8)
        sheet.text(60, 90, f"{number}. Chapter", 18, "Helvetica-Bold")
        sheet.prose(60, 130, 300)
        sheet.page()
    source = make_source("report.pdf", sheet.bytes())
    monkeypatch.setenv("RAG_TEST_POISON", "")
    whole = parsed(source)
    monkeypatch.setenv("RAG_TEST_POISON", how)
    rest = parsed(source)
    assert [b.content for b in rest.blocks] == [b.content for b in whole.blocks if b.locator.page != 3]
    assert [b.type for b in rest.blocks] == [b.type for b in whole.blocks if b.locator.page != 3]
    assert not any("Annual report" in block.content for block in rest.blocks)
    assert rest.warnings[0].startswith("Page 3 was left out: ") and rest.metadata["pages"] == 5


@pytest.mark.parametrize("how", ["crash", "hang", "leak"])
def test_a_poison_slide_costs_that_slide(how: str, make_source: MakeSource, monkeypatch: pytest.MonkeyPatch) -> None:
    import pptx

    deck = pptx.Presentation()
    for number in range(1, 6):
        deck.slides.add_slide(deck.slide_layouts[5]).shapes.title.text = f"Slide number {number}"
    out = io.BytesIO()
    deck.save(out)
    monkeypatch.setenv("RAG_TEST_POISON", how)
    document = parsed(make_source("deck.pptx", out.getvalue()))
    assert [block.locator.slide for block in document.blocks] == [1, 2, 4, 5]
    assert document.warnings[0].startswith("Slide 3 was left out: ") and document.metadata["slides"] == 5


@pytest.mark.parametrize("how", ["crash", "hang", "hog"])
def test_a_poison_picture_of_a_tiff_costs_that_picture(
    how: str, make_source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    from PIL import Image

    frames = [Image.new("L", (60, 40), 50 * number) for number in range(1, 5)]
    out = io.BytesIO()
    frames[0].save(out, "TIFF", save_all=True, append_images=frames[1:])
    monkeypatch.setenv("RAG_TEST_POISON", how)
    document = parsed(make_source("scan.tiff", out.getvalue()))
    assert sorted({block.locator.page for block in document.blocks if block.locator.page}) == [1, 2, 4]
    assert document.warnings[0].startswith("Page 3 was left out: ")


def test_a_sheet_that_cannot_be_read_costs_that_sheet(make_source: MakeSource) -> None:
    document = parsed(make_source("a.xlsx", three_sheets(broken="xl/worksheets/sheet2.xml")))
    assert {block.locator.sheet for block in document.blocks} == {"Costs 1", "Costs 3"}
    assert any("2" in warning for warning in document.warnings)


def three_sheets(broken: str) -> bytes:
    import zipfile

    import openpyxl

    book = openpyxl.Workbook()
    book.remove(book.active)
    for number in range(1, 4):
        sheet = book.create_sheet(f"Costs {number}")
        sheet.append(["Item", "Price"])
        sheet.append(["bolt", number])
    saved, out = io.BytesIO(), io.BytesIO()
    book.save(saved)
    with zipfile.ZipFile(saved) as before, zipfile.ZipFile(out, "w") as after:
        for name in before.namelist():
            after.writestr(name, b"<worksheet><sheetData" if name == broken else before.read(name))
    return out.getvalue()
