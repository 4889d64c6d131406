"""The numbers of a text by their value, in digits and in words, Chinese and English. Standard library only.

Words that hold the characters of a number are none: 千万, 万一, 十分, 一些. "千克" is a unit, not a thousand.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise
from math import prod
from typing import NamedTuple

from rag_cluster.domain.terms import CJK

_CHINESE_DIGITS = {character: value for value, character in enumerate("零一二三四五六七八九")} | {
    "〇": 0,
    "○": 0,
    "两": 2,
}
_FORMAL = str.maketrans("壹贰叁肆伍陆柒捌玖拾佰仟萬億兩", "一二三四五六七八九十百千万亿两")
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
_FIRST_TO_NINETEENTH = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth "
    "sixteenth seventeenth eighteenth nineteenth"
)
_ORDINALS = {word: value for value, word in enumerate(_FIRST_TO_NINETEENTH.split(), start=1)}
_ORDINALS |= {word[:-1] + "ieth": value * 10 for value, word in enumerate(_TENS.split(), start=2)}
_VALUES = _WORDS | _ORDINALS
_MONTHS = "Jan(?:uary)? Feb(?:ruary)? Mar(?:ch)? Apr(?:il)? May June? July? Aug(?:ust)? Sept?(?:ember)? Oct(?:ober)?"
_MONTHS += " Nov(?:ember)? Dec(?:ember)?"
_MONTH = "|".join(f"({name})" for name in _MONTHS.split())
_MONTH_NAME = re.compile(
    rf"(?:(?<=\d)-)?\b(?:{_MONTH})\b(?:-|\.?,?\s+)(?=\d)|(?<=\d)(?:st|nd|rd|th)?\s+(?:of\s+)?(?:{_MONTH})\b(?:-(?=\d))?"
)
"""In a date."""
_ANY_MONTH = re.compile(rf"\b(?:{_MONTH})\b")

_OF_KILO = "克米瓦伏卡帕焦字赫升安"
_DIGITS = r"\d+(?:[.,]\d+)*"
_WORD = "|".join((*_WORDS, "hundred", *_SCALES))
_ORDINAL = "|".join(_ORDINALS)
_CHINESE = (  # 三点五, not the time 三点五十, nor 三点一共
    "[零〇○一二两三四五六七八九十百千万亿]+"
    "(?:[点點][零〇一二三四五六七八九]++(?![十分时刻半个共定些样起直旦是到致般同概并律经])[万亿]*)?"
)
_NUMBER = re.compile(
    # A minus, not the dash of a range, a date or a name: "5-6", "GPT-4"; either in "温度-4", "方案-4", "5元-6元".
    rf"(?:(?P<sign>(?:(?<![\w.)%\]])|(?<=[为是至到约于达]))[-−–]|[负負]|零下|\bminus\s+)|(?P<dash>(?<=[{CJK}])[-−–]))?"
    rf"(?:(?P<mixed>(?<![\d.,])\d{{1,4}}[百千万亿]+(?:(?:\d{{1,4}}[十百千万]+)+(?!(?<=千)[{_OF_KILO}])|(?<=万)\d{{4}}(?![\d.,年])))"
    rf"|(?P<digits>{_DIGITS})(?: ?(?P<scale>(?:百(?!分)|千(?![{_OF_KILO}]))?[万亿]{{0,2}}(?<=[百千万亿]))"
    rf"|[ -]?(?P<thousands>{'|'.join(_SCALES)})\b)?"
    rf"|(?P<chinese>{_CHINESE})"
    rf"|\b(?P<english>(?:a\s+)?(?:{_WORD})"
    rf"(?:(?:[\s-]+|(?:(?<=hundred)|(?<=thousand)|(?<=million))\s+and\s+)(?:{_WORD}))*(?:(?<=ty)-(?:{_ORDINAL}))?"
    rf"|{_ORDINAL})\b)"
    r"(?P<percent>\s?(?:%|per\s?cent\b))?",
    re.IGNORECASE,
)
_SCALE = re.compile(rf"(?:[百千万亿]+|{'|'.join(_SCALES)})$")
_NO_UNIT = (1, "")
_RANGE = re.compile(r"\s*(?:[-–—−~至到]|\bto\b|\band\b)\s*[$€£¥]?", re.IGNORECASE)
_PERCENT = re.compile(rf"百分之({_DIGITS}|{_CHINESE})")
_MONEY = re.compile(rf"([$€£¥]\s?(?:{_DIGITS}\s?[-–~]\s?)?{_DIGITS})\s?(k|mn?|bn?)\b", re.IGNORECASE)
_ABBREVIATED = {"k": "thousand", "m": "million", "b": "billion"}
_CELL = re.compile(rf"(?<=\|)\s*[-−]?{_DIGITS}\s*(?=\|)")
_BEHIND_UNIT = re.compile(
    r"\([^()\n\d]{0,20}(?:[%万亿]|[百千]元|thousand|million|billion)[^()\n\d]{0,20}\)(.*)", re.IGNORECASE
)


class Number(NamedTuple):
    """A number in a text."""

    written: str
    value: str
    """Equal for equal numbers: "-1500" of "负1.5千", "5%" of "百分之五"."""
    bare: str
    """The value without sign, scale and percent: what a cell holds below a heading that says "in %" or "万元"."""
    certain: bool
    """False for a word that need not be meant as a number: "one", "三"."""
    others: tuple[str, ...] = ()
    """What else it may mean: the 3 of "3-5万" 30000 too, the 5 of "温度-5" -5 too."""


def numbers(text: str) -> Iterator[Number]:
    """In order. A date is its year, month and day; so is "1.2.3" three numbers, and "3,4" two."""
    text = unicodedata.normalize("NFKC", text.replace("，", "、")).translate(_FORMAL).replace("百分之百", "100%")
    text = _MONEY.sub(lambda found: f"{found[1]} {_ABBREVIATED[found[2][0].lower()]}", _PERCENT.sub(r"\1%", text))
    matches = list(_NUMBER.finditer(text := _MONTH_NAME.sub(_month, text)))
    units: list[set[tuple[int, str]]] = [set() for _ in matches]
    for at, (first, second) in enumerate(pairwise(matches)):
        if _RANGE.fullmatch(text, first.end(), second.start()):
            units[at].add(_unit(second))
            units[at + 1].add(_unit(first))
    for found, shared in zip(matches, units, strict=True):
        yield from _read(found, shared if _unit(found) == _NO_UNIT else set())


def bare_numbers(text: str) -> set[str]:
    """Values of numbers whose unit may stand elsewhere: alone in a cell of a table, behind "（万元）" in a line."""
    text = unicodedata.normalize("NFKC", text)
    alone = (*_CELL.findall(text), *_BEHIND_UNIT.findall(text))
    return {number.bare for part in alone for number in numbers(part)}


def months(text: str) -> dict[str, str]:
    """The English names of months in a text, with their numbers."""
    return {found[0]: _month(found).strip() for found in _ANY_MONTH.finditer(text)}


def without_months(text: str) -> str:
    """English names of months in dates as numbers, so that they are not taken for other names."""
    return _MONTH_NAME.sub(_month, text)


def _month(found: re.Match[str]) -> str:
    return f" {((found.lastindex or 0) - 1) % 12 + 1} "


def _read(found: re.Match[str], shared: set[tuple[int, str]]) -> Iterator[Number]:
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
        bare, amount, certain = _canonical(last), _canonical(last, _unit(found)[0]), True
        written = last if dated else written
    else:
        spelled = _spelled_out(found)
        if spelled is None:
            return
        bare = amount = spelled
        word = found["chinese"] or (found["english"] or "").lower()
        certain = bool(percent) or not (len(word) == 1 or (word in _VALUES and _VALUES[word] <= _SMALL_WORD))
    value = f"{sign}{amount}{percent}"
    others = [f"{sign}{_canonical(bare, scale)}{unit}" for scale, unit in shared - {_NO_UNIT}]
    if found["dash"]:
        others.append(f"-{value}")
    yield Number(written, value, bare, certain, tuple(others))


def _spelled_out(found: re.Match[str]) -> str | None:
    if found["english"]:
        amount = _english(found["english"].lower())
    else:
        run = found["mixed"] or found["chinese"]
        if len(run) == 4 and set(run) <= _CHINESE_DIGITS.keys() and found.string.startswith("年", found.end()):
            return "".join(str(_CHINESE_DIGITS[digit]) for digit in run)
        whole, point, part = run.replace("點", "点").partition("点")
        amount = _chinese(whole)
        if point and amount is not None:
            fraction = "".join(str(_CHINESE_DIGITS[digit]) for digit in part.rstrip("万亿"))
            return _canonical(f"{amount}.{fraction}", _unit(found)[0])
    return None if amount is None else str(amount)


def _unit(found: re.Match[str]) -> tuple[int, str]:
    """(scale, "%" or "") with which a number ends."""
    percent = found["percent"] or ""
    ending = _SCALE.search(found[0].removesuffix(percent).lower())
    scale = (_SCALES.get(ending[0]) or prod(_CHINESE_UNITS[one] for one in ending[0])) if ending else 1
    return scale, "%" if percent else ""


def _canonical(digits: str, scale: int = 1) -> str:
    value = Decimal(digits) * scale if scale > 1 else Decimal(digits)  # a product has 28 digits at most
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _chinese(run: str) -> int | None:
    """三百零五, 十二, 三万五 (35,000), 二万亿; None for what is no number."""
    if run.isdecimal():
        return int(run)
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
        value = _VALUES.get(word, 0)
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
