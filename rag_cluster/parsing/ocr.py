"""Text recognition: one engine (rapidocr, models inside its wheel), and pages turned upright before they are read.

    image -> recognize_page -> (upright?) -> lines -> reading_order.paragraphs -> OcrParagraph ...

Boxes are always pixels of the image as it was given, top-left origin, whichever way it had to be turned.
"""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rag_cluster.domain.blocks import BBox
from rag_cluster.domain.ports import RecognizedLine, TextRecognizer
from rag_cluster.errors import MissingDependencyError
from rag_cluster.parsing.reading_order import OcrParagraph, paragraphs

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["OcrMode", "OcrParagraph", "RapidOcr", "recognize_page"]

logger = logging.getLogger(__name__)

SURE = 0.80
"""Mean confidence above which a page is taken to be upright without a second look."""


class OcrMode(StrEnum):
    """auto: where a page or picture has no text of its own. force: every page. off: never.

    deferred: as auto, but later: a parser gives the text that is there and says what awaits recognition.
    """

    AUTO = "auto"
    OFF = "off"
    FORCE = "force"
    DEFERRED = "deferred"


class RapidOcr:
    """TextRecognizer by PP-OCR models (Chinese, English, Latin scripts, digits).

    Picklable: the models are loaded once per process, at the first use. threads: of onnxruntime, on the CPU. gpu: use
    CUDA where onnxruntime offers it and a device is visible; what cannot be set up there runs on the CPU.
    """

    def __init__(self, threads: int = 2, *, gpu: bool = False) -> None:
        self.threads = threads
        self.gpu = gpu

    def recognize(self, image: bytes) -> Sequence[RecognizedLine]:
        """Lines from top to bottom. MissingDependencyError without the `local` extra."""
        return _read(_engine(self.threads, self.gpu), _decode(image))


def recognize_page(
    recognizer: TextRecognizer, image: bytes | Image.Image, *, upright: bool = False
) -> list[OcrParagraph]:
    """Paragraphs of one page image in reading order (columns one after the other); [] when nothing is legible.

    image: PNG or JPEG bytes, or a PIL image; EXIF orientation is the caller's to apply. A page that lies on its side
    or upside down is turned and read again; `rotation` of each paragraph says how far clockwise. upright: it is known
    to be, so that what is hard to read is not read twice.
    """
    picture = _decode(image) if isinstance(image, bytes) else image
    lines, rotation = (_lines(recognizer, picture, 0), 0) if upright else _upright(recognizer, picture)
    return [_turn_back(p, rotation, picture.width, picture.height) for p in paragraphs(lines)]


def _upright(recognizer: TextRecognizer, picture: Image.Image) -> tuple[list[RecognizedLine], int]:
    """The lines of the turn that reads best, with boxes of the turned image, and its degrees clockwise."""
    best = _lines(recognizer, picture, 0)
    turn = 0
    for candidate in _suspects(best):
        lines = _lines(recognizer, picture, candidate)
        if _legibility(lines) > _legibility(best):
            best, turn = lines, candidate
            if _confidence(best) >= SURE and not _sideways(best):
                break
    return best, turn


def _suspects(lines: Sequence[RecognizedLine]) -> tuple[int, ...]:
    """Degrees clockwise that are worth a try. Reading costs seconds, so an upright page is read once."""
    if not lines:
        return ()
    if _sideways(lines):
        return (90, 270)
    return () if _confidence(lines) >= SURE else (180,)


def _sideways(lines: Sequence[RecognizedLine]) -> bool:
    """Whether most of the text stands in boxes that are taller than wide."""
    long = [line for line in lines if len(line.text) >= 3]
    tall = sum(len(line.text) for line in long if line.bbox[3] - line.bbox[1] > 1.5 * (line.bbox[2] - line.bbox[0]))
    return tall > 0.5 * sum(len(line.text) for line in long)


def _confidence(lines: Sequence[RecognizedLine]) -> float:
    weight = sum(len(line.text) for line in lines)
    return sum(line.confidence * len(line.text) for line in lines) / weight if weight else 0.0


