"""Words with boxes and styles from a page's text layer.

The text comes in one call per page; then two boxes and one object per word, and one style per text object: no call per
character. Boxes are in the space of the page as displayed: points, top-left origin.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pypdfium2.raw as pdfium_c

from rag_cluster.domain.blocks import BBox
from rag_cluster.parsing.pdf import native
from rag_cluster.parsing.pdf.fonts import FontCache
from rag_cluster.parsing.pdf.geometry import Array, PageSpace

_WORD = re.compile("[^\\s\x00-\x1f\x7f\u00ad\u200b\u2028\ufeff\ufffe\uffff]+(?:[\x02\u00ad\ufffe](?=[^\\s]))?")
_BULLET = re.compile("(?:(?<=\\n)|^)[\x01-\x08\x0e-\x1f](?=\\s)")
"""A glyph without Unicode at the start of a line: a bullet, by its place."""
_SOFT = "\x02\u00ad\ufffe"
_LETTERS = re.compile(r"[A-Za-z ]+$")
_VERTICAL_CJK = re.compile("[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u30ff]")
_LAM_ALEF = re.compile("[\u0622\u0623\u0625\u0627]\u0644")

_CJK_BLANK = re.compile("(?<=[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]) (?=[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef])")

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
    """A run: words of one text object side by side, with single blanks between them. A page has many."""

    __slots__ = ("hyphen", "members", "order", "space", "style", "text", "x0", "x1", "y0", "y1")

    def __init__(
        self,
        text: str,
        box: BBox,
        style: Style,
        space: bool,
        hyphen: bool,
        order: int,
        members: tuple[int, int] = (0, 0),
    ) -> None:
        self.members = members
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
class _Source:
    """What runs are made of: per word its span in the text, hyphenation mark, text object and displayed box."""

    text: str
    spans: list[tuple[int, int]]
    soft: list[bool]
    handles: list[int | None]
    boxes: Array


@dataclass(slots=True)
class TextLayer:
    """A page's runs in the order of the content stream, without duplicates."""

    words: list[Word]
    characters: int = 0
    vertical: bool = False
    """Most words run from top to bottom (Chinese and Japanese vertical writing)."""
    source: _Source | None = None

    def split(self, word: Word) -> list[Word]:
        """The single words of a run, in displayed coordinates."""
        first, end = word.members
        if self.source is None or end - first < 2:
            return [word]
        out = []
        for i in range(first, end):
            start, stop = self.source.spans[i]
            x0, y0, x1, y1 = self.source.boxes[i].tolist()
            if word.style.odd_box:
                y0, y1 = word.y0, word.y1
            mark = self.source.soft[i]
            text = self.source.text[start : stop - mark] + "-" * mark
            out.append(Word(text, (x0, y0, x1, y1), word.style, i > first or word.space, mark, start, (i, i + 1)))
        return out


def read_text(textpage: object, space: PageSpace) -> TextLayer:
    """The words of an open text page."""
    return _Reader(native.address(textpage), space).read()


def _mark_monospaced(words: Sequence[Word]) -> None:
    """Fonts whose words all have the same width per letter are monospaced, whatever their flags say."""
    widths: dict[str, list[float]] = {}
    for word in words:
        style = word.style
        if (
            style.turn == 0
            and not style.mono
            and len(word.text) > 2
            and word.text.isascii()
            and _LETTERS.match(word.text)
        ):
            widths.setdefault(style.font, []).append((word.x1 - word.x0) / len(word.text) / style.size)
    fixed = {
        font
        for font, ratios in widths.items()
        if len(ratios) > 3 and min(ratios) > 0.45 and max(ratios) < 0.8 and max(ratios) - min(ratios) < 0.012
    }
    if fixed:
        for word in words:
            word.style.mono = word.style.mono or word.style.font in fixed


