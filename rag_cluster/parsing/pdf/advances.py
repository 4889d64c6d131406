"""Glyph widths: how wide a piece of a line is when it is set as its font says, without kerning that could hide a gap.

Widths are remembered over pages and documents by the font's name. A wrong one (another font of the same name) does no
harm: what is set with it is not as wide as expected then, and looked at word by word.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from rag_cluster.parsing.pdf import native
from rag_cluster.parsing.pdf.characters import Codes, Indices
from rag_cluster.parsing.pdf.fonts import FontCache

_SIZE = 0x2100
"""Code points that are known: Latin, Greek, Cyrillic and more letters, and typographic punctuation."""
_FONTS = 64
"""Fonts that are remembered."""
_BLANK = 0x20
_OTHER_BLANKS = (0xA0, *range(0x2000, 0x200C))

Widths = npt.NDArray[np.float32]


class _Memory(threading.local):
    """Widths in em, a row for each font: NaN what was not asked yet, infinite what never is as expected."""

    def __init__(self) -> None:
        self.rows: dict[tuple[bytes, int], int] = {}
        self.table = np.empty((_FONTS, _SIZE), np.float32)
        self._width = native.Floats(1)
        self._clear()

    def _clear(self) -> None:
        self.rows.clear()
        self.table[:] = np.nan
        self.table[:, _OTHER_BLANKS] = self.table[:, -1] = np.inf

    def of(self, fonts: Sequence[int], cache: FontCache) -> dict[int, int]:
        """Font address -> row."""
        keys = {font: cache.identity(font) for font in fonts}
        if len(self.rows.keys() | keys.values()) > _FONTS:
            self._clear()
        return {font: self.rows.setdefault(key, len(self.rows)) for font, key in keys.items()}

    def learn(self, row: int, code: int, font: int) -> None:
        """Ask the font for one width."""
        found = native.glyph_width(font, code, 1.0, self._width.address)
        self.table[row, code] = self._width.values[0] if found else np.inf


_memory = _Memory()


def stated_widths(
    codes: Codes, starts: Indices, ends: Indices, fonts: Sequence[int], cache: FontCache
) -> tuple[Widths, Widths]:
    """(width of each piece, width of its font's blank) in em; fonts: the address of each piece's font.

    starts, ends: the pieces' places in `codes`, one behind the other. Infinite where a width is not known.
    """
    distinct = list(dict.fromkeys(fonts))
    if len(distinct) > _FONTS:
        return np.full(len(fonts), np.inf, np.float32), np.full(len(fonts), np.inf, np.float32)
    row_of = _memory.of(distinct, cache)
    rows = np.array([row_of[font] for font in fonts]) * _SIZE
    # One place more than there are characters, so that the last piece may end at it.
    first, last = int(starts[0]), int(ends[-1])
    keys = np.zeros(last - first + 1, np.int64)
    np.minimum(codes[first:last], _SIZE - 1, out=keys[:-1], casting="unsafe")
    spans = np.empty(len(starts), np.int64)
    spans[:-1], spans[-1] = starts[1:] - starts[:-1], last + 1 - starts[-1]
    keys += np.repeat(rows, spans)
    keys[-1] = rows[-1] + _BLANK
    table = _memory.table.reshape(-1)
    widths = table.take(keys)
    blanks = table.take(rows + _BLANK)
    if np.isnan(widths).any() or np.isnan(blanks).any():
        _learn(np.append(keys[np.isnan(widths)], (rows + _BLANK)[np.isnan(blanks)]), row_of)
        widths, blanks = table.take(keys), table.take(rows + _BLANK)
    places = np.empty(2 * len(starts), np.int64)
    places[::2], places[1::2] = starts - first, ends - first
    # The odd sums are those of what stands between the pieces.
    return np.add.reduceat(widths, places)[::2], blanks


def _learn(keys: Indices, row_of: Mapping[int, int]) -> None:
    font_of = {row: font for font, row in row_of.items()}
    for key in np.unique(keys).tolist():
        row, code = divmod(key, _SIZE)
        _memory.learn(row, code, font_of[row])
