"""What the runs of a page tell together: monospaced fonts, text printed twice, vertical writing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rag_cluster.parsing.pdf.text import Word

_LETTERS = re.compile(r"[A-Za-z ]+$")
_VERTICAL_CJK = re.compile("[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u30ff]")


def mark_monospaced(words: Sequence[Word]) -> None:
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


def without_twins(words: list[Word]) -> list[Word]:
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


def is_vertical(words: Sequence[Word]) -> bool:
    """Whether most of the text is Chinese or Japanese that runs from top to bottom."""
    tall = [w for w in words if w.y1 - w.y0 > 1.6 * (w.x1 - w.x0) and w.style.turn == 0 and len(w.text) > 1]
    vertical = sum(len(w.text) for w in tall if _VERTICAL_CJK.search(w.text))
    return vertical > 0 and vertical > 0.4 * sum(len(w.text) for w in words)
