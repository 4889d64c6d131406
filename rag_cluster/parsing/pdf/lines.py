"""Words -> segments -> lines. A segment is an unbroken piece of a line, the unit of layout; a line is a row of them."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter
from statistics import median

from rag_cluster.domain.blocks import BBox
from rag_cluster.parsing.pdf.geometry import Frame, union
from rag_cluster.parsing.pdf.styles import Style
from rag_cluster.parsing.pdf.text import Word

CJK = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u303f\U00020000-\U0003ffff"
_CJK = re.compile(f"[{CJK}]")
_LIGATURES = {
    "\ufb00": "ff", "\ufb01": "fi", "\ufb02": "fl", "\ufb03": "ffi", "\ufb04": "ffl", "\ufb05": "st",
    "\ufb06": "st", "\u00ad": "", "\u200b": "", "\ufeff": "", "\u00a0": " ", "\x02": "-", "\ufffe": "-",
    "\uf0b7": "•", "\uf0a7": "▪", "\uf0d8": "➢", "\uf0fc": "✓", "\uf0e0": "→", "\uf06e": "■",
    "\uf071": "❑", "\uf0a8": "◦",
}  # fmt: skip
_LIGATURE = re.compile(f"[{''.join(_LIGATURES)}]")
_TIGHT = "/()[]-~%<>=+.,:;"
_RTL = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_LATIN = re.compile("[A-Za-z\u00c0-\u024f\u0370-\u052f]")
_ARABIC_FORMS = re.compile("[\ufb50-\ufdff\ufe70-\ufefc]")


def normalise(text: str) -> str:
    """Ligatures and Arabic presentation forms as letters, soft hyphens gone, symbol-font bullets as bullets."""
    if text.isascii():
        return text.replace("\x02", "-")
    if _LIGATURE.search(text):
        text = _LIGATURE.sub(lambda m: _LIGATURES[m[0]], text)
    if _ARABIC_FORMS.search(text):
        text = _ARABIC_FORMS.sub(lambda m: unicodedata.normalize("NFKC", m[0]), text)
    return text


class Segment:
    """Words next to each other on one baseline."""

    __slots__ = ("_text", "chars", "middle", "size", "words", "x0", "x1", "y0", "y1")

    def __init__(self, words: list[Word]) -> None:
        self.words = words
        self._text: str | None = None
        word = words[0]
        self.x0, self.y0, self.x1, self.y1 = word.x0, word.y0, word.x1, word.y1
        self.chars, self.size = len(word.text), word.style.size
        if len(words) > 1:
            self._grow(words)
        self.middle = self.y0 + self.y1
        """Twice the height of its middle, for sorting."""

    def _grow(self, words: Sequence[Word]) -> None:
        """Box, characters and size of several words; the longest word tells the size."""
        x0, y0, x1, y1, chars, longest, size = self.x0, self.y0, self.x1, self.y1, 0, 0, self.size
        for word in words:
            if word.x0 < x0:
                x0 = word.x0
            if word.y0 < y0:
                y0 = word.y0
            if word.x1 > x1:
                x1 = word.x1
            if word.y1 > y1:
                y1 = word.y1
            count = len(word.text)
            chars += count
            if count > longest:
                longest, size = count, word.style.size
        self.x0, self.y0, self.x1, self.y1, self.chars, self.size = x0, y0, x1, y1, chars, size

    @property
    def box(self) -> BBox:
        """(x0, y0, x1, y1)."""
        return (self.x0, self.y0, self.x1, self.y1)

    @property
    def text(self) -> str:
        """Words joined."""
        if self._text is None:
            self._text = join_words(self.words)
        return self._text


def segments(words: Sequence[Word]) -> list[Segment]:
    """Group words of one frame, in stream order."""
    out: list[list[Word]] = []
    before: Word | None = None
    for word in words:
        if before is not None and _follows(before, word):
            out[-1].append(word)
        else:
            out.append([word])
        before = word
    return [Segment(group) for group in out]


def _follows(a: Word, b: Word) -> bool:
    gap = b.x0 - a.x1
    size, other = a.style.size, b.style.size
    if other > size:
        size = other
    if not -0.6 * size < gap < 0.75 * size:
        return False
    shared = min(a.y1, b.y1) - max(a.y0, b.y0)
    return shared > 0.4 * min(a.y1 - a.y0, b.y1 - b.y0)


def join_words(words: Sequence[Word]) -> str:
    """Text of words on one line, left to right. Blanks come from the text layer or from gaps, never between CJK."""
    if len(words) == 1:
        return normalise(words[0].text)
    parts: list[str] = []
    before: Word | None = None
    for word in words:
        if before is not None and before.hyphen and word.x0 - before.x1 < before.style.size:
            parts[-1] = parts[-1][:-1]  # a soft hyphen within a line, which some fonts draw
        elif before is not None and _blank(before, word):
            parts.append(" ")
        parts.append(word.text)
        before = word
    return normalise("".join(parts))


def _blank(a: Word, b: Word) -> bool:
    gap = b.x0 - a.x1
    size = min(a.style.size, b.style.size)
    if not (a.text.isascii() and b.text.isascii()) and _CJK.match(a.text[-1]) and _CJK.match(b.text[0]):
        return gap > 0.8 * size
    if gap < 0.3 * size and (
        (a.text[-1] in _TIGHT and _CJK.match(b.text[0])) or (b.text[0] in _TIGHT and _CJK.match(a.text[-1]))
    ):
        return False
    return (b.space and (gap > -0.5 * size or b.x1 <= a.x0 + size)) or gap > 0.18 * size


class Line:
    """One line of text as laid out, without its words: documents have many lines.

    box is in the frame of its page part; page and frame lead back to the displayed page.
    """

    __slots__ = (
        "bold", "box", "chars", "font", "font_share", "frame", "hyphen", "italic", "lead", "mcid", "mono", "parts",
        "region", "size", "text",
    )  # fmt: skip

    def __init__(self, pieces: Sequence[Segment], frame: Frame, region: int) -> None:
        if len(pieces) == 1:
            words = pieces[0].words
            self.parts: tuple[str, ...] = ()
            self.text = pieces[0].text
            self.box: BBox = pieces[0].box
        else:
            words = [w for s in pieces for w in s.words]
            self.parts = tuple([s.text for s in pieces])
            self.text = join_words(words)
            self.box = union([s.box for s in pieces])
        self.frame = frame
        self.region = region
        last = words[-1]
        self.hyphen = last.hyphen or (len(last.text) > 1 and last.text[-1] in "-\u2010")
        self.lead = _lead(words)
        """Where the text after the first word starts: the hanging indent of a list item."""
        if len(words) == 1:
            self._take(last.style, len(last.text))
        else:
            self._weigh(words)

    def _take(self, style: Style, chars: int) -> None:
        self.chars, self.font_share = chars, 1.0
        self.size, self.font, self.mcid = round(style.size, 1), style.font, style.mcid
        self.bold, self.italic, self.mono = style.bold, style.italic, style.mono

    def _weigh(self, words: Sequence[Word]) -> None:
        """Size, font and weight of most of its characters."""
        weights: dict[int, int] = {}
        styles = {}
        for word in words:
            key = id(word.style)
            weights[key] = weights.get(key, 0) + len(word.text)
            styles[key] = word.style
        if len(styles) == 1:
            self._take(words[0].style, weights[key])
            return
        self.chars = sum(weights.values())
        main = styles[max(weights, key=weights.__getitem__)]
        self.size, self.font, self.mcid = round(main.size, 1), main.font, main.mcid
        self.font_share = sum(n for k, n in weights.items() if styles[k].font == main.font) / self.chars
        self.bold = sum(n for k, n in weights.items() if styles[k].bold) > 0.7 * self.chars
        self.italic = sum(n for k, n in weights.items() if styles[k].italic) > 0.7 * self.chars
        self.mono = sum(n for k, n in weights.items() if styles[k].mono) > 0.8 * self.chars

    @property
    def height(self) -> float:
        """Of the box."""
        return self.box[3] - self.box[1]


def _lead(words: Sequence[Word]) -> float:
    """Where the second word starts; inside a run by its share of the run's characters."""
    first = words[0]
    blank = first.text.find(" ")
    if blank > 0:
        return first.x0 + (first.x1 - first.x0) * (blank + 1) / len(first.text)
    return words[1].x0 if len(words) > 1 else first.x0


