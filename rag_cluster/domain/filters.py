"""The filter language of a query: conditions on document and chunk metadata, joined by and, or, not.

Logic is three-valued (Kleene). A condition on a field that is absent, null or of another type is *unknown*, and so is
its negation; only what is true passes. `exists` alone is never unknown. Types are string, number, boolean and list; a
date is a string that begins with YYYY-MM-DD.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

MAX_DEPTH = 12
"""Of and, or, not."""
MAX_CONDITIONS = 100
"""Conditions of one tree."""
MAX_VALUES = 256
"""Values of one `in`, and of all lists of a tree together four times as many."""
MAX_FIELD_CHARS = 256
MAX_TEXT_CHARS = 4096
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_INT64 = range(-(2**63), 2**63)

Scalar = str | int | float | bool | datetime.date
"""What a field is compared with. A date means its whole day."""


class FilterError(ValueError):
    """A filter that means nothing; the message names the place."""


class Operator(StrEnum):
    """What a condition asks of a field."""

    EQ = "eq"
    NE = "ne"
    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"
    IN = "in"
    NOT_IN = "not_in"
    EXISTS = "exists"
    """There, and not null; value false asks for the opposite."""
    CONTAINS = "contains"
    """A string holds the value somewhere; a list holds it as an element."""
    PREFIX = "prefix"
    """A string begins with the value."""


class Scope(StrEnum):
    """Whose field a condition is about."""

    DOCUMENT = "document"
    """The document's metadata."""
    CHUNK = "chunk"
    """What `domain.chunks.chunk_facts` tells of a chunk."""


@dataclass(frozen=True, slots=True)
class Condition:
    """field operator value; value is a tuple for in and not_in, a bool for exists, else a scalar."""

    field: str
    operator: Operator
    value: Scalar | tuple[Scalar, ...]
    scope: Scope = Scope.DOCUMENT


@dataclass(frozen=True, slots=True)
class And:
    """Every part."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any part."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite; unknown stays unknown."""

    part: Filter


Filter = Condition | And | Or | Not

ORDERING = (Operator.GT, Operator.GTE, Operator.LT, Operator.LTE)


def parse_filter(raw: Mapping[str, Any]) -> Filter | None:
    """From JSON; None for {}. FilterError.

    {"field": F, "operator": O, "value": V, "scope": "document" | "chunk"}, {"and": [...]}, {"or": [...]},
    {"not": {...}}, or equalities {"year": 2024, "department": ["港口", "航运"]}, all of which hold, a list meaning any
    of its values. A date value is {"date": "2024-03-01"}.
    """
    if not raw:
        return None
    return _Parser().filter(raw, "filters", 1)


class _Parser:
    """Counts what a tree holds, over all its branches."""

    def __init__(self) -> None:
        self._conditions = 0
        self._values = 0

    def filter(self, raw: object, at: str, depth: int) -> Filter:
        if not isinstance(raw, Mapping) or not raw:
            raise FilterError(f"{at}: a filter is an object that is not empty")
        if depth > MAX_DEPTH:
            raise FilterError(f"{at}: filters are nested {MAX_DEPTH} deep at most")
        if "field" in raw and not raw.keys().isdisjoint(("operator", "op", "value")):
            return self._condition(raw, at)
        (name, inner), *more = raw.items()
        if name in ("and", "or", "not") and isinstance(inner, (Mapping, list, tuple)):
            if more:
                raise FilterError(f"{at}: {name!r} stands alone in its object, not beside {more[0][0]!r:.80}")
            return self._joined(name, inner, f"{at}.{name}", depth)
        return self._equalities(raw, at)

    def _joined(self, name: str, inner: object, at: str, depth: int) -> Filter:
        if name == "not":
            return Not(self.filter(inner, at, depth + 1))
        if not isinstance(inner, (list, tuple)) or not inner:
            raise FilterError(f"{at}: takes a list of filters that is not empty")
        parts = tuple(self.filter(part, f"{at}[{number}]", depth + 1) for number, part in enumerate(inner))
        return And(parts) if name == "and" else Or(parts)

    def _condition(self, raw: Mapping[str, Any], at: str) -> Condition:
        if unknown := raw.keys() - {"field", "operator", "value", "scope"}:
            raise FilterError(f"{at}: a condition has field, operator, value and scope, not {sorted(unknown)[0]!r:.80}")
        try:
            operator = Operator(raw.get("operator", Operator.EQ))
        except ValueError:
            raise FilterError(f"{at}.operator: is one of {', '.join(Operator)}") from None
        try:
            scope = Scope(raw.get("scope", Scope.DOCUMENT))
        except ValueError:
            raise FilterError(f"{at}.scope: is document or chunk") from None
        if operator is Operator.EXISTS:
            value: object = raw.get("value", True)
        elif "value" in raw:
            value = raw["value"]
        else:
            raise FilterError(f"{at}: a value is missing")
        return self._checked(raw["field"], operator, value, scope, at)

    def _equalities(self, raw: Mapping[str, Any], at: str) -> Filter:
        parts = []
        for name, value in raw.items():
            operator = Operator.IN if isinstance(value, (list, tuple)) else Operator.EQ
            parts.append(self._checked(name, operator, value, Scope.DOCUMENT, f"{at}.{str(name)[:80]}"))
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _checked(self, field: object, operator: Operator, value: object, scope: Scope, at: str) -> Condition:
        self._conditions += 1
        if self._conditions > MAX_CONDITIONS:
            raise FilterError(f"{at}: a filter has {MAX_CONDITIONS} conditions at most")
        if not isinstance(field, str) or not 0 < len(field) <= MAX_FIELD_CHARS:
            raise FilterError(f"{at}: a field is a name of 1 to {MAX_FIELD_CHARS} characters")
        _plain(field, at)
        if operator in (Operator.IN, Operator.NOT_IN):
            return Condition(field, operator, self._list(value, at), scope)
        if operator is Operator.EXISTS:
            if not isinstance(value, bool):
                raise FilterError(f"{at}.value: exists takes true or false")
            return Condition(field, operator, value, scope)
        one = _scalar(value, at)
        if operator in ORDERING and isinstance(one, bool):
            raise FilterError(f"{at}.value: true and false have no order; {operator} takes a number, string or date")
        if operator is Operator.PREFIX and not (isinstance(one, str) and one):
            raise FilterError(f"{at}.value: prefix takes a string that is not empty")
        if operator is Operator.CONTAINS and (one == "" or isinstance(one, datetime.date)):
            raise FilterError(f"{at}.value: contains takes a string that is not empty, a number, true or false")
        return Condition(field, operator, one, scope)

    def _list(self, value: object, at: str) -> tuple[Scalar, ...]:
        if not isinstance(value, (list, tuple)):
            raise FilterError(f"{at}.value: in and not_in take a list")
        self._values += len(value)
        if len(value) > MAX_VALUES or self._values > 4 * MAX_VALUES:
            raise FilterError(f"{at}.value: a list has {MAX_VALUES} values at most, all lists have {4 * MAX_VALUES}")
        return tuple(_scalar(one, f"{at}.value[{number}]") for number, one in enumerate(value))