def _legibility(lines: Sequence[RecognizedLine]) -> float:
    # Square, so that few sure characters beat many guessed ones; text on its side counts less than upright text.
    return sum(line.confidence**2 * len(line.text) for line in lines) * (0.5 if _sideways(lines) else 1.0)


def _lines(recognizer: TextRecognizer, picture: Image.Image, rotation: int) -> list[RecognizedLine]:
    turned = picture.rotate(-rotation, expand=True) if rotation else picture
    if isinstance(recognizer, RapidOcr):
        return _read(_engine(recognizer.threads, recognizer.gpu), turned)
    encoded = io.BytesIO()
    turned.save(encoded, "PNG", compress_level=1)
    return list(recognizer.recognize(encoded.getvalue()))


def _turn_back(paragraph: OcrParagraph, rotation: int, width: int, height: int) -> OcrParagraph:
    """Boxes of the turned image -> boxes of the image as given (width x height)."""
    if not rotation:
        return paragraph
    return replace(
        paragraph,
        rotation=rotation,
        bbox=_box_back(paragraph.bbox, rotation, width, height),
        lines=tuple(replace(ln, bbox=_box_back(ln.bbox, rotation, width, height)) for ln in paragraph.lines),
    )


def _box_back(box: BBox, rotation: int, width: int, height: int) -> BBox:
    x0, y0, x1, y1 = box
    if rotation == 90:
        return (y0, height - x1, y1, height - x0)
    if rotation == 180:
        return (width - x1, height - y1, width - x0, height - y0)
    return (width - y1, x0, width - y0, x1)


def _decode(image: bytes) -> Image.Image:
    from PIL import Image

    return Image.open(io.BytesIO(image))


@lru_cache(maxsize=2)
def _engine(threads: int, gpu: bool = False) -> Any:
    """The models, loaded once per process (about 0.5 s, 100 MB)."""
    try:
        import onnxruntime
        from rapidocr import RapidOCR
    except ImportError as error:
        raise MissingDependencyError(
            "Text recognition needs rapidocr and onnxruntime: pip install 'rag-cluster[local]', or set RAG_OCR=off"
        ) from error
    logging.getLogger("RapidOCR").setLevel(logging.CRITICAL)
    parameters = {
        "Global.log_level": "critical",
        # Its classifier turns single lines only and is wrong on some upright ones; pages are turned as a whole.
        "Global.use_cls": False,
        "EngineConfig.onnxruntime.intra_op_num_threads": threads,
        "EngineConfig.onnxruntime.inter_op_num_threads": 1,
    }
    if gpu and uses_cuda(onnxruntime.get_available_providers(), os.environ.get("CUDA_VISIBLE_DEVICES")):
        try:
            # Pages come in all sizes; EXHAUSTIVE would search for the best convolution anew for each of them.
            cuda = {"use_cuda": True, "cuda_ep_cfg.cudnn_conv_algo_search": "HEURISTIC"}
            return RapidOCR(params=parameters | {f"EngineConfig.onnxruntime.{k}": v for k, v in cuda.items()})
        except Exception:  # a driver or library that does not fit: the CPU serves, and the log says why it must
            logger.warning("Text recognition runs on the CPU: CUDA could not be set up", exc_info=True)
    return RapidOCR(params=parameters)


def uses_cuda(providers: Sequence[str], visible: str | None) -> bool:
    """Whether onnxruntime offers CUDA and CUDA_VISIBLE_DEVICES does not hide every device."""
    return "CUDAExecutionProvider" in providers and visible not in ("", "-1")


def _read(engine: Any, picture: Image.Image) -> list[RecognizedLine]:
    import numpy as np
    from PIL import Image

    if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
        # Transparent ground is paper, not black.
        rgba = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
    pixels = np.asarray(picture.convert("RGB"))[:, :, ::-1]
    result = engine(np.ascontiguousarray(pixels))
    if not len(result):
        return []
    lines = []
    for text, score, box in zip(result.txts, result.scores, result.boxes, strict=True):
        xs, ys = box[:, 0], box[:, 1]
        bbox = (float(xs.min()), float(ys.min()), float(xs.max()), float(ys.max()))
        lines.append(RecognizedLine(text=text.strip(), bbox=bbox, confidence=float(score)))
    return lines
