"""The numbers of a text by their value, in digits and in words, Chinese and English. Standard library only.

Words that hold the characters of a number are none: 千万, 万一, 十分, 一些. "千克" is a unit, not a thousand.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal
from typing import NamedTuple

_CHINESE_DIGITS = {character: value for value, character in enumerate("零一二三四五六七八九")} | {
    "〇": 0,
    "○": 0,
    "两": 2,
}
_CHINESE_UNITS = {"亿": 10**8, "万": 10**4, "千": 1000, "百": 100, "十": 10}
_MOST_TIMES = {"亿": 10**8, "万": 10**4, "千": 10, "百": 10, "十": 10}
_LONGEST = 24
_SMALL_WORD = 12
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORDS = {word: value for value, word in enumerate(_SMALL.split())}
_WORDS |= {word: value * 10 for value, word in enumerate(_TENS.split(), start=2)}
_MONTHS = "Jan(?:uary)? Feb(?:ruary)? Mar(?:ch)? Apr(?:il)? May June? July? Aug(?:ust)? Sept?(?:ember)? Oct(?:ober)?"
_MONTHS += " Nov(?:ember)? Dec(?:ember)?"
_MONTH = "|".join(f"({name})" for name in _MONTHS.split())
_MONTH_NAME = re.compile(rf"\b(?:{_MONTH})\b\.?(?=\s+\d)|(?<=\d)(?:st|nd|rd|th)?\s+(?:{_MONTH})\b")

_OF_KILO = "克米瓦伏卡帕焦字赫升安"
_DIGITS = r"\d+(?:[.,]\d+)*"
_WORD = "|".join((*_WORDS, "hundred", *_SCALES))
_NUMBER = re.compile(
    # A minus, not the dash of a range, a date or a name: "5-6", "2019年-2020年", "GPT-4".
    r"(?P<sign>(?:(?<![\w.)%\]])|(?<=[为是到至约于达]))[-−]|负|零下|\bminus\s+)?"
    rf"(?:(?P<digits>{_DIGITS})(?: ?(?P<scale>(?:百(?!分)|千(?![{_OF_KILO}]))?[万亿]{{0,2}}(?<=[百千万亿]))"
    rf"|[ -]?(?P<thousands>{'|'.join(_SCALES)})\b)?"
    r"|(?P<chinese>[零〇○一二两三四五六七八九十百千万亿]+)"
    rf"|\b(?P<english>(?:a\s+)?(?:{_WORD})"
    rf"(?:(?:[\s-]+|(?:(?<=hundred)|(?<=thousand)|(?<=million))\s+and\s+)(?:{_WORD}))*)\b)"
    r"(?P<percent>\s?(?:%|per\s?cent\b))?",
    re.IGNORECASE,
)
_CELL = re.compile(rf"(?<=\|)\s*[-−]?{_DIGITS}\s*(?=\|)")


class Number(NamedTuple):
    """A number in a text."""

    written: str
    value: str
    """Equal for equal numbers: "-1500" of "负1.5千", "5%" of "百分之五"."""
    bare: str
    """The value without sign, scale and percent: what a cell holds below a heading that says "in %" or "万元"."""
    certain: bool
    """False for a word that need not be meant as a number: "one", "三"."""


def numbers(text: str) -> Iterator[Number]:
    """In order. A date is its year, month and day; so is "1.2.3" three numbers, and "3,4" two."""
    text = unicodedata.normalize("NFKC", text.replace("，", "、"))
    text = re.sub(rf"百分之({_DIGITS}|[零一二两三四五六七八九十百]+)", r"\1%", text)
    for found in _NUMBER.finditer(_MONTH_NAME.sub(_month, text)):
        yield from _read(found)


def cells(text: str) -> set[str]:
    """Values of the numbers that stand alone in a cell of a Markdown table."""
    return {number.bare for cell in _CELL.findall(unicodedata.normalize("NFKC", text)) for number in numbers(cell)}


def without_months(text: str) -> str:
    """English names of months in dates as numbers, so that they are not taken for other names."""
    return _MONTH_NAME.sub(_month, text)


def _month(found: re.Match[str]) -> str:
    return f" {((found.lastindex or 0) - 1) % 12 + 1} "


def _read(found: re.Match[str]) -> Iterator[Number]:
    written = found[0].strip()
    percent = "%" if found["percent"] else ""
    sign = "-" if found["sign"] else ""
    if found["digits"]:
        plain = re.sub(r",(?=\d{3}(?:\D|$))", "", found["digits"])
        *dated, last = [
            one for part in plain.split(",") for one in (part.split(".") if part.count(".") > 1 else [part])
        ]
        for part in dated:
            yield Number(part, _canonical(part), _canonical(part), True)
        value = _canonical(last, _scale(found))
        yield Number(last if dated else written, f"{sign}{value}{percent}", _canonical(last), True)
        return
    spelled: str = found["chinese"] or found["english"]
    amount = _spelled_out(spelled, found)
    if amount is not None:
        alone = len(spelled) == 1 or (spelled.lower() in _WORDS and amount <= _SMALL_WORD)
        yield Number(written, f"{sign}{amount}{percent}", str(amount), bool(percent) or not alone)


def _spelled_out(spelled: str, found: re.Match[str]) -> int | None:
    if found["english"]:
        return _english(spelled.lower())
    if len(spelled) == 4 and set(spelled) <= _CHINESE_DIGITS.keys() and found.string.startswith("年", found.end()):
        return int("".join(str(_CHINESE_DIGITS[digit]) for digit in spelled))
    return _chinese(spelled)


def _canonical(digits: str, scale: int = 1) -> str:
    value = Decimal(digits) * scale if scale > 1 else Decimal(digits)  # a product has 28 digits at most
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _scale(found: re.Match[str]) -> int:
    scale = _SCALES[found["thousands"].lower()] if found["thousands"] else 1
    for character in found["scale"] or "":
        scale *= _CHINESE_UNITS[character]
    return scale


def _chinese(run: str) -> int | None:
    """三百零五, 十二, 三万五 (35,000), 二万亿; None for what is no number."""
    if run in _CHINESE_DIGITS or not run or len(run) > _LONGEST:
        return _CHINESE_DIGITS.get(run, None if run else 0)
    for character, unit in _CHINESE_UNITS.items():
        before, found, after = run.rpartition(character)
        if not found:
            continue
        times = 1 if unit == 10 and not before else _chinese(before)
        rest = _chinese(after.lstrip("零〇○"))
        if not times or rest is None or rest >= unit or times >= _MOST_TIMES[character]:
            return None
        shortened = unit > 10 and after in _CHINESE_DIGITS  # 二百五 is 250, 二百零五 is not
        return times * unit + (rest * unit // 10 if shortened else rest)
    return None


def _english(run: str) -> int | None:
    """twenty-five, a hundred and five, three million; None for what is no number, as "twenty twenty"."""
    total = current = 0
    for word in re.findall("[a-z]+", run):
        value = _WORDS.get(word, 0)
        if word == "a":
            current = 1
        elif word == "hundred":
            if not 0 < current < 100:
                return None
            current *= 100
        elif word in _SCALES:
            if not current:
                return None
            total, current = total + current * _SCALES[word], 0
        elif word != "and":
            if current % (10 if value < 10 else 100) or (value < 10 and current % 100 == 10):
                return None
            current += value
    return total + current
