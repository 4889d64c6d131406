"""Words with boxes and styles from a page's text layer.

The text comes in one call per page. Text objects and boxes are asked for at the ends of lines and objects, and word by
word only where the ends do not tell: no call per character. Boxes are in the space of the page as displayed: points,
top-left origin.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rag_cluster.parsing.pdf import native
from rag_cluster.parsing.pdf.advances import stated_widths
from rag_cluster.parsing.pdf.characters import Codes, Indices, page_text, reads_leftward, word_spans
from rag_cluster.parsing.pdf.geometry import Array, PageSpace
from rag_cluster.parsing.pdf.runs import is_vertical, mark_monospaced, without_twins
from rag_cluster.parsing.pdf.styles import Style, StyleReader

_LAM_ALEF = re.compile("[\u0622\u0623\u0625\u0627]\u0644")

_CJK_BLANK = re.compile("(?<=[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]) (?=[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef])")

Flags = npt.NDArray[np.bool_]
_LEVEL = 0.15
"""Em by which the boxes of two characters on one baseline differ at most."""
_NATURAL = 0.1
"""Em by which a piece may be longer or shorter than its font says, and is still set without kerning that hides gaps."""
_NARROW, _WIDE = -0.1, 0.4
"""Em between which a font's blank is no gap that parts runs, however the piece is set (see `_breaks`)."""


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
    """What runs are made of: the words' spans in the text and hyphenation marks; their boxes on demand."""

    text: str
    starts: Indices
    ends: Indices
    soft: Indices
    reader: _Reader

    def boxes(self, words: Indices) -> Array:
        """Displayed boxes of words from their first to their last character, shape (n, 4)."""
        return self.reader.boxes(self.starts[words], self.ends[words] - 1 - self.soft[words])


@dataclass(slots=True)
class TextLayer:
    """A page's runs in the order of the content stream, without duplicates. Good while the text page is open."""

    words: list[Word]
    characters: int = 0
    vertical: bool = False
    """Most words run from top to bottom (Chinese and Japanese vertical writing)."""
    source: _Source | None = None

    def split(self, word: Word) -> list[Word]:
        """The single words of a run, in displayed coordinates."""
        first, end = word.members
        source = self.source
        if source is None or end - first < 2:
            return [word]
        out = []
        for i, box in enumerate(source.boxes(np.arange(first, end)).tolist(), first):
            start, stop, mark = int(source.starts[i]), source.ends[i], bool(source.soft[i])
            if word.style.odd_box:
                box[1], box[3] = word.y0, word.y1
            text = source.text[start : stop - mark] + "-" * mark
            out.append(Word(text, box, word.style, i > first or word.space, mark, start, (i, i + 1)))
        return out


def read_text(textpage: object, space: PageSpace) -> TextLayer:
    """The words of an open text page."""
    return _Reader(textpage, space).read()


