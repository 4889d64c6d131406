"""How fast the parsers are beside the bare libraries: `python -m rag_cluster.benchmarks.parsing`.

Both do their work in turns in the same process, on one core, by CPU time; the ratio is what counts, not the machine.
The bare library reads the same file in full and keeps no structure. Without --corpus the documents are drawn here.
"""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from rag_cluster.benchmarks import documents
from rag_cluster.benchmarks.measure import best_of, in_child, peak_bytes, show
from rag_cluster.errors import DocumentError, MissingDependencyError
from rag_cluster.parsing.ocr import OcrMode, RapidOcr
from rag_cluster.parsing.output import local_source
from rag_cluster.parsing.registry import ParserRegistry

MODULE = "rag_cluster.benchmarks.parsing"
MB = 1e6
SPARSE = "png, few lines"
"""Text recognition takes as long as there is text: a full page says little about a form."""


@dataclass(frozen=True, slots=True)
class Speed:
    """One format: our rate and the bare library's on the same files, in units per CPU second, and peak memory."""

    format: str
    unit: str
    files: int
    units: float
    ours: float
    bare: float | None
    library: str
    ratio: float | None
    """Ours over the bare library's; 1 is as fast."""
    peak_mib: float
    bare_peak_mib: float | None


def parse_file(path: Path, ocr: OcrMode = OcrMode.OFF) -> None:
    """Everything that our parser does, in this process."""
    ParserRegistry(ocr=ocr, ocr_threads=1).parser_for(path.name).parse(local_source(path))


def read_pdf(path: Path) -> None:
    """Bare pypdfium2: the text of every page."""
    import pypdfium2

    with pypdfium2.PdfDocument(str(path)) as document:
        for page in document:
            page.get_textpage().get_text_range()


def read_xlsx(path: Path) -> None:
    """Bare openpyxl, read only: the value of every cell."""
    _cells(path)


def read_docx(path: Path) -> None:
    """Bare python-docx: the text of every paragraph and cell."""
    import docx

    document = docx.Document(str(path))
    for item in document.iter_inner_content():
        if hasattr(item, "rows"):
            for row in item.rows:
                for cell in row.cells:
                    cell.text  # noqa: B018 - reading is the work
        else:
            item.text  # noqa: B018


def read_pptx(path: Path) -> None:
    """Bare python-pptx: the text of every shape, cell and note."""
    import pptx

    for slide in pptx.Presentation(str(path)).slides:
        for shape in slide.shapes:
            if shape.has_text_frame:
                shape.text_frame.text  # noqa: B018 - reading is the work
            elif shape.has_table:
                for row in shape.table.rows:
                    for cell in row.cells:
                        cell.text  # noqa: B018
        if slide.has_notes_slide:
            slide.notes_slide.notes_text_frame.text  # noqa: B018


def _pages(path: Path) -> float:
    import pypdfium2

    with pypdfium2.PdfDocument(str(path)) as document:
        return float(len(document))


def _cells(path: Path) -> float:
    import openpyxl

    book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    try:
        return float(sum(len(row) for sheet in book.worksheets for row in sheet.iter_rows(values_only=True)))
    finally:
        book.close()


def _megabytes(path: Path) -> float:
    """Of the parts, expanded: pictures and compression say nothing about parsing."""
    with zipfile.ZipFile(path) as archive:
        return sum(info.file_size for info in archive.infolist() if info.filename.endswith(".xml")) / MB


@dataclass(frozen=True, slots=True)
class Format:
    """What is measured of one format: its unit, how many of them a file has, and the bare library's full read."""

    unit: str
    count: Callable[[Path], float]
    library: str = ""
    bare: Callable[[Path], None] | None = None
    ocr: OcrMode = OcrMode.OFF


FORMATS = {
    "pdf": Format("pages", _pages, "pypdfium2", read_pdf),
    "xlsx": Format("cells", _cells, "openpyxl", read_xlsx),
    "docx": Format("MB XML", _megabytes, "python-docx", read_docx),
    "pptx": Format("MB XML", _megabytes, "python-pptx", read_pptx),
    "png": Format("pages", lambda _: 1.0, ocr=OcrMode.AUTO),
    SPARSE: Format("pages", lambda _: 1.0, ocr=OcrMode.AUTO),
}


def measure(suffix: str, paths: Sequence[Path], rounds: int) -> Speed:
    """One format over its files. A DocumentError of ours goes through: files that cannot be read prove no speed."""
    form = FORMATS[suffix]

    def ours() -> None:
        for path in paths:
            parse_file(path, form.ocr)

    def bare() -> None:
        for path in paths:
            assert form.bare is not None
            form.bare(path)

    if form.ocr is not OcrMode.OFF:
        RapidOcr(1).recognize(documents.small_picture())  # loads the models, which is no page's time
    best = best_of({"ours": ours, "bare": bare} if form.bare else {"ours": ours}, rounds)
    units = sum(form.count(path) for path in paths)
    biggest = max(paths, key=lambda path: path.stat().st_size)
    return Speed(
        suffix,
        form.unit,
        len(paths),
        round(units, 2),
        units / best["ours"],
        units / best["bare"] if form.bare else None,
        form.library,
        best["bare"] / best["ours"] if form.bare else None,
        _peak("ours", suffix, biggest),
        _peak("bare", suffix, biggest) if form.bare else None,
    )


def _peak(who: str, suffix: str, path: Path) -> float:
    """MiB of a fresh process that reads one file."""
    return float(in_child(MODULE, ["--peak", f"{who}:{suffix}", "--corpus", str(path)])["peak_bytes"]) / 2**20


