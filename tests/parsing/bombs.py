"""Small files that want to become large, deep or endless."""

from __future__ import annotations

import base64
import io
import random
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
R = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
P = (
    'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
    f'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" {R}'
)
S = f'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" {R}'
_TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
_LINKS = "http://schemas.openxmlformats.org/package/2006/relationships"
_KIND = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_MAIN = "application/vnd.openxmlformats-officedocument"

LAUGHS = "".join(
    ["<!DOCTYPE x [<!ENTITY e0 'ha'>", *(f"<!ENTITY e{n} '{f'&e{n - 1};' * 10}'>" for n in range(1, 12)), "]>"]
)
"""&e11; is 200 billion characters."""
QUADRATIC = f"<!DOCTYPE x [<!ENTITY e11 '{'ha' * 50_000}'>]>"
"""&e11; is 100,000 characters, and used 5,000 times."""


def outside(path: str) -> str:
    """&e11; is a file of the machine."""
    return f"<!DOCTYPE x [<!ENTITY e11 SYSTEM '{path}'>]>"


def links(targets: Mapping[str, tuple[str, str]]) -> str:
    """A part's relationships: id -> (type, target)."""
    items = "".join(
        f'<Relationship Id="{key}" Type="{_KIND}/{kind}" Target="{target}"/>' for key, (kind, target) in targets.items()
    )
    return f'<Relationships xmlns="{_LINKS}">{items}</Relationships>'


def package(main: str, content_type: str, parts: Mapping[str, bytes | str]) -> bytes:
    """An OPC package whose main part is `main`."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        override = f'<Override PartName="/{main}" ContentType="{_MAIN}.{content_type}.main+xml"/>'
        archive.writestr("[Content_Types].xml", f'<Types xmlns="{_TYPES}">{override}</Types>')
        archive.writestr("_rels/.rels", links({"r1": ("officeDocument", main)}))
        for name, content in parts.items():
            archive.writestr(name, content)
    return out.getvalue()


def docx(body: str, doctype: str = "", **parts: bytes | str) -> bytes:
    document = f"{doctype}<w:document {W}><w:body>{body}</w:body></w:document>"
    return package("word/document.xml", "wordprocessingml.document", {"word/document.xml": document, **parts})


def pptx(shapes: str, doctype: str = "") -> bytes:
    slide = f"{doctype}<p:sld {P}><p:cSld><p:spTree>{shapes}</p:spTree></p:cSld></p:sld>"
    deck = f'<p:presentation {P}><p:sldIdLst><p:sldId id="256" r:id="r1"/></p:sldIdLst></p:presentation>'
    parts = {
        "ppt/presentation.xml": deck,
        "ppt/_rels/presentation.xml.rels": links({"r1": ("slide", "slides/slide1.xml")}),
        "ppt/slides/slide1.xml": slide,
    }
    return package("ppt/presentation.xml", "presentationml.presentation", parts)


def xlsx(rows: str, doctype: str = "") -> bytes:
    book = f'<workbook {S}><sheets><sheet name="Data" sheetId="1" r:id="r1"/></sheets></workbook>'
    parts = {
        "xl/workbook.xml": book,
        "xl/_rels/workbook.xml.rels": links({"r1": ("worksheet", "worksheets/sheet1.xml")}),
        "xl/worksheets/sheet1.xml": f"{doctype}<worksheet {S}><sheetData>{rows}</sheetData></worksheet>",
    }
    return package("xl/workbook.xml", "spreadsheetml.sheet", parts)


def shape(text: str) -> str:
    return f"<p:sp><p:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:txBody></p:sp>"


def xml_bombs(doctype: str, uses: int) -> dict[str, bytes]:
    """Files of every XML format that use &e11;, each with the word "harmless" beside it."""
    text = "&e11;" * uses
    svg = f'<svg xmlns="http://www.w3.org/2000/svg"><text>{text}</text></svg>'
    data = base64.b64encode(f"{doctype}{svg}".encode()).decode()
    cell = f'<row r="1"><c r="A1" t="inlineStr"><is><t>{text}</t></is></c><c r="B1" t="str"><v>harmless</v></c></row>'
    return {
        "a.docx": docx(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p><w:p><w:r><w:t>harmless</w:t></w:r></w:p>", doctype),
        "a.pptx": pptx(shape(text) + shape("harmless"), doctype),
        "a.xlsx": xlsx(cell, doctype),
        "a.html": f"{doctype}<html><body><p>{text}</p><p>harmless</p></body></html>".encode(),
        "a.xhtml": f"{doctype}<html xmlns='http://www.w3.org/1999/xhtml'><body>{svg}<p>harmless</p></body></html>".encode(),
        "b.html": f"{svg}<img src='data:image/svg+xml;base64,{data}'><p>harmless</p>".encode(),
        "a.md": f"{doctype}\n\n{text[:1000]}\n\n{svg}\n\nharmless\n".encode(),
    }


def flat_bomb(size: int) -> bytes:
    """A DOCX whose document is `size` blanks: a ratio of 1,000."""
    return docx(" " * size)


def nested_bomb(levels: int, size: int) -> bytes:
    """Archives inside archives, down to `size` zeros: only who unpacks them all meets the bomb."""
    content = b"\0" * size
    for level in range(levels):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for number in range(10):
                archive.writestr(f"{level}-{number}.zip", content)
        content = out.getvalue()
    return docx("<w:p><w:r><w:t>harmless</w:t></w:r></w:p>", **{"word/embeddings/a.zip": content})


def overlapping_bomb(members: int, size: int) -> bytes:
    """Many names for the same bytes: stored sizes add up with the expanded ones, so that no ratio looks high."""
    content = random.Random(1).randbytes(size)
    packed = zlib.compress(content, wbits=-15)
    crc = zlib.crc32(content)
    name = b"word/document.xml"
    common = struct.pack("<HHHHHIII", 20, 0, 8, 0, 33, crc, len(packed), size)
    body = b"PK\x03\x04" + common + struct.pack("<HH", len(name), 0) + name + packed
    directory = b""
    for number in range(members):
        alias = name if number == 0 else b"word/part%d.xml" % number
        head = b"PK\x01\x02" + struct.pack("<H", 20) + common + struct.pack("<HHHHHII", len(alias), 0, 0, 0, 0, 0, 0)
        directory += head + alias
    end = struct.pack("<HHHHIIH", 0, 0, members, members, len(directory), len(body), 0)
    return body + directory + b"PK\x05\x06" + end


def lying_bomb(size: int) -> bytes:
    """The directory says that the document is small."""
    content = bytearray(docx("<w:p><w:r><w:t>" + "x" * size + "</w:t></w:r></w:p>"))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        real = archive.getinfo("word/document.xml").file_size
    return bytes(content).replace(struct.pack("<I", real), struct.pack("<I", 200))


def large_png(side: int) -> bytes:
    """A real, decodable picture of side x side pixels of one bit."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    row = b"\0" * (1 + (side + 7) // 8)
    packer = zlib.compressobj(9)
    pixels = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def pdf(objects: Mapping[int, bytes]) -> bytes:
    """A PDF of given objects; 1 is the catalog."""
    out, places = bytearray(b"%PDF-1.7\n"), {}
    for number, content in objects.items():
        places[number] = len(out)
        out += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    start = len(out)
    out += b"xref\n0 1\n0000000000 65535 f \n"
    for number, place in places.items():
        out += b"%d 1\n%010d 00000 n \n" % (number, place)
    out += b"trailer\n<< /Root 1 0 R /Size %d >>\nstartxref\n%d\n%%%%EOF\n" % (max(places) + 1, start)
    return bytes(out)


