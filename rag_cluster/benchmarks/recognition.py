"""How well and how fast pages are read: `python -m rag_cluster.benchmarks.recognition`.

Pages are drawn from known text (English, Chinese, mixed), spoiled in the ways of scanners and telephones, read on one
core, and compared with what was drawn: character errors over characters, in reading order, blanks included.
"""

from __future__ import annotations

import io
import json
import random
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rag_cluster.benchmarks.measure import cpu_seconds, show
from rag_cluster.parsing.ocr import RapidOcr, read_page

if TYPE_CHECKING:
    from PIL import Image

LATIN = Path("/usr/share/fonts/truetype/liberation/LiberationSerif-Regular.ttf")
DENSE = Path("/usr/share/fonts/truetype/wqy/wqy-zenhei.ttc")
DPI = 200
TEXTS = {
    "English": (
        "The authority reviewed 1,284 berth movements and found that 6.4% exceeded the tug limit of 45 t. Each vessel "
        "(IMO 9403281) must report its draught, trim and bow-thruster state two hours before arrival; otherwise the "
        "pilot may refuse boarding. Fees are listed in Annex B: $312.50 per call, plus $0.87 per gross tonne. Crews "
        "fill the ballast tanks slowly, calling channel 16 whenever the level differs by 0.25 m. Small yachts, ferries "
        "and dredgers follow Rule 9(c) of the by-laws; quizzical inspectors jot down every exception. All parallel "
        "mooring lines shall be pulled, oiled and filed in the usual way until Friday. "
    ),
    "Chinese": (
        "港务局审查了1284次靠泊作业，发现其中6.4%超过拖轮45吨的限值。船舶须在抵港前两小时报告吃水、纵倾和艏侧推器状态，"
        "否则引航员有权拒绝登轮。收费标准见附件：每航次312.50元，每吨加收0.87元。压载舱应缓慢注水，水位偏差超过0.25米时"
        "呼叫调度室。游艇、渡轮与挖泥船遵守章程的规定；检查人员应逐项登记例外情况。夜间施工须经消防、海事和环保部门会签，"
        "鼓风机噪声不得超过六十五分贝。"
    ),
    "mixed": (
        "系统采用Kubernetes 1.29部署，每个Pod限制为2 CPU和4 GiB内存；日志经Fluent Bit写入Elasticsearch集群。"
        "版本v3.7.2修复了UTF-8编码的CSV导入错误。若延迟p99超过250 ms，请联系on-call工程师，电话021-5588 3076。"
        "模型BGE-M3在A100 GPU上的吞吐约为12,000 tokens/s。备份策略为每天02:30全量、每15 min增量，保存90天。"
    ),
}


@dataclass(frozen=True, slots=True)
class Result:
    """One page: CPU seconds of one core, and character errors over characters."""

    text: str
    page: str
    seconds: float
    error_rate: float


def draw(text: str, points: float, dpi: int = DPI, columns: int = 1, full: float = 0.92) -> tuple[Image.Image, str]:
    """An A4 page in grey of paragraphs of the text, from sentence to sentence, and what stands on it."""
    from PIL import Image, ImageDraw, ImageFont

    size = round(points * dpi / 72)
    fonts = [ImageFont.truetype(str(path), size) for path in (LATIN, DENSE)]
    picture = Image.new("L", (int(8.27 * dpi), int(11.69 * dpi)), 255)
    draw, margin, gutter = ImageDraw.Draw(picture), int(0.85 * dpi), int(0.3 * dpi)
    width = (picture.width - 2 * margin - gutter * (columns - 1)) // columns
    sentences = re.findall(r".+?(?:[。；]|[.;](?=\s|$))\s*", text)
    rng, want = random.Random(f"{text[:9]}{points}{dpi}{columns}"), []  # noqa: S311 - the same page on every run
    for column in range(columns):
        y = float(margin)
        while True:
            paragraph = "".join(rng.sample(sentences, min(3, len(sentences)))).strip()
            lines = list(_wrapped(paragraph, fonts, width))
            if y + len(lines) * 1.3 * size > full * picture.height:
                break
            for line in lines:
                x = float(margin + column * (width + gutter))
                for character in line:
                    font = fonts[character > "\u2e7f"]
                    draw.text((x, y + size), character, font=font, fill=0, anchor="ls")
                    x += font.getlength(character)
                y += 1.3 * size
            want.append(paragraph)
            y += 0.8 * size
    return picture, " ".join(want)


def _wrapped(text: str, fonts: Sequence[Any], width: float) -> Iterator[str]:
    line, used = "", 0.0
    for word in re.findall(r"[!-~]+|\s|.", text):
        length = sum(fonts[c > "\u2e7f"].getlength(c) for c in word)
        if used + length > width and line and word not in "，。、；：）":
            yield line.strip()
            line, used = "", 0.0
        line, used = line + word, used + length
    yield line.strip()


def noisy(picture: Image.Image) -> Image.Image:
    """Blurred, grey, with grain and specks."""
    import numpy as np
    from PIL import Image, ImageFilter

    rng = np.random.default_rng(1)
    values = np.asarray(picture.filter(ImageFilter.GaussianBlur(0.7))) * 0.85 + 25
    values = values + rng.normal(0, 18, values.shape)
    values[rng.random(values.shape) < 0.002] = 0
    return Image.fromarray(values.clip(0, 255).astype(np.uint8))