def _without_twins(words: list[Word]) -> list[Word]:
    """Words printed twice with a small offset (the poor man's bold) once, as bold."""
    places = {(round(w.x0 * 0.5), round(w.y0 * 0.5)) for w in words}
    if len(places) == len(words):
        return words
    seen: dict[tuple[str, int, int], Word] = {}
    out = []
    for word in words:
        key = (word.text, round(word.x0 * 0.5), round(word.y0 * 0.5))
        twin = seen.get(key)
        if twin is not None and abs(twin.x1 - word.x1) < 2:
            twin.style.bold = True
            continue
        seen[key] = word
        out.append(word)
    return out


class _Reader:
    def __init__(self, textpage: int, space: PageSpace) -> None:
        self._page = textpage
        self._space = space
        self._reach = (2 * space.width + 2, 2 * space.height + 2)
        self._fonts = FontCache()
        self._styles: dict[int | None, Style] = {}
        self._rect = native.Floats(4)
        self._last = native.Floats(4)
        self._matrix = native.Floats(6)
        self._point = native.Floats(2, ctypes.c_double)
        self._rgba = native.Floats(4, ctypes.c_uint)

    def read(self) -> TextLayer:
        text = self._text()
        if not text.isprintable():
            text = _BULLET.sub("•", text)
        spans = [match.span() for match in _WORD.finditer(text)]
        if not spans:
            return TextLayer([], len(text))
        # A word that pdfium hyphenated over a line end carries the mark as its last character.
        soft = [text[end - 1] in _SOFT for _, end in spans]
        starts = [start for start, _ in spans]
        lasts = [end - 1 - mark for (_, end), mark in zip(spans, soft, strict=True)]
        handles = list(map(native.char_object, itertools.repeat(self._page), starts))
        boxes = self._boxes(starts, lasts)
        for index, handle in enumerate(handles):
            if handle not in self._styles:
                self._styles[handle] = self._style(handle or 0, starts[index], boxes[index])
        source = _Source(text, spans, soft, handles, boxes)
        breaks = self._breaks(source)
        corners = np.hstack([np.minimum.reduceat(boxes[:, :2], breaks), np.maximum.reduceat(boxes[:, 2:], breaks)])
        runs = zip(breaks, [*breaks[1:], len(spans)], corners.tolist(), strict=True)
        words = [word for first, end, box in runs if (word := self._run(source, first, end, box)) is not None]
        words = _without_twins(words)
        _mark_monospaced(words)
        tall = [w for w in words if w.style.turn == 0 and w.y1 - w.y0 > 1.6 * (w.x1 - w.x0) and len(w.text) > 1]
        vertical = sum(len(w.text) for w in tall if _VERTICAL_CJK.search(w.text))
        return TextLayer(words, len(text), vertical > 0.4 * sum(len(w.text) for w in words), source)

    def _breaks(self, source: _Source) -> list[int]:
        """Indices of the words that begin a run: another text object, line or a wide gap before them."""
        handles, boxes = source.handles, source.boxes
        styles = [self._styles[handle] for handle in handles]
        size = np.array([style.size for style in styles])
        turned = np.array([style.turn != 0 for style in styles])
        # Styles belong to text objects one to one.
        same = np.array([a is b for a, b in itertools.pairwise(styles)], bool)
        spans = np.array(source.spans)
        gap = boxes[1:, 0] - boxes[:-1, 2]
        joined = (
            same
            & (spans[1:, 0] - spans[:-1, 1] == 1)
            & (np.abs(gap - 0.15 * size[1:]) < 0.35 * size[1:])
            & (np.abs(boxes[1:, 1] - boxes[:-1, 1]) < 0.3 * size[1:])
            & ~turned[1:]
        )
        return [0, *(np.flatnonzero(~joined) + 1).tolist()]

    def _run(self, source: _Source, first: int, end: int, box: Sequence[float]) -> Word | None:
        """Words first..end-1 as one; None outside of the page."""
        start, stop = source.spans[first][0], source.spans[end - 1][1]
        handle, mark = source.handles[first], source.soft[end - 1]
        style = self._styles[handle]
        text = source.text[start : stop - 1] + "-" if mark else source.text[start:stop]
        if not text.isascii():
            if end - first > 1:
                text = _CJK_BLANK.sub("", text)
            elif _LAM_ALEF.search(text):
                text = self._lam_alef(text, start)
        x0, y0, x1, y1 = box
        if style.odd_box:
            x0, y0, x1, y1 = self._baseline_box(start, (x0, y0, x1, y1), style)
        if not (-2 <= x0 + x1 <= self._reach[0] and -2 <= y0 + y1 <= self._reach[1]):
            return None
        space = first == 0 or start > source.spans[first - 1][1]
        return Word(text, (x0, y0, x1, y1), style, space, mark, start, (first, end))

    def _boxes(self, starts: list[int], lasts: list[int]) -> Array:
        """Displayed boxes from the first to the last character of every word, shape (n, 4)."""
        count = len(starts)
        rects = np.empty((2, count, 4), np.float32)
        first = rects.ctypes.data
        second = first + 16 * count
        page = itertools.repeat(self._page)
        # deque(maxlen=0) makes the calls without a Python frame each.
        deque(map(native.loose_box, page, starts, range(first, second, 16)), maxlen=0)
        deque(map(native.loose_box, page, lasts, range(second, second + 16 * count, 16)), maxlen=0)
        left, top, right, bottom = rects.transpose(2, 0, 1).astype(float)
        return self._space.boxes(left.min(0), bottom.min(0), right.max(0), top.max(0))

    def _text(self) -> str:
        """The page's text with one character per pdfium character index."""
        count = max(pdfium_c.FPDFText_CountChars(ctypes.cast(self._page, pdfium_c.FPDF_TEXTPAGE)), 0)
        if not count:
            return ""
        buffer = ctypes.create_string_buffer(2 * (count + 1))
        pointer = ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ushort))
        got = pdfium_c.FPDFText_GetText(ctypes.cast(self._page, pdfium_c.FPDF_TEXTPAGE), 0, count, pointer)
        text = buffer.raw[: 2 * max(got - 1, 0)].decode("utf-16-le", "replace")
        if len(text) == count:
            return text
        # Characters without Unicode or beyond the first plane: positions differ, so ask for each.
        codes = [native.char_unicode(self._page, i) for i in range(count)]
        return "".join(chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else "\x00" for code in codes)

    def _lam_alef(self, text: str, start: int) -> str:
        """pdfium spells the lam-alef ligature backwards; both letters then share one box."""
        letters = list(text)
        for match in _LAM_ALEF.finditer(text):
            native.loose_box(self._page, start + match.start(), self._rect.address)
            native.loose_box(self._page, start + match.start() + 1, self._last.address)
            if abs(self._rect.values[0] - self._last.values[0]) < 0.5:
                letters[match.start()], letters[match.start() + 1] = match[0][1], match[0][0]
        return "".join(letters)

    def _style(self, handle: int, index: int, box: Array) -> Style:
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
        across = float(box[2] - box[0] if style.turn % 2 else box[3] - box[1])
        if style.turn != SLANTED and not 0.55 * size < across < 1.9 * size:
            # A word in vertical writing is long across; one character tells.
            native.loose_box(self._page, index, self._rect.address)
            left, top, right, bottom = self._rect.values
            x0, y0, x1, y1 = self._space.box(left, bottom, right, top)
            across = x1 - x0 if style.turn % 2 else y1 - y0
            style.odd_box = size > 0 and not 0.55 * size < across < 1.9 * size
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
        """Ascent 0.8 em and descent 0.2 em around the baseline, across the reading direction as displayed."""
        native.char_origin(self._page, index, *self._point.addresses)
        x, y, _, _ = self._space.box(*self._point.values, *self._point.values)
        em = style.size
        if style.turn == 0:
            return (box[0], y - 0.8 * em, box[2], y + 0.2 * em)
        if style.turn == 2:
            return (box[0], y - 0.2 * em, box[2], y + 0.8 * em)
        if style.turn == 1:
            return (x - 0.8 * em, box[1], x + 0.2 * em, box[3])
        return (x - 0.2 * em, box[1], x + 0.8 * em, box[3])
