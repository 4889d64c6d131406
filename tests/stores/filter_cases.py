"""Random metadata and random filters, made so that they meet."""

from __future__ import annotations

import random
from typing import Any

from rag_cluster.domain.filters import ORDERING, Operator

STRINGS = [
    *(
        "",
        "a",
        "b",
        "ab",
        "Ab",
        "0",
        "1",
        "true",
        "null",
        "港口",
        "港口 2号",
        "航运",
        "é",
        "\U0001f642",
        "\uffff",
        "\U0010ffff",
    ),
    *('q"', "it's", "back\\slash", "\\", "%", "a%b", "a_b", "_", "a\nb", "\r\n", "\t", '" or 1 == 1 or "', "{a}", "x"),
    *("2023-12-31", "2024-03-01", "2024-03-01T08:00:00Z", "2024-03-02", "2024-3-1", "unknown", "1999"),
]
NUMBERS = [-1, 0, 1, 2, 3, 2024, 2**53 - 1, -(2**53) + 1, 2.5, -2.5, 0.1, 1.0, 2024.0, 1e300, -1e300, 1e-300, -0.0]
FIELDS = ["year", "department", "tags", "flag", 'odd "name"\\', "日期"]
CHUNK_FIELDS = ["page", "content_types", "sheet", "chunking_strategy", "heading_path", "own"]
DATES = ["2023-12-31", "2024-03-01", "2024-02-29", "0001-01-01", "9999-12-31"]


def stored(draw: random.Random) -> Any:
    """A value of a field."""
    kind = draw.random()
    if kind < 0.4:
        return draw.choice(STRINGS)
    if kind < 0.7:
        return draw.choice(NUMBERS)
    if kind < 0.8:
        return draw.choice([True, False])
    if kind < 0.92:
        return [draw.choice([*STRINGS, *NUMBERS, True, False, None, ["a"]]) for _ in range(draw.randint(0, 3))]
    return draw.choice([None, {"a": 1}, {}])


def metadata(draw: random.Random, fields: list[str] = FIELDS) -> dict[str, Any]:
    """Each field in two of three objects."""
    return {name: stored(draw) for name in fields if draw.random() < 2 / 3}


def raw_filter(draw: random.Random, depth: int = 0) -> dict[str, Any]:
    """JSON of a filter."""
    kind = draw.random()
    if depth < 4 and kind < 0.35:
        parts = [raw_filter(draw, depth + 1) for _ in range(draw.randint(1, 3))]
        return {draw.choice(["and", "or"]): parts}
    if depth < 4 and kind < 0.5:
        return {"not": raw_filter(draw, depth + 1)}
    if kind < 0.57:
        names = draw.sample(FIELDS, draw.randint(1, 2))
        return {name: draw.choice([_scalar(draw), _list(draw)]) for name in names}
    operator = draw.choice(list(Operator))
    condition: dict[str, Any] = {"field": draw.choice(FIELDS), "operator": str(operator)}
    if draw.random() < 0.3:
        condition |= {"field": draw.choice(CHUNK_FIELDS), "scope": "chunk"}
    return condition | {"value": _value(draw, operator)}


def _value(draw: random.Random, operator: Operator) -> Any:
    if operator is Operator.EXISTS:
        return draw.choice([True, False])
    if operator in (Operator.IN, Operator.NOT_IN):
        return _list(draw)
    if operator is Operator.PREFIX:
        return draw.choice(STRINGS[1:])
    if operator is Operator.CONTAINS:
        return draw.choice([*STRINGS[1:], *NUMBERS, True, False])
    if operator in ORDERING:
        return draw.choice([draw.choice(STRINGS), draw.choice(NUMBERS), {"date": draw.choice(DATES)}])
    return _scalar(draw)


def _scalar(draw: random.Random) -> Any:
    return draw.choice([draw.choice(STRINGS), draw.choice(NUMBERS), True, False, {"date": draw.choice(DATES)}])


def _list(draw: random.Random) -> list[Any]:
    return [_scalar(draw) for _ in range(draw.randint(0, 4))]
