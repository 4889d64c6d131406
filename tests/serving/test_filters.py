"""Filters over HTTP."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest


@pytest.fixture
async def years(api: httpx.AsyncClient, upload: Any, work: Any) -> dict[int, str]:
    """Year -> id of a document with that year in its metadata."""
    found = {}
    for year in (2022, 2023, 2024):
        facts = json.dumps({"year": year, "department": "港口" if year > 2022 else "航运"})
        body = (await upload(f"{year}.txt", f"The crane report of {year}.".encode(), metadata=facts)).json()
        found[year] = body["document_id"]
    work()
    return found


async def _found(api: httpx.AsyncClient, filters: dict[str, Any]) -> set[str]:
    body = {"knowledge_base": "handbook", "query": "crane report", "options": {"filters": filters}}
    response = await api.post("/v1/retrieve", json=body)
    assert response.status_code == 200, response.text
    return {result["document_id"] for result in response.json()["results"]}


async def test_a_query_takes_equalities_or_a_tree(api: httpx.AsyncClient, years: dict[int, str]) -> None:
    since = {"field": "year", "operator": "gte", "value": 2023}
    assert await _found(api, {"year": [2022, 2024]}) == {years[2022], years[2024]}
    assert await _found(api, since) == {years[2023], years[2024]}
    assert await _found(api, {"and": [since, {"not": {"year": 2024}}]}) == {years[2023]}
    assert await _found(api, {"or": [{"year": 2022}, {"department": "港口"}]}) == set(years.values())
    assert await _found(api, {"not": {"absent": 1}}) == set()
    text = {"field": "content_types", "operator": "contains", "value": "text", "scope": "chunk"}
    assert await _found(api, text) == set(years.values())
    assert await _found(api, {"not": text}) == set()


async def test_a_filter_that_means_nothing_is_refused_with_its_place(
    api: httpx.AsyncClient, base: dict[str, Any]
) -> None:
    filters = {"and": [{"field": "year", "operator": "about", "value": 2024}]}
    for path, name in (("/v1/retrieve", "query"), ("/v1/answer", "question")):
        response = await api.post(path, json={"knowledge_base": "handbook", name: "q", "options": {"filters": filters}})
        error = response.json()["error"]
        assert (response.status_code, error["type"]) == (400, "invalid_filter")
        assert error["message"].startswith("options.filters.and[0].operator: is one of eq, ne")
