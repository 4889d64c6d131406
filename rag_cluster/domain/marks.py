"""How an answer names its sources: [来源 N](citation://N) or [Source N](citation://N). Standard library only."""

from __future__ import annotations

import re

MARK = re.compile(r"\[(?:来源|Source) (\d+)\]\(citation://\1\)")
"""As `mark` writes it; group 1: the number."""
_RANGE = r"(?:[-–—~～至到]|to)"
_NUMBERS = rf"\s*(?:来源|Sources?)\s*\d+(?:\s*(?:[,，、;；&和与及]|and|{_RANGE})\s*(?:(?:来源|Sources?)\s*)?\d+)*\s*"
LABEL = rf"(?:\[\[{_NUMBERS}\]\]|\[{_NUMBERS}\](?!\()|【{_NUMBERS}】)"
"""What a writer takes for a mark, though it links to nothing: "[Source 1]", "【来源 1、2】"."""
_FOREIGN_LINK = re.compile(r"\[([^\[\]]*)\]\s?[(（]\s*citation:[^()（）]*[)）]", re.IGNORECASE)
_FOREIGN_LABEL = re.compile(LABEL, re.IGNORECASE)
_NAMED = re.compile(rf"(\d+)(?:\s*{_RANGE}\s*(?:(?:来源|Sources?)\s*)?(\d+))?", re.IGNORECASE)
_MOST_NESTED = 8
MAX_DIGITS = 10
"""Of a source's number, far above any."""


def mark(number: int, language: str) -> str:
    """The mark of source `number` in "zh" or "en"."""
    return f"[来源 {number}](citation://{number})" if language == "zh" else f"[Source {number}](citation://{number})"


def named_sources(label: str, most: int) -> list[int]:
    """The numbers in a label, in order, ranges counted out as far as `most`: 1, 2, 3 and 5 for "[Source 1-3, 5]"."""
    found: list[int] = []
    for ends in _NAMED.findall(label):
        first, *last = (int(number[:MAX_DIGITS]) for number in ends if number)
        found += [first, *(other for end in last for other in (*range(first + 1, min(end, most + 1)), end))]
    return found


def without_marks(text: str) -> str:
    """A document's text in which nothing can be taken for a mark of ours: it cites nobody and begins no source."""
    for _ in range(_MOST_NESTED):  # one may stand inside another
        before = text
        text = _FOREIGN_LINK.sub(r"\1", text)
        text = _FOREIGN_LABEL.sub(lambda found: found[0].strip("[]【】"), text)
        if text == before:
            return text
    return re.sub(r"[\[\]【】]", "", text)
