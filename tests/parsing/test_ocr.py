"""How a page image is read: which way, how often, in what colours, and what becomes of doubtful lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from rag_cluster.domain.ports import RecognizedLine
from rag_cluster.parsing import ocr_cuts, ocr_models
from rag_cluster.parsing.ocr import RapidOcr, read_page, recognize_page
from rag_cluster.parsing.ocr_lines import SAMPLE, Way, read_lines
from rag_cluster.parsing.ocr_models import TextModels, text_models
from rag_cluster.parsing.reading_order import paragraphs
from tests.parsing.test_images import SENTENCE, line, page

CHINESE_FONTS = [
    path
    for path in (
        Path("/usr/share/fonts/truetype/wqy/wqy-zenhei.ttc"),
        Path("/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc"),
        Path("/System/Library/Fonts/PingFang.ttc"),
    )
    if path.exists()
]
needs_chinese = pytest.mark.skipif(not CHINESE_FONTS, reason="no Chinese font on this machine")
LEFT = ["The gauge at the old bridge was read", "on the first of March and stood at", "192 centimetres above its mark."]
RIGHT = [
    "The mills along the upper reaches",
    "have long been closed, and the towns",
    "below have grown into one another.",
]
MANUAL = ["港务局审查了靠泊作业", "船舶须提前报告吃水", "引航员有权拒绝登轮", "检查人员应逐项登记"]


def columns(rows: int = 3) -> Image.Image:
    """Two columns of text, each `rows` / 3 times."""
    picture = Image.new("L", (1500, 160 + 44 * rows), 255)
    draw = ImageDraw.Draw(picture)
    for x, texts in ((60, LEFT), (800, RIGHT)):
        for row in range(rows):
            draw.text((x, 80 + 44 * row), texts[row % 3], fill=0, font=ImageFont.load_default(34))
    return picture


class Counted(TextModels):
    """The models, counting the lines that they read."""

    def __init__(self) -> None:
        super().__init__(1, False)
        self.lines: list[float] = []

    def read(self, lines: Sequence[Any], squeeze: float = 1.0) -> list[tuple[str, float]]:
        self.lines += [squeeze] * len(lines)
        return super().read(lines, squeeze)


def pixels(picture: Image.Image) -> Any:
    return np.ascontiguousarray(np.asarray(picture.convert("RGB"))[:, :, ::-1])


@pytest.mark.parametrize("degrees", [-2.0, 1.5])
def test_a_skewed_page_of_two_columns_is_read_column_by_column(degrees: float) -> None:
    picture = columns(9).rotate(degrees, expand=True, fillcolor=255, resample=Image.Resampling.BICUBIC)
    text = " ".join(p.text for p in recognize_page(RapidOcr(1), picture))
    assert text == " ".join([*LEFT * 3, *RIGHT * 3])


def test_boxes_of_a_skewed_page_lie_on_the_page_as_given() -> None:
    picture = page().rotate(3, expand=True, fillcolor="white")
    (paragraph,) = recognize_page(RapidOcr(1), picture)
    ink = picture.convert("L").point(lambda v: 255 if v < 128 else 0).getbbox()
    assert ink is not None and all(abs(a - b) < 15 for a, b in zip(ink, paragraph.bbox, strict=True))


def test_lines_that_fall_are_grouped_as_if_they_were_level() -> None:
    slope = math.tan(math.radians(2))
    lines = []
    for row in range(4):
        for column in range(2):
            y = 100 + 26 * row + 650 * column * slope
            box = (50.0 + 650 * column, y, 650.0 + 650 * column, y + 600 * slope + 20)
            lines.append(RecognizedLine(f"{'ab'[column]}{row}", box, 0.9, 2.0))
    assert "".join(p.text.replace(" ", "") for p in paragraphs(reversed(lines))) == "a0a1a2a3b0b1b2b3"


def test_a_note_that_runs_up_the_margin_is_a_paragraph_of_its_own() -> None:
    text = [line(f"line {n} goes on", 100, 100 + 26 * n, 400) for n in range(4)]
    note = RecognizedLine("kept in the margin", (40.0, 80.0, 62.0, 300.0), 0.9)
    assert [p.text for p in paragraphs([note, *text])][-1] == "kept in the margin"
    assert "margin" not in paragraphs([note, *text])[0].text


def test_an_upright_page_reads_no_line_twice() -> None:
    models = Counted()
    found = read_lines(models, pixels(columns(9)))
    assert found.way is Way.UPRIGHT and len(models.lines) == len(found.lines) == 18


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_the_way_a_page_stands_is_told_from_a_few_lines(degrees: int) -> None:
    models = Counted()
    found = read_lines(models, pixels(columns(9).rotate(degrees, expand=True)))
    assert found.way == degrees and len(models.lines) <= 18 + SAMPLE


@needs_chinese
def test_lines_of_chinese_are_read_squeezed_and_those_with_english_again_in_full() -> None:
    picture = Image.new("L", (1100, 600), 255)
    font = ImageFont.truetype(str(CHINESE_FONTS[0]), 40)
    texts = [f"第{n}条规定：{MANUAL[n % 4]}，{MANUAL[(n + 1) % 4]}。" for n in range(8)] + [
        "Kubernetes and Elasticsearch"
    ]
    for row, text in enumerate(texts):
        ImageDraw.Draw(picture).text((50, 40 + 60 * row), text, fill=0, font=font)
    models = Counted()
    found = read_lines(models, pixels(picture))
    assert [ln.text for ln in sorted(found.lines, key=lambda ln: ln.bbox[1])] == texts
    assert models.lines.count(1.0) == SAMPLE + 1 and len(models.lines) == len(texts) + 1


@needs_chinese
def test_chinese_set_from_top_to_bottom_is_read_from_the_right() -> None:
    picture = Image.new("L", (420, 560), 255)
    font = ImageFont.truetype(str(CHINESE_FONTS[0]), 42)
    for column, text in enumerate(MANUAL):
        for row, character in enumerate(text):
            ImageDraw.Draw(picture).text((320 - 80 * column, 40 + 46 * row), character, fill=0, font=font)
    (paragraph,) = recognize_page(RapidOcr(1), picture)
    assert paragraph.text == "".join(MANUAL)
    assert paragraph.lines[0].bbox[0] > 300 and paragraph.bbox[2] < 400


@needs_chinese
def test_blanks_between_words_are_kept_in_lines_of_chinese() -> None:
    text = "服务部署在Kubernetes 1.29集群，配额为2 CPU和4 GiB内存"
    picture = Image.new("L", (1300, 160), 255)
    ImageDraw.Draw(picture).text((40, 60), text, fill=0, font=ImageFont.truetype(str(CHINESE_FONTS[0]), 40))
    assert recognize_page(RapidOcr(1), picture)[0].text == text


def colour_modes() -> dict[str, Image.Image]:
    grey = page().convert("L")
    ink = grey.point(lambda value: 255 - value)
    clear = {shade: Image.merge("LA", (Image.new("L", grey.size, shade), ink)) for shade in (0, 255)}
    return {
        "bilevel": grey.convert("1"),
        "palette": page().quantize(8),
        "palette with alpha": clear[0].convert("RGBA").quantize(16),
        "CMYK": page().convert("CMYK"),
        "16 bits": Image.fromarray(np.asarray(grey).astype(np.uint16) * 257),
        "32 bits": Image.fromarray(np.asarray(grey).astype(np.int32) * 257),
        "floating point": Image.fromarray(np.asarray(grey).astype(np.float32) / 255),
        "dark ink on clear ground": clear[0],
        "light ink on clear ground": clear[255],
        "light on dark": ink,
    }


@pytest.mark.parametrize("mode", list(colour_modes()))
def test_a_picture_is_read_in_any_colour_mode(mode: str) -> None:
    assert [p.text for p in recognize_page(RapidOcr(1), colour_modes()[mode])] == [SENTENCE]


@pytest.mark.parametrize("size", [(1, 1), (2000, 8), (3, 900), (300, 300)])
def test_a_page_without_text_has_no_paragraphs(size: tuple[int, int]) -> None:
    assert read_page(RapidOcr(1), Image.new("L", size, 255)).paragraphs == ()


def test_a_blank_page_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TextModels, "_detect", lambda *_: pytest.fail("searched"))
    assert read_page(RapidOcr(1), Image.new("L", (1654, 2339), 250)).paragraphs == ()


def test_small_type_is_searched_in_a_larger_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    scales: list[float] = []
    detect = TextModels._detect
    monkeypatch.setattr(TextModels, "_detect", lambda self, image, s: scales.append(s) or detect(self, image, s))
    picture = Image.new("L", (3300, 4600), 255)
    for row in range(100):
        ImageDraw.Draw(picture).text((200, 200 + 40 * row), SENTENCE, fill=0, font=ImageFont.load_default(16))
    recognize_page(RapidOcr(1), picture)
    assert len(scales) == 2 and scales[1] > 1.4 * scales[0]


def test_what_stands_far_apart_on_a_large_page_is_searched_by_itself() -> None:
    picture = Image.new("L", (3300, 4600), 255)
    for y in (120, 2400, 4480):
        ImageDraw.Draw(picture).text((200, y), SENTENCE, fill=0, font=ImageFont.load_default(22))
    found = recognize_page(RapidOcr(1), picture)
    assert [p.text for p in found] == [SENTENCE] * 3
    assert [abs(p.bbox[1] - y) < 20 for p, y in zip(found, (120, 2400, 4480), strict=True)] == [True] * 3


def test_doubtful_lines_are_left_out_and_counted() -> None:
    class Doubtful:
        def recognize(self, image: bytes) -> Sequence[RecognizedLine]:
            return [line("sure", 10, 10, 100), RecognizedLine("il;,", (10.0, 60.0, 80.0, 80.0), 0.4)]

    reading = read_page(Doubtful(), page())
    assert [p.text for p in reading.paragraphs] == ["sure"] and reading.illegible == 1
    assert "1 line was too uncertain" in reading.warning
    assert read_page(RapidOcr(1), page()).warning == ""


def test_lines_of_about_the_same_width_are_read_together() -> None:
    widths = [100, 2000, 104, 300, 98, 310, 1990]
    batches = list(ocr_models._batches(widths, 4000))
    assert sorted(i for batch in batches for i in batch) == list(range(7))
    assert all(max(widths[i] for i in batch) <= 1.15 * min(widths[i] for i in batch) for batch in batches)
    assert [len(batch) for batch in batches] == [3, 2, 2]
    assert all(len(batch) == 1 for batch in ocr_models._batches([900, 900], 1024))


def test_margins_that_make_letters_narrow_are_cut_off_from_picture_and_box() -> None:
    quad = np.array([[0, 0], [400, 0], [400, 60], [0, 60]], np.float32)
    picture = np.full((60, 400, 3), 255, np.uint8)
    picture[18:44, 10:390] = 0
    picture[0:3, 50:200] = 0  # of the line above
    line, box = ocr_cuts.cut(picture, quad)
    assert len(line) == pytest.approx(26 / ocr_cuts.FILLED, abs=2)
    assert box[0].tolist() == pytest.approx([2, 15], abs=1.5) and box[2].tolist() == pytest.approx([398, 47], abs=1.5)
    down, turned = ocr_cuts.cut(np.ascontiguousarray(picture.transpose(1, 0, 2)), quad[[0, 3, 2, 1]][:, ::-1].copy())
    assert down.shape[1] == len(line) and turned[0].tolist() == pytest.approx([15, 2], abs=1.5)
    dash = np.full((60, 400, 3), 255, np.uint8)
    dash[28:32, 100:300] = 0
    assert ocr_cuts.cut(dash, quad)[0].shape == dash.shape


def test_a_mark_found_beside_a_line_is_part_of_it() -> None:
    def box(x0: float, y0: float, x1: float, y1: float) -> Any:
        return np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]], np.float32)

    found = ocr_cuts.joined(
        [box(50, 100, 600, 136), box(606, 102, 620, 114), box(50, 150, 640, 186), box(900, 150, 912, 160)]
    )
    assert [quad[:, 0].max() for quad in found] == [620, 640, 912]


def test_a_mark_that_stands_high_is_of_its_row() -> None:
    text, mark = line("he said: “so it is.", 50, 100, 400, 36), line("”", 452, 102, 10, 12)
    assert paragraphs([mark, text])[0].text == "he said: “so it is. ”"


def test_a_faint_blank_counts_between_words_beside_chinese_only() -> None:
    characters = ["", "a", "b", "中", " "]

    def steps(*best: int) -> np.ndarray:
        out = np.full((len(best), 5), 0.01, np.float32)
        out[np.arange(len(best)), best] = 0.9
        out[:, 4] = 0.2
        return out

    assert ocr_models._decoded(steps(1, 1, 0, 2), characters)[0] == "ab"
    assert ocr_models._decoded(steps(3, 0, 1, 0, 2, 0, 2), characters)[0] == "中a b b"
    assert ocr_models._decoded(steps(0, 0), characters) == ("", 0.0)


@pytest.mark.parametrize(("flags", "used"), [("sse2 avx2 avx512_vnni", True), ("avx_vnni", True), ("sse2 avx2", False)])
def test_the_8_bit_recogniser_is_used_where_the_cpu_has_instructions_for_it(
    tmp_path: Path, flags: str, used: bool
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nflags\t\t: {flags}\n")
    assert ocr_models.reads_int8(cpuinfo) is used
    assert not ocr_models.reads_int8(tmp_path / "missing")


@pytest.mark.parametrize("int8", [True, False])
def test_both_recognisers_read_the_same(monkeypatch: pytest.MonkeyPatch, int8: bool) -> None:
    monkeypatch.setattr(ocr_models, "reads_int8", lambda: int8)
    text_models.cache_clear()
    try:
        found = recognize_page(RapidOcr(1), columns(3))
    finally:
        text_models.cache_clear()
    assert " ".join(p.text for p in found) == " ".join([*LEFT, *RIGHT])


def test_on_a_gpu_both_networks_run_on_cuda_with_the_models_in_full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    made: list[tuple[str, list[Any]]] = []

    class Session:
        def __init__(self, path: str, options: Any, providers: list[Any]) -> None:
            made.append((Path(path).name, providers))

        def get_modelmeta(self) -> Any:
            return type("Meta", (), {"custom_metadata_map": {"character": "a\nb"}})

    offered = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: offered)
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    models = TextModels(2, True)
    assert models._detector and models._recognizer[1] == ["", "a", "b", " "]
    assert [name for name, _ in made] == [ocr_models.DETECTOR, ocr_models.RECOGNIZER]
    assert all(p[0][0] == "CUDAExecutionProvider" and p[1] == "CPUExecutionProvider" for _, p in made)
    assert models._cuda
