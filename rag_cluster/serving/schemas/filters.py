"""The filter of a query as requests carry it: what the language is, is said in `domain.filters` and docs/filters.md."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from rag_cluster.domain.filters import MAX_CONDITIONS, MAX_DEPTH, MAX_VALUES, Operator

Filters = Annotated[
    dict[str, Any],
    Field(
        description=(
            "Either equalities on document metadata, all of which hold, a list meaning any of its values; or a tree of "
            '{"field", "operator", "value", "scope"} joined by {"and": [...]}, {"or": [...]} and {"not": {...}}. '
            f"Operators: {', '.join(Operator)}. Values: strings, numbers, booleans, dates as "
            '{"date": "2024-03-01"}; lists of these for in and not_in. scope chunk asks page, sheet, slide, '
            "heading_path, content_types or chunking_strategy of a chunk instead of the document's metadata. A "
            "condition on a field that is absent, null or of another type fails, also under not. At most "
            f"{MAX_CONDITIONS} conditions, {MAX_DEPTH} levels, {MAX_VALUES} values in a list."
        ),
        examples=[
            {"year": 2024, "department": ["港口", "航运"]},
            {
                "and": [
                    {"field": "issued", "operator": "gte", "value": {"date": "2024-03-01"}},
                    {"not": {"field": "tags", "operator": "contains", "value": "draft"}},
                    {"field": "content_types", "operator": "contains", "value": "table", "scope": "chunk"},
                ]
            },
        ],
    ),
]
