"""Excel number formats as a reader of text wants them: dates ISO, percent, currency and thousands as displayed."""

from __future__ import annotations

import math
import re
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache

from rag_cluster.parsing.serial_dates import elapsed, iso_moment

_FRACTION_LIMIT = 30
_WIDE = Context(prec=100)
"""The usual 28 digits do not hold a large number with many places."""
BUILTIN = {
    0: "General", 1: "0", 2: "0.00", 3: "#,##0", 4: "#,##0.00", 9: "0%", 10: "0.00%", 11: "0.00E+00", 12: "# ?/?",
    13: "# ??/??", 14: "yyyy-mm-dd", 15: "d-mmm-yy", 16: "d-mmm", 17: "mmm-yy", 18: "h:mm AM/PM", 19: "h:mm:ss AM/PM",
    20: "h:mm", 21: "h:mm:ss", 22: "yyyy-mm-dd h:mm", 37: "#,##0;(#,##0)", 38: "#,##0;(#,##0)",
    39: "#,##0.00;(#,##0.00)", 40: "#,##0.00;(#,##0.00)", 41: "#,##0", 42: "#,##0", 43: "#,##0.00", 44: "#,##0.00",
    45: "mm:ss", 46: "[h]:mm:ss", 47: "mm:ss.0", 48: "##0.0E+0", 49: "@",
    **dict.fromkeys((27, 28, 29, 30, 31, 36, 50, 51, 52, 53, 54, 57, 58), "yyyy-mm-dd"),
    **dict.fromkeys((32, 33, 34, 35, 55, 56), "h:mm:ss"),
}  # fmt: skip
_TOKEN = re.compile(
    r"""\[(?P<bracket>[^\]]*)\]|"(?P<quoted>[^"]*)"|(?:\\|!(?=[.,]))(?P<escaped>.)|_(?P<space>.)|\*(?P<fill>.)"""
    r"""|(?P<general>General)|(?P<ampm>AM/PM|A/P|上午/下午)|(?P<exponent>E[+-])|(?P<digits>[0#?]+)|(?P<date>[yY]+|[mM]+|[dD]+"""
    r"""|[hH]+|[sS]+|[aA]{3,4}|[gG]+|[bB]{2,4}|(?<![A-Za-z])e+(?![A-Za-z+-]))|(?P<other>.)""",
    re.DOTALL | re.IGNORECASE,
)
_CURRENCY = re.compile(r"^\$([^-]*)(?:-[0-9A-Fa-f]*)?$")
_CONDITION = re.compile(r"^(<=|>=|<>|<|>|=)(-?(?:\d+\.?\d*|\.\d+))$")
_FRACTION = re.compile(r"([0#?]+\s+)?[0#?]+\s*/\s*([0#?\d]+)")
_ELAPSED = re.compile(r"^(h+|m+|s+)$", re.IGNORECASE)


class NumberFormat:
    """One format code. display() takes the stored text of a number."""

    def __init__(self, code: str, date1904: bool = False) -> None:
        self.code = code
        self._date1904 = date1904
        self._sections = [_Section(part) for part in _split_sections(code or "General")]
        self.is_date = self._sections[0].is_date
        self.is_general = code in ("", "General", "GENERAL", "general")

    def display(self, raw: str) -> str:
        """The number as a person reads it; text that is no number comes back as it is."""
        if self.is_general:
            return general(raw)
        try:
            value = float(raw)
        except ValueError:
            return raw
        if not math.isfinite(value):
            return raw
        section, signed = self._section(value)
        if section.is_date:
            return section.moment(value, self._date1904) or general(raw)
        if section.general:
            number = general(raw) if signed else general(raw).removeprefix("-")
            return section.literal_prefix + number + section.literal_suffix
        return section.number(raw, value, signed)

    def _section(self, value: float) -> tuple[_Section, bool]:
        """The section that applies, and whether a minus sign must still be written."""
        sections = self._sections
        for section in sections[:2]:
            if section.condition and _meets(value, section.condition):
                return section, True
        if any(section.condition for section in sections[:2]):
            return sections[min(len(sections), 3) - 1], True
        if value < 0 and len(sections) > 1:
            return sections[1], False
        if value == 0 and len(sections) > 2:
            return sections[2], False
        return sections[0], True


@lru_cache(maxsize=4096)
def number_format(code: str, date1904: bool = False) -> NumberFormat:
    """A shared NumberFormat."""
    return NumberFormat(code, date1904)


