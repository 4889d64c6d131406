"""The two networks of text recognition as onnxruntime sessions: where lines stand, and what a line says.

    pixels -> detect -> quads -> (ocr_cuts) -> pictures of lines -> read -> (text, confidence) ...

Weights are rapidocr's (PP-OCRv6 small: Chinese, English, Latin scripts, Japanese, digits); the recognising one is also
here in 8 bits (weights/README.md), which a CPU with VNNI reads 2.2 times as fast.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rag_cluster.errors import MissingDependencyError
from rag_cluster.parsing.ocr_cuts import joined, printed, short_side

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rag_cluster.parsing.ocr_cuts import Pixels, Quad

logger = logging.getLogger(__name__)

DETECTOR = "PP-OCRv6_det_small.onnx"
RECOGNIZER = "PP-OCRv6_rec_small.onnx"
RECOGNIZER_INT8 = Path(__file__).parent / "weights" / "PP-OCRv6_rec_small_int8.onnx"

SIDE = 1280
"""Pixels of the longer side in which lines are looked for; 8 pt on A4 is 12 of them."""
FINE_SIDE = 2400
"""The same where the type is small, or nothing was found."""
FINE_HEIGHT = 12.5
"""Pixels of the height of what was found (first decile) below which it is looked for again; type of 7 is 13 high."""
ENLARGE = 3.0
"""Small pictures are enlarged by this at most."""
HEIGHT = 48
"""Pixels of the height in which lines are read."""
NARROWEST = 96
"""Pixels of the width in which lines are read, at least."""
CPU_COLUMNS = 1024
GPU_COLUMNS = 48_000
"""Pixels of width that are read in one call together, where lines are of about the same width."""
BLANK = 0.25
FAINT_BLANK = 0.08
"""Probability from which there is a blank between two letters; in a line with Chinese or Japanese, FAINT_BLANK."""
WIDE = "\u2e80"
"""First of the characters that are set without blanks."""


class TextModels:
    """Both networks. threads: of onnxruntime, on the CPU. gpu: on CUDA where it is offered and can be set up."""

    def __init__(self, threads: int, gpu: bool) -> None:
        self._threads = threads
        self._providers, self._cuda = _providers(gpu)

    def detect(self, pixels: Pixels) -> list[Quad]:
        """Quads of the lines, top to bottom; [] on a blank page."""
        import numpy as np

        out = []
        # The detector sees less in a large empty page: it gets what is printed.
        for left, top, right, bottom in printed(pixels):
            quads = joined(self._search(pixels[top:bottom, left:right]))
            out += [quad + np.array([left, top], np.float32) for quad in quads]
        return sorted(out, key=lambda quad: float(quad[:, 1].mean()))

    def read(self, lines: Sequence[Pixels], squeeze: float = 1.0) -> list[tuple[str, float]]:
        """(text, confidence 0-1) of each upright picture of a line. squeeze: of the width, before it is read."""
        out: list[tuple[str, float]] = [("", 0.0)] * len(lines)
        widths = [max(math.ceil(HEIGHT * line.shape[1] / line.shape[0] * squeeze), 8) for line in lines]
        for batch in _batches(widths, GPU_COLUMNS if self._cuda else CPU_COLUMNS):
            for index, reading in zip(
                batch, self._read([lines[i] for i in batch], [widths[i] for i in batch]), strict=True
            ):
                out[index] = reading
        return out

    def _search(self, pixels: Pixels) -> list[Quad]:
        """Quads of the lines, looked for twice where the type is small."""
        longer = max(pixels.shape[:2])
        scale = min(SIDE / longer, ENLARGE)
        quads = self._detect(pixels, scale)
        heights = sorted(short_side(quad) * scale for quad in quads)
        finer = min(FINE_SIDE / longer, 1.0)
        if finer > 1.2 * scale and (not heights or heights[len(heights) // 10] < FINE_HEIGHT):
            return self._detect(pixels, finer)
        return quads

    def _detect(self, pixels: Pixels, scale: float) -> list[Quad]:
        import cv2
        import numpy as np

        height, width = pixels.shape[:2]
        # What touches the edge, or is all of a picture, is found where there is something around it.
        border = round(0.05 * max(height, width)) if min(height, width) < max(height, width) / 8 else 0
        if border:
            pixels = np.asarray(
                cv2.copyMakeBorder(pixels, border, border, border, border, cv2.BORDER_REPLICATE), np.uint8
            )
        full = pixels.shape[:2]
        size = [max(32, round(side * scale / 32) * 32) for side in full]
        small = cv2.resize(pixels, (size[1], size[0]), interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
        (heat,) = self._detector.run(None, {self._detector.get_inputs()[0].name: _normalised(small)[None]})
        quads, _ = self._outline(heat, full)
        out = [np.asarray(quad, np.float32) - border for quad in quads]
        return [quad for quad in out if quad[:, 0].max() > 0 and quad[:, 1].max() > 0]

    def _read(self, lines: Sequence[Pixels], widths: Sequence[int]) -> Iterator[tuple[str, float]]:
        import cv2
        import numpy as np

        batch = np.zeros((len(lines), 3, HEIGHT, max(*widths, NARROWEST)), np.float32)
        for row, line, width in zip(batch, lines, widths, strict=True):
            row[:, :, :width] = _normalised(cv2.resize(line, (width, HEIGHT)))
        session, characters = self._recognizer
        (steps,) = session.run(None, {session.get_inputs()[0].name: batch})
        for probabilities in steps:
            yield _decoded(probabilities, characters)

    @cached_property
    def _detector(self) -> Any:
        return self._session(bundled(DETECTOR))

    @cached_property
    def _recognizer(self) -> tuple[Any, list[str]]:
        path = RECOGNIZER_INT8 if not self._cuda and reads_int8() else bundled(RECOGNIZER)
        session = self._session(path)
        return session, ["", *session.get_modelmeta().custom_metadata_map["character"].split("\n"), " "]

    @cached_property
    def _outline(self) -> Any:
        from rapidocr.ch_ppocr_det.utils import DBPostProcess

        return DBPostProcess(0.3, 0.5, max_candidates=4000, unclip_ratio=1.6, use_dilation=True)

    def _session(self, path: Path) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        # Threads that wait must not take the cores that other actors need.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # Every page has a shape of its own; a plan of memory for each would only pile up.
        options.enable_mem_pattern = False
        if self._cuda:
            try:
                return onnxruntime.InferenceSession(str(path), options, providers=self._providers)
            except Exception:  # a driver or library that does not fit: the CPU serves, and the log says why it must
                logger.warning("Text recognition runs on the CPU: CUDA could not be set up", exc_info=True)
                self._cuda = False
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@lru_cache(maxsize=2)
def text_models(threads: int, gpu: bool = False) -> TextModels:
    """The models of this process: loaded once, at the first use (0.5 s). MissingDependencyError without `local`."""
    bundled(DETECTOR)
    return TextModels(threads, gpu)


def bundled(name: str) -> Path:
    """A model inside rapidocr's wheel. MissingDependencyError without it."""
    try:
        import onnxruntime  # noqa: F401 - needed by whoever asks for the model
        import rapidocr
    except ImportError as error:
        raise MissingDependencyError(
            "Text recognition needs rapidocr and onnxruntime: pip install 'rag-cluster[local]', or set RAG_OCR=off"
        ) from error
    path = Path(rapidocr.__file__).parent / "models" / name
    if not path.exists():
        raise MissingDependencyError(
            f"This rapidocr has no {name}: pip install 'rag-cluster[local]' brings one that has"
        )
    return path


