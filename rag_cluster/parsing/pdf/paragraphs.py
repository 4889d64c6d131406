"""Lines of a region -> paragraphs, list items and code, with hyphenation undone."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from rag_cluster.domain.blocks import BlockType
from rag_cluster.parsing.pdf.lines import CJK, Line

_CJK_END, _CJK_START = re.compile(f"[{CJK}]$"), re.compile(f"^[{CJK}]")
BULLET = re.compile(r"^([•●○◦▪▫■□⬤∙‣⁃➢➤►▶→⇒✓✔❑❖◆◇]|[-–—*·](?=\s)|o(?=\s[A-Z]))\s*")
NUMBER = re.compile(
    r"^(\(?\d{1,3}[.)](?=\s)|\(?[a-zA-Z][.)](?=\s)|\([a-zA-Z]\)|\(?[ivxIVX]{1,5}[.)](?=\s)"
    r"|[（(][一二三四五六七八九十\d]{1,3}[）)]|[①-⑳]|[一二三四五六七八九十]{1,3}、|\d{1,2}、)\s*"
)
_BARE_NUMBER = re.compile(r"\d{1,2}\s")
BOXES = frozenset("☐☑☒◉◯")
"""Check boxes and radio buttons: each begins a line, and stays in the text, since it says something."""
_HYPHENATED = re.compile(r"[^\W\d_][-\u2010]$")
_OWN_HYPHENS = re.compile(r"(?:[^\W\d_][-\u2010][^\W\d_]+|(?:://|www\.|@)\S*)[-\u2010]$")
"""The end of a word that has hyphens of its own (state-of-, long-term-), or of an address: its hyphen stays."""
_SMALL_LETTER = re.compile(r"[^\W\d_A-Z]")
_TIGHT = "/)]-~%,.;:"
_LEADER_END = re.compile(r"(?:[.·…]\s*){4,}\s*[\divxlc]*$", re.IGNORECASE)
_DOT = re.compile(r"^[•●○◦▪■]")
_SENTENCE_END = re.compile(r"[.!?:;。！？；：…][\"'”’)）」』\]]*(?:\d{0,2}|\[\^\w+\])$")
_SMALL_START = re.compile(r"^[a-zäöüßàâçéèêëîïôûñа-я(]")


@dataclass(slots=True)
class Paragraph:
    """Lines that belong together. page is where it starts; pages has the page of every line."""

    kind: BlockType
    lines: list[Line]
    pages: list[int]
    marker: str = ""
    text: str = ""
    level: int = 0
    """Of a heading (1-6), or the nesting of a list item (0-based)."""
    metadata: dict[str, object] = field(default_factory=dict)

    @property
    def first(self) -> Line:
        """The first line."""
        return self.lines[0]


def join_texts(texts: Iterable[str]) -> str:
    """Lines as running text: no blank between CJK characters, a line-end hyphen before a small letter undone."""
    parts: list[str] = []
    for text in texts:
        text = text.strip()
        if not text:
            continue
        if parts:
            tail = parts[-1][-2:]
            if (
                tail[-1] in "-\u2010"
                and _HYPHENATED.match(tail)
                and _SMALL_LETTER.match(text)
                and not _OWN_HYPHENS.search(parts[-1][-200:])
            ):
                parts[-1] = parts[-1][:-1]
            elif not _joined(tail, text):
                parts.append(" ")
        parts.append(text)
    return "".join(parts)


def _joined(tail: str, text: str) -> bool:
    """Whether no blank comes between a line's end and the next line."""
    last, first = tail[-1], text[0]
    if last.isascii() and first.isascii():
        return last in "-/" and len(tail) > 1 and tail[0].isalnum() and first.isalnum()
    before, after = _CJK_END.match(last) is not None, _CJK_START.match(first) is not None
    return (before and after) or (before and first in _TIGHT) or (after and last in "/([-~")


def split_marker(text: str) -> tuple[str, str]:
    """(marker, rest) of a list item; marker is "" when there is none."""
    start = text[:2]
    if start.isascii() and start.isalpha() and len(start) == 2 and start[0] not in "ivxIVX":
        return "", text  # as most lines begin: no bullet and no number
    match = BULLET.match(text) or NUMBER.match(text)
    if match is None or match.end() == len(text):
        return "", text
    return match[1], text[match.end() :]


