"""Seeds and damage for the fuzz tests: small documents of every format, and the ways in which a file breaks."""

from __future__ import annotations

import io
import random
import re
import zipfile
import zlib
from collections.abc import Callable, Sequence

from PIL import Image, ImageDraw

from rag_cluster.domain.ports import RecognizedLine
from rag_cluster.parsing.images import ImageParser
from rag_cluster.parsing.limits import ParseLimits
from tests.parsing.pdf_pages import Sheet, chinese_font, encrypted

PNG = b"\x89PNG\r\n\x1a\n"
VALUES = (b"", b"-1", b"x", b"99999999999999", b"1.5", b"0", b"NaN", b"A0", b"true", "²".encode(), "中".encode())
TOKENS = (
    b"<",
    b">",
    b"</table>",
    b"<td>" * 50,
    b"&#xD800;",
    b"\x00",
    b"\xff\xfe",
    b"```",
    b'"',
    b",",
    b"\r",
    b"|",
    b"> " * 40,
)


class OneLine:
    """A recogniser that needs no models: the fuzz tests are about reading pictures, not about reading text."""

    def recognize(self, image: bytes) -> Sequence[RecognizedLine]:
        with Image.open(io.BytesIO(image)) as picture:
            picture.load()
        return [RecognizedLine("text", (0.0, 0.0, 10.0, 5.0), 0.9)]


class PictureParser(ImageParser):
    """The image parser without models."""

    def __init__(self, limits: ParseLimits) -> None:
        super().__init__(limits=limits, recognizer=OneLine())


def pdfs() -> list[bytes]:
    sheet = Sheet()
    sheet.text(60, 50, "1. A heading", 16, "Helvetica-Bold")
    top = sheet.prose(60, 90, 220, hyphenate=3)
    sheet.prose(310, 90, 220)
    sheet.grid(60, top + 20, [80, 80, 80], 18, 3)
    for row in range(3):
        for column in range(3):
            sheet.text(64 + 80 * column, top + 22 + 18 * row, f"cell {row}{column}", 9)
    sheet.canvas.bookmarkPage("one")
    sheet.canvas.addOutlineEntry("1. A heading", "one")
    sheet.canvas.linkURL("https://example.org", (60, 60, 100, 80))
    sheet.canvas.drawInlineImage(_picture(), 60, 60, 60, 40)
    sheet.page()
    sheet.text(60, 90, "岸桥制动器间隙的标准值", 12, chinese_font())
    sheet.canvas.acroForm.textfield(value="filled in", x=60, y=500, width=100, height=20)
    sheet.page()
    small = Sheet().text(60, 50, "A short page").page().bytes()
    return [sheet.bytes(), small, encrypted("")]


def documents() -> list[bytes]:
    import docx

    document = docx.Document()
    document.add_heading("Heading", 1)
    document.add_paragraph("Text with a picture").add_run().add_picture(io.BytesIO(_encoded("PNG")))
    for style in ("List Bullet", "List Number", "List Bullet 2"):
        document.add_paragraph("item", style=style)
    table = document.add_table(rows=3, cols=3)
    for row in table.rows:
        for cell in row.cells:
            cell.text = "cell"
    table.cell(0, 0).merge(table.cell(1, 1))
    return [_saved(document.save)]


def workbooks() -> list[bytes]:
    import openpyxl
    from openpyxl.chart import BarChart, Reference

    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["Name", "Value", "Share", "Day"])
    for row in range(6):
        sheet.append([f"row {row}", row * 1.5, row / 10, "2025-01-01"])
        sheet.cell(row + 2, 3).number_format = "0.0%;[Red]-0.0%"
    sheet["B9"] = "=SUM(B2:B7)"
    sheet.merge_cells("A11:C11")
    sheet["A11"] = "merged"
    chart = BarChart()
    chart.title = "Chart"
    chart.add_data(Reference(sheet, min_col=2, min_row=1, max_row=7), titles_from_data=True)
    sheet.add_chart(chart, "F2")
    book.create_sheet("Hidden").sheet_state = "hidden"
    return [_saved(book.save)]


