"""Small documents of every kind for the kill test, all different, and poison: each fails in a way of its own."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from rag_cluster.benchmarks.documents import HEIGHT, MARGIN, WIDTH
from rag_cluster.benchmarks.ingestion_corpus import document, paragraph_texts
from rag_cluster.domain.blocks import DocumentSource, ParsedDocument
from rag_cluster.errors import MissingDependencyError

CHARACTERS, MANY_CHARACTERS = 1500, 40_000
LONG_EVERY, POISON_EVERY, PICTURE_EVERY = 25, 6, 60
"""Every so many documents one has several parts, one fails, one is a picture of text."""


class DyingParser:
    """Takes its process with it, on every document."""

    name = "dying"
    version = "1"
    extensions = frozenset({".dies"})

    def parse(self, source: DocumentSource) -> ParsedDocument:
        """Never returns."""
        os._exit(7)


PARSERS = {".dies": f"{DyingParser.__module__}:{DyingParser.__name__}"}
"""As RAG_PARSERS names them."""


def draw(folder: Path, count: int, seed: int) -> None:
    """Write `count` documents below the folder; names and texts depend on the arguments alone."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        if number % POISON_EVERY == POISON_EVERY - 1:
            _poison(folder, number)
        elif number % PICTURE_EVERY == PICTURE_EVERY // 6:
            _picture(folder / f"{number:04}.png", number)
        elif number % LONG_EVERY == LONG_EVERY - 1:
            (folder / f"{number:04}.md").write_text(document(number, MANY_CHARACTERS, ".md", seed=seed))
        else:
            suffix, write = _FORMATS[number % len(_FORMATS)]
            source = random.Random(f"{seed}/{number}")  # noqa: S311 - texts, not secrets
            chinese = suffix != ".pdf" and number % 3 == 0
            texts = paragraph_texts(source, CHARACTERS // 2 if chinese else CHARACTERS, chinese=chinese)
            write(folder / f"{number:04}{suffix}", f"Procedure {number}", texts)


def _plain(path: Path, title: str, texts: Sequence[str]) -> None:
    path.write_text("\n\n".join([title, *texts]), encoding="utf-8")


def _markdown(path: Path, title: str, texts: Sequence[str]) -> None:
    path.write_text(f"# {title}\n\n" + "\n\n## More\n\n".join(texts), encoding="utf-8")


def _html(path: Path, title: str, texts: Sequence[str]) -> None:
    body = "".join(f"<p>{text}</p>" for text in texts)
    path.write_text(f'<html><head><meta charset="utf-8"></head><body><h1>{title}</h1>{body}</body></html>', "utf-8")


def _csv(path: Path, title: str, texts: Sequence[str]) -> None:
    rows = ["procedure,step,text", *(f'{title},{step},"{text}"' for step, text in enumerate(texts))]
    path.write_text("\n".join(rows), encoding="utf-8")


def _docx(path: Path, title: str, texts: Sequence[str]) -> None:
    """With a picture, which becomes an asset."""
    import docx

    made = docx.Document()
    made.add_heading(title, level=1)
    for text in texts:
        made.add_paragraph(text)
    picture = path.with_suffix(".part.png")
    _gradient(picture, int(path.stem))
    made.add_picture(str(picture))
    picture.unlink()
    made.save(str(path))


def _xlsx(path: Path, title: str, texts: Sequence[str]) -> None:
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None, "a new workbook has a sheet"
    sheet.append(["procedure", "step", "text"])
    for step, text in enumerate(texts):
        sheet.append([title, step, text])
    book.save(path)


def _pptx(path: Path, title: str, texts: Sequence[str]) -> None:
    import pptx

    deck = pptx.Presentation()
    for number, text in enumerate(texts):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = f"{title}, step {number}"
        slide.placeholders[1].text = text
    deck.save(str(path))


def _pdf(path: Path, title: str, texts: Sequence[str], password: str | None = None) -> None:
    try:
        from reportlab.lib.pdfencrypt import StandardEncryption
        from reportlab.lib.utils import simpleSplit
        from reportlab.pdfgen.canvas import Canvas
    except ImportError as error:
        raise MissingDependencyError("Drawing PDFs needs reportlab: pip install 'rag-cluster[test]'") from error
    encryption = StandardEncryption(password, strength=128) if password else None
    canvas = Canvas(str(path), pagesize=(WIDTH, HEIGHT), encrypt=encryption)
    for number, text in enumerate(texts):
        canvas.setFont("Helvetica-Bold", 15)
        canvas.drawString(MARGIN, HEIGHT - 70, f"{title}, page {number}")
        canvas.setFont("Times-Roman", 10)
        for line, words in enumerate(simpleSplit(text, "Times-Roman", 10, WIDTH - 2 * MARGIN)):
            canvas.drawString(MARGIN, HEIGHT - 95 - 12 * line, words)
        canvas.showPage()
    canvas.save()


_FORMATS: Sequence[tuple[str, Callable[[Path, str, Sequence[str]], None]]] = (
    (".md", _markdown),
    (".txt", _plain),
    (".csv", _csv),
    (".docx", _docx),
    (".html", _html),
    (".xlsx", _xlsx),
    (".pptx", _pptx),
    (".pdf", _pdf),
)


def _gradient(path: Path, number: int) -> None:
    """A picture without text, of so many colours that it is no icon, different for every number below 200."""
    from PIL import Image

    image = Image.linear_gradient("L").resize((120, 90))
    Image.merge("RGB", (image, image.rotate(180), Image.new("L", image.size, number % 200))).save(path)


def _picture(path: Path, number: int) -> None:
    """A picture of one line of text."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (700, 120), "white")
    ImageDraw.Draw(image).text((30, 40), f"Berth {number} is closed", fill="black", font=ImageFont.load_default(36))
    image.save(path)


def _poison(folder: Path, number: int) -> None:
    kind = number // POISON_EVERY % 5
    if kind == 0:
        (folder / f"{number:04}.dies").write_text("anything")
    elif kind == 1:
        _pdf(folder / f"{number:04}.pdf", f"Procedure {number}", ["locked"], password="secret")  # noqa: S106
    elif kind == 2:
        (folder / f"{number:04}.docx").write_bytes(b"no archive " * 20)
    elif kind == 3:
        (folder / f"{number:04}.txt").write_bytes(b"")
    else:
        (folder / f"{number:04}.md").write_text(" \n\n", encoding="utf-8")
