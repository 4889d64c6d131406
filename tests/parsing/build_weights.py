"""Makes rag_cluster/parsing/weights/PP-OCRv6_rec_small_int8.onnx: `python -m tests.parsing.build_weights LATIN CJK`.

LATIN and CJK are font files (Liberation Serif and WenQuanYi Zen Hei were used). Needs `pip install onnx`, which nothing
else here does. Weights are rounded to 8 bits for each output channel; the ranges of what flows between the layers are
those over 200 lines of the model's own characters, clean and noisy. The output is the same on every run.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from rag_cluster.parsing.ocr_models import HEIGHT, RECOGNIZER, RECOGNIZER_INT8, bundled

# Only what the quantiser knows by name may be in the graph; it would take fused convolutions for something else.
KEPT_APART = ["ConvActivationFusion", "ConvAddActivationFusion", "MatmulTransposeFusion"]
LINES = 200
WIDTH = 480


def line(rng: random.Random, characters: dict[str, list[str]], fonts: tuple[str, str]) -> Image.Image:
    kind = rng.choice(["rare", "common", "latin", "numbers", "kana", "mixed", "mixed"])
    count = rng.randint(6, 24)
    if kind == "numbers":
        text = " ".join(f"{rng.uniform(-9999, 99999):,.{rng.randint(0, 3)}f}" for _ in range(count // 5))
    elif kind == "mixed":
        text = "".join(rng.choice(characters[rng.choice(["common", "latin", "latin"])]) for _ in range(count))
    else:
        text = "".join(
            " " if kind == "latin" and rng.random() < 0.15 else rng.choice(characters[kind]) for _ in range(count)
        )
    size = rng.choice([18, 22, 28, 36])
    latin, dense = (ImageFont.truetype(path, size) for path in fonts)
    pieces = [(c, latin if c < "\u0250" else dense) for c in text]
    picture = Image.new("L", (int(sum(f.getlength(c) for c, f in pieces)) + 8, int(size * 1.45)), 255)
    draw, x = ImageDraw.Draw(picture), 4.0
    for c, font in pieces:
        draw.text((x, size * 1.1), c, font=font, fill=0, anchor="ls")
        x += font.getlength(c)
    if rng.random() < 0.35:
        grain = np.random.default_rng(rng.randint(0, 10**6)).normal(
            0, rng.choice([8, 18]), (picture.height, picture.width)
        )
        blurred = np.asarray(picture.filter(ImageFilter.GaussianBlur(0.6))) * 0.85 + 25
        picture = Image.fromarray((blurred + grain).clip(0, 255).astype(np.uint8))
    return picture.point(lambda value: 255 - value) if rng.random() < 0.15 else picture


def inputs(model: Path, fonts: tuple[str, str]) -> Iterator[np.ndarray]:
    session = onnxruntime.InferenceSession(str(model))
    known = session.get_modelmeta().custom_metadata_map["character"].split("\n")
    han = [c for c in known if "\u4e00" <= c <= "\u9fff"]
    characters = {
        "rare": han,
        "common": [c for c in han if c.encode("gb2312", "ignore")],
        "kana": [c for c in known if "\u3040" <= c <= "\u30ff"],
        "latin": [c for c in known if len(c) == 1 and c < "\u0250" and c.isprintable()],
    }
    rng = random.Random(6)
    for _ in range(LINES):
        picture = line(rng, characters, fonts).convert("RGB")
        scaled = picture.resize(
            (max(64, round(HEIGHT * picture.width / picture.height)), HEIGHT), Image.Resampling.BILINEAR
        )
        yield np.asarray(scaled)[:, :WIDTH, ::-1].transpose(2, 0, 1)[None].astype(np.float32) / 127.5 - 1


def build(out: Path, fonts: tuple[str, str]) -> None:
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    source = bundled(RECOGNIZER)

    class Lines:
        def __init__(self) -> None:
            self._inputs = inputs(source, fonts)

        def get_next(self) -> dict[str, Any] | None:
            value = next(self._inputs, None)
            return None if value is None else {"x": value}

    with tempfile.TemporaryDirectory() as folder:
        plain, newer, fused = (Path(folder) / f"{name}.onnx" for name in ("plain", "newer", "fused"))
        optimise(source, plain, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC)
        onnx.save(onnx.version_converter.convert_version(onnx.load(plain), 17), newer)
        optimise(newer, fused, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED)
        quantize_static(
            fused,
            out,
            Lines(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            op_types_to_quantize=["Conv", "MatMul"],
        )
    model = onnx.load(out)
    if not model.metadata_props:
        onnx.helper.set_model_props(model, {p.key: p.value for p in onnx.load(source).metadata_props})
        onnx.save(model, out)


def optimise(model: Path, out: Path, level: Any) -> None:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(out)
    onnxruntime.InferenceSession(
        str(model), options, providers=["CPUExecutionProvider"], disabled_optimizers=KEPT_APART
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fonts", nargs=2)
    parser.add_argument("--out", type=Path, default=RECOGNIZER_INT8)
    arguments = parser.parse_args()
    build(arguments.out, tuple(arguments.fonts))