def presentations() -> list[bytes]:
    import pptx
    from pptx.chart.data import CategoryChartData
    from pptx.enum.chart import XL_CHART_TYPE
    from pptx.util import Inches

    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text = "Title"
    slide.placeholders[1].text = "one\ntwo"
    slide.notes_slide.notes_text_frame.text = "note"
    slide.shapes.add_table(2, 2, Inches(1), Inches(1), Inches(3), Inches(1)).table.cell(0, 0).text = "cell"
    slide.shapes.add_picture(io.BytesIO(_encoded("PNG")), Inches(1), Inches(3))
    data = CategoryChartData()
    data.categories = ["a", "b"]
    data.add_series("s", (1, 2))
    slide.shapes.add_chart(XL_CHART_TYPE.BAR_CLUSTERED, Inches(4), Inches(4), Inches(3), Inches(2), data)
    return [_saved(deck.save)]


HTML = """<!doctype html><html><head><meta charset="utf-8"><title>T</title></head><body><nav><a href="/">home</a></nav>
<main><h1>Heading</h1><p>Text &amp; 中文 <b>bold</b></p><ul><li>one<ul><li>inner</li></ul></li></ul>
<table><tr><th colspan="2">head</th></tr><tr><td rowspan="2">a</td><td>b</td></tr><tr><td>c</td></tr></table>
<pre><code class="language-py">x = 1</code></pre><blockquote>quote</blockquote>
<img alt="picture" src="data:image/png;base64,iVBORw0KGgo="></main></body></html>"""
MARKDOWN = """---\ntitle: T\n---\n# Heading\n\nText with 中文[^1] and `code`.\n\n1. one\n    - inner\n2. two\n
| a | b |\n| --- | --- |\n| 1 | 2 |\n\n```py\nx = 1\n```\n\n> quote\n\n![picture](x.png)\n
<div>html</div>\n\n[^1]: note\n"""
TEXT = "A heading\n=========\n\nSome text that goes on.\nIt has lines, 制动器间隙 and more.\n\n- one\n- two\n"
CSV = 'Name,Value,"Quoted, yes"\nrow one,1.5,"a ""b"""\n第二行,2,c\n\nx;y;z\n'


def texts(content: str, *encodings: str) -> list[bytes]:
    return [content.encode(encoding, "replace") for encoding in encodings]


def pictures(form: str) -> list[bytes]:
    if form != "TIFF":
        return [_encoded(form)]
    pages = io.BytesIO()
    _picture().save(pages, "TIFF", save_all=True, append_images=[_picture().convert("1")], compression="tiff_lzw")
    return [_encoded("TIFF"), pages.getvalue()]


SEEDS: dict[str, Callable[[], list[bytes]]] = {
    "pdf": pdfs,
    "docx": documents,
    "xlsx": workbooks,
    "pptx": presentations,
    "html": lambda: texts(HTML, "utf-8", "utf-16", "gb18030"),
    "md": lambda: texts(MARKDOWN, "utf-8"),
    "txt": lambda: texts(TEXT, "utf-8", "utf-16", "gb18030", "shift-jis"),
    "csv": lambda: texts(CSV, "utf-8", "utf-16", "gb18030"),
    "png": lambda: pictures("PNG"),
    "jpg": lambda: pictures("JPEG"),
    "tiff": lambda: pictures("TIFF"),
    "webp": lambda: pictures("WEBP"),
}


