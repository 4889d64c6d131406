from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import pytest
from PIL import Image, ImageDraw, ImageFont

from rag_cluster.domain.blocks import BlockType, ParsedDocument
from rag_cluster.domain.ports import RecognizedLine
from rag_cluster.errors import CorruptDocumentError, DocumentTooLargeError, EmptyDocumentError
from rag_cluster.parsing.images import ImageParser
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.parsing.ocr import OcrMode, RapidOcr, recognize_page, uses_cuda
from rag_cluster.parsing.reading_order import join_lines, paragraphs
from tests.parsing.conftest import MakeSource

Parse = Callable[..., ParsedDocument]
SENTENCE = "The pump must be inspected every two hours."


def page(text: str = SENTENCE, size: tuple[int, int] = (900, 300)) -> Image.Image:
    picture = Image.new("RGB", size, "white")
    ImageDraw.Draw(picture).text((60, 100), text, fill="black", font=ImageFont.load_default(34))
    return picture


def encoded(picture: Image.Image, form: str = "PNG", **options: object) -> bytes:
    out = io.BytesIO()
    picture.save(out, form, **options)
    return out.getvalue()


def test_a_picture_is_an_asset_and_its_text(parse: Parse) -> None:
    document = parse("scan.png", encoded(page()))
    image, text = document.blocks
    assert image.type is BlockType.IMAGE and document.assets[0].width == 900
    assert text.content == SENTENCE and text.metadata["ocr"] is True and text.metadata["confidence"] > 0.9
    assert text.locator.bbox is not None and 40 < text.locator.bbox[0] < 80


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_a_turned_page_is_read_and_its_boxes_lie_on_the_page_as_given(degrees: int) -> None:
    picture = page().rotate(degrees, expand=True)
    (paragraph,) = recognize_page(RapidOcr(2), picture)
    assert paragraph.text == SENTENCE and paragraph.rotation == degrees
    upright = recognize_page(RapidOcr(2), page())[0].bbox
    area = [(b[2] - b[0]) * (b[3] - b[1]) for b in (paragraph.bbox, upright)]
    assert area[0] == pytest.approx(area[1], rel=0.25)
    ink = picture.convert("L").point(lambda v: 255 if v < 128 else 0).getbbox()
    assert ink is not None and all(abs(a - b) < 15 for a, b in zip(ink, paragraph.bbox, strict=True))


def test_exif_orientation_is_applied_before_reading(parse: Parse) -> None:
    exif = Image.Exif()
    exif[0x0112] = 3
    document = parse("scan.jpg", encoded(page().rotate(180), "JPEG", exif=exif, quality=95))
    assert document.blocks[1].content == SENTENCE and "rotation" not in document.blocks[1].metadata


def test_every_page_of_a_tiff_is_read(parse: Parse) -> None:
    pages = [page("First page of the report"), page("Second page of the report")]
    content = encoded(pages[0], "TIFF", save_all=True, append_images=pages[1:])
    document = parse("fax.tiff", content)
    texts = [(b.locator.page, b.content) for b in document.blocks if b.type is BlockType.TEXT]
    assert texts == [(1, "First page of the report"), (2, "Second page of the report")]
    assert len(document.assets) == 2 and document.assets[0].media_type == "image/png"


def test_a_tiff_thumbnail_is_no_page(parse: Parse) -> None:
    small = page("Too small to count")
    small.encoderinfo = {"tiffinfo": {254: 1}}
    content = encoded(page("First page of the report"), "TIFF", save_all=True, append_images=[small])
    document = parse("scan.tif", content)
    assert [b.content for b in document.blocks if b.type is BlockType.TEXT] == ["First page of the report"]


@pytest.mark.parametrize(("name", "form"), [("a.webp", "WEBP"), ("a.gif", "GIF"), ("a.png", "PNG")])
def test_of_an_animation_the_first_frame_is_read(parse: Parse, name: str, form: str) -> None:
    frames = [page("The first frame says this"), page("The second one says that")]
    document = parse(name, encoded(frames[0], form, save_all=True, append_images=frames[1:], duration=100))
    assert [b.content for b in document.blocks[1:]] == ["The first frame says this"]
    assert document.blocks[1].locator.page is None
    assert any("2 frames" in warning for warning in document.warnings)


