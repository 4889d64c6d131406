"""Words with boxes and styles from a page's text layer.

The text comes in one call per page. Text objects and boxes are asked for at the ends of lines and objects, and word by
word only where the ends do not tell: no call per character. Boxes are in the space of the page as displayed: points,
top-left origin.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
import numpy.typing as npt

from rag_cluster.parsing.pdf import native
from rag_cluster.parsing.pdf.advances import stated_widths
from rag_cluster.parsing.pdf.characters import Codes, Indices, page_text, reads_leftward, word_spans
from rag_cluster.parsing.pdf.geometry import Array, PageSpace
from rag_cluster.parsing.pdf.styles import Style, StyleReader

_LETTERS = re.compile(r"[A-Za-z ]+$")
_VERTICAL_CJK = re.compile("[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u30ff]")
_LAM_ALEF = re.compile("[\u0622\u0623\u0625\u0627]\u0644")

_CJK_BLANK = re.compile("(?<=[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]) (?=[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef])")

Flags = npt.NDArray[np.bool_]
_LEVEL = 0.15
"""Em by which the boxes of two characters on one baseline differ at most."""


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


def _mark_monospaced(words: Sequence[Word]) -> None:
    """Fonts whose words all have the same width per letter are monospaced, whatever their flags say."""
    ranges: dict[str, tuple[float, float, int]] = {}
    for word in words:
        style, text = word.style, word.text
        low, high, count = ranges.get(style.font, (inf, -inf, 0))
        if high - low >= 0.012:
            continue  # proportional, as most fonts are after two words
        if style.turn == 0 and not style.mono and len(text) > 2 and text.isascii() and _LETTERS.match(text):
            width = (word.x1 - word.x0) / len(text) / style.size
            ranges[style.font] = (min(low, width), max(high, width), count + 1)
    fixed = {
        font
        for font, (low, high, count) in ranges.items()
        if count > 3 and low > 0.45 and high < 0.8 and high - low < 0.012
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
        follows = np.concatenate([[False], starts[1:] - ends[:-1] == 1])
        objects = self._objects(starts, follows, codes)
        changes = np.concatenate([[True], objects[1:] != objects[:-1]])
        groups = np.flatnonzero(changes)
        indices = starts[groups].tolist()
        reader = StyleReader(self._page, self._space)
        styles = reader.read(objects[groups].tolist(), indices)
        owners = np.cumsum(changes) - 1
        pieces, boxes = self._pieces(source, codes, ~follows | changes, owners, styles, reader)
        owners = owners[pieces]
        styles = reader.measured(styles, indices, boxes[np.searchsorted(pieces, groups)])
        breaks = _breaks(styles, owners, follows[pieces], boxes)
        words = _without_twins(self._runs(source, breaks, [styles[i] for i in owners[breaks].tolist()], pieces, boxes))
        _mark_monospaced(words)
        return TextLayer(words, len(text), _is_vertical(words), source)

    def _objects(self, starts: Indices, follows: Flags, codes: Codes) -> npt.NDArray[np.uintp]:
        """The text object of every word. When the first and the last word of a line share one, so do all between,
        unless scripts that run from right to left reorder the line."""
        heads = np.flatnonzero(~follows)
        counts = np.diff(heads, append=len(starts))
        first = np.array(native.char_objects(self._page, starts[heads].tolist()), np.uintp)
        objects = np.repeat(first, counts)
        long = np.flatnonzero(counts > 1)
        lasts = heads[long] + counts[long] - 1
        objects[lasts] = native.char_objects(self._page, starts[lasts].tolist())
        mixed = np.zeros(len(heads), np.bool_)
        mixed[long] = reads_leftward(codes) or objects[lasts] != first[long]
        inner = np.repeat(mixed, counts)
        inner[heads] = inner[lasts] = False
        if inner.any():
            objects[inner] = native.char_objects(self._page, starts[inner].tolist())
        return objects

    def _pieces(
        self, source: _Source, codes: Codes, heads: Flags, owners: Indices, styles: Sequence[Style], reader: StyleReader
    ) -> tuple[Indices, Array]:
        """(first words, displayed boxes) of pieces: words of one text object on one line where its two ends tell the
        box, else single words. heads: words that begin a line or object; owners: the objects of all words."""
        pieces = np.flatnonzero(heads)
        lasts = np.append(pieces[1:], len(heads)) - 1
        starts, ends = source.starts[pieces], source.ends[lasts] - source.soft[lasts]
        first, last = self._ends(starts, ends - 1)
        boxes = self._displayed(first, last)
        several = np.flatnonzero(lasts > pieces)
        if not len(several):
            return pieces, boxes
        holders = owners[pieces[several]]
        sizes = np.array([style.size if style.even else np.nan for style in styles])[holders]
        low, high = first[several], last[several]
        # User space against displayed sizes: a coarse test.
        clear = (np.abs(high[:, 1::2] - low[:, 1::2]) * self._space.unit < _LEVEL * sizes[:, None]).all(1)
        if clear.any():
            fonts = [reader.fonts[i] for i in holders.tolist()]
            stated, blanks = stated_widths(codes, starts[several], ends[several], fonts, reader.cache)
            ems = reader.ems[holders]
            clear &= np.abs(high[:, 2] - low[:, 0] - stated * ems) < 0.1 * ems
            clear &= (-0.1 * sizes < blanks * ems * self._space.unit) & (blanks * ems * self._space.unit < 0.4 * sizes)
        doubtful = np.zeros(len(pieces), np.bool_)
        doubtful[several[~clear]] = True
        if not doubtful.any():
            return pieces, boxes
        single = np.repeat(doubtful, lasts - pieces + 1)
        every = np.empty((len(heads), 4))
        every[pieces] = boxes
        every[single] = source.boxes(np.flatnonzero(single))
        pieces = np.flatnonzero(heads | single)
        return pieces, every[pieces]

    def _runs(
        self, source: _Source, breaks: Indices, styles: Sequence[Style], pieces: Indices, boxes: Array
    ) -> list[Word]:
        """Pieces between breaks as one run each; those outside of the page are left out."""
        corners = np.hstack([np.minimum.reduceat(boxes[:, :2], breaks), np.maximum.reduceat(boxes[:, 2:], breaks)])
        firsts = pieces[breaks]
        lasts = np.append(firsts[1:], len(source.starts)) - 1
        starts, stops = source.starts[firsts].tolist(), source.ends[lasts].tolist()
        spaces = np.append(True, source.starts[1:] > source.ends[:-1])[firsts].tolist()
        members = zip(firsts.tolist(), (lasts + 1).tolist(), strict=True)
        marks = source.soft[lasts].astype(bool).tolist()
        text = source.text
        right, bottom = self._reach
        out = []
        for start, stop, mark, style, box, space, (first, end) in zip(
            starts, stops, marks, styles, corners.tolist(), spaces, members, strict=True
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


def _breaks(styles: Sequence[Style], owners: Indices, follows: Flags, boxes: Array) -> Indices:
    """Indices of the pieces that begin a run: another text object, line or a wide gap before them."""
    size = np.array([style.size for style in styles])[owners][1:]
    upright = np.array([style.turn == 0 for style in styles])[owners]
    joined = follows & upright
    joined[1:] &= owners[1:] == owners[:-1]
    joined[1:] &= np.abs(boxes[1:, 0] - boxes[:-1, 2] - 0.15 * size) < 0.35 * size
    joined[1:] &= np.abs(boxes[1:, 1] - boxes[:-1, 1]) < 0.3 * size
    joined[0] = False
    return np.flatnonzero(~joined)


def _is_vertical(words: Sequence[Word]) -> bool:
    """Whether most of the text is Chinese or Japanese that runs from top to bottom."""
    tall = [w for w in words if w.y1 - w.y0 > 1.6 * (w.x1 - w.x0) and w.style.turn == 0 and len(w.text) > 1]
    vertical = sum(len(w.text) for w in tall if _VERTICAL_CJK.search(w.text))
    return vertical > 0 and vertical > 0.4 * sum(len(w.text) for w in words)
