"""Draws the PDFs of the parser's tests: small documents whose every word and place is known."""

from __future__ import annotations

import io
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont
from reportlab.lib.pagesizes import A4
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.lib.utils import ImageReader
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfgen.canvas import Canvas

WIDTH, HEIGHT = A4
SANS = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"

PROSE = (
    "The river rises in the northern hills and runs for ninety miles through farmland before it meets the sea. "
    "Its upper reaches are narrow and quick, and the mills that once stood along them have long been closed. "
    "Further down the valley widens, the water slows, and the towns on either bank have grown into one another. "
    "Every spring the gauges at the old bridge record the height of the melt, and the figures are kept with care. "
)


class Sheet:
    """A canvas with the origin at the top left and one line of text per call."""

    def __init__(self, **options: object) -> None:
        self._out = io.BytesIO()
        self.canvas = Canvas(self._out, pagesize=A4, pageCompression=0, **options)

    def text(self, x: float, top: float, text: str, size: float = 10, font: str = "Times-Roman") -> Sheet:
        """Text whose baseline lies `size` below `top`."""
        self.canvas.setFont(font, size)
        self.canvas.drawString(x, HEIGHT - top - size, text)
        return self

    def lines(self, x: float, top: float, lines: Sequence[str], size: float = 10, font: str = "Times-Roman") -> float:
        """Lines below each other; the top of the next one."""
        for line in lines:
            self.text(x, top, line, size, font)
            top += 1.2 * size
        return top

    def prose(
        self, x: float, top: float, width: float, text: str = PROSE, size: float = 10, hyphenate: int = 0
    ) -> float:
        """A paragraph set in lines of a width; every `hyphenate`-th line breaks inside a long word."""
        return self.lines(x, top, wrap(text, width, size, hyphenate), size)

    def grid(self, x: float, top: float, widths: Sequence[float], height: float, rows: int) -> None:
        """All rules of a table."""
        right, bottom = x + sum(widths), top + height * rows
        for r in range(rows + 1):
            self.canvas.line(x, HEIGHT - top - r * height, right, HEIGHT - top - r * height)
        at = x
        for width in [*widths, 0.0]:
            self.canvas.line(at, HEIGHT - top, at, HEIGHT - bottom)
            at += width

    def page(self) -> Sheet:
        """End the page."""
        self.canvas.showPage()
        return self

    def bytes(self) -> bytes:
        """The finished file."""
        self.canvas.save()
        return self._out.getvalue()


def wrap(text: str, width: float, size: float = 10, hyphenate: int = 0) -> list[str]:
    out: list[str] = []
    line = ""
    for word in text.split():
        trial = f"{line} {word}".strip()
        if pdfmetrics.stringWidth(trial, "Times-Roman", size) <= width:
            line = trial
            continue
        if hyphenate and len(word) > 7 and len(out) % hyphenate == 0 and word.isalpha():
            out.append(f"{line} {word[:4]}-")
            line = word[4:]
        else:
            out.append(line)
            line = word
    return [*out, line]


def chinese_font() -> str:
    pdfmetrics.registerFont(UnicodeCIDFont("STSong-Light"))
    return "STSong-Light"


def encrypted(user: str, owner: str = "owner") -> bytes:
    sheet = Sheet(encrypt=StandardEncryption(user, owner, strength=128))
    sheet.prose(72, 72, 400)
    return sheet.page().bytes()


def scan(text: Sequence[str]) -> ImageReader:
    """A picture of text, as a scanner gives it."""
    image = Image.new("L", (1240, 1754), 255)
    draw = ImageDraw.Draw(image)
    font = ImageFont.truetype(SANS, 34)
    for i, line in enumerate(text):
        draw.text((120, 160 + 60 * i), line, fill=0, font=font)
    return ImageReader(image.convert("RGB"))


def photo(width: int = 400, height: int = 300) -> ImageReader:
    """A picture without text."""
    image = Image.new("RGB", (width, height))
    image.putdata([(x * 255 // width, y * 255 // height, (x * y) % 255) for y in range(height) for x in range(width)])
    return ImageReader(image)
