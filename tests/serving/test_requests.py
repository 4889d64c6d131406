"""What holds for every request: ids, error form, limits, authentication, health."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from rag_cluster.domain.access import Principal
from rag_cluster.wiring import Services

TEXT = "水库大坝高一百二十米。The dam is 120 metres high.\n".encode()


async def test_every_answer_carries_a_request_id(api: httpx.AsyncClient) -> None:
    assert len((await api.get("/healthz")).headers["x-request-id"]) == 32
    given = await api.get("/healthz", headers={"X-Request-ID": "trace-1"})
    assert given.headers["x-request-id"] == "trace-1"
    hostile = await api.get("/healthz", headers={"X-Request-ID": "a b<script>"})
    assert hostile.headers["x-request-id"] != "a b<script>"


async def test_readiness_names_each_dependency(api: httpx.AsyncClient) -> None:
    response = await api.get("/readyz")
    assert response.status_code == 200
    checks = {"postgres": "ok", "milvus": "ok", "objects": "ok", "index": "ok"}
    assert response.json() == {"status": "ready", "checks": checks}


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "kind"),
    [
        ("POST", "/v1/answer", b"{not json", 400, "invalid_request"),
        ("POST", "/v1/answer", b'{"knowledge_base": "handbook"}', 400, "invalid_request"),
        ("POST", "/v1/answer", b'{"knowledge_base": "handbook", "question": "  "}', 400, "invalid_request"),
        ("POST", "/v1/answer", b'{"knowledge_base": "handbook", "question": "a\\u0000b"}', 400, "invalid_request"),
        ("POST", "/v1/answer", b'{"knowledge_base": "nowhere", "question": "why?"}', 404, "not_found"),
        (
            "POST",
            "/v1/answer",
            b'{"knowledge_base": "handbook", "question": "why?", "tpo_k": 3}',
            400,
            "invalid_request",
        ),
        (
            "POST",
            "/v1/answer",
            b'{"knowledge_base": "handbook", "question": "' + b"x" * 1_000_000 + b'"}',
            413,
            "document_too_large",
        ),
        (
            "POST",
            "/v1/answer",
            b'{"knowledge_base": "handbook", "question": "' + b"x" * 100_000 + b'"}',
            400,
            "invalid_request",
        ),
        (
            "POST",
            "/v1/retrieve",
            b'{"knowledge_base": "handbook", "query": "q", "options": {"top_k": 0}}',
            400,
            "invalid_request",
        ),
        ("GET", "/v1/documents/not-a-uuid", b"", 404, "not_found"),
        ("GET", "/v1/jobs/00000000-0000-0000-0000-000000000000", b"", 404, "not_found"),
        ("GET", "/v1/assets/nothing", b"", 404, "not_found"),
        ("GET", "/v1/knowledge-bases?cursor=%21%21", b"", 400, "invalid_request"),
        ("GET", "/v1/nowhere", b"", 404, "not_found"),
        ("PUT", "/v1/answer", b"", 405, "invalid_request"),
    ],
)
async def test_bad_requests_get_a_clear_error(
    api: httpx.AsyncClient, base: Any, method: str, path: str, content: bytes, status: int, kind: str
) -> None:
    response = await api.request(method, path, content=content, headers={"content-type": "application/json"})
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (status, kind)
    assert error["request_id"] == response.headers["x-request-id"]
    assert error["message"] and "Traceback" not in response.text


async def test_a_body_without_a_declared_length_is_stopped_while_it_streams(api: httpx.AsyncClient, base: Any) -> None:
    sent = 0

    async def endless() -> Any:
        nonlocal sent
        for _ in range(1000):
            sent += 65536
            yield b"x" * 65536

    response = await api.post("/v1/answer", content=endless(), headers={"content-type": "application/json"})
    assert response.status_code == 413
    assert sent < 2_000_000


async def test_names_of_knowledge_bases_are_unique(api: httpx.AsyncClient, base: Any) -> None:
    response = await api.post("/v1/knowledge-bases", json={"name": "handbook"})
    assert (response.status_code, response.json()["error"]["type"]) == (409, "conflict")


async def test_a_knowledge_base_is_found_by_id_and_by_name_and_can_be_changed_and_deleted(
    api: httpx.AsyncClient, base: Any
) -> None:
    changed = await api.patch("/v1/knowledge-bases/handbook", json={"description": "新说明", "default_acl": None})
    assert changed.json()["description"] == "新说明" and changed.json()["default_acl"] is None
    assert (await api.get(f"/v1/knowledge-bases/{base['id']}")).json()["name"] == "handbook"
    assert (await api.delete("/v1/knowledge-bases/handbook")).status_code == 200
    assert (await api.get("/v1/knowledge-bases/handbook")).status_code == 404


async def test_with_an_api_key_configured_every_route_of_v1_needs_one(
    api: httpx.AsyncClient, base: Any, services: Services
) -> None:
    reader = services.catalog.create_api_key("reader", Principal("reader", frozenset({base["id"]})))
    assert (await api.get("/v1/knowledge-bases")).status_code == 401
    wrong = await api.get("/v1/knowledge-bases", headers={"Authorization": "Bearer rag_wrong"})
    assert wrong.status_code == 401 and wrong.json()["error"]["type"] == "unauthenticated"
    headers = {"Authorization": f"Bearer {reader}"}
    assert (await api.get("/v1/knowledge-bases", headers=headers)).status_code == 200
    forbidden = await api.post("/v1/knowledge-bases", json={"name": "other"}, headers=headers)
    assert forbidden.status_code == 403 and forbidden.json()["error"]["type"] == "forbidden"
    limited = services.catalog.create_api_key(
        "limited", Principal("limited", frozenset({base["id"]}), unrestricted=True)
    )
    for name in ("other", "handbook"):  # in the same words, whether there is one or not
        refused = await api.post(
            "/v1/knowledge-bases", json={"name": name}, headers={"Authorization": f"Bearer {limited}"}
        )
        assert refused.status_code == 403, name
        renamed = await api.patch(
            "/v1/knowledge-bases/handbook", json={"name": f"{name}2"}, headers={"Authorization": f"Bearer {limited}"}
        )
        assert renamed.status_code == 403, name
    assert (await api.get("/healthz")).status_code == 200


async def test_who_may_not_ask_is_told_so_before_anything_is_said_of_the_question(
    api: httpx.AsyncClient, base: Any, services: Services
) -> None:
    reader = services.catalog.create_api_key("reader", Principal("reader", frozenset({base["id"]})))
    headers = {"Authorization": f"Bearer {reader}"}
    good = {"knowledge_base": " handbook ", "query": "dam"}
    bodies: list[Any] = [good, {"query": "dam"}, {"knowledge_base": ["handbook"]}, {"knowledge_base": "x" * 900}, []]
    for route in ("/v1/retrieve", "/v1/context", "/v1/answer", "/v1/explain"):
        statuses = [(await api.post(route, json=body, headers=headers)).status_code for body in bodies[1:]]
        assert statuses == [400] * 4
    assert (await api.post("/v1/retrieve", json=good, headers=headers)).status_code == 200
    unknown = await api.post("/v1/retrieve", json={**good, "knowledge_base": "other"}, headers=headers)
    assert unknown.status_code == 404
    services.catalog.revoke_api_key("reader")
    for body in bodies:
        for given in (headers, {"Authorization": "Basic abc"}, {}):
            assert (await api.post("/v1/retrieve", json=body, headers=given)).status_code == 401


async def test_what_is_not_granted_does_not_exist(
    api: httpx.AsyncClient, upload: Any, work: Any, services: Services
) -> None:
    body = (await upload("dam.txt", TEXT, acl='["engineers"]')).json()
    work()
    stranger = services.catalog.create_api_key("stranger", Principal("stranger", frozenset()))
    visitor = services.catalog.create_api_key("visitor", Principal("visitor", None, frozenset({"visitors"})))
    engineer = services.catalog.create_api_key("engineer", Principal("engineer", None, frozenset({"engineers"})))
    query = {"knowledge_base": "handbook", "query": "dam"}

    async def seen(secret: str) -> tuple[int, int, int]:
        headers = {"Authorization": f"Bearer {secret}"}
        found = await api.post("/v1/retrieve", json=query, headers=headers)
        document = await api.get(f"/v1/documents/{body['document_id']}", headers=headers)
        original = await api.get(f"/v1/documents/{body['document_id']}/content", headers=headers)
        results = len(found.json()["results"]) if found.status_code == 200 else -1
        return results, document.status_code, original.status_code

    assert await seen(stranger) == (-1, 404, 404)
    assert await seen(visitor) == (0, 404, 404)
    assert await seen(engineer) == (1, 200, 200)


async def test_the_schema_describes_requests_responses_and_errors(api: httpx.AsyncClient) -> None:
    schema = (await api.get("/openapi.json")).json()
    answer = schema["paths"]["/v1/answer"]["post"]
    assert answer["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("AnswerRequest")
    assert set(answer["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}
    assert answer["responses"]["4XX"]["content"]["application/json"]["schema"]["$ref"].endswith("ErrorResponse")
    assert (
        "multipart/form-data"
        in (schema["paths"]["/v1/knowledge-bases/{knowledge_base}/documents"]["post"]["requestBody"]["content"])
    )


async def test_a_revoked_key_is_refused_by_the_next_request(
    api: httpx.AsyncClient, services: Services, base: dict[str, Any]
) -> None:
    secret = services.catalog.create_api_key("reader", Principal("reader", frozenset({base["id"]})))
    headers = {"Authorization": f"Bearer {secret}"}
    assert (await api.get("/v1/knowledge-bases/handbook", headers=headers)).status_code == 200
    services.catalog.revoke_api_key("reader")
    assert (await api.get("/v1/knowledge-bases/handbook", headers=headers)).status_code == 401
    assert (await api.get("/v1/knowledge-bases/handbook")).status_code == 401