_PLACE = attrgetter("middle", "x0")
_LEFT = attrgetter("x0")


def rows(pieces: Sequence[Segment]) -> list[list[Segment]]:
    """Segments at the same height, each row left to right, rows from top to bottom."""
    if len(pieces) == 1:
        return [[pieces[0]]]
    out: list[list[Segment]] = []
    top = bottom = 0.0
    for piece in sorted(pieces, key=_PLACE):
        y0, y1 = piece.y0, piece.y1
        if out and top < (y0 + y1) / 2 < bottom:
            shared = (bottom if bottom < y1 else y1) - (top if top > y0 else y0)
            if shared > 0.45 * min(bottom - top, y1 - y0):
                out[-1].append(piece)
                continue
        out.append([piece])
        top, bottom = y0, y1
    for row in out:
        if len(row) == 1:
            continue
        row.sort(key=_LEFT)
        if not all(s.words[0].text.isascii() for s in row) and _right_to_left(row):
            row[:] = _logical(sorted(row, key=lambda s: s.words[0].order))
    return out


def _logical(row: Sequence[Segment]) -> list[Segment]:
    """A line from right to left in reading order: words and numbers of a Latin phrase, which the text layer has from
    right to left too, are turned around."""
    out: list[Segment] = []
    for foreign, group in itertools.groupby(row, key=lambda s: _RTL.search(s.text) is None):
        pieces = list(group)
        out += sorted(pieces, key=_LEFT) if foreign and any(_LATIN.search(s.text) for s in pieces) else pieces
    return out


def _right_to_left(row: Sequence[Segment]) -> bool:
    """Whether Arabic or Hebrew letters prevail, or stand at both ends; the text layer then has the reading order."""
    text = "".join(w.text for s in row for w in s.words)
    return 2 * len(_RTL.findall(text)) > len(text) or all(_RTL.search(s.text) for s in (row[0], row[-1]))


def typical_size(pieces: Sequence[Segment]) -> float:
    """Median font size, by segment; 10 without text."""
    return median(s.size for s in pieces) if pieces else 10.0


def body_style(lines: Sequence[Line]) -> tuple[float, bool]:
    """(font size of most characters, 10 without text; whether most are bold)"""
    sizes: Counter[float] = Counter()
    for line in lines:
        sizes[line.size] += line.chars
    bold = sum(line.chars for line in lines if line.bold)
    return (sizes.most_common(1)[0][0] if sizes else 10.0), 2 * bold > sizes.total()
