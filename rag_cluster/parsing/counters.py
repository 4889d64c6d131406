"""Numbers as lists and headings show them: in words, letters, Roman and East Asian numerals."""

from __future__ import annotations

from collections.abc import Callable
from string import ascii_lowercase, ascii_uppercase
from typing import Any

_DIGITS = "〇一二三四五六七八九"
_UNITS = ("", "十", "百", "千")
_LEGAL_DIGITS, _LEGAL_UNITS = "零壹贰叁肆伍陆柒捌玖", ("", "拾", "佰", "仟")
_STEMS, _BRANCHES = "甲乙丙丁戊己庚辛壬癸", "子丑寅卯辰巳午未申酉戌亥"
_AIUEO = "アイウエオカキクケコサシスセソタチツテトナニヌネノハヒフヘホマミムメモヤユヨラリルレロワヲン"
_GANADA = "가나다라마바사아자차카타파하"
_IROHA = "イロハニホヘトチリヌルヲワカヨタレソツネナラムウヰノオクヤマケフコエテアサキユメミシヱヒモセス"
_CHOSUNG = "ㄱㄴㄷㄹㅁㅂㅅㅇㅈㅊㅋㅌㅍㅎ"
_CYRILLIC = "абвгдежзиклмнопрстуфхцчшщыэюя"
_TRADITIONAL_DIGITS, _TRADITIONAL_UNITS = "零壹貳參肆伍陸柒捌玖", ("", "拾", "佰", "仟")
_ONES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
         "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")  # fmt: skip
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_IRREGULAR = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth",
              "twelve": "twelfth"}  # fmt: skip
_ROMAN = ((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"),
          (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))  # fmt: skip


def format_number(value: int, style: str) -> str:
    """A counter in one of Word's number formats; decimal where the format has no rule here."""
    rule = _FORMATS.get(style)
    return rule(value) if rule and value >= 0 else str(value)


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


def _cycle(signs: str) -> Callable[[int], str]:
    return lambda value: signs[(value - 1) % len(signs)] if value else ""


def _circled(value: int) -> str:
    return chr(0x2460 + value - 1) if 1 <= value <= 20 else str(value)


def _ordinal(value: int) -> str:
    suffix = "th" if 10 <= value % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(value % 10, "th")
    return f"{value}{suffix}"


def _digitwise(value: int) -> str:
    return "".join(_DIGITS[int(digit)] for digit in str(value))


def _sexagenary(value: int) -> str:
    """甲子, 乙丑 ... 癸亥, 甲子."""
    return _STEMS[(value - 1) % 10] + _BRANCHES[(value - 1) % 12] if value else ""


def _cardinal(value: int) -> str:
    if value >= 100:
        return str(value)
    tens, ones = divmod(value, 10)
    words = _ONES[value] if value < 20 else _TENS[tens] + (f"-{_ONES[ones]}" if ones else "")
    return words.capitalize()


def _ordinal_word(value: int) -> str:
    if value >= 100:
        return _ordinal(value)
    head, dash, last = _cardinal(value).lower().rpartition("-")
    word = _IRREGULAR.get(last) or f"{last[:-1]}ieth" * last.endswith("y") or f"{last}th"
    return f"{head}{dash}{word}".capitalize()


def _repeated(signs: str) -> Callable[[int], str]:
    """Once round the signs, then each twice, and so on."""
    return lambda value: signs[(value - 1) % len(signs)] * min((value - 1) // len(signs) + 1, 30) if value else ""


_FORMATS: dict[str, Any] = {
    "none": lambda value: "",
    "decimalZero": lambda value: f"{value:02d}",
    "upperRoman": _roman,
    "lowerRoman": lambda value: _roman(value).lower(),
    "upperLetter": _repeated(ascii_uppercase),
    "lowerLetter": _repeated(ascii_lowercase),
    "ordinal": _ordinal,
    "chineseCounting": _chinese,
    "chineseCountingThousand": _chinese,
    "taiwaneseCounting": _chinese,
    "taiwaneseCountingThousand": _chinese,
    "japaneseCounting": _chinese,
    "koreanCounting": _chinese,
    "chineseLegalSimplified": lambda value: _chinese(value, _LEGAL_DIGITS, _LEGAL_UNITS),
    "ideographDigital": _digitwise,
    "taiwaneseDigital": _digitwise,
    "japaneseDigitalTenThousand": _digitwise,
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
    "iroha": _cycle(_IROHA),
    "irohaFullWidth": _cycle(_IROHA),
    "chosung": _cycle(_CHOSUNG),
    "ideographLegalTraditional": lambda value: _chinese(value, _TRADITIONAL_DIGITS, _TRADITIONAL_UNITS),
    "ideographEnclosedCircle": lambda value: chr(0x3280 + value - 1) if 1 <= value <= 10 else _chinese(value),
    "ideographZodiacTraditional": _sexagenary,
    "koreanDigital2": _digitwise,
    "decimalFullWidth2": lambda value: str(value).translate({48 + d: 0xFF10 + d for d in range(10)}),
    "numberInDash": lambda value: f"- {value} -",
    "russianLower": _cycle(_CYRILLIC),
    "russianUpper": _cycle(_CYRILLIC.upper()),
    "hex": lambda value: f"{value:X}",
    "chicago": _repeated("*†‡§"),
    "cardinalText": _cardinal,
    "ordinalText": _ordinal_word,
}
