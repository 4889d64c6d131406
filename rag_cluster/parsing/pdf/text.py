"""Words with boxes and styles from a page's text layer.

The text comes in one call per page; then two boxes and one object per word, and one style per text object: no call per
character. Boxes are in the space of the page as displayed: points, top-left origin.
"""

from __future__ import annotations

import ctypes
import itertools
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from rag_cluster.parsing.pdf import native
from rag_cluster.parsing.pdf.geometry import Array, PageSpace
from rag_cluster.parsing.pdf.styles import Style, StyleReader

_BULLET = re.compile("(?:(?<=\\n)|^)[\x01-\x08\x0e-\x1f](?=\\s)")
"""A glyph without Unicode at the start of a line: a bullet, by its place."""
_LETTERS = re.compile(r"[A-Za-z ]+$")
_VERTICAL_CJK = re.compile("[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u30ff]")
_LAM_ALEF = re.compile("[\u0622\u0623\u0625\u0627]\u0644")

_CJK_BLANK = re.compile("(?<=[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]) (?=[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef])")

_BLANK, _NOTHING, _SOFT, _INK = range(4)
"""Kinds of characters: white space, invisible, a hyphen that pdfium took for a line-end hyphenation, visible."""
_KINDS = np.full(0x10000, _INK, np.uint8)
_KINDS[:0x20] = _KINDS[[0x7F, 0x200B, 0xFEFF, 0xFFFF]] = _NOTHING
_KINDS[[0x02, 0xAD, 0xFFFE]] = _SOFT
_KINDS[[code for code in range(0x3001) if chr(code).isspace()]] = _BLANK

Codes = npt.NDArray[np.uint32]
Indices = npt.NDArray[np.int64]


