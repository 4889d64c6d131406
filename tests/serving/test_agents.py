"""Agents, sources and managed corrections over HTTP, and the queries that they govern."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from rag_cluster.domain.access import Principal
from rag_cluster.errors import DocumentBusyError, StoreUnavailableError
from rag_cluster.ingestion.corrections import Correction
from rag_cluster.wiring import Services

QUESTION = "What does storage cost?"


@pytest.fixture
async def tariff(upload: Any, work: Callable[[], int]) -> str:
    body = await upload("tariff.md", b"# Tariff\n\nStorage costs 12 euros a day.\n\nWhat does storage cost? See above.")
    assert work() == 1
    identity: str = body.json()["document_id"]
    return identity


async def agent_of(api: httpx.AsyncClient, base: dict[str, Any], **values: Any) -> dict[str, Any]:
    response = await api.post("/v1/agents", json={"knowledge_base": base["id"], "name": "helper", **values})
    assert response.status_code == 201, response.text
    made: dict[str, Any] = response.json()
    return made


async def correct(api: httpx.AsyncClient, base: dict[str, Any], answer: str, **values: Any) -> dict[str, Any]:
    body = {"knowledge_base": base["id"], "question": QUESTION, "answer": answer, **values}
    response = await api.post("/v1/corrections", json=body)
    assert response.status_code == 201, response.text
    made: dict[str, Any] = response.json()
    return made


async def found(api: httpx.AsyncClient, base: dict[str, Any], query: str = QUESTION, **options: Any) -> list[Any]:
    body = {"knowledge_base": base["id"], "query": query, "options": options}
    response = await api.post("/v1/retrieve", json=body)
    assert response.status_code == 200, response.text
    results: list[Any] = response.json()["results"]
    return results


async def test_a_correction_is_found_by_the_next_query_and_comes_first_for_its_agent(
    api: httpx.AsyncClient, base: dict[str, Any], tariff: str
) -> None:
    agent = await agent_of(api, base)
    sources = (await api.get("/v1/sources", params={"knowledge_base": base["id"]})).json()["items"]
    (uploads,) = [source["id"] for source in sources]
    await api.post(f"/v1/agents/{agent['id']}/mounts", json={"source_id": uploads, "priority": 9})
    made = await correct(api, base, "Since May, keeping goods is free for five days.", agents=["helper"])
    results = await found(api, base, agent_id=agent["id"])
    assert results[0]["document_id"] == made["document_id"] and results[0]["source_kind"] == "managed_correction"
    assert "five days" in results[0]["matched_content"]
    assert [result["document_id"] for result in results[1:]] == [tariff] * len(results[1:])
    unordered = await found(api, base)
    assert {result["document_id"] for result in unordered} == {tariff, made["document_id"]}


async def test_the_same_question_again_replaces_its_answer(api: httpx.AsyncClient, base: dict[str, Any]) -> None:
    first = await correct(api, base, "Twelve euros.")
    second = await correct(api, base, "Thirteen euros.")
    again = await correct(api, base, "Thirteen euros.")
    assert (first["version"], second["version"]) == (1, 2)
    assert first["document_id"] == second["document_id"] and not second["unchanged"]
    assert (again["version"], again["unchanged"]) == (2, True)
    (result,) = await found(api, base)
    assert "Thirteen" in result["content"] and "Twelve" not in result["content"]


async def test_a_new_answer_alone_leaves_access_and_metadata_as_they_are(
    api: httpx.AsyncClient, base: dict[str, Any]
) -> None:
    access = {"acl": ["staff"], "department": "crane", "security_level": 3}
    first = await correct(api, base, "Twelve euros.", access=access, metadata={"by": "board"})

    async def seen(answer: str, **values: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        assert (await correct(api, base, answer, **values))["document_id"] == first["document_id"]
        document = (await api.get(f"/v1/documents/{first['document_id']}")).json()
        return document["access"], document["metadata"]

    facts = {"by": "board", "question": QUESTION}
    assert await seen("Thirteen euros.") == (access, facts)
    assert await seen("Thirteen euros.", access=None, metadata=None) == (access, facts)
    wider = {"acl": [], "department": None, "security_level": 0}
    assert await seen("Thirteen euros.", access=wider, metadata={}) == (wider, {"question": QUESTION})


# Its question is its own: the Milvus of the session still holds what other tests wrote about theirs.
async def test_corrections_are_listed_keep_their_question_and_are_taken_back(
    api: httpx.AsyncClient, base: dict[str, Any], tariff: str
) -> None:
    made = await correct(api, base, "It is free.", access={"acl": ["staff"]}, question="Is it free?")
    listed = (await api.get("/v1/corrections", params={"knowledge_base": "handbook"})).json()["items"]
    assert [(item["document_id"], item["question"]) for item in listed] == [(made["document_id"], "Is it free?")]
    assert listed[0]["access"]["acl"] == ["staff"]
    changed = await api.patch(f"/v1/documents/{made['document_id']}", json={"metadata": {"topic": "fees"}})
    assert changed.json()["metadata"] == {"topic": "fees", "question": "Is it free?"}
    listed = (await api.get("/v1/corrections", params={"knowledge_base": "handbook"})).json()["items"]
    assert [item["question"] for item in listed] == ["Is it free?"]
    assert (await api.delete(f"/v1/corrections/{tariff}")).status_code == 404
    gone = (await api.delete(f"/v1/corrections/{made['document_id']}")).json()
    assert set(gone["stores"].values()) == {"gone"}, gone
    assert {result["document_id"] for result in await found(api, base)} == {tariff}


async def test_what_the_question_holds_is_text_and_no_markup(api: httpx.AsyncClient, base: dict[str, Any]) -> None:
    question = "岸桥 #3 <b>*制动器*</b> [x](y) 间隙/标准 $a*b$?"
    response = await api.post(
        "/v1/corrections",
        json={"knowledge_base": base["id"], "question": question, "answer": "| a | b |\n|---|---|\n| 1 | 2 |"},
    )
    assert response.json()["question"] == question
    (result,) = await found(api, base, question)
    assert result["heading_path"] == [question]
    assert "/" not in result["filename"] and result["filename"].endswith(".md")


@pytest.mark.parametrize(
    "answer",
    [
        "# 标准\n\n每吨每天五元。",
        "标准\n====\n\n每吨每天五元。",
        "<h1>标准</h1>\n\n每吨每天五元。",
        "- # 标准\n\n每吨每天五元。",
    ],
)
async def test_headings_of_an_answer_stay_under_its_question(
    api: httpx.AsyncClient, base: dict[str, Any], answer: str
) -> None:
    question = "堆存费多少？"
    await correct(api, base, answer, question=question)
    (result,) = await found(api, base, question)
    assert result["heading_path"] == [question, "标准"] and "每吨每天五元。" in result["matched_content"]


@pytest.mark.parametrize(
    "change", [{"question": " "}, {"answer": ""}, {"answer": "x" * 20_001}, {"source": "a/b"}, {"surprise": 1}]
)
async def test_a_correction_without_sense_is_refused(
    api: httpx.AsyncClient, base: dict[str, Any], change: dict[str, Any]
) -> None:
    body = {"knowledge_base": base["id"], "question": "a", "answer": "b", **change}
    assert (await api.post("/v1/corrections", json=body)).status_code == 400


async def test_an_unknown_agent_keeps_the_correction_from_being_written(
    api: httpx.AsyncClient, base: dict[str, Any]
) -> None:
    body = {"knowledge_base": base["id"], "question": "a", "answer": "b", "agents": ["nobody"]}
    assert (await api.post("/v1/corrections", json=body)).status_code == 404
    assert (await api.get("/v1/corrections", params={"knowledge_base": base["id"]})).json()["items"] == []


async def test_a_correction_does_not_wait_for_a_store_that_is_away(
    api: httpx.AsyncClient, base: dict[str, Any], services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[Any] = []

    def away(record: Any) -> bool:
        tries.append(record)
        raise StoreUnavailableError("Milvus does not answer") if len(tries) == 1 else AssertionError("tried again")

    body = {"knowledge_base": base["id"], "question": QUESTION, "answer": "Nothing."}
    with monkeypatch.context() as patch:
        patch.setattr(services.index, "ensure", away)
        response = await api.post("/v1/corrections", json=body)
    assert (response.status_code, response.json()["error"]["type"]) == (502, "store_unavailable")
    assert (await api.post("/v1/corrections", json=body)).status_code == 201


async def test_a_correction_whose_turn_does_not_come_is_told_so(
    services: Services, base: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    services.settings = services.settings.model_copy(update={"request_timeout": 0.01})
    ensure, refused = services.index.ensure, []

    def another_one_meanwhile(record: Any) -> None:
        with pytest.raises(DocumentBusyError):
            services.write_correction(base["id"], Correction("Another one?", "Yes."), "fixes", {})
        refused.append(record)
        ensure(record)

    monkeypatch.setattr(services.index, "ensure", another_one_meanwhile)
    receipt = services.write_correction(base["id"], Correction(QUESTION, "Nothing."), "fixes", {})
    assert refused and receipt.outcome == "ready"


async def test_an_agent_finds_only_what_it_mounts(api: httpx.AsyncClient, base: dict[str, Any], tariff: str) -> None:
    agent = await agent_of(api, base)
    assert await found(api, base, agent_id=agent["id"]) == []
    source = (await found(api, base))[0]["source_id"]
    mounts = f"/v1/agents/{agent['id']}/mounts"
    mounted = (await api.post(mounts, json={"source_id": source, "priority": 3})).json()
    assert [(item["source_id"], item["priority"]) for item in mounted["items"]] == [(source, 3)]
    (result, *_) = await found(api, base, agent_id=agent["id"])
    assert (result["document_id"], result["source_priority"]) == (tariff, 3)
    assert (await api.patch(f"/v1/sources/{source}", json={"enabled": False})).json()["enabled"] is False
    assert await found(api, base, agent_id=agent["id"]) == []
    assert (await api.delete(f"{mounts}/{source}")).json()["items"] == []
    assert (await api.delete(f"{mounts}/{source}")).status_code == 404


async def test_agents_and_sources_are_managed(api: httpx.AsyncClient, base: dict[str, Any], tariff: str) -> None:
    agent = await agent_of(api, base, hide_source_filename=True)
    path = f"/v1/agents/{agent['id']}"
    assert (await api.get(path)).json() == agent
    assert (await api.patch(path, json={"name": "desk"})).json() == {**agent, "name": "desk"}
    page = (await api.get("/v1/agents", params={"knowledge_base": base["id"]})).json()
    assert [item["name"] for item in page["items"]] == ["desk"]
    again = await api.post("/v1/agents", json={"knowledge_base": base["id"], "name": "desk"})
    assert again.status_code == 409
    assert (await api.delete(path)).status_code == 200
    assert (await api.get(path)).status_code == 404
    made = {"knowledge_base": base["id"], "kind": "bulk", "name": "archive"}
    source = (await api.post("/v1/sources", json=made)).json()
    assert (await api.post("/v1/sources", json=made)).json() == source
    patched = await api.patch(f"/v1/sources/{source['id']}", json={"default_chunking_strategy": "sentence"})
    assert patched.json()["default_chunking_strategy"] == "sentence"
    bad = await api.patch(f"/v1/sources/{source['id']}", json={"default_chunking_strategy": "nonsense"})
    assert bad.status_code == 400
    uploads = (await found(api, base))[0]["source_id"]
    deleted = (await api.delete(f"/v1/sources/{uploads}")).json()
    assert [one["document_id"] for one in deleted["documents"]] == [tariff]


async def test_governing_needs_an_administrator_of_the_knowledge_base(
    api: httpx.AsyncClient, base: dict[str, Any], services: Services
) -> None:
    agent = await agent_of(api, base)
    made = await correct(api, base, "It is free.", access={"acl": ["staff"]})
    member = services.catalog.create_api_key("member", Principal("member", frozenset({base["id"]})))
    stranger = services.catalog.create_api_key("stranger", Principal("stranger", frozenset(), unrestricted=True))
    routes = [
        ("POST", "/v1/agents", {"knowledge_base": base["id"], "name": "x"}),
        ("PATCH", f"/v1/agents/{agent['id']}", {"name": "x"}),
        ("DELETE", f"/v1/agents/{agent['id']}", None),
        ("GET", f"/v1/agents/{agent['id']}/mounts", None),
        ("POST", f"/v1/agents/{agent['id']}/mounts", {"source_id": made["source_id"]}),
        ("DELETE", f"/v1/agents/{agent['id']}/mounts/{made['source_id']}", None),
        ("POST", "/v1/sources", {"knowledge_base": base["id"], "kind": "bulk", "name": "x"}),
        ("GET", f"/v1/sources/{made['source_id']}", None),
        ("GET", f"/v1/sources?knowledge_base={base['id']}", None),
        ("PATCH", f"/v1/sources/{made['source_id']}", {"enabled": False}),
        ("DELETE", f"/v1/sources/{made['source_id']}", None),
        ("POST", "/v1/corrections", {"knowledge_base": base["id"], "question": "a", "answer": "b"}),
        ("DELETE", f"/v1/corrections/{made['document_id']}", None),
    ]
    for method, path, body in routes:
        for key, status in ((member, 403), (stranger, 404)):
            response = await api.request(method, path, json=body, headers={"authorization": f"Bearer {key}"})
            assert response.status_code == status, (method, path, response.text)
    for path in (f"/v1/agents/{agent['id']}", f"/v1/agents?knowledge_base={base['id']}"):
        assert (await api.get(path, headers={"authorization": f"Bearer {member}"})).status_code == 200
        assert (await api.get(path, headers={"authorization": f"Bearer {stranger}"})).status_code == 404
    listed = await api.get(
        "/v1/corrections", params={"knowledge_base": base["id"]}, headers={"authorization": f"Bearer {member}"}
    )
    assert listed.json()["items"] == []
