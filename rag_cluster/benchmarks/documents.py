"""Documents for the parsing benchmark, drawn with the same libraries as the tests' (the `test` extra has them)."""

from __future__ import annotations

import datetime
import io
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from rag_cluster.errors import MissingDependencyError

PROSE = (
    "The river rises in the northern hills and runs for ninety miles through farmland before it meets the sea. "
    "Its upper reaches are narrow and quick, and the mills that once stood along them have long been closed. "
    "Further down the valley widens, the water slows, and the towns on either bank have grown into one another. "
    "Every spring the gauges at the old bridge record the height of the melt, and the figures are kept with care. "
)
CHINESE = "清河港位于河口北岸，全年不冻，航道水深十四米。岸桥每日检查制动器间隙，结果记入台账，并由值班工程师签字确认。"
TABLE = [
    ("Quarter", "Boxes", "Tonnes", "Share"),
    *((f"Q{n}", f"{n * 1234}", f"{n * 88.5}", f"{n * 7} %") for n in (1, 2, 3)),
]
WIDTH, HEIGHT, MARGIN = 595.0, 842.0, 56.0


def text_pdf(path: Path, pages: int) -> None:
    """Pages of headings, prose in one and two columns, lists, a ruled table on every fifth, Chinese on every eighth."""
    try:
        from reportlab.pdfbase import pdfmetrics
        from reportlab.pdfbase.cidfonts import UnicodeCIDFont
        from reportlab.pdfgen.canvas import Canvas
    except ImportError as error:
        raise MissingDependencyError("Drawing PDFs needs reportlab: pip install 'rag-cluster[test]'") from error
    pdfmetrics.registerFont(UnicodeCIDFont("STSong-Light"))
    canvas = Canvas(str(path), pagesize=(WIDTH, HEIGHT))
    for number in range(1, pages + 1):
        _page(canvas, number)
        canvas.showPage()
    canvas.save()