def build(
    lines: Sequence[Line], page: int, *, code_allowed: bool = True, blocks: Mapping[int, int] | None = None
) -> list[Paragraph]:
    """Paragraphs of one region's lines, which stand in reading order.

    blocks: marked content id -> number of its block: lines of one block belong together, others do not.
    """
    out: list[Paragraph] = []
    if not lines:
        return out
    left, right = min(ln.box[0] for ln in lines), max(ln.box[2] for ln in lines)
    pitch = _pitch(lines)
    for line in lines:
        before = out[-1] if out else None
        same = _same_block(before.lines[-1], line, blocks) if before is not None and blocks else None
        if before is not None and (
            (same and line.text[0] not in BOXES)
            or (same is None and not _starts(before, line, left, right, pitch, code_allowed))
        ):
            before.lines.append(line)
            before.pages.append(page)
        else:
            out.append(Paragraph(_kind(line, code_allowed), [line], [page]))
    for paragraph in out:
        finish(paragraph)
    _demote_lone(out)
    _nest(out)
    return out


def _same_block(before: Line, line: Line, blocks: Mapping[int, int]) -> bool | None:
    """None where one of the lines is in no block."""
    a, b = blocks.get(before.mcid), blocks.get(line.mcid)
    return None if a is None or b is None else a == b


def _kind(line: Line, code_allowed: bool) -> BlockType:
    if code_allowed and line.mono and not _DOT.match(line.text):
        return BlockType.CODE
    return BlockType.LIST if split_marker(line.text)[0] else BlockType.TEXT


def _pitch(lines: Sequence[Line]) -> float:
    steps = [
        (b.box[1] + b.box[3] - a.box[1] - a.box[3]) / 2
        for a, b in itertools.pairwise(lines)
        if abs(a.size - b.size) < 0.1 * a.size
    ]
    size = median(ln.size for ln in lines)
    steps = [s for s in steps if 0.8 * size < s < 2.4 * size]
    return median(steps) if len(steps) >= 3 else (min(steps) if steps else 1.3 * size)


def _starts(par: Paragraph, line: Line, left: float, right: float, pitch: float, code_allowed: bool) -> bool:
    """Whether `line` begins a new paragraph after `par`."""
    last, em = par.lines[-1], max(line.size, 1.0)
    step = (line.box[1] + line.box[3] - last.box[1] - last.box[3]) / 2
    if par.kind is BlockType.CODE and code_allowed and line.mono:
        if _DOT.match(line.text):
            return True
        return not -0.2 * em < step < 3.2 * em or abs(line.size - last.size) > 0.15 * em
    if (
        abs(line.size - last.size) > 0.12 * em
        or step < -0.3 * em
        or (line.mono and code_allowed) != (par.kind is BlockType.CODE)
    ):
        return True
    if step > 1.25 * pitch + 0.05 * em and step > 1.15 * em:
        return True
    if line.text[0] in BOXES or (_may_end_leader(last.text[-1]) and _LEADER_END.search(last.text[-40:])):
        return True
    short = right - last.box[2] > max(3.0 * em, 0.1 * (right - left))
    if line.bold != last.bold and (short or (last.bold and step > 1.1 * pitch)):
        return True
    ended = _SENTENCE_END.search(last.text[-8:]) is not None
    marker = split_marker(line.text)[0]
    if marker and (
        BULLET.match(line.text) or ended or short or par.kind is BlockType.LIST or line.box[0] > last.box[0] + 0.8 * em
    ):
        return True
    return _indented(par, line, last, em, short, ended, left, right)


def _may_end_leader(last: str) -> bool:
    """Whether a line that ends so may be one of a table of contents; most end with another letter."""
    return not last.isalpha() or last in "ivxlcIVXLC"


