"""Text in the pictures that documents carry."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence

import docx
import openpyxl
import pptx
import pytest
from openpyxl.drawing.image import Image as SheetImage
from PIL import Image

from rag_cluster.domain.blocks import Block, BlockType, ParsedDocument
from rag_cluster.domain.ports import RecognizedLine
from rag_cluster.errors import MissingDependencyError
from rag_cluster.parsing import pictures
from rag_cluster.parsing.docx import DocxParser
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.parsing.ocr import OcrMode
from rag_cluster.parsing.pictures import PictureReader
from tests.parsing.conftest import MakeSource
from tests.parsing.test_images import SENTENCE, encoded, page

Parse = Callable[..., ParsedDocument]


class Reader:
    """A recogniser that counts what it is shown."""

    def __init__(self, text: str = "Valve 7 is closed", confidence: float = 0.9) -> None:
        self.shown: list[bytes] = []
        self._line = (text, confidence)

    def recognize(self, image: bytes) -> Sequence[RecognizedLine]:
        self.shown.append(image)
        text, confidence = self._line
        return [RecognizedLine(text, (10, 10, 200, 30), confidence)] if text else []


def picture(shade: int = 200, size: tuple[int, int] = (300, 200)) -> bytes:
    return encoded(Image.new("L", size, shade))


def reader(recognizer: Reader | None, mode: OcrMode = OcrMode.AUTO, limit: int = 20) -> PictureReader:
    return PictureReader(ParseLimits(max_ocr_pictures=limit), mode, recognizer)


def word(*contents: bytes) -> bytes:
    document = docx.Document()
    document.add_paragraph("Before the picture.")
    for content in contents:
        document.add_picture(io.BytesIO(content))
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def slides(content: bytes) -> bytes:
    deck = pptx.Presentation()
    deck.slides.add_slide(deck.slide_layouts[6]).shapes.add_picture(io.BytesIO(content), 0, 0)
    out = io.BytesIO()
    deck.save(out)
    return out.getvalue()


def sheet(content: bytes) -> bytes:
    book = openpyxl.Workbook()
    book.active["A1"] = "Reading"
    book.active.add_image(SheetImage(io.BytesIO(content)), "B3")
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def web(content: bytes) -> bytes:
    uri = base64.b64encode(content).decode()
    return f"<h1>Pumps</h1><p>As shown:</p><img src='data:image/png;base64,{uri}'>".encode()


def images(document: ParsedDocument) -> list[Block]:
    return [block for block in document.blocks if block.type is BlockType.IMAGE]


@pytest.mark.parametrize(("name", "make"), [("a.docx", word), ("a.pptx", slides), ("a.xlsx", sheet), ("a.html", web)])
def test_the_text_of_a_picture_stands_in_its_block(parse: Parse, name: str, make: Callable[[bytes], bytes]) -> None:
    (block,) = images(parse(name, make(encoded(page()))))
    assert block.content.endswith(f"\n{SENTENCE}") and block.content.startswith("![")
    assert block.metadata["ocr"] is True and block.metadata["confidence"] > 0.9


def test_without_recognition_a_picture_is_only_a_picture(parse: Parse) -> None:
    (block,) = images(parse("a.docx", word(encoded(page())), ocr=OcrMode.OFF))
    assert SENTENCE not in block.content and "ocr" not in block.metadata


@pytest.mark.parametrize("options", [{"ocr": OcrMode.OFF}, {"postpone_ocr": True}])
def test_pictures_that_would_be_read_are_counted_once_without_decorations(parse: Parse, options: dict) -> None:
    content = word(picture(), picture(100), picture(), picture(size=(30, 30)))
    document = parse("a.docx", content, **options)
    assert (document.metadata["unrecognized_pictures"], document.unrecognized) == (2, 2)
    assert any("2 picture(s)" in warning for warning in document.warnings)
    assert parse("a.docx", word(), **options).unrecognized == 0


def test_the_same_picture_is_read_once(make_source: MakeSource) -> None:
    recognizer = Reader()
    source = make_source("a.docx", word(picture(), picture(100), picture()))
    document = DocxParser(recognizer=recognizer).parse(source)
    assert len(recognizer.shown) == 2
    assert [block.content.count("Valve 7 is closed") for block in images(document)] == [1, 1, 1]


@pytest.mark.parametrize("size", [(30, 30), (2000, 20), (100, 60)])
def test_decorations_are_not_read_unless_by_force(size: tuple[int, int]) -> None:
    recognizer = Reader()
    assert reader(recognizer).read(picture(size=size)) is None and not recognizer.shown
    assert reader(recognizer, OcrMode.FORCE).read(picture(size=size)) is not None


def test_what_is_seen_in_textures_is_no_text() -> None:
    assert reader(Reader("Il|!l", 0.4)).read(picture()) is None
    assert reader(Reader("")).read(picture()) is None


def test_no_more_pictures_are_read_than_allowed(make_source: MakeSource) -> None:
    recognizer = Reader()
    source = make_source("a.docx", word(*(picture(shade) for shade in (50, 100, 150))))
    document = DocxParser(ParseLimits(max_ocr_pictures=2), recognizer=recognizer).parse(source)
    assert len(recognizer.shown) == 2 and len(images(document)) == 3
    assert document.warnings == ("Only 2 pictures were read (RAG_OCR_MAX_PICTURES)",)


def test_reading_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "SECONDS", 0.0)
    recognizer = Reader()
    bounded = reader(recognizer)
    assert bounded.read(picture()) is None and not recognizer.shown
    assert "it took" in bounded.warnings[0]


def test_a_picture_that_cannot_be_decoded_is_a_warning() -> None:
    bounded = reader(Reader())
    assert bounded.read(picture()[:60]) is None
    assert bounded.warnings and bounded.read(b"") is None


def test_a_recogniser_that_is_not_installed_is_asked_once_and_warned_of() -> None:
    class Absent(Reader):
        def recognize(self, image: bytes) -> Sequence[RecognizedLine]:
            self.shown.append(image)
            raise MissingDependencyError("rapidocr is not installed")

    absent = Absent()
    bounded = reader(absent)
    assert bounded.read(picture()) is None and bounded.read(picture(100)) is None
    assert len(absent.shown) == 1 and len(bounded.warnings) == 1


def test_without_a_recogniser_nothing_is_decoded() -> None:
    assert reader(None).read(b"no picture") is None


def test_a_picture_inside_a_cell_of_a_web_table_is_its_caption(parse: Parse) -> None:
    uri = base64.b64encode(picture()).decode()
    image = f"<img alt='running' src='data:image/png;base64,{uri}'>"
    table = f"<table><tr><th>Pump</th><th>State</th></tr><tr><td>P-1</td><td>{image}</td></tr></table>"
    (block,) = [block for block in parse("a.html", f"<p>x</p>{table}").blocks if block.type is BlockType.TABLE]
    assert block.metadata["rows"][1] == ["P-1", "running"]
