"""The lines of one page image. Which way the page stands is told from a few of them; then all are read that way.

    pixels -> detect -> cut -> way (upright or turned) -> read -> RecognizedLine ...

Reading is what costs (0.07 s of a core for a full line), so no line is read twice without need.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from rag_cluster.domain.ports import RecognizedLine
from rag_cluster.parsing.ocr_cuts import cut
from rag_cluster.parsing.ocr_models import TextModels

if TYPE_CHECKING:
    import numpy as np

    from rag_cluster.parsing.ocr_cuts import Pixels, Quad

SURE = 0.80
"""Mean confidence above which a page is taken to stand as it was read."""
SIDEWAYS_SURE = 0.92
"""The same of lines that run from top to bottom: upside down they are sometimes read nearly as surely."""
SAMPLE = 4
"""Lines, the longest ones, from which the way and the script are told."""
TALL = 1.5
"""Height over width from which a line runs from top to bottom."""
SQUEEZE = 0.7
"""Of the width of Chinese and Japanese lines: their characters stay apart, and reading takes 0.7 of the time."""
_DENSE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_NARROW = re.compile(r"[A-Za-z\u00c0-\u024f]")

Reading = tuple[str, float]


class Way(IntEnum):
    """Degrees clockwise that turn a page so that its lines run from left to right, the first one on top.

    Chinese set from top to bottom stands LEFT: the recogniser knows characters that lie on their side, and the columns,
    which go from right to left, become rows from top to bottom.
    """

    UPRIGHT = 0
    RIGHT = 90
    FLIPPED = 180
    LEFT = 270


@dataclass(frozen=True, slots=True)
class PageLines:
    """Lines with boxes of the page turned its way."""

    lines: tuple[RecognizedLine, ...]
    way: Way = Way.UPRIGHT


def read_lines(models: TextModels, pixels: Pixels, *, upright: bool = False) -> PageLines:
    """All lines of a page, in no order. upright: it is known to stand so."""
    found = [cut(pixels, quad) for quad in models.detect(pixels)]
    if not found:
        return PageLines(())
    cuts, quads = [picture for picture, _ in found], [quad for _, quad in found]
    way, readings = (Way.UPRIGHT, {}) if upright else _way(models, cuts)
    _read_others(models, cuts, way, readings)
    if way is Way.UPRIGHT:
        _read_tall(models, cuts, readings)
    height, width = pixels.shape[:2]
    lines = (_line(quads[i], *readings[i], way, width, height) for i in range(len(cuts)))
    return PageLines(tuple(line for line in lines if line.text), way)


def _way(models: TextModels, cuts: Sequence[Pixels]) -> tuple[Way, dict[int, Reading]]:
    """How the page stands, and what was read on the way to know it."""
    tall = sum(cut.shape[0] for cut in cuts if _is_tall(cut))
    sideways = tall > 0.5 * sum(max(cut.shape[:2]) for cut in cuts)
    along = [i for i, cut in enumerate(cuts) if _is_tall(cut) == sideways]
    sample = sorted(along, key=lambda i: max(cuts[i].shape[:2]), reverse=True)[:SAMPLE]

    def read(way: Way) -> dict[int, Reading]:
        return dict(zip(sample, models.read([turned(cuts[i], way) for i in sample]), strict=True))

    ways = [Way.LEFT, Way.RIGHT] if sideways else [Way.UPRIGHT, Way.FLIPPED]
    best, found = ways[0], read(ways[0])
    for way in ways[1:]:
        if _confidence(found) >= (SIDEWAYS_SURE if sideways else SURE):
            break
        if _legibility(other := read(way)) > _legibility(found):
            best, found = way, other
    return best, found


def _read_others(models: TextModels, cuts: Sequence[Pixels], way: Way, readings: dict[int, Reading]) -> None:
    """Read what was not in the sample: squeezed where the sample is of dense script and the line turns out so too."""
    others = [i for i in range(len(cuts)) if i not in readings and not (way is Way.UPRIGHT and _is_tall(cuts[i]))]
    pictures = {i: turned(cuts[i], way) for i in others}
    if _is_dense("".join(text for text, _ in readings.values())):
        readings.update(zip(others, models.read([pictures[i] for i in others], SQUEEZE), strict=True))
        others = [i for i in others if readings[i][1] < SURE or not _is_dense(readings[i][0])]
    readings.update(zip(others, models.read([pictures[i] for i in others]), strict=True))


def _read_tall(models: TextModels, cuts: Sequence[Pixels], readings: dict[int, Reading]) -> None:
    """Read the lines of an upright page that run from top to bottom, each the way that reads best."""
    unsure = [i for i, picture in enumerate(cuts) if _is_tall(picture)]
    for way in (Way.LEFT, Way.RIGHT):
        for i, reading in zip(unsure, models.read([turned(cuts[i], way) for i in unsure]), strict=True):
            if i not in readings or _legibility({i: reading}) > _legibility({i: readings[i]}):
                readings[i] = reading
        unsure = [i for i in unsure if readings[i][1] < SIDEWAYS_SURE]


def turned(picture: Pixels, way: Way) -> Pixels:
    """A line's picture as it is read, from left to right."""
    import numpy as np

    return np.ascontiguousarray(np.rot90(picture, -(way // 90)))


def _line(quad: Quad, text: str, confidence: float, way: Way, width: int, height: int) -> RecognizedLine:
    x, y = quad[:, 0], quad[:, 1]
    if way:
        x, y = {90: (height - y, x), 180: (width - x, height - y), 270: (y, width - x)}[way]
    box = (float(x.min()), float(y.min()), float(x.max()), float(y.max()))
    return RecognizedLine(text.strip(), box, confidence, _angle(x, y))


def _angle(x: np.ndarray, y: np.ndarray) -> float:
    """Degrees by which the longer sides fall to the right; 0 of what is not about level."""
    dx, dy = max(
        ((float(x[b] - x[a]), float(y[b] - y[a])) for a, b in ((0, 1), (1, 2))), key=lambda side: math.hypot(*side)
    )
    angle = math.degrees(math.atan2(dy, dx))
    angle = (angle + 90) % 180 - 90
    return angle if abs(angle) < 30 else 0.0


def _is_tall(picture: Pixels) -> bool:
    return bool(picture.shape[0] >= TALL * picture.shape[1])


def _is_dense(text: str) -> bool:
    """Whether it is Chinese or Japanese, with few letters between."""
    dense, narrow = len(_DENSE.findall(text)), len(_NARROW.findall(text))
    return dense > 0.5 * len(text) and narrow <= 0.05 * len(text)


def _confidence(readings: dict[int, Reading]) -> float:
    weight = sum(len(text) for text, _ in readings.values())
    return sum(confidence * len(text) for text, confidence in readings.values()) / weight if weight else 0.0


def _legibility(readings: dict[int, Reading]) -> float:
    """Square, so that few sure characters beat many guessed ones."""
    return sum(confidence**2 * len(text) for text, confidence in readings.values())
