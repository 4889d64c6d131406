"""POST /v1/explain on real stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from rag_cluster.domain.access import Principal
from rag_cluster.wiring import Services


@pytest.fixture
async def ids(upload: Any, work: Callable[[], int]) -> dict[str, str]:
    """Two documents: one for everybody, one for the board."""
    crane = await upload("crane.md", "# 岸桥\n\n制动器间隙的标准值是 1.2 毫米。\n".encode(), acl="[]")
    salary = await upload("salary.md", b"# Salaries\n\nThe director earns 900 doubloons.\n", acl='["board"]')
    assert work() == 2
    return {"crane": crane.json()["document_id"], "salary": salary.json()["document_id"]}


async def explain(api: httpx.AsyncClient, base: dict[str, Any], query: str, **body: Any) -> httpx.Response:
    key = body.pop("key", None)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return await api.post("/v1/explain", json={"knowledge_base": base["id"], "query": query, **body}, headers=headers)


def outcomes(found: dict[str, Any]) -> dict[str, str]:
    return {one["stage"]: one["outcome"] for one in found["standings"]}


async def test_a_chunk_that_is_shown_passes_every_stage(
    api: httpx.AsyncClient, base: dict[str, Any], ids: dict[str, str]
) -> None:
    found = (await explain(api, base, "制动器间隙", text="间隙的标准值")).json()
    assert (found["lost_at"], found["result"], found["document_id"]) == ("", 1, ids["crane"])
    assert {"ready", "access", "index", "tokens", "dense", "sparse", "fusion", "expansion", "budget"} <= set(
        outcomes(found)
    )
    assert "间隙" in found["shared_tokens"]
    again = (await explain(api, base, "制动器间隙", chunk_id=found["chunk_id"])).json()
    assert again["standings"] == found["standings"]


async def test_a_metadata_filter_is_named(api: httpx.AsyncClient, base: dict[str, Any], ids: dict[str, str]) -> None:
    found = (await explain(api, base, "间隙", document_id=ids["crane"], options={"filters": {"year": 1}})).json()
    assert found["lost_at"] == "filter" and found["results"] == []
    found = (
        await explain(api, base, "间隙", document_id=ids["crane"], options={"document_ids": [ids["salary"]]})
    ).json()
    assert found["lost_at"] == "filter"


async def test_the_budget_is_the_last_stage(api: httpx.AsyncClient, base: dict[str, Any], ids: dict[str, str]) -> None:
    found = (await explain(api, base, "director earns doubloons", document_id=ids["salary"])).json()
    last = found["standings"][-1]
    assert (last["stage"], last["outcome"]) == ("budget", "passed")
    assert last["detail"].startswith("6000 tokens hold")


async def test_an_agents_mounts_are_named(api: httpx.AsyncClient, base: dict[str, Any], ids: dict[str, str]) -> None:
    agent = (await api.post("/v1/agents", json={"knowledge_base": base["id"], "name": "desk"})).json()["id"]
    found = (await explain(api, base, "间隙", document_id=ids["crane"], options={"agent_id": agent})).json()
    assert found["lost_at"] == "source"
    assert found["standings"][-1]["detail"] == "the agent does not mount its source"


async def test_a_disabled_source_and_a_document_in_progress_are_named(
    api: httpx.AsyncClient, base: dict[str, Any], ids: dict[str, str], upload: Any
) -> None:
    waiting = (await upload("later.md", b"# Later\n\nNothing yet.\n")).json()["document_id"]
    found = (await explain(api, base, "later", document_id=waiting)).json()
    assert (found["lost_at"], found["chunk_id"]) == ("ready", None)
    source = (await api.get("/v1/sources", params={"knowledge_base": base["id"]})).json()["items"][0]["id"]
    await api.patch(f"/v1/sources/{source}", json={"enabled": False})
    found = (await explain(api, base, "间隙", document_id=ids["crane"])).json()
    assert (found["lost_at"], found["standings"][-1]["detail"]) == ("source", "its source is disabled")


async def test_what_the_caller_may_not_read_is_not_found_in_the_same_words(
    api: httpx.AsyncClient, base: dict[str, Any], ids: dict[str, str], services: Services
) -> None:
    known = (await explain(api, base, "director", document_id=ids["salary"])).json()
    key = services.catalog.create_api_key("member", Principal("member", frozenset({base["id"]})))
    nowhere = "00000000-0000-0000-0000-000000000000"
    answers = [
        await explain(api, base, "director", key=key, document_id=ids["salary"]),
        await explain(api, base, "director", key=key, chunk_id=known["chunk_id"]),
        await explain(api, base, "director", key=key, text="900 doubloons"),
        await explain(api, base, "director", key=key, document_id=nowhere),
    ]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.json()["error"]["message"] for answer in answers}) == 1
    shown = (await explain(api, base, "director", key=key, document_id=ids["crane"])).json()
    assert "doubloons" not in str(shown)


async def test_an_administrator_explains_another_readers_query(
    api: httpx.AsyncClient, base: dict[str, Any], ids: dict[str, str], services: Services
) -> None:
    found = (await explain(api, base, "director", document_id=ids["salary"], reader={"groups": ["staff"]})).json()
    assert found["lost_at"] == "access"
    found = (await explain(api, base, "director", document_id=ids["salary"], reader={"groups": ["board"]})).json()
    assert outcomes(found)["access"] == "passed"
    key = services.catalog.create_api_key("member", Principal("member", frozenset({base["id"]})))
    refused = await explain(api, base, "director", key=key, document_id=ids["crane"], reader={"groups": ["board"]})
    assert refused.status_code == 403


@pytest.mark.parametrize("target", [{}, {"text": "a", "chunk_id": "b"}, {"text": " "}, {"text": "x" * 2001}])
async def test_exactly_one_thing_is_explained(
    api: httpx.AsyncClient, base: dict[str, Any], target: dict[str, str]
) -> None:
    assert (await explain(api, base, "a", **target)).status_code == 400


async def test_an_explanation_has_its_audit_row(
    api: httpx.AsyncClient, base: dict[str, Any], ids: dict[str, str], services: Services
) -> None:
    await explain(api, base, "间隙", document_id=ids["crane"])
    with services.database.connection() as connection:
        row = connection.execute("SELECT outcome, query FROM retrieval_records ORDER BY id DESC LIMIT 1").fetchone()
    assert row is not None and (row["outcome"], row["query"]) == ("explained", "间隙")