def test_the_preview_in_a_photograph_is_not_read_again(parse: Parse) -> None:
    document = parse("photo.jpg", encoded(page(), "MPO", save_all=True, append_images=[page("A preview of it")]))
    assert [b.content for b in document.blocks[1:]] == [SENTENCE]
    assert document.assets[0].media_type == "image/jpeg" and document.warnings == ()


def test_without_recognition_a_picture_is_empty(parse: Parse) -> None:
    with pytest.raises(EmptyDocumentError, match="off"):
        parse("scan.png", encoded(page()), ocr=OcrMode.OFF)


def test_a_picture_whose_recognition_comes_later_names_its_pages(parse: Parse) -> None:
    content = encoded(page("One"), "TIFF", save_all=True, append_images=[page("Two")])
    document = parse("fax.tiff", content, postpone_ocr=True)
    assert (document.blocks, document.metadata["unrecognized_pages"]) == ((), [1, 2])


def test_a_picture_without_text_is_empty(parse: Parse) -> None:
    with pytest.raises(EmptyDocumentError):
        parse("blank.png", encoded(Image.new("RGB", (200, 200), "white")))


def test_too_many_pixels_are_refused_before_decoding(make_source: MakeSource) -> None:
    class NeverAsked:
        def recognize(self, image: bytes) -> Sequence[RecognizedLine]:
            raise AssertionError("the picture was decoded")

    parser = ImageParser(limits=ParseLimits(max_image_pixels=1000), recognizer=NeverAsked())
    with pytest.raises(DocumentTooLargeError, match="900 x 300"):
        parser.parse(make_source("a.png", encoded(page())))


def test_a_damaged_picture_is_corrupt(parse: Parse) -> None:
    with pytest.raises(CorruptDocumentError):
        parse("a.png", encoded(page())[:200])


def line(text: str, x: float, y: float, width: float, height: float = 20) -> RecognizedLine:
    return RecognizedLine(text, (x, y, x + width, y + height), 0.9)


def test_two_columns_are_read_one_after_the_other() -> None:
    left = [line(f"left {i}", 50, 100 + 26 * i, 400) for i in range(6)]
    right = [line(f"right {i}", 500, 100 + 26 * i, 400) for i in range(6)]
    title = line("A title over both columns", 200, 40, 500, 30)
    found = [p.text for p in paragraphs([*right, *left, title])]
    assert found[0] == "A title over both columns"
    assert " ".join(found[1:]) == " ".join([f"left {i}" for i in range(6)] + [f"right {i}" for i in range(6)])


def test_rows_of_a_table_stay_rows() -> None:
    cells = [line(f"r{row}c{column}", 50 + 200 * column, 100 + 30 * row, 60) for row in range(3) for column in range(3)]
    (paragraph,) = paragraphs(cells)
    assert paragraph.text == "r0c0  r0c1  r0c2\nr1c0  r1c1  r1c2\nr2c0  r2c1  r2c2"


def test_a_gap_between_lines_separates_paragraphs() -> None:
    lines = [line("one", 50, 100, 400), line("goes on", 50, 124, 300), line("another", 50, 190, 400)]
    assert [p.text for p in paragraphs(lines)] == ["one goes on", "another"]


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["供水调度", "值班手册"], "供水调度值班手册"),
        (["infor-", "mation"], "information"),
        (["第一 line", "second"], "第一 line second"),
    ],
)
def test_lines_are_joined_as_their_script_wants(lines: list[str], text: str) -> None:
    assert join_lines(lines) == text


@pytest.mark.parametrize(
    ("providers", "visible", "used"),
    [
        (["CUDAExecutionProvider", "CPUExecutionProvider"], None, True),
        (["CUDAExecutionProvider", "CPUExecutionProvider"], "1", True),
        (["CUDAExecutionProvider", "CPUExecutionProvider"], "", False),
        (["CUDAExecutionProvider", "CPUExecutionProvider"], "-1", False),
        (["CPUExecutionProvider"], None, False),
    ],
)
def test_cuda_is_used_where_it_is_offered_and_visible(providers: list[str], visible: str | None, used: bool) -> None:
    assert uses_cuda(providers, visible) is used


def test_recognition_on_a_gpu_that_is_not_there_runs_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert recognize_page(RapidOcr(1, gpu=True), page())[0].text == SENTENCE