def _scalar(value: object, at: str) -> Scalar:
    if isinstance(value, Mapping) and value.keys() == {"date"}:
        try:
            return datetime.date.fromisoformat(str(value["date"]))
        except ValueError:
            raise FilterError(f"{at}: a date is written YYYY-MM-DD") from None
    if isinstance(value, str):
        if len(value) > MAX_TEXT_CHARS:
            raise FilterError(f"{at}: a string has {MAX_TEXT_CHARS:,} characters at most")
        return _plain(value, at)
    if isinstance(value, bool) or (isinstance(value, datetime.date) and not isinstance(value, datetime.datetime)):
        return value
    if (isinstance(value, int) and value in _INT64) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if value is None:
        raise FilterError(f"{at}: null is compared with nothing; operator exists asks whether a field is there")
    raise FilterError(f'{at}: is a string, boolean, number (64 bits, finite) or {{"date": "YYYY-MM-DD"}}')


def _plain(text: str, at: str) -> str:
    if _UNSTORABLE.search(text):
        raise FilterError(f"{at}: must not contain NUL characters or lone surrogates")
    return text


def passes(filter: Filter | None, document: Mapping[str, Any], chunk: Mapping[str, Any]) -> bool:
    """Whether a chunk with these facts passes. What SQL and Milvus expressions mean is defined here."""
    return filter is None or _truth(filter, {Scope.DOCUMENT: document, Scope.CHUNK: chunk}) is True


def _truth(filter: Filter, facts: Mapping[Scope, Mapping[str, Any]]) -> bool | None:
    match filter:
        case Not(part):
            truth = _truth(part, facts)
            return None if truth is None else not truth
        case And(parts):
            truths = {_truth(part, facts) for part in parts}
            return False if False in truths else None if None in truths else True
        case Or(parts):
            truths = {_truth(part, facts) for part in parts}
            return True if True in truths else None if None in truths else False
        case Condition(field, operator, value, scope):
            return _holds(facts[scope].get(field), operator, value)


def _holds(stored: Any, operator: Operator, value: Any) -> bool | None:
    if operator is Operator.EXISTS:
        return (stored is not None) is value
    if operator is Operator.CONTAINS:
        if isinstance(stored, (list, tuple)):
            return any(_kind(one) == _kind(value) and one == value for one in stored)
        return value in stored if isinstance(stored, str) and isinstance(value, str) else None
    if operator is Operator.PREFIX:
        return stored.startswith(value) if isinstance(stored, str) else None
    if operator in (Operator.IN, Operator.NOT_IN):
        truths = [found for one in value if (found := _compared(stored, Operator.EQ, one)) is not None]
        return None if not truths else any(truths) is (operator is Operator.IN)
    return _compared(stored, operator, value)


def _compared(stored: Any, operator: Operator, value: Any) -> bool | None:
    if _kind(stored) is None or _kind(stored) != _kind(value):
        return None
    if isinstance(value, datetime.date):
        # Strings sort as their dates do; one that does not begin with a digit is no date and has no place among them.
        if operator in ORDERING and not "0" <= stored < ":":
            return None
        value, stored = value.isoformat(), stored[:10]
    match operator:
        case Operator.EQ:
            return bool(stored == value)
        case Operator.NE:
            return bool(stored != value)
        case Operator.GT:
            return bool(stored > value)
        case Operator.GTE:
            return bool(stored >= value)
        case Operator.LT:
            return bool(stored < value)
        case _:
            return bool(stored <= value)


def _kind(value: Any) -> str | None:
    """The type by which values are compared; None for what is compared with nothing."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, (str, datetime.date)):
        return "string"
    return None