def linearity(short: Path, long: Path, rounds: int) -> dict[str, float]:
    """CPU milliseconds a page of a short and of a long PDF of the same pages. A ratio near 1 is linear."""
    # The short one is over so soon that it needs more rounds for as good a minimum.
    times = {
        "short": best_of({"short": lambda: parse_file(short)}, 3 * rounds)["short"] / _pages(short),
        "long": best_of({"long": lambda: parse_file(long)}, rounds)["long"] / _pages(long),
    }
    return {
        "pages_short": _pages(short),
        "pages_long": _pages(long),
        "ms_per_page_short": times["short"] * 1000,
        "ms_per_page_long": times["long"] * 1000,
        "ratio": times["long"] / times["short"],
    }


def _draw(folder: Path) -> dict[str, list[Path]]:
    documents.text_pdf(folder / "survey40.pdf", 40)
    documents.text_pdf(folder / "survey400.pdf", 400)
    documents.workbook(folder / "gauges.xlsx", 2500)
    documents.word_document(folder / "survey.docx", 200)
    documents.presentation(folder / "survey.pptx", 80)
    documents.scan(folder / "scan.png")
    documents.sparse_scan(folder / "notice.png")
    return {
        "pdf": [folder / "survey40.pdf"],
        "xlsx": [folder / "gauges.xlsx"],
        "docx": [folder / "survey.docx"],
        "pptx": [folder / "survey.pptx"],
        "png": [folder / "scan.png"],
        SPARSE: [folder / "notice.png"],
    }


def _readable(corpus: Path) -> tuple[dict[str, list[Path]], list[str]]:
    """(files by format that both can read, what was left out and why)."""
    found: dict[str, list[Path]] = {}
    left_out = []
    for path in sorted(p for p in corpus.rglob("*") if p.is_file() and p.suffix.lower()[1:] in FORMATS):
        suffix = path.suffix.lower()[1:]
        form = FORMATS[suffix]
        try:
            parse_file(path, form.ocr)
            if form.bare:
                form.bare(path)
        except DocumentError as error:
            left_out.append(f"{path.name}: {error.type}")
        except Exception as error:  # whatever the bare library raises: a row of the report
            left_out.append(f"{path.name}: {form.library}: {type(error).__name__}")
        else:
            found.setdefault(suffix, []).append(path)
    return found, left_out


@contextmanager
def _inputs(corpus: Path | None) -> Iterator[tuple[dict[str, list[Path]], list[str], tuple[Path, Path] | None]]:
    """Files by format, what was left out, and the short and the long PDF."""
    if corpus is not None:
        yield *_readable(corpus), None
        return
    with tempfile.TemporaryDirectory(prefix="rag-parsing-") as folder:
        files = _draw(Path(folder))
        yield files, [], (Path(folder) / "survey40.pdf", Path(folder) / "survey400.pdf")


def run(
    corpus: Annotated[Path | None, typer.Option(exists=True, help="Measure the files of DIR instead.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Best of so many; OCR once.")] = 3,
    ocr: Annotated[bool, typer.Option(help="Measure text recognition, which takes longest.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Also print one JSON object as the last line.")] = False,
    peak: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Parse documents and read them with the bare libraries, in turns, on one core, by CPU time."""
    if peak:
        assert corpus is not None
        who, _, suffix = peak.partition(":")
        _print_peak(who, FORMATS[suffix], corpus)
        return
    try:
        with _inputs(corpus) as (files, left_out, pair):
            speeds = [
                measure(suffix, files[suffix], 1 if form.ocr is OcrMode.AUTO else rounds)
                for suffix, form in FORMATS.items()
                if files.get(suffix) and (ocr or form.ocr is OcrMode.OFF)
            ]
            linear = linearity(*pair, rounds) if pair else None
    except MissingDependencyError as error:
        typer.echo(error.message, err=True)
        raise typer.Exit(1) from None
    _report(speeds, linear, left_out)
    if as_json:
        print(json.dumps({"formats": [asdict(speed) for speed in speeds], "linearity": linear, "left_out": left_out}))


def _print_peak(who: str, form: Format, path: Path) -> None:
    if who == "ours":
        parse_file(path, form.ocr)
    elif form.bare:
        form.bare(path)
    print(json.dumps({"peak_bytes": peak_bytes()}))


def _report(speeds: Sequence[Speed], linear: dict[str, float] | None, left_out: Sequence[str]) -> None:
    def number(value: float | None, digits: int = 1) -> str:
        return "" if value is None else f"{value:,.{digits}f}"

    rows: list[Sequence[Any]] = [
        (
            speed.format if speed.library else f"{speed.format} (OCR)",
            f"{number(speed.units, 0 if speed.units > 9 else 1)} {speed.unit}",
            f"{number(speed.ours, 1 if speed.ours > 1 else 2)} /s",
            f"{number(speed.bare)} /s" if speed.bare else "",
            speed.library,
            number(speed.ratio, 2),
            number(speed.peak_mib, 0),
            number(speed.bare_peak_mib, 0),
        )
        for speed in speeds
    ]
    columns = ("format", "read", "rag_cluster", "bare", "library", "ratio", "peak MiB", "bare MiB")
    show("Parsing on one core, by CPU time", columns, rows)
    if linear:
        print(
            f"A page of a {linear['pages_long']:.0f}-page PDF takes {linear['ms_per_page_long']:.2f} ms, of a "
            f"{linear['pages_short']:.0f}-page one {linear['ms_per_page_short']:.2f} ms: ratio {linear['ratio']:.2f}"
        )
    for line in left_out:
        print(f"left out: {line}")


if __name__ == "__main__":
    typer.run(run)