def stream(content: bytes, entries: bytes = b"") -> bytes:
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(content), entries, content)


def pdf_pages(texts: Mapping[int, tuple[bytes, bytes]], extra: Mapping[int, bytes] | None = None) -> bytes:
    """A PDF of pages: number -> (content, XObject entries of its resources). `extra`: more objects, from 100,000 on."""
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    kids = b" ".join(b"%d 0 R" % (10 + 2 * number) for number in texts)
    objects = {
        1: b"<< /Type /Catalog /Pages 2 0 R >>",
        2: b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(texts), kids),
        3: font,
        **(extra or {}),
    }
    for number, (content, xobjects) in texts.items():
        resources = b"<< /Font << /F 3 0 R >> /XObject << %s >> >>" % xobjects
        objects[10 + 2 * number] = (
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents %d 0 R /Resources %s >>"
            % (11 + 2 * number, resources)
        )
        objects[11 + 2 * number] = stream(content)
    return pdf(objects)


def line(text: str, y: int = 700) -> bytes:
    return b"BT /F 12 Tf 60 %d Td (%s) Tj ET\n" % (y, text.encode())


def nested_forms(depth: int, times: int) -> bytes:
    """Three pages; on the second, forms that draw forms, `times` each, `depth` deep: times ** depth lines of text."""
    extra = {}
    for level in range(depth):
        inside = b"/X %d 0 R" % (100_001 + level) if level < depth - 1 else b""
        content = b"/X Do\n" * times if inside else line("deep")
        entries = b"/Type /XObject /Subtype /Form /BBox [0 0 595 842] /Resources << /Font << /F 3 0 R >> "
        extra[100_000 + level] = stream(content, entries + b"/XObject << %s >> >>" % inside)
    pages = {
        1: (line("first page"), b""),
        2: (line("second page") + b"/X Do\n", b"/X 100000 0 R"),
        3: (line("third page"), b""),
    }
    return pdf_pages(pages, extra)


def rows(count: int, columns: int) -> Iterator[str]:
    """XML of a sheet's rows of numbers below a header."""
    letters = [chr(65 + column) for column in range(columns)]
    yield '<row r="1">' + "".join(f'<c r="{c}1" t="str"><v>Column {c}</v></c>' for c in letters) + "</row>"
    for number in range(2, count + 1):
        cells = "".join(f'<c r="{c}{number}"><v>{number * 7 + at}</v></c>' for at, c in enumerate(letters))
        yield f'<row r="{number}">{cells}</row>'
