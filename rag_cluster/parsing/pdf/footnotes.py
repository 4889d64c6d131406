"""Footnotes: small text at the foot of a page that begins with a raised mark or stands below a short rule.

Looked for only where small text stands in the lower part of a page. A note's mark in the running text becomes "[^1]",
and the note "[^1]: ...", as in the other formats.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from rag_cluster.parsing.pdf import native
from rag_cluster.parsing.pdf.geometry import Frame, PageSpace
from rag_cluster.parsing.pdf.lines import Line, Segment
from rag_cluster.parsing.pdf.shapes import Rule, Shapes
from rag_cluster.parsing.pdf.tables import Table
from rag_cluster.parsing.pdf.text import TextLayer, Word

SMALL = 0.95
"""Of the body's size: what is larger is no note."""
RAISED = 0.8
"""Of its neighbour's size: what is larger is no raised mark."""
FOOT = 0.35
"""Share of the page's height above which no note begins."""
MARGIN_CHARACTERS = 30
"""Text in the body's size that may stand below a note: a running foot, a page number."""
_MARK = re.compile(r"^(\d{1,3}|[*†‡§¶#]{1,3}|[①-⑳]|[a-z](?![a-z]))\s*")
_PLAIN = re.compile(
    r"^[\[(]?\s*(\d{1,3})\s*[\]).]?(?:\s+|$)|^[\[(]?(\d{1,3})[\].)]?(?=[^\W\d_a-z]|https?:|www\.)|^([*†‡§¶]{1,3}|[①-⑳])\s*"
)
"""A mark that is not raised: only below a rule."""
_CLOSING = re.compile(r"^[.,;:!?)\]]")


class NoteRow(list[Segment]):
    """A row of segments that belongs to a note."""

    def __init__(self, pieces: Sequence[Segment], mark: str, *, begins: bool) -> None:
        super().__init__(pieces)
        self.mark = mark
        self.begins = begins


class NoteLine(Line):
    """A line of a note. mark: of the note, "" when it has none; it is no part of the text."""

    __slots__ = ("begins", "mark")

    def __init__(self, row: NoteRow, frame: Frame, region: int) -> None:
        super().__init__(row, frame, region)
        self.mark, self.begins = row.mark, row.begins
        if self.begins and self.mark:
            self.text = self.text[self.text.find(self.mark) + len(self.mark) :].lstrip(" .)]")


def find(textpage: Any, layer: TextLayer, words: Sequence[Word], shapes: Shapes, space: PageSpace) -> dict[int, str]:
    """id of a note's first word -> mark, of the upright words of an open text page. The marks in the running text are
    rewritten in place."""
    sizes: dict[float, int] = {}
    for word in words:
        size = word.style.size
        sizes[size] = sizes.get(size, 0) + len(word.text)
    body = max(sizes, key=sizes.__getitem__, default=0.0)
    small, foot = SMALL * body, FOOT * space.height
    if not sizes or min(sizes) >= small:
        return {}
    low = [w for w in words if w.style.size < small and w.y0 > foot and w.style.turn == 0 and w.text.strip()]
    if not low:
        return {}
    starts = {id(word): mark for word, mark in _raised(low, words, body)}
    starts |= {
        id(word): mark for word, mark in _below_rules(low, words, shapes, body, space.height) if id(word) not in starts
    }
    marks = {mark for mark in starts.values() if mark}
    if marks:
        _refer(_Heights(native.address(textpage), space), layer, words, starts, marks)
    return starts


def _raised(low: Sequence[Word], words: Sequence[Word], body: float) -> Iterator[tuple[Word, str]]:
    """Words that begin a line with a raised mark, with nothing but small text below them."""
    for mark, text in itertools.pairwise(low):
        match = _MARK.match(mark.text)
        if match is None or mark.style.size > RAISED * text.style.size or text.style.size > SMALL * body:
            continue
        near = -1 <= text.x0 - mark.x1 < 1.5 * text.style.size and mark.y0 < (text.y0 + text.y1) / 2 < text.y1
        if near and _is_foot(mark, text, words, body):
            yield mark, match[1]


def _below_rules(
    low: Sequence[Word], words: Sequence[Word], shapes: Shapes, body: float, height: float
) -> Iterator[tuple[Word, str]]:
    """First words of the notes below short rules that separate them from the text."""
    width = max(w.x1 for w in words) - min(w.x0 for w in words)
    for rule in shapes.horizontal:
        if rule.at < FOOT * height or not 30 < rule.end - rule.start < 0.5 * width or _corner(rule, shapes):
            continue
        below = sorted(
            (w for w in low if w.y1 > rule.at + 1 and rule.start - 6 < w.x0 < rule.start + 30),
            key=lambda w: (round((w.y0 + w.y1) / 2 / max(w.style.size, 1.0)), w.x0),
        )
        first = next(iter(below), None)
        if first is None or first.y0 - rule.at > 3 * first.style.size:
            continue
        if not _is_foot(first, first, words, body):
            continue
        yield first, _plain(first.text)
        count = int(_plain(first.text)) if _plain(first.text).isdecimal() else None
        for word in below[1:]:
            number = _plain(word.text)
            if count is not None and number == str(count + 1) and abs(word.x0 - first.x0) < 2 * word.style.size:
                count += 1
                yield word, number