def photographed(picture: Image.Image) -> Image.Image:
    """Seen a little from the side, shaded, blurred, as a JPEG."""
    import numpy as np
    from PIL import Image, ImageFilter

    w, h = picture.size
    corners = (-0.02 * w, -0.01 * h, 0.0, 1.02 * h, 1.03 * w, 1.01 * h, 1.01 * w, -0.02 * h)
    bent = picture.transform((w, h), Image.Transform.QUAD, corners, Image.Resampling.BICUBIC, fillcolor=255)
    shade = np.linspace(0.62, 1, w)[None, :] * np.linspace(1, 0.85, h)[:, None]
    values = np.asarray(bent.filter(ImageFilter.GaussianBlur(0.6))) * shade
    values = values + np.random.default_rng(2).normal(0, 5, values.shape)
    out = io.BytesIO()
    Image.fromarray(values.clip(0, 255).astype(np.uint8)).save(out, "JPEG", quality=60)
    return Image.open(out)


def skewed(degrees: float) -> Callable[[Image.Image], Image.Image]:
    """Laid on the glass not quite straight."""

    def turn(picture: Image.Image) -> Image.Image:
        from PIL import Image

        return picture.rotate(degrees, Image.Resampling.BICUBIC, expand=True, fillcolor=255)

    return turn


def pages(text: str) -> Iterator[tuple[str, Image.Image, str]]:
    """(name, picture, what stands on it)."""
    for name, points, dpi, columns, spoil in (
        ("8 pt, 200 dpi", 8, DPI, 1, None),
        ("10 pt, 200 dpi", 10, DPI, 1, None),
        ("12 pt, 200 dpi", 12, DPI, 1, None),
        ("10 pt, 100 dpi", 10, 100, 1, None),
        ("noisy", 10, DPI, 1, noisy),
        ("skewed by 2 degrees", 10, DPI, 1, skewed(-2)),
        ("two columns", 10, DPI, 2, None),
        ("two columns, skewed by 1 degree", 9, DPI, 2, skewed(1)),
        ("photograph, 150 dpi", 10, 150, 1, photographed),
        ("photograph, 110 dpi", 12, 110, 1, photographed),
        ("on its side", 10, DPI, 1, lambda picture: picture.rotate(90, expand=True)),
        ("upside down", 10, DPI, 1, lambda picture: picture.rotate(180)),
    ):
        picture, want = draw(text, points, dpi, columns)
        yield name, spoil(picture) if spoil else picture, want
    yield "few lines", *draw(text, 11, DPI, 1, 0.25)


def error_rate(want: str, got: str) -> float:
    """Edit distance over length, after NFKC, without blanks beside Chinese (they are not printed)."""
    want, got = _normal(want), _normal(got)
    return _distance(want, got) / max(len(want), 1)


def _distance(want: str, got: str) -> int:
    """Edit distance (Myers 1999, Hyyrö 2003: a column of the table as the bits of two numbers)."""
    places: dict[str, int] = {}
    for i, character in enumerate(want):
        places[character] = places.get(character, 0) | 1 << i
    mask, top = (1 << len(want)) - 1, 1 << max(len(want) - 1, 0)
    up, down, distance = mask, 0, len(want)
    for character in got:
        same = places.get(character, 0)
        vertical = same | down
        horizontal = (((same & up) + up) ^ up) | same
        more, less = down | ~(horizontal | up), up & horizontal
        distance += bool(more & top) - bool(less & top)
        more, less = (more << 1 | 1) & mask, (less << 1) & mask
        up, down = (less | ~(vertical | more)) & mask, more & vertical
    return distance


def _normal(text: str) -> str:
    text = re.sub(r"\s+", " ", unicodedata.normalize("NFKC", text))
    return re.sub(r"(?<=[\u2e80-\u9fff]) | (?=[\u2e80-\u9fff])", "", text).strip()


def run(
    as_json: Annotated[bool, typer.Option("--json", help="Also print one JSON object as the last line.")] = False,
) -> None:
    """Read pages of known text on one core."""
    if missing := [str(font) for font in (LATIN, DENSE) if not font.exists()]:
        typer.echo(f"Drawing the pages needs {' and '.join(missing)} (fonts-liberation, fonts-wqy-zenhei)", err=True)
        raise typer.Exit(1)
    recognizer, results = RapidOcr(1), []
    read_page(recognizer, draw(TEXTS["English"], 12, 100, 1, 0.2)[0])  # loads the models
    for name, text in TEXTS.items():
        for page, picture, want in pages(text):
            found: list[str] = []

            def read(picture: Image.Image = picture, found: list[str] = found) -> None:
                found.extend(p.text for p in read_page(recognizer, picture).paragraphs)

            seconds = cpu_seconds(read)
            results.append(Result(name, page, seconds, error_rate(want, " ".join(found))))
    rows = [(f"{r.text}, {r.page}", f"{r.seconds:.2f} s", f"{100 * r.error_rate:.2f} %") for r in results]
    show("Recognition on one core", ("page", "CPU time", "character errors"), rows)
    if as_json:
        print(json.dumps([asdict(result) for result in results]))


if __name__ == "__main__":
    typer.run(run)