def general(raw: str) -> str:
    """A number in format General: at most 15 digits, no ".0"."""
    if len(raw) <= 15 and raw.isascii() and raw.isdigit():
        return raw
    try:
        value = float(raw)
    except ValueError:
        return raw
    if not math.isfinite(value):
        return raw
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    text = f"{value:.15g}"
    if "e" not in text:
        return text
    if 1e-9 <= abs(value) < 1:
        return f"{value:.15f}".rstrip("0")
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}E{exponent}"


def _meets(value: float, condition: tuple[str, float]) -> bool:
    operator, limit = condition
    return {
        "<": value < limit, "<=": value <= limit, ">": value > limit,
        ">=": value >= limit, "=": value == limit, "<>": value != limit,
    }[operator]  # fmt: skip


def _split_sections(code: str) -> list[str]:
    parts, current, quoted, index = [], "", False, 0
    while index < len(code):
        char = code[index]
        if char == "\\" and not quoted:
            current += code[index : index + 2]
            index += 2
            continue
        if char == '"':
            quoted = not quoted
        if char == ";" and not quoted:
            parts.append(current)
            current = ""
        else:
            current += char
        index += 1
    return [*parts, current][:4]


class _Section:
    """One of the up to four parts of a format code."""

    def __init__(self, code: str) -> None:
        self.condition: tuple[str, float] | None = None
        self.tokens: list[tuple[str, str]] = []
        self.elapsed = ""
        for match in _TOKEN.finditer(code):
            self._take(match.lastgroup or "other", match.group(match.lastgroup or 0))
        kinds = [kind for kind, _ in self.tokens]
        self.general = "general" in kinds
        self.is_date = not self.general and ("date" in kinds or "ampm" in kinds or bool(self.elapsed))
        self.percent = sum(text.count("%") for kind, text in self.tokens if kind == "other")
        at = kinds.index("general") if self.general else 0
        self.literal_prefix = "".join(text for kind, text in self.tokens[:at] if kind in ("literal", "other"))
        self.literal_suffix = "".join(text for kind, text in self.tokens[at + 1 :] if kind in ("literal", "other"))

    def _take(self, kind: str, text: str) -> None:
        if kind == "bracket":
            if currency := _CURRENCY.match(text):
                self.tokens.append(("literal", currency[1]))
            elif condition := _CONDITION.match(text):
                self.condition = (condition[1], float(condition[2]))
            elif _ELAPSED.match(text):
                self.elapsed = text[0].lower()
                self.tokens.append(("date", text.lower()))
        elif kind in ("quoted", "escaped"):
            self.tokens.append(("literal", text))
        elif kind == "space":
            self.tokens.append(("literal", " "))
        elif kind != "fill":
            self.tokens.append((kind, text))

    def number(self, raw: str, value: float, signed: bool) -> str:
        """The value in this section's digits."""
        if not any(kind == "digits" for kind, _ in self.tokens):
            shown = "".join(general(raw) if text == "@" else text for _, text in self.tokens).strip()
            return shown if shown or not self.tokens else ""
        if any(kind == "other" and text == "/" for kind, text in self.tokens) and self._is_fraction():
            return self._fraction(value)
        try:
            exact = abs(Decimal(raw.strip()) if "e" not in raw.lower() else Decimal(repr(value)))
        except InvalidOperation:
            return raw
        body, negative = self._digits(exact)
        sign = "-" if signed and value < 0 and negative else ""
        return (sign + body).strip()

    def moment(self, value: float, date1904: bool) -> str | None:
        """The value as a date, a time or a span of time; None when it is none."""
        letters = "".join(text.lower() for kind, text in self.tokens if kind == "date")
        if self.elapsed:
            return elapsed(value, self.elapsed, seconds="s" in letters)
        time = any(c in letters for c in "hs") or any(kind == "ampm" for kind, _ in self.tokens)
        date = any(c in letters for c in "ydagbe") or ("m" in letters and not time)
        return iso_moment(value, date=date, time=time, date1904=date1904)

    def _is_fraction(self) -> bool:
        return _FRACTION.search(self._layout()) is not None

    def _layout(self) -> str:
        return "".join(text for kind, text in self.tokens if kind in ("digits", "other"))

    def _fraction(self, value: float) -> str:
        """A whole number and a fraction, or one improper fraction where the format has no place for the whole."""
        found = _FRACTION.search(self._layout())
        assert found is not None
        mixed, below = found[1] is not None, found[2]
        whole = int(abs(value)) if mixed else 0
        rest = abs(value) - whole
        if below.strip("0#?"):
            denominator = int(below.replace("#", "").replace("?", "")) or 1
            numerator = round(rest * denominator)
        else:
            part = Fraction(rest).limit_denominator(10 ** min(len(below), 4) - 1)
            numerator, denominator = part.numerator, part.denominator
        if mixed and numerator == denominator:
            whole, numerator = whole + 1, 0
        pieces = [str(whole)] if whole or not numerator else []
        pieces += [f"{numerator}/{denominator}"] if numerator else []
        digits = [index for index, (kind, text) in enumerate(self.tokens) if kind == "digits" or text.isdigit()]
        before = "".join(text for kind, text in self.tokens[: digits[0]] if kind == "literal")
        after = "".join(text for kind, text in self.tokens[digits[-1] + 1 :] if kind == "literal")
        return ("-" if value < 0 else "") + before + " ".join(pieces) + after

    def _digits(self, exact: Decimal) -> tuple[str, bool]:
        """The text with its literals, and whether any digit is not zero (no "-0")."""
        layout = self.tokens
        first = next(i for i, (kind, _) in enumerate(layout) if kind in ("digits", "exponent"))
        last = max(i for i, (kind, _) in enumerate(layout) if kind == "digits")
        pattern = "".join(
            t if k in ("digits", "exponent") or (k == "other" and t in ".,") else ""
            for k, t in layout[first : last + 1]
        )
        trailing = 0
        while last + 1 + trailing < len(layout) and layout[last + 1 + trailing][1] == ",":
            trailing += 1
        exact = exact * (Decimal(100) ** self.percent) / (Decimal(1000) ** trailing)
        inner = [t for k, t in layout[first : last + 1] if k == "literal" or (k == "other" and t not in ".,")]
        shown = _scientific(exact, pattern) if re.search("E", pattern, re.IGNORECASE) else _plain(exact, pattern)
        if inner and "." not in pattern and "," not in pattern and "E" not in pattern:
            shown = self._interleaved(exact, layout[first : last + 1])
        if not exact and "0" not in pattern and any(k == "literal" and t.strip() for k, t in layout):
            shown = ""  # an accounting format's "-" for zero
        before = "".join(t for k, t in layout[:first] if k in ("literal", "other"))
        after = "".join(t for k, t in layout[last + 1 + trailing :] if k in ("literal", "other"))
        return before + shown + after, any(c in "123456789" for c in shown)

    @staticmethod
    def _interleaved(exact: Decimal, layout: list[tuple[str, str]]) -> str:
        """Literals between digits, as in 000-0000: digits fill the places from the right."""
        places = sum(len(text) for kind, text in layout if kind == "digits")
        digits = str(int(exact.to_integral_value(ROUND_HALF_UP))).rjust(places)
        extra, digits = digits[: len(digits) - places], digits[len(digits) - places :]
        out, at = extra, 0
        for kind, text in layout:
            if kind != "digits":
                out += text
                continue
            for place in text:
                digit = digits[at]
                out += digit if digit != " " else ("0" if place == "0" else "")
                at += 1
        return out


