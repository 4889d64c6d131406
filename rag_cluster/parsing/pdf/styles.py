"""Styles: what all characters of one text object share, read for all objects of a page at once."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rag_cluster.parsing.pdf import native
from rag_cluster.parsing.pdf.fonts import FontCache
from rag_cluster.parsing.pdf.geometry import Array, PageSpace

SLANTED = -1
"""`Style.turn` of text that runs neither along nor across the page."""
_STROKED, _INVISIBLE = 2, 3
"""Text render modes."""
_PAINT = struct.Struct("=4I4f")


@dataclass(slots=True)
class Style:
    """What all characters of one text object share; objects that look the same share one."""

    size: float
    """Height of the em in points as displayed."""
    font: str
    bold: bool
    italic: bool
    mono: bool
    color: int
    """0xRRGGBB."""
    invisible: bool
    turn: int
    """Quarter turns counter-clockwise of the reading direction as displayed (0 upright), or SLANTED."""
    mcid: int
    """Marked content id, -1 without."""
    odd_box: bool = False
    """The font's ascent and descent are unusable, so that boxes come from the baseline."""
    even: bool = False
    """The boxes of all characters on one baseline have one height: that of the font."""


class StyleReader:
    """Reads the styles of an open text page."""

    def __init__(self, textpage: int, space: PageSpace) -> None:
        self._page = textpage
        self._space = space
        self.cache = FontCache()
        self.fonts: list[int] = []
        """Of the text objects that were read: the address of the font."""
        self.ems: Array = np.zeros(0)
        """And the em along the baseline, in user space; negative where the text is mirrored."""
        self.sizes = self.turns = np.zeros(0)
        """And `Style.size` and `Style.turn`."""

    def read(self, handles: Sequence[int], indices: Sequence[int]) -> list[Style]:
        """One per text object, by a character of each."""
        count = len(handles)
        rgba = np.zeros((count, 4), np.uint32)
        at = rgba.ctypes.data
        channels = (range(at + 4 * k, at + 4 * k + 16 * count, 16) for k in range(4))
        colored = list(map(native.object_fill, handles, *channels))
        sizes = native.char_font_sizes(self._page, indices)
        matrices = native.char_matrices(self._page, indices)
        self.fonts = list(map(native.text_font, handles))
        self.ems = matrices[:, 0] * np.array(sizes)
        paint = np.hstack([rgba, matrices[:, :4].view(np.uint32)])
        looks = zip(
            sizes,
            self.fonts,
            colored,
            paint.view(np.dtype((np.void, 32)))[:, 0].tolist(),
            map(native.text_render_mode, handles),
            map(native.object_mcid, handles),
            native.chars_unmapped(self._page, indices),
            strict=True,
        )
        known: dict[tuple[object, ...], Style] = {}
        out = []
        for look in looks:
            style = known.get(look)
            if style is None:
                style = known[look] = self._style(*look)
            out.append(style)
        self.sizes = np.array([style.size for style in out])
        self.turns = np.array([style.turn for style in out])
        return out

    def measure(self, styles: list[Style], indices: Sequence[int], boxes: Array) -> None:
        """Put other styles where the font's box is unusable; boxes: of the words that begin there, (n, 4)."""
        across = np.where(self.turns % 2, boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1])
        usual = (0.55 * self.sizes < across) & (across < 1.9 * self.sizes)
        if usual.all():
            return
        for i in np.flatnonzero(~usual & ((self.turns != SLANTED) | (self.sizes <= 0))).tolist():
            styles[i] = self._measured(styles[i], indices[i])
            self.sizes[i] = styles[i].size

    def _style(
        self,
        size: float,
        font: int,
        colored: int,
        paint: bytes,
        mode: int,
        mcid: int,
        unmapped: int,
    ) -> Style:
        """paint: red, green, blue and alpha as 32 bit numbers, then the text matrix as floats."""
        *rgba, a, b, c, d = _PAINT.unpack(paint)
        size *= (math.hypot(c, d) or 1.0) * self._space.unit
        name, bold, italic, mono = self.cache.facts(font)
        color = rgba[0] << 16 | rgba[1] << 8 | rgba[2]
        invisible = mode == _INVISIBLE or (mode == 0 and bool(colored) and rgba[3] == 0)
        name = "?" if unmapped else name
        turn = self._turn(a, b)
        even = turn == 0 and self._space.rotation == 0 and size > 0 and self.cache.has_height(font)
        return Style(size, name, bold or mode == _STROKED, italic, mono, color, invisible, turn, mcid, even=even)

    def _turn(self, a: float, b: float) -> int:
        degrees = math.degrees(math.atan2(b, a)) if a or b else 0.0
        quarter = round(degrees / 90)
        if abs(degrees - 90 * quarter) > 4:
            return SLANTED
        return (quarter - self._space.rotation) % 4

    def _measured(self, style: Style, index: int) -> Style:
        """A word in vertical writing is long across its line; one character tells whether the font's box is odd."""
        left, top, right, bottom = native.char_boxes(self._page, [index])[0].tolist()
        x0, y0, x1, y1 = self._space.box(left, bottom, right, top)
        across = x1 - x0 if style.turn % 2 else y1 - y0
        if style.size <= 0:
            return replace(style, size=max(across, 1.0))
        odd = not 0.55 * style.size < across < 1.9 * style.size
        return replace(style, odd_box=True) if odd else style
