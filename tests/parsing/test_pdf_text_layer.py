"""Runs of words with boxes, read from the text layer with few calls: the shortcuts change nothing that can be seen."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pypdfium2
import pytest
from reportlab.pdfbase.pdfmetrics import stringWidth

from rag_cluster.parsing.pdf import advances, native
from rag_cluster.parsing.pdf.geometry import page_space
from rag_cluster.parsing.pdf.text import TextLayer, read_text
from tests.parsing.pdf_pages import PROSE, Sheet


@contextmanager
def layer_of(sheet: Sheet, path: Path) -> Iterator[TextLayer]:
    """The first page's text layer, while its page is open."""
    path.write_bytes(sheet.bytes())
    with pypdfium2.PdfDocument(str(path)) as document:
        page = document[0]
        yield read_text(page.get_textpage(), page_space(page))


def shown(operators: str, font: str = "Times-Roman") -> Sheet:
    """A page with one text object, written as it stands in the file."""
    sheet = Sheet()
    sheet.canvas.setFont(font, 10)
    sheet.canvas._code.append(f"BT /F1 10 Tf 1 0 0 1 56 700 Tm {operators} ET")
    return sheet


def test_a_line_set_as_its_font_says_is_one_run(tmp_path: Path) -> None:
    line = "The river rises in the northern hills"
    with layer_of(Sheet().text(56, 90, line), tmp_path / "a.pdf") as layer:
        (run,) = layer.words
        assert run.text == line
        assert run.x1 - run.x0 == pytest.approx(stringWidth(line, "Times-Roman", 10), abs=0.5)


def test_the_words_of_a_run_have_their_own_boxes(tmp_path: Path) -> None:
    with layer_of(Sheet().text(56, 90, "Quarter boxes tonnes"), tmp_path / "a.pdf") as layer:
        (run,) = layer.words
        words = layer.split(run)
        assert [word.text for word in words] == ["Quarter", "boxes", "tonnes"]
        assert words[0].x0 == run.x0 and words[-1].x1 == run.x1
        assert all(a.x1 < b.x0 for a, b in itertools.pairwise(words))
        assert {(word.y0, word.y1) for word in words} == {(run.y0, run.y1)}


@pytest.mark.parametrize(
    "operators",
    [
        "[(Name) -3000 (Value)] TJ",
        "[(Name of) -3000 (the value)] TJ",
        "[(Total boxes and) -900 (tonnes of the year)] TJ",
        "-0.2 Tc [(Name of the first long) -3000 (value in the row)] TJ",
        "2 Tw (Name  of the value) Tj 40 Tw (two columns) Tj",
    ],
)
def test_a_wide_gap_inside_a_text_object_parts_runs(operators: str, tmp_path: Path) -> None:
    with layer_of(shown(operators), tmp_path / "a.pdf") as layer:
        assert len(layer.words) > 1
        for a, b in itertools.pairwise(layer.words):
            assert b.x0 - a.x1 > 3


def test_widths_remembered_from_another_font_of_the_same_name_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def runs() -> list[tuple[str, float, float]]:
        sheet = Sheet()
        sheet.prose(56, 90, 400)
        with layer_of(sheet, tmp_path / "a.pdf") as layer:
            return [(word.text, word.x0, word.x1) for word in layer.words]

    expected = runs()
    monkeypatch.setattr(advances._memory, "table", advances._memory.table * 1.3)
    assert runs() == expected


def test_a_page_of_plain_lines_costs_few_calls_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sheet = Sheet()
    sheet.prose(56, 90, 480, PROSE * 3)
    asked = 0

    def counted(function: object) -> object:
        def wrapped(page: int, indices: list[int]) -> object:
            nonlocal asked
            asked += len(indices)
            return function(page, indices)  # type: ignore[operator]

        return wrapped

    for name in ("char_boxes", "char_objects"):
        monkeypatch.setattr(native, name, counted(getattr(native, name)))
    with layer_of(sheet, tmp_path / "a.pdf") as layer:
        assert sum(len(run.text.split()) for run in layer.words) > 200
        assert asked <= 4 * len(layer.words)