def _plain(exact: Decimal, pattern: str) -> str:
    whole, _, fraction = pattern.partition(".")
    places = min(len(fraction.replace(",", "")), _FRACTION_LIMIT)
    optional = len(fraction) - len(fraction.rstrip("#?"))
    rounded = exact.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, _WIDE) if exact < Decimal(10) ** 20 else exact
    text = f"{rounded:,f}" if "," in whole else f"{rounded:f}"
    head, _, tail = text.partition(".")
    required = len(tail) - optional
    while len(tail) > required and tail.endswith("0"):
        tail = tail[:-1]
    zeros = whole.count("0")
    bare = head.replace(",", "")
    if len(bare) < zeros:
        head = bare.zfill(zeros)
    elif bare == "0" and not zeros:
        head = ""
    shown = f"{head}.{tail}" if tail else head
    return shown or "0"


def _scientific(exact: Decimal, pattern: str) -> str:
    mantissa, _, exponent = re.sub("e", "E", pattern).partition("E")
    whole, _, fraction = mantissa.partition(".")
    # With several places before the point the exponent is a multiple of their number: 12.3E+6.
    step = max(sum(char in "0#?" for char in whole), 1)
    power = exact.adjusted() // step * step if exact else 0
    unit = Decimal(1).scaleb(-len(fraction))
    shown = exact.scaleb(-power, _WIDE).quantize(unit, ROUND_HALF_UP, _WIDE)
    if shown >= Decimal(10) ** step:
        power += step
        shown = exact.scaleb(-power, _WIDE).quantize(unit, ROUND_HALF_UP, _WIDE)
    sign = "-" if power < 0 else "+" * exponent.startswith("+")
    return f"{shown:f}E{sign}{str(abs(power)).zfill(exponent.count('0') or 1)}"
