"""A filter as an SQL condition on JSONB with bound values; it means what `domain.filters.passes` means."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from rag_cluster.domain.filters import Filter, Scope
from rag_cluster.domain.predicates import AllOf, AnyOf, Compare, Element, Predicate, Present, Substring, predicate

FACTS = {
    Scope.DOCUMENT: "d.metadata",
    Scope.CHUNK: """(jsonb_strip_nulls(jsonb_build_object(
        'page', c.locator -> 'page', 'sheet', c.locator -> 'sheet', 'slide', c.locator -> 'slide',
        'heading_path', c.locator -> 'heading_path', 'content_types', to_jsonb(c.content_types),
        'chunking_strategy', nullif(c.chunking_strategy, ''))) || (c.metadata - 'places'))""",
}
"""Of a document d and its chunk c. The second is `domain.chunks.chunk_facts`."""


def sql_condition(filter: Filter | None) -> tuple[str, dict[str, Any]]:
    """The condition and its bound values, whose names begin with "filter_"; "true" without a filter."""
    if filter is None:
        return "true", {}
    compiler = _Compiler()
    return compiler.condition(predicate(filter)), compiler.values


class _Compiler:
    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def condition(self, test: Predicate) -> str:
        match test:
            case AllOf(parts):
                return "(" + " AND ".join(map(self.condition, parts)) + ")"
            case AnyOf(parts):
                return "(" + " OR ".join(map(self.condition, parts)) + ")" if parts else "false"
            case Present(scope, field, wanted):
                there = f"coalesce(jsonb_typeof({self._path(scope, field)}), 'null') <> 'null'"
                return there if wanted else f"NOT ({there})"
            case Compare(scope, field, sign, value):
                return self._compared(self._path(scope, field), sign, value)
            case Substring(scope, field, text, wanted):
                path = self._path(scope, field)
                held = f"strpos({path} #>> '{{}}', {self._bind(text)}::text) {'>' if wanted else '='} 0"
                return f"(jsonb_typeof({path}) = 'string' AND {held})"
            case Element(scope, field, value, wanted):
                path = self._path(scope, field)
                held = f"{path} @> {self._bind(Jsonb(value))}::jsonb"
                return f"(jsonb_typeof({path}) = 'array' AND {held if wanted else f'NOT {held}'})"

    def _compared(self, path: str, sign: str, value: str | float | bool) -> str:
        if isinstance(value, str):
            # Code points, whatever the database's collation: as Milvus and Python compare.
            text = f"""({path} #>> '{{}}') COLLATE "C" {sign} {self._bind(value)}::text"""
            return f"(jsonb_typeof({path}) = 'string' AND {text})"
        kind = "boolean" if isinstance(value, bool) else "number"
        return f"(jsonb_typeof({path}) = '{kind}' AND {path} {sign} {self._bind(Jsonb(value))}::jsonb)"

    def _path(self, scope: Scope, field: str) -> str:
        return f"({FACTS[scope]} -> {self._bind(field)}::text)"

    def _bind(self, value: Any) -> str:
        name = f"filter_{len(self.values)}"
        self.values[name] = value
        return f"%({name})s"
