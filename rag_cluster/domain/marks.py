"""How an answer names its sources: [来源 N](citation://N) or [Source N](citation://N). Standard library only."""

from __future__ import annotations

import re

MARK = re.compile(r"\[(?:来源|Source) (\d+)\]\(citation://\1\)")
"""As `mark` writes it; group 1: the number."""
_NUMBERS = r"\s*(?:来源|Sources?)\s*\d+(?:\s*(?:[,，、;；&和与及-]|and)\s*(?:(?:来源|Source)\s*)?\d+)*\s*"
LABEL = rf"(?:\[\[{_NUMBERS}\]\]|\[{_NUMBERS}\](?!\()|【{_NUMBERS}】)"
"""What a writer takes for a mark, though it links to nothing: "[Source 1]", "【来源 1、2】"."""
_FOREIGN_LINK = re.compile(r"\[([^\[\]]*)\]\s?[(（]\s*citation:[^()（）]*[)）]", re.IGNORECASE)
_FOREIGN_LABEL = re.compile(LABEL, re.IGNORECASE)


def mark(number: int, language: str) -> str:
    """The mark of source `number` in "zh" or "en"."""
    return f"[来源 {number}](citation://{number})" if language == "zh" else f"[Source {number}](citation://{number})"


def without_marks(text: str) -> str:
    """A document's text in which nothing can be taken for a mark of ours: it cites nobody and begins no source."""
    before = None
    while text != before:  # one may stand inside another
        before = text
        text = _FOREIGN_LINK.sub(r"\1", text)
        text = _FOREIGN_LABEL.sub(lambda found: found[0].strip("[]【】"), text)
    return text