class _Reader:
    def __init__(self, textpage: object, space: PageSpace) -> None:
        self._open = textpage  # held, since pypdfium2 closes what nobody holds
        self._page = native.address(textpage)
        self._space = space
        self._reach = (2 * space.width + 2, 2 * space.height + 2)

    def read(self) -> TextLayer:
        text, codes = page_text(self._page)
        starts, ends, marks = word_spans(codes)
        if not len(starts):
            return TextLayer([], len(text))
        source = _Source(text, starts, ends, marks, self)
        heads = np.ones(len(starts), np.bool_)  # words that begin a line
        heads[1:] = starts[1:] - ends[:-1] != 1
        objects = self._objects(starts, heads, codes)
        changes = np.ones(len(starts), np.bool_)
        changes[1:] = objects[1:] != objects[:-1]
        groups = np.flatnonzero(changes)
        indices = starts[groups].tolist()
        looks = StyleReader(self._page, self._space)
        styles = looks.read(objects[groups].tolist(), indices)
        owners = np.cumsum(changes) - 1
        pieces, boxes = self._pieces(source, codes, heads | changes, owners, styles, looks)
        owners = owners[pieces]
        looks.measure(styles, indices, boxes[np.searchsorted(pieces, groups)])
        breaks = _breaks(looks, owners, heads[pieces], boxes)
        if len(breaks) < len(pieces):
            low, high = np.minimum.reduceat(boxes, breaks), np.maximum.reduceat(boxes, breaks)
            boxes = np.hstack([low[:, :2], high[:, 2:]])
            pieces, owners = pieces[breaks], owners[breaks]
        words = without_twins(self._runs(source, pieces, [styles[i] for i in owners.tolist()], boxes))
        mark_monospaced(words)
        return TextLayer(words, len(text), is_vertical(words), source)

    def _objects(self, starts: Indices, heads: Flags, codes: Codes) -> npt.NDArray[np.uintp]:
        """The text object of every word. When the first and the last word of a line share one, so do all between,
        unless scripts that run from right to left reorder the line."""
        firsts = np.flatnonzero(heads)
        lasts = _lasts(firsts, len(starts))
        found = np.array(native.char_objects(self._page, starts[firsts].tolist()), np.uintp)
        objects = np.repeat(found, lasts - firsts + 1)
        long = lasts > firsts
        firsts, lasts, found = firsts[long], lasts[long], found[long]
        if not len(firsts):
            return objects
        objects[lasts] = native.char_objects(self._page, starts[lasts].tolist())
        mixed = np.ones(len(firsts), np.bool_) if reads_leftward(codes) else objects[lasts] != found
        if mixed.any():
            inner = np.zeros(len(starts) + 1, np.int8)
            inner[firsts[mixed] + 1] += 1
            inner[lasts[mixed]] -= 1
            between = np.flatnonzero(inner.cumsum())
            objects[between] = native.char_objects(self._page, starts[between].tolist())
        return objects

    def _pieces(
        self, source: _Source, codes: Codes, heads: Flags, owners: Indices, styles: Sequence[Style], looks: StyleReader
    ) -> tuple[Indices, Array]:
        """(first words, displayed boxes) of pieces: words of one text object on one line where its two ends tell the
        box, else single words. heads: words that begin a line or object; owners: the objects of all words."""
        pieces = np.flatnonzero(heads)
        lasts = _lasts(pieces, len(heads))
        starts, ends = source.starts[pieces], source.ends[lasts] - source.soft[lasts]
        first, last = self._ends(starts, ends - 1)
        boxes = self._displayed(first, last)
        several = np.flatnonzero(lasts > pieces)
        holders = owners[pieces[several]]
        even = np.array([style.even for style in styles])[holders]
        sizes = looks.sizes[holders] / self._space.unit
        low, high = first[several], last[several]
        even &= (np.abs(high[:, 1] - low[:, 1]) < _LEVEL * sizes) & (np.abs(high[:, 3] - low[:, 3]) < _LEVEL * sizes)
        if even.any():
            fonts = [looks.fonts[i] for i in holders.tolist()]
            ems = looks.ems[holders]
            widths, blanks = stated_widths(codes, starts[several], ends[several], fonts, looks.cache)
            blanks *= ems
            even &= np.abs(high[:, 2] - low[:, 0] - widths * ems) < _NATURAL * ems
            even &= (_NARROW * sizes < blanks) & (blanks < _WIDE * sizes)
        doubtful = several[~even]
        if not len(doubtful):
            return pieces, boxes
        flags = np.zeros(len(pieces), np.bool_)
        flags[doubtful] = True
        single = np.repeat(flags, lasts - pieces + 1)
        every = np.empty((len(heads), 4))
        every[pieces] = boxes
        every[single] = source.boxes(np.flatnonzero(single))
        pieces = np.flatnonzero(heads | single)
        return pieces, every[pieces]

    def _runs(self, source: _Source, firsts: Indices, styles: Sequence[Style], boxes: Array) -> list[Word]:
        """Runs by their first words; those outside of the page are left out."""
        lasts = _lasts(firsts, len(source.starts))
        starts, stops = source.starts[firsts], source.ends[lasts]
        spaces = np.ones(len(firsts), np.bool_)
        spaces[1:] = starts[1:] > stops[:-1]
        members = zip(firsts.tolist(), (lasts + 1).tolist(), strict=True)
        marks = source.soft[lasts].astype(bool).tolist()
        text = source.text
        right, bottom = self._reach
        out = []
        for start, stop, mark, style, box, space, (first, end) in zip(
            starts.tolist(), stops.tolist(), marks, styles, boxes.tolist(), spaces.tolist(), members, strict=True
        ):
            content = text[start : stop - 1] + "-" if mark else text[start:stop]
            if not content.isascii():
                if end - first > 1:
                    content = _CJK_BLANK.sub("", content)
                elif _LAM_ALEF.search(content):
                    content = self._lam_alef(content, start)
            if style.odd_box:
                box = self._baseline_box(start, box, style)
            if -2 <= box[0] + box[2] <= right and -2 <= box[1] + box[3] <= bottom:
                out.append(Word(content, box, style, space, mark, start, (first, end)))
        return out

    def boxes(self, starts: Indices, lasts: Indices) -> Array:
        """Displayed boxes from a first to a last character, shape (n, 4)."""
        return self._displayed(*self._ends(starts, lasts))

    def _ends(self, starts: Indices, lasts: Indices) -> tuple[native.Rows, native.Rows]:
        """(left, top, right, bottom) in user space of first and of last characters."""
        first = native.char_boxes(self._page, starts.tolist())
        longer = np.flatnonzero(lasts != starts)
        last = first.copy()
        last[longer] = native.char_boxes(self._page, lasts[longer].tolist())
        return first, last

    def _displayed(self, first: native.Rows, last: native.Rows) -> Array:
        low, high = np.minimum(first, last).astype(float), np.maximum(first, last).astype(float)
        return self._space.boxes(low[:, 0], low[:, 3], high[:, 2], high[:, 1])

    def _lam_alef(self, text: str, start: int) -> str:
        """pdfium spells the lam-alef ligature backwards; both letters then share one box."""
        letters = list(text)
        for match in _LAM_ALEF.finditer(text):
            at = start + match.start()
            lefts = native.char_boxes(self._page, [at, at + 1])[:, 0]
            if abs(lefts[0] - lefts[1]) < 0.5:
                letters[match.start()], letters[match.start() + 1] = match[0][1], match[0][0]
        return "".join(letters)

    def _baseline_box(self, index: int, box: Sequence[float], style: Style) -> Sequence[float]:
        """Ascent 0.8 em and descent 0.2 em around the baseline, across the reading direction as displayed."""
        left, bottom = native.char_origin(self._page, index)
        x, y, _, _ = self._space.box(left, bottom, left, bottom)
        em = style.size
        if style.turn == 0:
            return (box[0], y - 0.8 * em, box[2], y + 0.2 * em)
        if style.turn == 2:
            return (box[0], y - 0.2 * em, box[2], y + 0.8 * em)
        if style.turn == 1:
            return (x - 0.8 * em, box[1], x + 0.2 * em, box[3])
        return (x - 0.2 * em, box[1], x + 0.8 * em, box[3])


def _lasts(firsts: Indices, count: int) -> Indices:
    """The last members of groups, given the first ones, of `count` things."""
    lasts = np.empty_like(firsts)
    lasts[:-1], lasts[-1:] = firsts[1:] - 1, count - 1
    return lasts


def _breaks(looks: StyleReader, owners: Indices, heads: Flags, boxes: Array) -> Indices:
    """Indices of the pieces that begin a run: another text object, line or a wide gap before them."""
    joined = ~heads
    joined[1:] &= owners[1:] == owners[:-1]
    joined[0] = False
    if joined.any():
        size = looks.sizes[owners][1:]
        joined &= (looks.turns == 0)[owners]
        joined[1:] &= np.abs(boxes[1:, 0] - boxes[:-1, 2] - 0.15 * size) < 0.35 * size
        joined[1:] &= np.abs(boxes[1:, 1] - boxes[:-1, 1]) < 0.3 * size
    return np.flatnonzero(~joined)
