"""Words with boxes and styles from a page's text layer.

The text comes in one call per page; then two boxes and one object per word, and one style per text object: no call per
character. Boxes are in the space of the page as displayed: points, top-left origin.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import pypdfium2.raw as pdfium_c

from rag_cluster.domain.blocks import BBox
from rag_cluster.parsing.pdf import native
from rag_cluster.parsing.pdf.geometry import PageSpace

_WORD = re.compile("[^\\s\x00-\x1f\x7f\u00ad\u200b\u2028\ufeff\ufffe\uffff]+(?:[\x02\u00ad\ufffe](?=[^\\s]))?")
_SOFT = "\x02\u00ad\ufffe"
_BOLD = re.compile(
    r"bold|black|heavy|semib|demi|[-,]bd|CMBX|CMSSBX|SFBX|[-_]Medi(?:$|Ital)|\bMedi\b|-B$", re.IGNORECASE
)
_MONO = re.compile(
    r"mono|cour|consol|CMTT|SFTT|typewriter|menlo|inconsol|fixed|letter ?gothic|lucidasanstyp", re.IGNORECASE
)
_ITALIC = re.compile(r"ital|obli|slant|[-,]It$|CMTI|CMSL", re.IGNORECASE)
_VERTICAL_CJK = re.compile("[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u30ff]")
_LAM_ALEF = re.compile("[\u0622\u0623\u0625\u0627]\u0644")

SLANTED = -1
"""`Style.turn` of text that runs neither along nor across the page."""


@dataclass(slots=True)
class Style:
    """What all characters of one text object share."""

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


class Word:
    """Characters without blanks between them. Slotted and mutable: a page has many."""

    __slots__ = ("hyphen", "order", "space", "style", "text", "x0", "x1", "y0", "y1")

    def __init__(self, text: str, box: BBox, style: Style, space: bool, hyphen: bool, order: int) -> None:
        self.text = text
        self.order = order
        """Position in the text layer."""
        self.x0, self.y0, self.x1, self.y1 = box
        self.style = style
        self.space = space
        """A blank stood before it in the text layer."""
        self.hyphen = hyphen
        """It ends with a hyphen that pdfium took for a line-end hyphenation."""


@dataclass(slots=True)
class TextLayer:
    """A page's words in the order of the content stream, without duplicates."""

    words: list[Word]
    characters: int = 0
    unmapped: int = 0
    """Words whose font has no usable Unicode mapping."""
    vertical: bool = False
    """Most words run from top to bottom (Chinese and Japanese vertical writing)."""


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


def read_text(textpage: object, space: PageSpace) -> TextLayer:
    """The words of an open text page."""
    return _Reader(native.address(textpage), space).read()


def _mark_monospaced(words: Sequence[Word]) -> None:
    """Fonts whose words all have the same width per letter are monospaced, whatever their flags say."""
    widths: dict[str, list[float]] = {}
    for word in words:
        style = word.style
        if style.turn == 0 and not style.mono and len(word.text) > 2 and word.text.isascii() and word.text.isalpha():
            widths.setdefault(style.font, []).append((word.x1 - word.x0) / len(word.text) / style.size)
    fixed = {
        font
        for font, ratios in widths.items()
        if len(ratios) > 3 and 0.45 < min(ratios) and max(ratios) < 0.8 and max(ratios) - min(ratios) < 0.012
    }
    if fixed:
        for word in words:
            word.style.mono = word.style.mono or word.style.font in fixed