class Word:
    """A run: words of one text object side by side, with single blanks between them. A page has many."""

    __slots__ = ("hyphen", "members", "order", "space", "style", "text", "x0", "x1", "y0", "y1")

    def __init__(
        self,
        text: str,
        box: Sequence[float],
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
    """What runs are made of: per word its span in the text, hyphenation mark, style and displayed box."""

    text: str
    starts: list[int]
    ends: list[int]
    soft: list[bool]
    styles: list[Style]
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
            start, stop = self.source.starts[i], self.source.ends[i]
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
            twin.style = replace(twin.style, bold=True)
            continue
        seen[key] = word
        out.append(word)
    return out


class _Reader:
    def __init__(self, textpage: int, space: PageSpace) -> None:
        self._page = textpage
        self._space = space
        self._reach = (2 * space.width + 2, 2 * space.height + 2)
        self._rect = native.Floats(4)
        self._last = native.Floats(4)
        self._point = native.Floats(2, ctypes.c_double)

    def read(self) -> TextLayer:
        text, codes = self._text()
        starts, ends, marks = _words(codes)
        if not len(starts):
            return TextLayer([], len(text))
        firsts = starts.tolist()
        handles = np.array(list(map(native.char_object, itertools.repeat(self._page), firsts)), np.uintp)
        boxes = self._boxes(starts, ends - 1 - marks)
        groups = np.flatnonzero(np.concatenate([[True], handles[1:] != handles[:-1]]))
        reader = StyleReader(self._page, self._space)
        styles = reader.read(handles[groups].tolist(), starts[groups].tolist(), boxes[groups])
        lengths = np.diff(groups, append=len(starts))
        breaks = _breaks(styles, lengths, starts, ends, boxes)
        every = list(itertools.chain.from_iterable(map(itertools.repeat, styles, lengths.tolist())))
        source = _Source(text, firsts, ends.tolist(), marks.astype(bool).tolist(), every, boxes)
        words = _without_twins(self._runs(source, breaks))
        _mark_monospaced(words)
        return TextLayer(words, len(text), _is_vertical(words), source)

    def _runs(self, source: _Source, breaks: Indices) -> list[Word]:
        """Words between breaks as one each; those outside of the page are left out."""
        boxes = source.boxes
        corners = np.hstack([np.minimum.reduceat(boxes[:, :2], breaks), np.maximum.reduceat(boxes[:, 2:], breaks)])
        firsts = breaks.tolist()
        text, starts, ends, soft, styles = source.text, source.starts, source.ends, source.soft, source.styles
        right, bottom = self._reach
        out = []
        for first, end, box in zip(firsts, [*firsts[1:], len(starts)], corners.tolist(), strict=True):
            start, stop, mark, style = starts[first], ends[end - 1], soft[end - 1], styles[first]
            content = text[start : stop - 1] + "-" if mark else text[start:stop]
            if not content.isascii():
                if end - first > 1:
                    content = _CJK_BLANK.sub("", content)
                elif _LAM_ALEF.search(content):
                    content = self._lam_alef(content, start)
            if style.odd_box:
                box = self._baseline_box(start, box, style)
            if -2 <= box[0] + box[2] <= right and -2 <= box[1] + box[3] <= bottom:
                space = first == 0 or start > ends[first - 1]
                out.append(Word(content, box, style, space, mark, start, (first, end)))
        return out

    def _boxes(self, starts: Indices, lasts: Indices) -> Array:
        """Displayed boxes from the first to the last character of every word, shape (n, 4)."""
        page, count = itertools.repeat(self._page), len(starts)
        first = np.empty((count, 4), np.float32)
        at = first.ctypes.data
        # deque(maxlen=0) makes the calls without a Python frame each.
        deque(map(native.loose_box, page, starts.tolist(), range(at, at + 16 * count, 16)), maxlen=0)
        longer = np.flatnonzero(lasts != starts)
        second = np.empty((len(longer), 4), np.float32)
        at = second.ctypes.data
        deque(map(native.loose_box, page, lasts[longer].tolist(), range(at, at + 16 * len(longer), 16)), maxlen=0)
        edges = first.astype(float)
        edges[longer, 0] = np.minimum(edges[longer, 0], second[:, 0])
        edges[longer, 1] = np.maximum(edges[longer, 1], second[:, 1])
        edges[longer, 2] = np.maximum(edges[longer, 2], second[:, 2])
        edges[longer, 3] = np.minimum(edges[longer, 3], second[:, 3])
        left, top, right, bottom = edges.T
        return self._space.boxes(left, bottom, right, top)

    def _text(self) -> tuple[str, Codes]:
        """The page's text with one character per pdfium character index, and its code points."""
        count = max(native.char_count(self._page), 0)
        units = np.zeros(count + 1, np.uint16)
        got = native.char_text(self._page, 0, count, units.ctypes.data) if count else 0
        if got == count + 1:
            units = units[:count]
            text = units.tobytes().decode("utf-16-le", "replace")
            if len(text) == count:
                return self._with_bullets(text, units.astype(np.uint32))
        # Characters without Unicode or beyond the first plane: positions differ, so ask for each.
        codes = np.array(list(map(native.char_unicode, itertools.repeat(self._page, count), range(count))), np.uint32)
        codes[(codes >= 0x110000) | ((codes >= 0xD800) & (codes < 0xE000))] = 0
        return self._with_bullets(codes.tobytes().decode("utf-32-le"), codes)

    def _with_bullets(self, text: str, codes: Codes) -> tuple[str, Codes]:
        if not (_KINDS[codes[codes < 0x20]] != _BLANK).any():
            return text, codes
        text = _BULLET.sub("•", text)
        return text, np.frombuffer(text.encode("utf-32-le"), np.uint32)

    def _lam_alef(self, text: str, start: int) -> str:
        """pdfium spells the lam-alef ligature backwards; both letters then share one box."""
        letters = list(text)
        for match in _LAM_ALEF.finditer(text):
            native.loose_box(self._page, start + match.start(), self._rect.address)
            native.loose_box(self._page, start + match.start() + 1, self._last.address)
            if abs(self._rect.values[0] - self._last.values[0]) < 0.5:
                letters[match.start()], letters[match.start() + 1] = match[0][1], match[0][0]
        return "".join(letters)

    def _baseline_box(self, index: int, box: Sequence[float], style: Style) -> Sequence[float]:
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


def _words(codes: Codes) -> tuple[Indices, Indices, Indices]:
    """(starts, ends, 1 where the last character is a hyphenation mark) of the words of a text.

    A mark ends a word that goes on; what follows it is a word of its own.
    """
    kinds = np.full(len(codes) + 2, _BLANK, np.uint8)
    kinds[1:-1] = _KINDS[np.minimum(codes, 0xE000 if codes.max(initial=0) > 0xFFFF else 0xFFFF)]
    ink = kinds == _INK
    starts = np.flatnonzero(ink[1:] & ~ink[:-1])
    ends = np.flatnonzero(~ink[1:] & ink[:-1])
    marks = ((kinds[ends + 1] == _SOFT) & (kinds[np.minimum(ends + 2, len(codes) + 1)] != _BLANK)).astype(np.int64)
    return starts, ends + marks, marks


def _breaks(styles: Sequence[Style], lengths: Indices, starts: Indices, ends: Indices, boxes: Array) -> Indices:
    """Indices of the words that begin a run: another text object, line or a wide gap before them."""
    size = np.repeat([style.size for style in styles], lengths)[1:]
    joined = np.repeat([style.turn == 0 for style in styles], lengths)
    joined[np.cumsum(lengths)[:-1]] = False
    joined[1:] &= starts[1:] - ends[:-1] == 1
    joined[1:] &= np.abs(boxes[1:, 0] - boxes[:-1, 2] - 0.15 * size) < 0.35 * size
    joined[1:] &= np.abs(boxes[1:, 1] - boxes[:-1, 1]) < 0.3 * size
    joined[0] = False
    return np.flatnonzero(~joined)


def _is_vertical(words: Sequence[Word]) -> bool:
    """Whether most of the text is Chinese or Japanese that runs from top to bottom."""
    tall = [w for w in words if w.y1 - w.y0 > 1.6 * (w.x1 - w.x0) and w.style.turn == 0 and len(w.text) > 1]
    vertical = sum(len(w.text) for w in tall if _VERTICAL_CJK.search(w.text))
    return vertical > 0 and vertical > 0.4 * sum(len(w.text) for w in words)
