"""A filter without not and without unknown: what both stores compile (see `domain.filters`).

A negation is pushed down to the conditions, where it becomes the opposite test of a field that is there and of the
right type. What is left are all, any and a handful of tests that are true or not, in every store alike.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rag_cluster.domain.filters import And, Condition, Filter, Not, Operator, Or, Scalar, Scope

Sign = Literal["=", "<>", "<", "<=", ">", ">="]
Plain = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Compare:
    """The field is of the value's type and compares so. Strings by code point; booleans by = only."""

    scope: Scope
    field: str
    sign: Sign
    value: Plain


@dataclass(frozen=True, slots=True)
class Present:
    """The field is there and not null, or (wanted False) it is not."""

    scope: Scope
    field: str
    wanted: bool


@dataclass(frozen=True, slots=True)
class Substring:
    """The field is a string which holds the text, or (wanted False) does not."""

    scope: Scope
    field: str
    text: str
    wanted: bool


@dataclass(frozen=True, slots=True)
class Element:
    """The field is a list which has the value as an element, or (wanted False) has not."""

    scope: Scope
    field: str
    value: Plain
    wanted: bool


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every part; never empty."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Any part; without parts nothing passes, and then it is the whole predicate."""

    parts: tuple[Predicate, ...]


Predicate = Compare | Present | Substring | Element | AllOf | AnyOf
NEVER = AnyOf(())

_SIGNS: dict[Operator, Sign] = {
    Operator.EQ: "=",
    Operator.NE: "<>",
    Operator.LT: "<",
    Operator.LTE: "<=",
    Operator.GT: ">",
    Operator.GTE: ">=",
}
_OPPOSITE: dict[Sign, Sign] = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def predicate(filter: Filter, *, wanted: bool = True) -> Predicate:
    """What is true exactly where the filter is true (wanted False: where it is false, not unknown)."""
    match filter:
        case Not(part):
            return predicate(part, wanted=not wanted)
        case And(parts):
            inner = [predicate(part, wanted=wanted) for part in parts]
            return _all(inner) if wanted else _any(inner)
        case Or(parts):
            inner = [predicate(part, wanted=wanted) for part in parts]
            return _any(inner) if wanted else _all(inner)
        case Condition():
            return _condition(filter, wanted)


def _all(parts: Sequence[Predicate]) -> Predicate:
    if NEVER in parts:
        return NEVER
    return parts[0] if len(parts) == 1 else AllOf(tuple(parts))


def _any(parts: Sequence[Predicate]) -> Predicate:
    left = tuple(part for part in parts if part != NEVER)
    return left[0] if len(left) == 1 else AnyOf(left)


def _condition(condition: Condition, wanted: bool) -> Predicate:
    scope, field, operator, value = condition.scope, condition.field, condition.operator, condition.value
    match operator:
        case Operator.EXISTS:
            return Present(scope, field, bool(value) is wanted)
        case Operator.IN | Operator.NOT_IN:
            assert isinstance(value, tuple)
            return _membership(condition, value, (operator is Operator.IN) is wanted)
        case Operator.PREFIX:
            return _prefix(scope, field, str(value), wanted)
    assert not isinstance(value, tuple)
    if operator is not Operator.CONTAINS:
        sign = _SIGNS[operator]
        return _compare(scope, field, sign if wanted else _OPPOSITE[sign], value)
    assert not isinstance(value, datetime.date)
    element = Element(scope, field, value, wanted)
    return _any([Substring(scope, field, value, wanted), element]) if isinstance(value, str) else element


def _membership(condition: Condition, values: tuple[Scalar, ...], wanted: bool) -> Predicate:
    """Of the types that the list has: one type's value differs from all of that type, whatever else is listed."""
    scope, field = condition.scope, condition.field
    if wanted:
        return _any([_compare(scope, field, "=", value) for value in values])
    groups: dict[object, list[Predicate]] = {}
    for value in values:
        kind: object = bool if isinstance(value, bool) else str if isinstance(value, (str, datetime.date)) else float
        groups.setdefault(kind, []).append(_compare(scope, field, "<>", value))
    return _any([_all(group) for group in groups.values()])


def _compare(scope: Scope, field: str, sign: Sign, value: Scalar) -> Predicate:
    if isinstance(value, bool) and sign == "<>":
        return Compare(scope, field, "=", not value)
    if not isinstance(value, datetime.date):
        return Compare(scope, field, sign, value)
    # Any time of the day belongs to it: "2024-03-01T08:00" lies between "2024-03-01" and "2024-03-02".
    day = value.isoformat()
    after = _successor(day) or day
    first, last = Compare(scope, field, ">=", "0"), Compare(scope, field, "<", ":")
    from_day, past_day = Compare(scope, field, ">=", day), Compare(scope, field, ">=", after)
    before_day, to_day = Compare(scope, field, "<", day), Compare(scope, field, "<", after)
    match sign:
        case "=":
            return _all([from_day, to_day])
        case "<>":
            return _any([before_day, past_day])
        case "<":
            return _all([first, before_day])
        case "<=":
            return _all([first, to_day])
        case ">":
            return _all([past_day, last])
        case ">=":
            return _all([from_day, last])


def _prefix(scope: Scope, field: str, text: str, wanted: bool) -> Predicate:
    """As a range, for a pattern would need characters escaped that not every store can escape."""
    end = _successor(text)
    begins = Compare(scope, field, ">=" if wanted else "<", text)
    if end is None:
        return begins
    ends = Compare(scope, field, "<" if wanted else ">=", end)
    return _all([begins, ends]) if wanted else _any([begins, ends])


def _successor(text: str) -> str | None:
    """The first string behind all that begin with text; None when there is none."""
    stem = text.rstrip(chr(0x10FFFF))
    if not stem:
        return None
    code = ord(stem[-1]) + 1
    return stem[:-1] + chr(0xE000 if 0xD800 <= code <= 0xDFFF else code)
