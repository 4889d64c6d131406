"""Automatic numbering of a DOCX: the number or bullet that Word draws before a paragraph."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from rag_cluster.parsing.counters import format_number
from rag_cluster.parsing.ooxml import find, on_off, qn

_BULLETS = {"\uf0b7": "•", "\uf0a7": "▪", "\uf0d8": "➢", "\uf0fc": "✓", "\uf076": "❖", "\uf06c": "●", "\uf06e": "■",
            "\uf0a8": "◆", "\uf075": "◆", "\uf02d": "-", "\uf0e0": "→", "\uf0be": "—", "·": "•"}  # fmt: skip


@dataclass(slots=True)
class Level:
    """One level of a list."""

    start: int = 1
    format: str = "decimal"
    text: str = ""
    restart_after: int | None = None
    legal: bool = False
    style: str | None = None


@dataclass(slots=True)
class _List:
    levels: dict[int, Level]
    abstract: str
    overrides: dict[int, int] = field(default_factory=dict)


class Numbering:
    """Counts paragraphs as Word does: lists of one abstract definition share their counters."""

    def __init__(self, root: Any) -> None:
        self._lists: dict[str, _List] = {}
        self._counters: dict[str, dict[int, int]] = {}
        self._started: set[tuple[str, int]] = set()
        if root is not None:
            self._load(root)

    def _load(self, root: Any) -> None:
        abstracts = {a.get(qn("w:abstractNumId"), ""): a for a in root.iter(qn("w:abstractNum"))}
        by_style = {_val(link): a for a in abstracts.values() if (link := find(a, "w:styleLink")) is not None}
        for num in root.iter(qn("w:num")):
            abstract_id = _val(find(num, "w:abstractNumId")) or ""
            abstract = abstracts.get(abstract_id)
            link = find(abstract, "w:numStyleLink")
            if link is not None:
                abstract = by_style.get(_val(link), abstract)
                abstract_id = abstract.get(qn("w:abstractNumId"), "") if abstract is not None else abstract_id
            if abstract is None:
                continue
            entry = _List(dict(map(_level, abstract.findall(qn("w:lvl")))), abstract_id)
            for override in num.findall(qn("w:lvlOverride")):
                self._override(entry, override)
            self._lists[num.get(qn("w:numId"), "")] = entry

    @staticmethod
    def _override(entry: _List, override: Any) -> None:
        index = _number(override.get(qn("w:ilvl")), 0)
        own = find(override, "w:lvl")
        if own is not None:
            entry.levels[index] = _level(own)[1]
        start = find(override, "w:startOverride")
        if start is not None:
            entry.overrides[index] = _number(_val(start), 1)

    def level_of_style(self, num_id: str, style_id: str | None) -> int | None:
        """The level that a list ties to a paragraph style (headings have theirs this way)."""
        entry = self._lists.get(num_id)
        if entry is None or not style_id:
            return None
        return next((index for index, level in entry.levels.items() if level.style == style_id), None)

    def advance(self, num_id: str, index: int) -> tuple[str, bool] | None:
        """(marker, whether it is a bullet) of the next paragraph at a level; None when there is no such list."""
        entry = self._lists.get(num_id)
        if entry is None:
            return None
        level = entry.levels.get(index) or Level(format="none")
        counters = self._counters.setdefault(entry.abstract, {})
        if index in entry.overrides and (num_id, index) not in self._started:
            counters.pop(index, None)
        self._started.add((num_id, index))
        start = entry.overrides.get(index, level.start)
        counters[index] = counters[index] + 1 if index in counters else start
        for deeper in [key for key in counters if key > index]:
            after = entry.levels[deeper].restart_after if deeper in entry.levels else None
            if after is None or (after and index < after):
                del counters[deeper]
        if level.format == "bullet":
            return _bullet(level.text), True
        return self._render(entry, level, counters), False

    @staticmethod
    def _render(entry: _List, level: Level, counters: dict[int, int]) -> str:
        def place(match: re.Match[str]) -> str:
            index = int(match[1]) - 1
            shown = entry.levels.get(index, Level())
            value = counters.setdefault(index, shown.start)
            style = "decimal" if level.legal and shown.format != "bullet" else shown.format
            return format_number(value, style)

        if level.format == "none" and "%" not in level.text:
            return level.text.strip()
        return re.sub(r"%([1-9])", place, level.text).strip()


def _bullet(text: str) -> str:
    text = text.strip()
    if text in _BULLETS:
        return _BULLETS[text]
    return "•" if not text or "\ue000" <= text[0] <= "\uf8ff" else text


def _level(element: Any) -> tuple[int, Level]:
    number_format = find(element, "w:numFmt")
    if number_format is None:
        number_format = find(element, "mc:AlternateContent/mc:Fallback/w:numFmt")
    restart = _val(find(element, "w:lvlRestart"))
    return _number(element.get(qn("w:ilvl")), 0), Level(
        start=_number(_val(find(element, "w:start")), 0),
        format=_val(number_format) or "decimal",
        text=_val(find(element, "w:lvlText")) or "",
        restart_after=_number(restart, 0) if restart is not None else None,
        legal=bool(on_off(find(element, "w:isLgl"))),
        style=_val(find(element, "w:pStyle")),
    )


def _val(element: Any) -> str | None:
    return None if element is None else element.get(qn("w:val"))


def _number(text: str | None, default: int) -> int:
    try:
        return int(text or "")
    except ValueError:
        return default