def _plain(text: str) -> str:
    match = _PLAIN.match(text)
    return next((group for group in match.groups() if group), "") if match else ""


def _corner(rule: Rule, shapes: Shapes) -> bool:
    """Whether it belongs to a table or a frame: another rule of its width near by, or a vertical one at an end."""
    if any(
        v.start - 2 <= rule.at <= v.end + 2 and min(abs(v.at - rule.start), abs(v.at - rule.end)) < 3
        for v in shapes.vertical
    ):
        return True
    return any(
        other is not rule and 1 < abs(other.at - rule.at) < 60 and abs(other.start - rule.start) < 3
        for other in shapes.horizontal
    )


def _is_foot(mark: Word, text: Word, words: Sequence[Word], body: float) -> bool:
    """Whether `mark` begins its line and nothing but small text (and a running foot) stands below in its column."""
    left, right = mark.x0 - 2, max(text.x1, mark.x1)
    larger = 0
    for word in words:
        if word.y0 < mark.y1 - 1 and word.y1 > mark.y0 + 1:
            if word is not mark and mark.x0 - 0.8 * body < word.x1 <= mark.x0 + 1:
                return False
        elif word.y0 > mark.y0 and word.style.size >= SMALL * body and word.x0 < right and word.x1 > left:
            larger += len(word.text)
    return larger <= MARGIN_CHARACTERS


class _Heights:
    """Boxes of single characters of an open text page."""

    def __init__(self, textpage: int, space: PageSpace) -> None:
        self._page = textpage
        self._space = space
        self._rect = native.Floats(4)

    def is_raised(self, index: int, text: str) -> bool:
        """Whether a character is smaller and higher than the one before it."""
        before = index - 1
        while before > 0 and text[before].isspace():
            before -= 1
        if before < 0:
            return False
        top, bottom = self._span(index)
        _, base = self._span(before)
        return bottom - top < 0.87 * (base - self._span(before)[0]) and bottom < base - 0.08 * (bottom - top)

    def _span(self, index: int) -> tuple[float, float]:
        native.loose_box(self._page, index, self._rect.address)
        left, top, right, bottom = self._rect.values
        box = self._space.box(left, bottom, right, top)
        return box[1], box[3]


def _refer(heights: _Heights, layer: TextLayer, words: Sequence[Word], starts: dict[int, str], marks: set[str]) -> None:
    """Write "[^1]" for raised marks behind words of the running text."""
    either = "|".join(re.escape(mark) for mark in sorted(marks, key=len, reverse=True))
    pattern = re.compile(rf"(?<!\d)(?<!\d[.,])({either})(?!\w)")
    source = layer.source
    if source is None:
        return
    for word, after in itertools.zip_longest(words, words[1:]):
        if id(word) in starts or word.order >= len(source.text) or not pattern.search(word.text):
            continue
        end = source.ends[word.members[1] - 1] if word.members[1] else word.order
        places = _places(word.text, source.text, word.order, end)

        def reference(match: re.Match[str], places: Sequence[int] = places) -> str:
            return f"[^{match[1]}]" if heights.is_raised(places[match.start(1)], source.text) else match[0]

        text = pattern.sub(reference, word.text)
        if text != word.text and text.endswith("]") and after is not None and _CLOSING.match(after.text):
            after.space = False  # pdfium sees a line's end where the raised mark ends
        word.text = text


def _places(shown: str, source: str, start: int, end: int) -> list[int]:
    """For every character of a run its index in the text layer, which holds blanks that the run has lost."""
    out, at = [], start
    for character in shown:
        while at < end - 1 and source[at] != character and source[at].isspace():
            at += 1
        out.append(at)
        at = min(at + 1, end - 1)
    return out


def as_lines(rows: Sequence[list[Segment] | Table], starts: dict[int, str]) -> Iterator[list[Segment] | Table]:
    """A region's rows from top to bottom, those of notes as `NoteRow`."""
    mark: str | None = None
    size = bottom = 0.0
    lone: list[Segment] = []
    for row in rows:
        if isinstance(row, Table):
            mark = None
            yield row
            continue
        own = next((starts[id(word)] for word in row[0].words[:1] if id(word) in starts), None)
        if own and row[-1].text.strip() == own:
            lone = row  # a mark so high above its text that it is a row of its own
            continue
        if lone:
            own, row, lone = starts[id(lone[0].words[0])], [*lone, *row], []
        em = max(piece.size for piece in row)
        if own is not None:
            mark, size = own, em
        elif mark is not None and (em > 1.08 * size or min(p.y0 for p in row) - bottom > 1.6 * em):
            mark = None
        bottom = max(piece.y1 for piece in row)
        yield row if mark is None else NoteRow(row, mark, begins=own is not None)
    if lone:
        yield lone
