"""The filter language: what is parsed, what is refused and how, what passes."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from rag_cluster.domain.blocks import SourceLocator
from rag_cluster.domain.chunks import Chunk, chunk_facts
from rag_cluster.domain.filters import (
    MAX_CONDITIONS,
    MAX_DEPTH,
    And,
    Condition,
    FilterError,
    Not,
    Operator,
    Or,
    Scope,
    parse_filter,
    passes,
)
from rag_cluster.domain.predicates import NEVER, predicate
from rag_cluster.domain.retrieval import RetrievalOptions

DOCUMENT = {
    "year": 2024,
    "department": "港口",
    "tags": ["draft", 7, True],
    "flag": False,
    "issued": "2024-03-01T08:00:00+08:00",
    "nothing": None,
    "object": {"a": 1},
}
CHUNK = {"page": 3, "content_types": ["table"]}


def condition(field: str, operator: str, value: Any = ..., **more: Any) -> dict[str, Any]:
    return {"field": field, "operator": operator, **({} if value is ... else {"value": value}), **more}


def test_a_tree_is_parsed() -> None:
    raw = {"or": [condition("year", "gte", 2024), {"not": condition("page", "in", [1, 2], scope="chunk")}]}
    assert parse_filter(raw) == Or(
        (Condition("year", Operator.GTE, 2024), Not(Condition("page", Operator.IN, (1, 2), Scope.CHUNK)))
    )


def test_an_object_of_values_means_that_all_are_equal_and_a_list_any_of_its_values() -> None:
    assert parse_filter({"year": 2024, "department": ["港口", "航运"]}) == And(
        (Condition("year", Operator.EQ, 2024), Condition("department", Operator.IN, ("港口", "航运")))
    )
    assert parse_filter({"and": 1}) == Condition("and", Operator.EQ, 1)
    assert parse_filter({"field": "x"}) == Condition("field", Operator.EQ, "x")
    assert parse_filter({}) is None


def test_a_date_is_told_from_a_string() -> None:
    assert parse_filter(condition("issued", "lt", {"date": "2024-03-02"})) == Condition(
        "issued", Operator.LT, date(2024, 3, 2)
    )


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"and": []}, "filters.and: takes a list of filters that is not empty"),
        ({"and": [{}]}, "filters.and[0]: a filter is an object that is not empty"),
        ({"or": [{"a": 1}, 5]}, "filters.or[1]: a filter is an object that is not empty"),
        ({"and": [{"a": 1}], "b": 2}, "filters: 'and' stands alone in its object, not beside 'b'"),
        ({"not": [{"a": 1}]}, "filters.not: a filter is an object that is not empty"),
        (condition("a", "like", 1), "filters.operator: is one of eq, ne, gt, gte, lt, lte, in, not_in, exists, "),
        ({"field": "a", "op": "eq", "value": 1}, "filters: a condition has field, operator, value and scope, not 'op'"),
        (condition("a", "eq", 1, scope="page"), "filters.scope: is document or chunk"),
        (condition("a", "eq"), "filters: a value is missing"),
        (condition("a", "exists", 1), "filters.value: exists takes true or false"),
        (condition("a", "gt", True), "filters.value: true and false have no order"),
        (condition("a", "in", "b"), "filters.value: in and not_in take a list"),
        (condition("a", "in", [1, None]), "filters.value[1]: null is compared with nothing"),
        (condition("a", "in", [0] * 257), "filters.value: a list has 256 values at most"),
        (condition("a", "prefix", ""), "filters.value: prefix takes a string that is not empty"),
        (condition("a", "contains", {"date": "2024-01-01"}), "filters.value: contains takes a string"),
        (condition("a", "eq", {"date": "1.3.2024"}), "filters: a date is written YYYY-MM-DD"),
        (condition("a", "eq", {"b": 1}), "filters: is a string, boolean, number"),
        (condition("a", "eq", float("nan")), "filters: is a string, boolean, number"),
        (condition("a", "eq", 2**63), "filters: is a string, boolean, number"),
        (condition("a", "eq", "\x00"), "filters: must not contain NUL"),
        (condition("", "eq", 1), "filters: a field is a name of 1 to 256 characters"),
        (condition(5, "eq", 1), "filters: a field is a name"),  # type: ignore[arg-type]
        ({"a": None}, "filters.a: null is compared with nothing"),
        ({"a": "x" * 5000}, "filters.a: a string has 4,096 characters at most"),
    ],
)
def test_what_means_nothing_is_refused_with_its_place(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(FilterError) as refused:
        parse_filter(raw)
    assert str(refused.value).startswith(message)
    with pytest.raises(ValueError, match="filters"):
        RetrievalOptions(filters=raw)


def test_depth_and_size_are_limited() -> None:
    deep: dict[str, Any] = {"a": 1}
    for _ in range(MAX_DEPTH - 1):
        deep = {"not": deep}
    parse_filter(deep)
    with pytest.raises(FilterError, match="deep at most"):
        parse_filter({"not": deep})
    wide = [condition("a", "eq", 1)] * MAX_CONDITIONS
    parse_filter({"or": wide})
    with pytest.raises(FilterError, match="conditions at most"):
        parse_filter({"or": [{"or": wide}, {"a": 1}]})
    with pytest.raises(FilterError, match="all lists"):
        parse_filter({"or": [condition("a", "in", [0] * 250)] * 5})


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (condition("year", "gte", 2024), True),
        (condition("year", "gt", 2024.5), False),
        (condition("year", "ne", 2023), True),
        (condition("department", "prefix", "港"), True),
        (condition("department", "contains", "口"), True),
        (condition("tags", "contains", "draft"), True),
        (condition("tags", "contains", 1), False),
        (condition("tags", "contains", True), True),
        (condition("flag", "eq", False), True),
        (condition("flag", "eq", 0), False),
        (condition("year", "in", ["2024", 2024]), True),
        (condition("year", "not_in", ["a", 2023]), True),
        (condition("year", "not_in", ["2024"]), False),
        (condition("issued", "eq", {"date": "2024-03-01"}), True),
        (condition("issued", "lte", {"date": "2024-03-01"}), True),
        (condition("issued", "gt", {"date": "2024-03-01"}), False),
        (condition("issued", "gt", {"date": "2024-02-29"}), True),
        (condition("department", "gt", {"date": "2024-02-29"}), False),
        (condition("nothing", "exists"), False),
        (condition("nothing", "exists", False), True),
        (condition("object", "exists"), True),
        (condition("page", "eq", 3, scope="chunk"), True),
        (condition("page", "eq", 3), False),
        (condition("content_types", "contains", "table", scope="chunk"), True),
        (condition("year", "in", []), False),
        (condition("year", "not_in", []), False),
        ({"or": [condition("absent", "eq", 1), condition("year", "eq", 2024)]}, True),
        ({"not": {"and": [condition("absent", "eq", 1), condition("year", "eq", 2023)]}}, True),
    ],
)
def test_what_passes(raw: dict[str, Any], expected: bool) -> None:
    assert passes(parse_filter(raw), DOCUMENT, CHUNK) is expected


@pytest.mark.parametrize("field", ["absent", "nothing", "department", "tags", "object", "flag"])
@pytest.mark.parametrize("operator", ["eq", "ne", "gt", "gte", "lt", "lte"])
def test_an_absent_field_and_another_type_fail_also_under_not(field: str, operator: str) -> None:
    raw = condition(field, operator, 5)
    assert not passes(parse_filter(raw), DOCUMENT, CHUNK)
    assert not passes(parse_filter({"not": raw}), DOCUMENT, CHUNK)


def test_what_can_never_pass_is_known_before_a_search() -> None:
    for raw in (condition("a", "in", []), {"not": condition("a", "in", [])}, {"and": [{"b": 1}, {"a": []}]}):
        assert predicate(parse_filter(raw)) == NEVER  # type: ignore[arg-type]
    assert predicate(parse_filter({"or": [{"b": 1}, {"a": []}]})) != NEVER  # type: ignore[arg-type]


def test_a_filter_may_ask_a_chunk_for_its_place_kind_and_metadata() -> None:
    chunk = Chunk(
        "c", "k", "d", 1, 0, "text",
        locator=SourceLocator(heading_path=("A",), page=2),
        content_types=("table",),
        metadata={"chunking_strategy": "structured", "places": [1]},
    )  # fmt: skip
    assert chunk_facts(chunk) == {
        "page": 2,
        "heading_path": ["A"],
        "content_types": ["table"],
        "chunking_strategy": "structured",
    }
