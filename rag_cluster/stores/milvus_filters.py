"""An AccessFilter as a Milvus boolean expression. Milvus Lite has no filter templates, so values are escaped here.

An expression never misses a row that `domain.filters.passes`. It finds more than those in three cases, which the
second check in PostgreSQL sorts out: Milvus Lite takes true for 1 and false for 0; a pattern cannot hold %, _ or a
backslash as they are; and that a list lacks an element is also said of numbers, booleans and objects.
JSON paths take no `in` in Milvus Lite, so a list becomes a disjunction.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any

from rag_cluster.domain.access import AccessFilter
from rag_cluster.domain.filters import Scope
from rag_cluster.domain.predicates import (
    NEVER,
    AllOf,
    AnyOf,
    Compare,
    Element,
    Predicate,
    Present,
    Substring,
    predicate,
)
from rag_cluster.errors import InvalidFilterError

FIELDS = {Scope.DOCUMENT: "metadata", Scope.CHUNK: "chunk_facts"}
"""JSON fields of a collection."""
_WILD = re.compile(r"[%_\\]")
_INT64 = range(-(2**63), 2**63)
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def string(value: str) -> str:
    """A string literal. InvalidFilterError for what no UTF-8 request can carry."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidFilterError(f"Filter value {value!r} is not valid Unicode text") from error
    return f'"{value.translate(_ESCAPES)}"'


def literal(value: Any) -> str:
    """A literal of a JSON scalar: string, boolean, 64-bit integer or finite number. InvalidFilterError otherwise."""
    if isinstance(value, str):
        return string(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value in _INT64:
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    shown = json.dumps(value, default=repr, ensure_ascii=False)[:80]
    raise InvalidFilterError(f"A metadata filter takes strings, booleans and numbers (64 bits, finite), not {shown}")


def one_of(field: str, values: Iterable[str] | Iterable[int]) -> str:
    """field equals any of the values, which must not be none."""
    return f"{field} in [{','.join(literal(value) for value in values)}]"


def matches_nothing(access: AccessFilter) -> bool:
    """Whether no row can match, so that no search is made."""
    return access.empty or (access.metadata is not None and predicate(access.metadata) == NEVER)


def asks_chunks(access: AccessFilter) -> bool:
    """Whether the request's filter asks anything of chunks."""
    return access.metadata is not None and _asks(predicate(access.metadata), Scope.CHUNK)


def _asks(test: Predicate, scope: Scope) -> bool:
    if isinstance(test, (AllOf, AnyOf)):
        return any(_asks(part, scope) for part in test.parts)
    return test.scope is scope


def compile_filter(access: AccessFilter, *, chunk_facts: bool = True) -> str:
    """The expression of a filter that can match something. InvalidFilterError for values that cannot be compared.

    chunk_facts: whether the collection has that field; without, what is asked of chunks is left to the second check.
    """
    parts = [f"knowledge_base_id == {string(access.knowledge_base_id)}"]
    if access.metadata is not None:
        scopes = tuple(Scope) if chunk_facts else (Scope.DOCUMENT,)
        if asked := _expression(predicate(access.metadata), scopes):
            parts.append(asked)
    # Lists last: beside a condition on JSON, Milvus Lite reads a list anew for each row that passed what stands before.
    parts.append(one_of("access_key", access.access_keys))
    if access.source_ids is not None:
        parts.append(one_of("source_id", access.source_ids))
    if access.document_ids is not None:
        parts.append(one_of("document_id", access.document_ids))
    return " and ".join(parts)


def _expression(test: Predicate, scopes: tuple[Scope, ...]) -> str:
    """ "" where the collection cannot tell."""
    match test:
        case AllOf(parts):
            known = [asked for part in parts if (asked := _expression(part, scopes))]
            return f"({' and '.join(known)})" if known else ""
        case AnyOf(parts):
            asked_of_each = [_expression(part, scopes) for part in parts]
            return f"({' or '.join(asked_of_each)})" if all(asked_of_each) else ""
    if test.scope not in scopes:
        return ""
    path = f"{FIELDS[test.scope]}[{string(test.field)}]"
    match test:
        case Present(wanted=wanted):
            return f"exists {path}" if wanted else f"not (exists {path})"
        case Compare(sign=sign, value=value):
            return _compared(path, sign, value)
        case Substring(text=text, wanted=wanted):
            return _held(path, text, wanted)
        case Element(value=value, wanted=wanted):
            return _has(path, value, wanted)


def _has(path: str, value: str | float | bool, wanted: bool) -> str:
    # A list of one value, as Milvus Lite knows negative numbers in lists only.
    held = f"json_contains_any({path}, [{literal(value)}])"
    if wanted:
        return held
    # Strings aside; nothing asks for a list that both Lite and a server know.
    is_list = f'exists {path} and not ({path} like "%")'
    # Lite also finds true in [1]: then the list may lack what is asked for.
    return f"({is_list})" if value in (0, 1) else f"({is_list} and not {held})"


def _compared(path: str, sign: str, value: str | float | bool) -> str:
    value_literal = literal(value)
    if sign == "=":
        return f"{path} == {value_literal}"
    if sign != "<>":
        return f"{path} {sign} {value_literal}"
    of_type = f'{path} >= ""' if isinstance(value, str) else f"({path} >= 0 or {path} < 0)"
    return f"({of_type} and {path} != {value_literal})"


def _held(path: str, text: str, wanted: bool) -> str:
    # Milvus Lite cannot escape a pattern's own characters: each stands for any character here.
    pattern, exact = string(f"%{_WILD.sub('_', text)}%"), not _WILD.search(text)
    if wanted:
        return f"{path} like {pattern}"
    return f'({path} >= "" and not ({path} like {pattern}))' if exact else f'{path} >= ""'
