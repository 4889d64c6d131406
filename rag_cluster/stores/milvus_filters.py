"""An AccessFilter as a Milvus boolean expression. Milvus Lite has no filter templates, so values are escaped here.

Metadata filters are equalities; a list means any of its values. JSON paths take no `in` in Milvus Lite, so a list
becomes a disjunction. A row without the field compares as unknown, and an unknown row does not match.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rag_cluster.domain.access import AccessFilter
from rag_cluster.errors import InvalidFilterError

MAX_METADATA_VALUES = 256
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


def alternatives(value: Any) -> Sequence[Any]:
    """The values that a metadata filter accepts: those of a list, or the one value."""
    return value if isinstance(value, (list, tuple)) else (value,)


def matches_nothing(access: AccessFilter) -> bool:
    """Whether no row can match, so that no search is made."""
    return access.empty or any(not alternatives(value) for value in access.metadata.values())


def compile_filter(access: AccessFilter) -> str:
    """The expression of a filter that can match something. InvalidFilterError for values that cannot be compared."""
    parts = [
        f"knowledge_base_id == {string(access.knowledge_base_id)}",
        one_of("access_key", access.access_keys),
    ]
    if access.source_ids is not None:
        parts.append(one_of("source_id", access.source_ids))
    if access.document_ids is not None:
        parts.append(one_of("document_id", access.document_ids))
    parts.extend(_metadata(access.metadata))
    return " and ".join(parts)


def _metadata(filters: Mapping[str, Any]) -> list[str]:
    parts = []
    for name, value in filters.items():
        values = alternatives(value)
        if len(values) > MAX_METADATA_VALUES:
            raise InvalidFilterError(
                f"Metadata filter {name!r} lists {len(values)} values, {MAX_METADATA_VALUES} at most"
            )
        path = f"metadata[{string(name)}]"
        parts.append("(" + " or ".join(f"{path} == {literal(item)}" for item in values) + ")")
    return parts