class _Reader:
    def __init__(self, textpage: int, space: PageSpace) -> None:
        self._page = textpage
        self._space = space
        self._fonts = FontCache()
        self._styles: dict[int, Style] = {}
        self._rect = native.Floats(4)
        self._last = native.Floats(4)
        self._matrix = native.Floats(6)
        self._point = native.Floats(2, ctypes.c_double)
        self._rgba = native.Floats(4, ctypes.c_uint)

    def read(self) -> TextLayer:
        text, direct = self._text()
        layer = TextLayer([], len(text))
        seen: dict[tuple[str, int, int], Word] = {}
        previous_end, vertical = -1, 0
        for match in _WORD.finditer(text):
            start, end = match.span()
            word_text = match[0]
            hyphen = word_text[-1] in _SOFT
            if hyphen:
                word_text = word_text[:-1] + "-"
                end -= 1
            word = self._word(word_text, start, end if end > start else start + 1, start > previous_end, hyphen)
            previous_end = match.end()
            if word is None:
                continue
            key = (word_text, round(word.x0 / 2), round(word.y0 / 2))
            twin = seen.get(key)
            if twin is not None and abs(twin.x1 - word.x1) < 2:
                # Printed twice with a small offset: the poor man's bold.
                twin.style.bold = True
                continue
            seen[key] = word
            layer.words.append(word)
            if len(word_text) > 1 and word.y1 - word.y0 > 1.6 * (word.x1 - word.x0) and word.style.turn == 0:
                vertical += len(word_text) if _VERTICAL_CJK.search(word_text) else 0
            if word.style.font == "?":
                layer.unmapped += 1
        _mark_monospaced(layer.words)
        layer.vertical = vertical > 0.4 * sum(len(w.text) for w in layer.words)
        return layer

    def _text(self) -> tuple[str, bool]:
        """The page's text with one character per pdfium character index."""
        count = max(pdfium_c.FPDFText_CountChars(ctypes.cast(self._page, pdfium_c.FPDF_TEXTPAGE)), 0)
        if not count:
            return "", True
        buffer = ctypes.create_string_buffer(2 * (count + 1))
        pointer = ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ushort))
        got = pdfium_c.FPDFText_GetText(ctypes.cast(self._page, pdfium_c.FPDF_TEXTPAGE), 0, count, pointer)
        text = buffer.raw[: 2 * max(got - 1, 0)].decode("utf-16-le", "replace")
        if len(text) == count:
            return text, True
        # Characters without Unicode or beyond the first plane: positions differ, so ask for each.
        codes = [native.char_unicode(self._page, i) for i in range(count)]
        return "".join(
            chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else "\x00" for code in codes
        ), False

    def _word(self, text: str, start: int, end: int, space: bool, hyphen: bool) -> Word | None:
        page, rect = self._page, self._rect
        handle = native.char_object(page, start)
        style = self._styles.get(handle or 0)
        if style is None:
            style = self._styles[handle or 0] = self._style(handle or 0, start)
        native.loose_box(page, start, rect.address)
        left, top, right, bottom = rect.values
        if end - start > 1:
            native.loose_box(page, end - 1, self._last.address)
            l2, t2, r2, b2 = self._last.values
            left, right = min(left, l2), max(right, r2)
            bottom, top = min(bottom, b2), max(top, t2)
        if style.odd_box:
            left, bottom, right, top = self._baseline_box(start, (left, bottom, right, top), style)
        box = self._space.box(left, bottom, right, top)
        if not self._space.shows(box):
            return None
        if _LAM_ALEF.search(text):
            text = self._lam_alef(text, start)
        return Word(text, box, style, space, hyphen, start)

    def _lam_alef(self, text: str, start: int) -> str:
        """pdfium spells the lam-alef ligature backwards; both letters then share one box."""
        letters = list(text)
        for match in _LAM_ALEF.finditer(text):
            native.loose_box(self._page, start + match.start(), self._rect.address)
            native.loose_box(self._page, start + match.start() + 1, self._last.address)
            if abs(self._rect.values[0] - self._last.values[0]) < 0.5:
                letters[match.start()], letters[match.start() + 1] = match[0][1], match[0][0]
        return "".join(letters)

    def _style(self, handle: int, index: int) -> Style:
        matrix = self._matrix
        native.char_matrix(self._page, index, matrix.address)
        a, b, c, d = matrix.values[:4]
        scale = math.hypot(c, d) or 1.0
        size = native.char_font_size(self._page, index) * scale * self._space.unit
        name, bold, italic, mono = self._fonts.facts(native.text_font(handle) or 0 if handle else 0)
        color, mode, mcid = 0, 0, -1
        if handle:
            rgba = self._rgba
            if native.object_fill(handle, *rgba.addresses):
                color = rgba.values[0] << 16 | rgba.values[1] << 8 | rgba.values[2]
                mode = 3 if rgba.values[3] == 0 else 0
            mode = native.text_render_mode(handle) or mode
            mcid = native.object_mcid(handle)
        if native.char_unmapped(self._page, index):
            name = "?"
        style = Style(size, name, bold or mode == 2, italic, mono, color, mode == 3, self._turn(a, b), mcid)
        native.loose_box(self._page, index, self._rect.address)
        left, top, right, bottom = self._rect.values
        across = (right - left) if style.turn in (1, 3) != (self._space.rotation in (1, 3)) else (top - bottom)
        style.odd_box = size > 0 and style.turn != SLANTED and not 0.55 < across * self._space.unit / size < 1.9
        if size <= 0:
            style.size = max(across, 1.0)
        return style

    def _turn(self, a: float, b: float) -> int:
        degrees = math.degrees(math.atan2(b, a)) if a or b else 0.0
        quarter = round(degrees / 90)
        if abs(degrees - 90 * quarter) > 4:
            return SLANTED
        return (quarter - self._space.rotation) % 4

    def _baseline_box(self, index: int, box: BBox, style: Style) -> BBox:
        """Ascent 0.8 em and descent 0.2 em around the baseline, along whichever axis the text runs in page space."""
        native.char_origin(self._page, index, *self._point.addresses)
        x, y = self._point.values
        em = style.size / self._space.unit
        left, bottom, right, top = box
        user_turn = (style.turn + self._space.rotation) % 4
        if user_turn == 0:
            return (left, y - 0.2 * em, right, y + 0.8 * em)
        if user_turn == 2:
            return (left, y - 0.8 * em, right, y + 0.2 * em)
        if user_turn == 1:
            return (x - 0.8 * em, bottom, x + 0.2 * em, top)
        return (x - 0.2 * em, bottom, x + 0.8 * em, top)
