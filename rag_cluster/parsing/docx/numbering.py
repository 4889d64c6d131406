"""Automatic numbering of a DOCX: the number or bullet that Word draws before a paragraph."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from rag_cluster.parsing.ooxml import find, on_off, qn

_DIGITS = "〇一二三四五六七八九"
_UNITS = ("", "十", "百", "千")
_LEGAL_DIGITS, _LEGAL_UNITS = "零壹贰叁肆伍陆柒捌玖", ("", "拾", "佰", "仟")
_STEMS, _BRANCHES = "甲乙丙丁戊己庚辛壬癸", "子丑寅卯辰巳午未申酉戌亥"
_AIUEO = "アイウエオカキクケコサシスセソタチツテトナニヌネノハヒフヘホマミムメモヤユヨラリルレロワヲン"
_GANADA = "가나다라마바사아자차카타파하"
_ROMAN = ((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"),
          (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))  # fmt: skip
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


def format_number(value: int, style: str) -> str:
    """A counter in one of Word's number formats; decimal where the format has no rule here."""
    rule = _FORMATS.get(style)
    return rule(value) if rule and value >= 0 else str(value)


def _letters(value: int) -> str:
    # Word repeats letters: a..z, aa, bb ...
    return chr(ord("a") + (value - 1) % 26) * min((value - 1) // 26 + 1, 30) if value else ""


def _roman(value: int) -> str:
    out = ""
    for number, sign in _ROMAN:
        out += sign * min(value // number, 30)
        value %= number
    return out


def _chinese(value: int, digits: str = _DIGITS, units: tuple[str, ...] = _UNITS) -> str:
    if value >= 10_000:
        return str(value)
    if value < 10:
        return digits[value].replace("〇", "零") if not value else digits[value]
    out, zero = "", False
    for power in (3, 2, 1, 0):
        digit = value // 10**power % 10
        if digit:
            out += (digits[0].replace("〇", "零") if zero and out else "") + digits[digit] + units[power]
            zero = False
        else:
            zero = True
    return out[1:] if 10 <= value < 20 and digits is _DIGITS else out


def _cycle(signs: str) -> Any:
    return lambda value: signs[(value - 1) % len(signs)] if value else ""


def _circled(value: int) -> str:
    return chr(0x2460 + value - 1) if 1 <= value <= 20 else str(value)


def _ordinal(value: int) -> str:
    suffix = "th" if 10 <= value % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(value % 10, "th")
    return f"{value}{suffix}"


_FORMATS: dict[str, Any] = {
    "none": lambda value: "",
    "decimalZero": lambda value: f"{value:02d}",
    "upperRoman": _roman,
    "lowerRoman": lambda value: _roman(value).lower(),
    "upperLetter": lambda value: _letters(value).upper(),
    "lowerLetter": _letters,
    "ordinal": _ordinal,
    "chineseCounting": _chinese,
    "chineseCountingThousand": _chinese,
    "taiwaneseCounting": _chinese,
    "taiwaneseCountingThousand": _chinese,
    "japaneseCounting": _chinese,
    "koreanCounting": _chinese,
    "chineseLegalSimplified": lambda value: _chinese(value, _LEGAL_DIGITS, _LEGAL_UNITS),
    "ideographDigital": lambda value: "".join(_DIGITS[int(digit)] for digit in str(value)),
    "taiwaneseDigital": lambda value: "".join(_DIGITS[int(digit)] for digit in str(value)),
    "japaneseDigitalTenThousand": lambda value: "".join(_DIGITS[int(digit)] for digit in str(value)),
    "ideographTraditional": _cycle(_STEMS),
    "ideographZodiac": _cycle(_BRANCHES),
    "decimalEnclosedCircle": _circled,
    "decimalEnclosedCircleChinese": _circled,
    "decimalEnclosedFullstop": lambda value: f"{value}.",
    "decimalEnclosedParen": lambda value: f"({value})",
    "decimalFullWidth": lambda value: str(value).translate({48 + d: 0xFF10 + d for d in range(10)}),
    "aiueo": _cycle(_AIUEO),
    "aiueoFullWidth": _cycle(_AIUEO),
    "ganada": _cycle(_GANADA),
}


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
