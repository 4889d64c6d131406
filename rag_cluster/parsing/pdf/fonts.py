"""What a font's name and flags say about its characters."""

from __future__ import annotations

import ctypes
import re
from functools import lru_cache

from rag_cluster.parsing.pdf import native

_BOLD = re.compile(
    r"bold|black|heavy|semib|demi|[-,]bd|CMBX|CMSSBX|SFBX|[-_]Medi(?:$|Ital)|\bMedi\b|-B$", re.IGNORECASE
)
_MONO = re.compile(
    r"mono|cour|consol|CMTT|SFTT|typewriter|menlo|inconsol|fixed|letter ?gothic|lucidasanstyp", re.IGNORECASE
)
_ITALIC = re.compile(r"ital|obli|slant|[-,]It$|CMTI|CMSL", re.IGNORECASE)
_SUBSET = re.compile(r"^[A-Z]{6}\+")

FontFacts = tuple[str, bool, bool, bool]
"""(name without subset tag, bold, italic, monospaced)"""


class FontCache:
    """What fonts say, by address; for one page, since pdfium frees fonts with their pages."""

    def __init__(self) -> None:
        self._known: dict[int, FontFacts] = {}
        self._heights: dict[int, bool] = {}
        self._identities: dict[int, tuple[bytes, int]] = {}
        self._buffer = ctypes.create_string_buffer(256)
        self._numbers = native.Floats(2)

    def facts(self, font: int) -> FontFacts:
        """Of the font at an address; empty ones for 0."""
        known = self._known.get(font)
        if known is None:
            known = self._known[font] = self._read(font)
        return known

    def identity(self, font: int) -> tuple[bytes, int]:
        """(name with subset tag, flags): for most documents other ones for every font."""
        known = self._identities.get(font)
        if known is None:
            native.font_name(font, ctypes.addressof(self._buffer), 256)
            known = self._identities[font] = (self._buffer.value, native.font_flags(font))
        return known

    def has_height(self, font: int) -> bool:
        """Whether the font at an address states ascent and descent; else pdfium measures every glyph by itself."""
        known = self._heights.get(font)
        if known is None:
            values, (ascent, descent) = self._numbers.values, self._numbers.addresses
            known = self._heights[font] = bool(
                font
                and native.font_ascent(font, 1000.0, ascent)
                and native.font_descent(font, 1000.0, descent)
                and values[0] != values[1]
            )
        return known

    def _read(self, font: int) -> FontFacts:
        if not font:
            return ("", False, False, False)
        return _classify(*self.identity(font))


@lru_cache(maxsize=2048)
def _classify(name: bytes, flags: int) -> FontFacts:
    text = _SUBSET.sub("", name.decode("utf-8", "replace"))
    flags = max(flags, 0)
    bold, italic, mono = bool(_BOLD.search(text)), bool(_ITALIC.search(text)), bool(_MONO.search(text))
    return (text, bold or bool(flags & 0x40000), italic or bool(flags & 0x40), mono or bool(flags & 1))