def mutated(seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """One damaged copy of one of the seeds."""
    data = rng.choice(seeds)
    if data.startswith(PNG) and rng.random() < 0.6:
        return damage_chunks(data, rng)
    if data.startswith(b"PK") and rng.random() < 0.7:
        return rng.choice(ARCHIVE_DAMAGE)(data, rng)
    return rng.choice(BYTE_DAMAGE)(data, rng)


def flip_bits(data: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(rng.randint(1, 24)):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def overwrite(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    return data[:start] + rng.randbytes(rng.randint(1, 64)) + data[start + 64 :]


def truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(1, len(data))]


def copy_span(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    span = data[start : start + rng.randint(1, 400)] * rng.choice((1, 1, 1, 30))
    at = rng.randrange(len(data))
    return data[:at] + span + data[at:]


def drop_span(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    return data[:start] + data[start + rng.randint(1, 400) :] or b"x"


def change_numbers(data: bytes, rng: random.Random) -> bytes:
    """Digits of the file itself: object numbers, lengths, spans, sizes."""
    return _rewritten(data, rng, rb"\d+", 0, VALUES)


def insert_tokens(data: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data) + 1)
        data = data[:at] + rng.choice(TOKENS) + data[at:]
    return data


BYTE_DAMAGE = (flip_bits, overwrite, truncate, copy_span, drop_span, change_numbers, insert_tokens)


def change_attributes(data: bytes, rng: random.Random) -> bytes:
    return _each_member(data, rng, lambda content: _rewritten(content, rng, rb'="([^"]*)"', 1, VALUES))


def change_elements(data: bytes, rng: random.Random) -> bytes:
    """Empty elements dropped or tripled."""
    return _each_member(data, rng, lambda content: _rewritten(content, rng, rb"<\w+:?\w+[^<>]*/>", 0, (b"", None)))


def change_texts(data: bytes, rng: random.Random) -> bytes:
    return _each_member(data, rng, lambda content: _rewritten(content, rng, rb">([^<>]+)<", 1, VALUES))


def damage_members(data: bytes, rng: random.Random) -> bytes:
    """Bytes of a part, then packed as a sound archive."""
    return _each_member(data, rng, lambda content: rng.choice(BYTE_DAMAGE)(content, rng) if content else content)


def drop_members(data: bytes, rng: random.Random) -> bytes:
    members = _members(data)
    for name in rng.sample(sorted(members), min(len(members), rng.randint(1, 3))):
        del members[name]
    return _packed(members)


def swap_members(data: bytes, rng: random.Random) -> bytes:
    """Two parts take each other's place."""
    members = _members(data)
    one, two = rng.sample(sorted(members), 2)
    members[one], members[two] = members[two], members[one]
    return _packed(members)


def rename_members(data: bytes, rng: random.Random) -> bytes:
    members = _members(data)
    name = rng.choice(sorted(members))
    new = rng.choice((name.upper(), "../" + name, name + "x", "/" + name, name.replace("/", "\\"), "中/" + name))
    members[new] = members.pop(name)
    return _packed(members)


ARCHIVE_DAMAGE = (
    change_attributes,
    change_elements,
    change_texts,
    damage_members,
    drop_members,
    swap_members,
    rename_members,
)


def damage_chunks(data: bytes, rng: random.Random) -> bytes:
    """A PNG whose chunks are damaged and whose checksums are right, or no decoder would look at them."""
    chunks, at = [], len(PNG)
    while at < len(data):
        size = int.from_bytes(data[at : at + 4])
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += size + 12
    hit = rng.randrange(len(chunks))
    kind, content = chunks[hit]
    chunks[hit] = (kind, rng.choice(BYTE_DAMAGE)(content, rng) if content else rng.randbytes(8))
    if rng.random() < 0.3:
        rng.shuffle(chunks)
    parts = [PNG]
    for kind, content in chunks:
        parts += [len(content).to_bytes(4), kind, content, zlib.crc32(kind + content).to_bytes(4)]
    return b"".join(parts)


def _rewritten(content: bytes, rng: random.Random, pattern: bytes, group: int, values: Sequence[bytes | None]) -> bytes:
    """Up to 20 matches replaced; None: the match three times."""
    found = list(re.finditer(pattern, content))
    chosen = rng.sample(found, min(len(found), rng.randint(1, 20)))
    for match in sorted(chosen, key=lambda m: -m.start()):
        value = rng.choice(values)
        content = (
            content[: match.start(group)] + (match[0] * 3 if value is None else value) + content[match.end(group) :]
        )
    return content


def _each_member(data: bytes, rng: random.Random, change: Callable[[bytes], bytes]) -> bytes:
    members = _members(data)
    names = [name for name in members if name.endswith((".xml", ".rels"))]
    for name in rng.sample(names, min(len(names), 3)):
        members[name] = change(members[name])
    return _packed(members)


def _members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _packed(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def _saved(save: Callable[[io.BytesIO], object]) -> bytes:
    out = io.BytesIO()
    save(out)
    return out.getvalue()


def _picture() -> Image.Image:
    image = Image.new("RGB", (96, 64), "white")
    draw = ImageDraw.Draw(image)
    draw.text((8, 8), "text", fill="black")
    draw.ellipse((40, 20, 80, 50), fill="red")
    return image


def _encoded(form: str) -> bytes:
    return _saved(lambda out: _picture().save(out, form))