def _page(canvas: Any, number: int) -> None:
    from reportlab.platypus import Table as PdfTable
    from reportlab.platypus import TableStyle

    canvas.setFont("Helvetica", 8)
    canvas.drawString(MARGIN, HEIGHT - 30, "River Survey 2025")
    canvas.drawRightString(WIDTH - MARGIN, 28, f"Page {number}")
    canvas.setFont("Helvetica-Bold", 15)
    canvas.drawString(MARGIN, HEIGHT - 70, f"{number}. Reach number {number}")
    top = HEIGHT - 95
    if number % 5 == 0:
        table = PdfTable(TABLE, colWidths=100, style=TableStyle([("GRID", (0, 0), (-1, -1), 0.5, "black")]))
        _, height = table.wrapOn(canvas, WIDTH, HEIGHT)
        table.drawOn(canvas, MARGIN, top - height)
        top -= height + 20
    if number % 8 == 0:
        _column(canvas, _chinese_lines(int((WIDTH - 2 * MARGIN) // 10)), MARGIN, top, "STSong-Light")
    elif number % 2:
        _column(canvas, _lines(WIDTH - 2 * MARGIN), MARGIN, top, "Times-Roman")
    else:
        width = (WIDTH - 2 * MARGIN - 18) / 2
        _column(canvas, _lines(width), MARGIN, top, "Times-Roman")
        _column(canvas, _lines(width), MARGIN + width + 18, top, "Times-Roman")


def _column(canvas: Any, lines: Iterator[str], left: float, top: float, font: str) -> None:
    """Lines down to the bottom of the page, in paragraphs of nine."""
    canvas.setFont(font, 10)
    for index, line in enumerate(lines):
        top -= 12 if index % 9 else 20
        if top < 60:
            return
        canvas.drawString(left, top, line)


def _lines(width: float) -> Iterator[str]:
    from reportlab.pdfbase.pdfmetrics import stringWidth

    line = ""
    for word in cycle(PROSE.split()):
        if stringWidth(f"{line} {word}", "Times-Roman", 10) > width:
            yield line
            line = word
        else:
            line = f"{line} {word}".strip()


def _chinese_lines(length: int) -> Iterator[str]:
    characters = cycle(CHINESE)
    while True:
        yield "".join(islice(characters, length))


def workbook(path: Path, rows: int, columns: int = 50) -> None:
    """One sheet of texts, whole numbers, decimals, percentages, dates and truth values."""
    import openpyxl
    from openpyxl.cell import WriteOnlyCell

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("Gauges")
    sheet.append([f"Column {n}" for n in range(1, columns + 1)])
    day = datetime.date(2025, 1, 1)
    for row in range(rows):
        cells: list[object] = []
        for column in range(columns):
            match column % 6:
                case 0:
                    cells.append(f"station {row % 97}")
                case 1:
                    cells.append(row * column)
                case 2:
                    cells.append(row / 7)
                case 3:
                    cell = WriteOnlyCell(sheet, value=(row % 100) / 100)
                    cell.number_format = "0.0%"
                    cells.append(cell)
                case 4:
                    cells.append(day + datetime.timedelta(days=row % 700))
                case _:
                    cells.append(row % 2 == 0)
        sheet.append(cells)
    book.save(path)


def word_document(path: Path, sections: int) -> None:
    """Sections of a heading, three paragraphs with bold runs, a list, and a table in every fifth."""
    import docx

    document = docx.Document()
    for section in range(1, sections + 1):
        document.add_heading(f"Reach number {section}", level=1 + section % 3)
        for _ in range(3):
            paragraph = document.add_paragraph(PROSE)
            paragraph.add_run("Measured twice. ").bold = True
            paragraph.add_run(CHINESE)
        for item in range(4):
            document.add_paragraph(f"Gauge {item} of reach {section}", style="List Bullet")
        if section % 5 == 0:
            table = document.add_table(rows=len(TABLE), cols=4)
            for row, texts in zip(table.rows, TABLE, strict=True):
                for cell, text in zip(row.cells, texts, strict=True):
                    cell.text = text
    document.save(str(path))


def presentation(path: Path, slides: int) -> None:
    """Slides of a title, bullets, speaker notes, and a table on every fifth."""
    import pptx
    from pptx.util import Inches

    deck = pptx.Presentation()
    for number in range(1, slides + 1):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = f"Reach number {number}"
        slide.placeholders[1].text = "\n".join(part.strip() for part in PROSE.split(". ") if part.strip())
        slide.notes_slide.notes_text_frame.text = CHINESE
        if number % 5 == 0:
            shape = slide.shapes.add_table(len(TABLE), 4, Inches(1), Inches(5), Inches(8), Inches(2))
            for row, texts in zip(shape.table.rows, TABLE, strict=True):
                for cell, text in zip(row.cells, texts, strict=True):
                    cell.text = text
    deck.save(str(path))


def scan(path: Path) -> None:
    """A full A4 page of text of 10 points, 56 lines, as a grey PNG of 150 dots per inch."""
    source = path.with_suffix(".pdf")
    text_pdf(source, 1)
    _photograph(source, path)


def sparse_scan(path: Path) -> None:
    """An A4 page with a heading and five lines, as a grey PNG of 150 dots per inch."""
    from reportlab.pdfgen.canvas import Canvas

    source = path.with_suffix(".pdf")
    canvas = Canvas(str(source), pagesize=(WIDTH, HEIGHT))
    canvas.setFont("Helvetica-Bold", 15)
    canvas.drawString(MARGIN, HEIGHT - 70, "Notice to all stations")
    _column(canvas, islice(_lines(WIDTH - 2 * MARGIN), 5), MARGIN, HEIGHT - 95, "Times-Roman")
    canvas.save()
    _photograph(source, path)


def _photograph(source: Path, path: Path) -> None:
    import pypdfium2

    with pypdfium2.PdfDocument(str(source)) as document:
        document[0].render(scale=150 / 72, grayscale=True).to_pil().save(path)
    source.unlink()


def small_picture() -> bytes:
    """A PNG of one word."""
    from PIL import Image, ImageDraw

    picture = Image.new("L", (200, 60), 255)
    ImageDraw.Draw(picture).text((20, 20), "warm", fill=0)
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()