def _indented(
    par: Paragraph, line: Line, last: Line, em: float, short: bool, ended: bool, left: float, right: float
) -> bool:
    shift = line.box[0] - last.box[0]
    centred = abs((line.box[0] + line.box[2]) - (last.box[0] + last.box[2])) < 0.8 * em
    if par.kind is BlockType.LIST:
        if line.box[0] < par.first.box[0] - 0.8 * em and _BARE_NUMBER.match(line.text):
            return True  # left of the item's own marker: the next one of an outer list without dots
        if ended and right - last.box[2] > 0.25 * (right - left):
            return True
        hanging = abs(line.box[0] - par.first.lead) < 1.2 * em or abs(shift) < 0.8 * em
        return not hanging and (ended or short) and line.box[0] < par.first.lead - 0.8 * em
    if centred and not (short and ended):
        return False
    if shift > 0.7 * em and (ended or short):
        return True
    if shift < -0.7 * em and len(par.lines) > 1 and (ended or short):
        return True
    if short and ended:
        return True
    far = right - last.box[2] > 0.4 * (right - left) and right - left > 12 * em
    return far and not _SMALL_START.match(line.text) and not last.hyphen


def finish(paragraph: Paragraph) -> None:
    """Compute the text (and a list item's marker) from the lines."""
    if paragraph.kind is BlockType.CODE:
        paragraph.text = _code(paragraph.lines)
        return
    text = join_texts(line.text for line in paragraph.lines)
    if paragraph.kind is BlockType.LIST:
        paragraph.marker, text = split_marker(text)
        if not paragraph.marker:
            paragraph.kind = BlockType.TEXT
    paragraph.text = text


def _demote_lone(paragraphs: Sequence[Paragraph]) -> None:
    """A letter or number in front makes a list item only in company, or when it could start a list."""
    items = [p for p in paragraphs if p.kind is BlockType.LIST and not BULLET.match(p.first.text)]
    if len(items) == 1 and items[0].marker.strip("().） （、") not in ("1", "a", "A", "i", "I", "一", "①"):
        items[0].text = join_texts(line.text for line in items[0].lines)
        items[0].kind, items[0].marker = BlockType.TEXT, ""


def _code(lines: Sequence[Line]) -> str:
    """Lines with their indentation in characters; rows of the same height are one line."""
    left = min(line.box[0] for line in lines)
    out: list[str] = []
    for before, line in zip([None, *lines], lines, strict=False):
        if before is not None and line.box[1] - before.box[1] > 2.1 * line.size:
            out.append("")
        advance = max((line.box[2] - line.box[0]) / max(len(line.text), 1), 0.3 * line.size, 1.0)
        out.append(" " * round((line.box[0] - left) / advance) + line.text)
    return "\n".join(out)


def _nest(paragraphs: Sequence[Paragraph]) -> None:
    """Nesting of consecutive list items by their indentation."""
    stack: list[float] = []
    for paragraph in paragraphs:
        if paragraph.kind is not BlockType.LIST:
            if paragraph.kind is not BlockType.TEXT:
                stack.clear()
            continue
        x, em = paragraph.first.box[0], paragraph.first.size
        while stack and x < stack[-1] - 0.7 * em:
            stack.pop()
        if not stack or x > stack[-1] + 0.7 * em:
            stack.append(x)
        paragraph.level = len(stack) - 1


def unfinished(text: str) -> bool:
    """Whether a text stops in the middle of a sentence."""
    return bool(text) and _SENTENCE_END.search(text[-8:]) is None


def goes_on(text: str, rest: str) -> bool:
    """Whether `rest` continues a sentence that `text` leaves open."""
    if not unfinished(text):
        return False
    return _SMALL_START.match(rest) is not None or bool(_CJK_END.search(text) and _CJK_START.match(rest))


def continues(before: Paragraph, after: Paragraph) -> bool:
    """Whether a paragraph goes on in the next column or page."""
    if before.kind not in (BlockType.TEXT, BlockType.LIST) or after.kind is not BlockType.TEXT:
        return False
    a, b = before.lines[-1], after.first
    if (
        a.frame.turn != b.frame.turn
        or abs(a.size - b.size) > 0.08 * a.size
        or a.bold != b.bold
        or a.mono != b.mono
        or before.metadata
        or after.metadata
    ):
        return False
    if len(before.text) < 20 and not a.hyphen:
        return False
    if a.hyphen:
        return True
    if _SENTENCE_END.search(before.text[-8:]):
        return False
    if _CJK_END.search(before.text[-1:]) and _CJK_START.match(after.text):
        return len(before.text) > 20 and abs(before.lines[0].size - b.size) < 0.1
    return _SMALL_START.match(after.text) is not None or before.text.endswith((",", "，", "、"))