def uses_cuda(providers: Sequence[str], visible: str | None) -> bool:
    """Whether onnxruntime offers CUDA and CUDA_VISIBLE_DEVICES does not hide every device."""
    return "CUDAExecutionProvider" in providers and visible not in ("", "-1")


@lru_cache(maxsize=1)
def reads_int8(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the CPU multiplies 8-bit numbers without saturating: elsewhere they are less exact, and no faster."""
    if not RECOGNIZER_INT8.exists() or not cpuinfo.exists():
        return False
    flags = next((line for line in cpuinfo.read_text().splitlines() if line.startswith("flags")), "").split()
    return not {"avx512_vnni", "avx_vnni"}.isdisjoint(flags)


def _decoded(probabilities: NDArray[np.float32], characters: Sequence[str]) -> tuple[str, float]:
    """(text, mean confidence) of (steps, characters): one character lasts for some steps, 0 parts it from the next."""
    import numpy as np

    best = probabilities.argmax(1)
    kept = np.flatnonzero((best != 0) & (best != len(characters) - 1) & np.diff(best, prepend=0).astype(bool))
    if not len(kept):
        return "", 0.0
    found = [characters[i] for i in best[kept]]
    # Beside Chinese the model is shy of blanks between words: a faint one is one.
    blanks = np.maximum.reduceat(probabilities[:, -1], kept) >= (FAINT_BLANK if max(found) >= WIDE else BLANK)
    text = found[0]
    for left, right, blank in zip(found, found[1:], blanks, strict=False):
        text += f" {right}" if blank and max(left, right) < WIDE else right
    return text, float(probabilities[kept, best[kept]].mean())


def _providers(gpu: bool) -> tuple[list[Any], bool]:
    import onnxruntime

    if not gpu or not uses_cuda(onnxruntime.get_available_providers(), os.environ.get("CUDA_VISIBLE_DEVICES")):
        return ["CPUExecutionProvider"], False
    # Pages come in all sizes; EXHAUSTIVE would search for the best convolution anew for each of them.
    return [("CUDAExecutionProvider", {"cudnn_conv_algo_search": "HEURISTIC"}), "CPUExecutionProvider"], True


def _batches(widths: Sequence[int], columns: int) -> Iterator[list[int]]:
    """Indices of lines of about the same width, so that little is padded; `columns` of width in each batch at most."""
    batch: list[int] = []
    for index in sorted(range(len(widths)), key=widths.__getitem__):
        widest = max(widths[index], NARROWEST)
        if batch and ((len(batch) + 1) * widest > columns or widest > 1.15 * max(widths[batch[0]], NARROWEST)):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _normalised(pixels: NDArray[Any]) -> NDArray[np.float32]:
    """(3, height, width) from -1 to 1."""
    import numpy as np

    return pixels.transpose(2, 0, 1).astype(np.float32) / np.float32(127.5) - np.float32(1)
