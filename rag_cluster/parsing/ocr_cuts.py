"""Pieces of a page image: what of it is printed, and the picture of one line, close around its ink.

Pixels are BGR, uint8, (height, width, 3); quads are float32 (4, 2): corners from the top left, clockwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]
    Quad = NDArray[np.float32]

CONTRAST = 24
"""Grey levels between paper and ink, at least."""
MARGIN = 40
"""Pixels of paper around what is printed that the detector sees."""
STRIPE = 0.08
"""Of the height of a page that is empty between what is searched for lines by itself."""
LOOSE = 0.76
FILLED = 0.80
"""Of the height of a line's picture that is ink: below LOOSE it is cut to FILLED."""


def printed(pixels: Pixels) -> list[tuple[int, int, int, int]]:
    """(left, top, right, bottom) of what is not paper, top to bottom, with a margin; parted by wide empty stripes."""
    import numpy as np

    if not pixels.size:
        return []
    grey = pixels[::2, ::2].min(axis=2)
    ink = np.abs(grey.astype(np.int16) - int(np.median(grey))) > CONTRAST
    rows = np.flatnonzero(ink.any(axis=1))
    if not len(rows):
        return []
    height, width = pixels.shape[:2]
    stripe = max(STRIPE * height, 3 * MARGIN) / 2
    out = []
    for part in np.split(rows, np.flatnonzero(np.diff(rows) > stripe) + 1):
        top, bottom = int(part[0]), int(part[-1]) + 1
        columns = np.flatnonzero(ink[top:bottom].any(axis=0))
        left, right = 2 * int(columns[0]) - MARGIN, 2 * int(columns[-1]) + 2 + MARGIN
        out.append((max(left, 0), max(2 * top - MARGIN, 0), min(right, width), min(2 * bottom + MARGIN, height)))
    return out


def joined(quads: Sequence[Quad]) -> list[Quad]:
    """Level lines with the marks that were found beside them: a closing quotation mark is not a line."""
    import numpy as np

    if len(quads) < 2:
        return list(quads)
    boxes = np.array([(*quad.min(0), *quad.max(0)) for quad in quads])
    heights = boxes[:, 3] - boxes[:, 1]
    out = list(quads)
    taken = set()
    for i in np.flatnonzero(heights < 0.7 * np.median(heights)):
        x0, y0, x1, y1 = boxes[i]
        gaps = np.maximum(boxes[:, 0] - x1, x0 - boxes[:, 2])
        beside = (heights > 1.4 * (y1 - y0)) & (boxes[:, 1] <= y0 + 2) & (y1 <= boxes[:, 3] + 2)
        beside &= (gaps < 0.6 * heights) & (x1 - x0 < 1.5 * heights) & (boxes[:, 2] - boxes[:, 0] > 2 * heights)
        if beside.any():
            j = int(np.argmin(np.where(beside, gaps, np.inf)))
            out[j] = out[j].copy()
            out[j][[0, 3], 0] = np.minimum(out[j][[0, 3], 0], x0)
            out[j][[1, 2], 0] = np.maximum(out[j][[1, 2], 0], x1)
            taken.add(int(i))
    return [quad for i, quad in enumerate(out) if i not in taken]


def short_side(quad: Quad) -> float:
    """The height of a line, or its width where it runs from top to bottom."""
    return min(math.dist(quad[0], quad[3]), math.dist(quad[0], quad[1]))


def cut(pixels: Pixels, quad: Quad) -> tuple[Pixels, Quad]:
    """The picture of a line, straightened, as it stands on the page, and its quad, both close around the ink."""
    import cv2
    import numpy as np

    width = max(1, round(max(math.dist(quad[0], quad[1]), math.dist(quad[2], quad[3]))))
    height = max(1, round(max(math.dist(quad[0], quad[3]), math.dist(quad[1], quad[2]))))
    target = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    picture = cv2.warpPerspective(
        pixels,
        cv2.getPerspectiveTransform(quad, target),
        (width, height),
        borderMode=cv2.BORDER_REPLICATE,
        flags=cv2.INTER_CUBIC,
    )
    return _close(np.asarray(picture, np.uint8), quad)


def _close(picture: Pixels, quad: Quad) -> tuple[Pixels, Quad]:
    """Without wide margins: above and below, they would make the letters too narrow to be told apart."""
    import numpy as np

    tall = picture.shape[0] > picture.shape[1]
    level = picture.transpose(1, 0, 2) if tall else picture
    height, width = level.shape[:2]
    top, bottom, left, right = _ink(level)
    # Along a line that runs down, the corners from the top left are those of a level one, mirrored.
    across, along = ((0, 1), (3, 2)), ((0, 3), (1, 2))
    closer = _between(quad, across if tall else along, top / height, bottom / height)
    closer = _between(closer, along if tall else across, left / width, right / width)
    close = level[top:bottom, left:right]
    return np.ascontiguousarray(close.transpose(1, 0, 2) if tall else close), closer


def _between(quad: Quad, pairs: Sequence[tuple[int, int]], start: float, end: float) -> Quad:
    """The quad from `start` to `end` (0-1) of two opposite sides."""
    out = quad.copy()
    for a, b in pairs:
        out[a], out[b] = quad[a] + (quad[b] - quad[a]) * start, quad[a] + (quad[b] - quad[a]) * end
    return out


def _ink(line: Pixels) -> tuple[int, int, int, int]:
    """(top, bottom, left, right) of a level line with a margin; its full height where that would not cut off much."""
    import cv2
    import numpy as np

    height, width = line.shape[:2]
    _, bright = cv2.threshold(cv2.cvtColor(line, cv2.COLOR_BGR2GRAY), 0, 1, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
    ink = bright == int(bright.mean() < 0.5)
    counts = ink.sum(1)
    edges = np.flatnonzero(np.diff(counts >= max(2, 0.004 * width), prepend=False, append=False))
    bands = list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
    if not bands:
        return 0, height, 0, width
    main = max(bands, key=lambda band: int(counts[band[0] : band[1]].sum()))
    # What is apart from it and cut off by the edge belongs to the lines above and below.
    own = [band for band in bands if band == main or (band[0] > 0 and band[1] < height)]
    top, bottom = own[0][0], own[-1][1]
    columns = np.flatnonzero(ink[top:bottom].any(0))
    margin = round(0.3 * (bottom - top))
    left, right = max(int(columns[0]) - margin, 0), min(int(columns[-1]) + 1 + margin, width)
    # Less than that is a dash or a dot, whose height says nothing.
    if not 0.4 * height <= bottom - top:
        return 0, height, 0, width
    if bottom - top >= LOOSE * height:
        return 0, height, left, right
    margin = round((bottom - top) * (1 / FILLED - 1) / 2)
    return max(top - margin, 0), min(bottom + margin, height), left, right
