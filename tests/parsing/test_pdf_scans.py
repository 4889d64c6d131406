"""PDF pages and pictures without usable text: recognition by themselves, and warnings when it is off."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from PIL import Image

from rag_cluster.domain.blocks import BlockType, DocumentSource, ParsedDocument
from rag_cluster.domain.ports import RecognizedLine
from rag_cluster.errors import EmptyDocumentError
from rag_cluster.parsing.ocr import RapidOcr
from rag_cluster.parsing.pdf import PdfParser
from tests.parsing.pdf_pages import HEIGHT, PROSE, WIDTH, Sheet, photo, scan

Parse = Callable[..., ParsedDocument]
TEXT = ["The gauge at the old bridge", "was read on the first of March", "and stood at 192 centimetres."]


class CountingRecognizer:
    """A recognizer that reads the same line from every picture."""

    def __init__(self) -> None:
        self.calls = 0

    def recognize(self, image: bytes) -> Sequence[RecognizedLine]:
        self.calls += 1
        return [RecognizedLine("Recognised line of text", (100.0, 100.0, 600.0, 130.0), 0.99)]


@pytest.fixture
def parse(tmp_path: Path) -> Parse:
    def run(content: bytes, **options: object) -> ParsedDocument:
        path = tmp_path / "made.pdf"
        path.write_bytes(content)
        return PdfParser(**options).parse(DocumentSource("doc", 1, "made.pdf", str(path)))

    return run


def mixed() -> bytes:
    sheet = Sheet()
    sheet.prose(72, 72, 450)
    sheet.page()
    sheet.canvas.drawImage(scan(TEXT), 0, 0, WIDTH, HEIGHT)
    return sheet.page().bytes()


def test_a_scanned_page_is_recognised_and_the_text_page_is_not(parse: Parse) -> None:
    document = parse(mixed(), recognizer=RapidOcr(1))
    text = " ".join(b.content for b in document.blocks)
    assert "old bridge" in text and "192" in text and "The river rises" in text
    assert document.metadata["ocr_pages"] == [2]
    recognised = [b for b in document.blocks if b.metadata.get("ocr")]
    assert {b.locator.page for b in recognised} == {2}
    assert all(0.5 < b.metadata["confidence"] <= 1 for b in recognised)
    x0, y0, x1, y1 = recognised[0].locator.bbox
    assert 40 < x0 < 80 and 60 < y0 < 110 and x1 < WIDTH and y1 < HEIGHT


def test_without_recognition_a_scanned_page_is_a_warning_and_keeps_its_picture(parse: Parse) -> None:
    document = parse(mixed(), ocr="off", recognizer=RapidOcr(1))
    assert any("Page 2" in warning for warning in document.warnings)
    assert "ocr_pages" not in document.metadata


def test_pages_whose_recognition_comes_later_are_left_out_and_named(parse: Parse) -> None:
    document = parse(mixed(), recognizer=None)
    assert {b.locator.page for b in document.blocks} == {1}
    assert (document.metadata["unrecognized_pages"], document.unrecognized) == ([2], 1)
    assert document.warnings == ("Page(s) 2 were left out: they await text recognition",)
    assert document.blocks == tuple(b for b in parse(mixed(), recognizer=RapidOcr(1)).blocks if b.locator.page == 1)


def test_a_document_of_scans_alone_awaits_recognition_as_a_whole(parse: Parse) -> None:
    sheet = Sheet()
    sheet.canvas.drawImage(scan(TEXT), 0, 0, WIDTH, HEIGHT)
    document = parse(sheet.page().bytes(), recognizer=None)
    assert (document.blocks, document.unrecognized) == ((), 1)


def test_by_force_every_page_awaits_recognition(parse: Parse) -> None:
    document = parse(mixed(), ocr="force", recognizer=None)
    assert (document.blocks, document.metadata["unrecognized_pages"]) == ((), [1, 2])


def test_without_recognition_the_pages_are_named_too(parse: Parse) -> None:
    document = parse(mixed(), ocr="off")
    assert document.metadata["unrecognized_pages"] == [2]
    assert any("--ocr" in warning for warning in document.warnings)


def test_a_document_of_scans_alone_without_recognition_is_empty(parse: Parse) -> None:
    sheet = Sheet()
    sheet.canvas.drawImage(scan(TEXT), 0, 0, WIDTH, HEIGHT)
    with pytest.raises(EmptyDocumentError, match="Page 1"):
        parse(sheet.page().bytes(), ocr="off")


def test_an_invisible_text_layer_over_a_scan_is_used_instead_of_recognition(parse: Parse) -> None:
    sheet = Sheet()
    sheet.canvas.drawImage(scan(TEXT), 0, 0, WIDTH, HEIGHT)
    layer = sheet.canvas.beginText(60, HEIGHT - 90)
    layer.setTextRenderMode(3)
    layer.setFont("Times-Roman", 14)
    for line in TEXT:
        layer.textLine(line)
    sheet.canvas.drawText(layer)
    recognizer = CountingRecognizer()
    document = parse(sheet.page().bytes(), recognizer=recognizer)
    text = " ".join(b.content for b in document.blocks)
    assert recognizer.calls == 0
    assert text.count("old bridge") == 1


LICENCE = "Authorized licensed use limited to: Example University. Downloaded on May 04, 2024. Restrictions apply."


def stamped(pages: int = 1) -> bytes:
    """Scans with a line of real text near the foot of each."""
    sheet = Sheet()
    for _ in range(pages):
        sheet.canvas.drawImage(scan(TEXT), 0, 0, WIDTH, HEIGHT)
        sheet.text(40, HEIGHT - 24, LICENCE, 6).page()
    return sheet.bytes()


class PictureKeeper(CountingRecognizer):
    """A recognizer that keeps the last picture."""

    def recognize(self, image: bytes) -> Sequence[RecognizedLine]:
        self.picture = Image.open(io.BytesIO(image)).convert("L")
        return super().recognize(image)


def test_a_scan_with_a_stamp_in_its_margin_is_recognised_and_the_stamp_read_once(parse: Parse) -> None:
    recognizer = PictureKeeper()
    document = parse(stamped(), recognizer=recognizer)
    assert [b.content for b in document.blocks] == ["Recognised line of text", LICENCE]
    assert document.metadata["ocr_pages"] == [1]
    width, height = recognizer.picture.size
    assert recognizer.picture.crop((0, round(0.96 * height), width, height)).getextrema()[0] > 250
    assert recognizer.picture.getextrema()[0] < 50


def test_a_stamp_that_every_scan_repeats_is_a_running_line(parse: Parse) -> None:
    document = parse(stamped(3), recognizer=CountingRecognizer())
    assert [b.content for b in document.blocks] == ["Recognised line of text"] * 3


def test_a_stamped_scan_that_is_not_recognised_is_named(parse: Parse) -> None:
    off, later = parse(stamped(), ocr="off"), parse(stamped(), recognizer=None)
    assert [b.content for b in off.blocks] == [LICENCE] and any("Page 1" in warning for warning in off.warnings)
    assert off.metadata["unrecognized_pages"] == later.metadata["unrecognized_pages"] == [1]
    assert later.blocks == () and later.unrecognized == 1


def test_text_that_stands_on_a_background_picture_is_no_stamp(parse: Parse) -> None:
    recognizer = CountingRecognizer()
    sheet = Sheet()
    sheet.canvas.drawImage(photo(), 0, 0, WIDTH, HEIGHT)
    sheet.text(72, 40, "The gauges of the river", 24).text(72, 300, "Read twice a day by the guard", 16)
    document = parse(sheet.page().bytes(), recognizer=recognizer)
    assert recognizer.calls == 0 and "Read twice a day" in document.blocks[-1].content


def test_force_recognises_text_pages_too(parse: Parse) -> None:
    recognizer = CountingRecognizer()
    sheet = Sheet()
    sheet.prose(72, 72, 450)
    document = parse(sheet.page().bytes(), ocr="force", recognizer=recognizer)
    assert recognizer.calls == 1
    assert [b.content for b in document.blocks] == ["Recognised line of text"]


@pytest.mark.parametrize(
    "mapped",
    [
        pytest.param(lambda code: 0xE000 + code, id="private characters"),
        pytest.param(lambda code: code + 0x80, id="another encoding"),
        pytest.param(lambda code: code + 3 if chr(code).isalpha() else code, id="shifted letters"),
    ],
)
def test_a_text_layer_that_says_nothing_goes_to_recognition(parse: Parse, mapped: Callable[[int], int]) -> None:
    recognizer = CountingRecognizer()
    document = parse(mapped_pdf(mapped), recognizer=recognizer)
    assert recognizer.calls == 1
    assert document.metadata["ocr_pages"] == [1]


def test_a_text_layer_of_few_vowels_or_many_accents_is_used(parse: Parse) -> None:
    recognizer = CountingRecognizer()
    sheet = Sheet()
    for row, text in enumerate(
        ["NVDA 12.3  TSLA 4.5  XLK 7", "Été à Orléans, déjà gâté près de la forêt", "0x7f 0xff 0xbc"]
    ):
        sheet.text(72, 72 + 20 * row, text)
    parse(sheet.page().bytes(), recognizer=recognizer)
    assert recognizer.calls == 0


class UnsureRecognizer:
    """A recognizer that is sure of one line and of another one is not."""

    def recognize(self, image: bytes) -> Sequence[RecognizedLine]:
        return [
            RecognizedLine("A legible line of text", (100.0, 100.0, 600.0, 130.0), 0.97),
            RecognizedLine("ilIl;.il", (100.0, 400.0, 300.0, 430.0), 0.31),
        ]


def test_lines_too_uncertain_to_keep_are_counted_in_a_warning(parse: Parse) -> None:
    document = parse(mixed(), recognizer=UnsureRecognizer())
    assert not any("ilIl" in block.content for block in document.blocks)
    assert any("Page 2" in warning and "1 line was too uncertain" in warning for warning in document.warnings)


def test_a_picture_with_text_on_a_page_of_few_words_is_recognised(parse: Parse) -> None:
    sheet = Sheet().text(72, 72, "A short page")
    sheet.canvas.drawImage(photo(), 100, 300, 300, 200)
    recognizer = CountingRecognizer()
    document = parse(sheet.page().bytes(), recognizer=recognizer)
    image = next(b for b in document.blocks if b.type is BlockType.IMAGE)
    assert "Recognised line of text" in image.content and image.metadata["ocr"]


def test_a_picture_beside_much_text_is_not_recognised(parse: Parse) -> None:
    sheet = Sheet()
    sheet.prose(72, 72, 450, PROSE * 2)
    sheet.canvas.drawImage(photo(), 100, 300, 300, 200)
    recognizer = CountingRecognizer()
    parse(sheet.page().bytes(), recognizer=recognizer)
    assert recognizer.calls == 0


def mapped_pdf(mapped: Callable[[int], int]) -> bytes:
    """A page whose font maps every letter to another character by its ToUnicode table."""
    text = b"The gauge at the old bridge was read on the first of March"
    content = b"BT /F1 9 Tf 72 700 Td 14 TL " + b"".join(b"(%s) Tj T* " % text for _ in range(3)) + b"ET"
    lines = b"".join(b"<%02X> <%04X>\n" % (code, mapped(code)) for code in range(33, 127))
    lines = b"<20> <0020>\n" + lines
    cmap = (
        b"/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /P def /CMapType 2 def\n"
        b"1 begincodespacerange <00> <FF> endcodespacerange\n95 beginbfchar\n" + lines + b"endbfchar endcmap end end"
    )
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R"
        b" /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Times-Roman /ToUnicode 6 0 R >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(cmap), cmap),
    ]
    out = b"%PDF-1.4\n"
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    start = len(out)
    out += b"xref\n0 7\n0000000000 65535 f \n" + table
    return out + b"trailer << /Size 7 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % start
