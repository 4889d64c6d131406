"""What a font's name and flags say about its characters."""

from __future__ import annotations

import ctypes
import re

from rag_cluster.parsing.pdf import native

_BOLD = re.compile(
    r"bold|black|heavy|semib|demi|[-,]bd|CMBX|CMSSBX|SFBX|[-_]Medi(?:$|Ital)|\bMedi\b|-B$", re.IGNORECASE
)
_MONO = re.compile(
    r"mono|cour|consol|CMTT|SFTT|typewriter|menlo|inconsol|fixed|letter ?gothic|lucidasanstyp", re.IGNORECASE
)
_ITALIC = re.compile(r"ital|obli|slant|[-,]It$|CMTI|CMSL", re.IGNORECASE)


class FontCache:
    """Font facts by address; for one page, since pdfium frees fonts with their pages."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[str, bool, bool, bool]] = {}
        self._buffer = ctypes.create_string_buffer(256)

    def facts(self, font: int) -> tuple[str, bool, bool, bool]:
        """(name without subset tag, bold, italic, monospaced)."""
        if font not in self._known:
            self._known[font] = self._read(font)
        return self._known[font]

    def _read(self, font: int) -> tuple[str, bool, bool, bool]:
        if not font:
            return ("", False, False, False)
        native.font_name(font, ctypes.addressof(self._buffer), 256)
        name = self._buffer.value.decode("utf-8", "replace")
        name = name[7:] if re.match(r"[A-Z]{6}\+", name) else name
        flags = max(native.font_flags(font), 0)
        bold = bool(_BOLD.search(name)) or bool(flags & 0x40000)
        return (
            name,
            bold,
            bool(_ITALIC.search(name)) or bool(flags & 0x40),
            bool(_MONO.search(name)) or bool(flags & 1),
        )
