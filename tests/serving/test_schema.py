"""The OpenAPI schema, and random requests made from it: whatever comes, the answer is never a 500."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_cluster.serving.api import create_api
from rag_cluster.serving.backend import make_backend
from rag_cluster.wiring import Services

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
TEXTS = st.text(min_size=1, max_size=60) | SCALARS
GROUPS = st.none() | st.lists(TEXTS, max_size=3) | VALUES
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "mode": st.sampled_from(["dense", "sparse", "hybrid"]),
        "top_k": st.integers(-1, 101),
        "candidate_k": st.integers(1, 100),
        "score_threshold": st.floats(),
        "filters": st.dictionaries(st.text(max_size=8), VALUES, max_size=3),
        "document_ids": st.lists(st.uuids().map(str) | st.text(max_size=8), max_size=3),
        "source_ids": st.lists(st.uuids().map(str) | st.text(max_size=8), max_size=3),
        "agent_id": st.uuids().map(str) | SCALARS,
        "keyword_fallback": st.booleans(),
        "cross_language": st.booleans(),
        "expand_parents": st.booleans() | SCALARS,
    },
)
BASE = {"knowledge_base": st.just("handbook")}
NEW_FACTS = {"description": TEXTS, "default_acl": GROUPS}
ACCESS = st.fixed_dictionaries({}, optional={"acl": GROUPS, "department": TEXTS, "security_level": st.integers(-1, 10)})
BODIES = {
    ("POST", "/v1/answer"): st.fixed_dictionaries(
        {**BASE, "question": TEXTS},
        optional={"options": OPTIONS, "stream": st.booleans(), "session_id": st.uuids().map(str) | SCALARS},
    ),
    ("POST", "/v1/retrieve"): st.fixed_dictionaries({**BASE, "query": TEXTS}, optional={"options": OPTIONS}),
    ("POST", "/v1/context"): st.fixed_dictionaries(
        {**BASE, "query": TEXTS},
        optional={"options": OPTIONS, "max_context_length": st.integers() | SCALARS, "include_metadata": SCALARS},
    ),
    ("POST", "/v1/explain"): st.fixed_dictionaries(
        {**BASE, "query": TEXTS, "text": st.just("dam") | TEXTS},
        optional={"options": OPTIONS, "reader": st.none() | st.fixed_dictionaries({}, optional={"groups": GROUPS})},
    ),
    ("POST", "/v1/corrections"): st.fixed_dictionaries(
        {**BASE, "question": TEXTS, "answer": TEXTS},
        optional={
            "access": st.none() | ACCESS,
            "source": TEXTS,
            "priority": st.integers() | SCALARS,
            "metadata": VALUES,
        },
    ),
    ("POST", "/v1/agents"): st.fixed_dictionaries({**BASE, "name": TEXTS}, optional={"hide_source_filename": SCALARS}),
    ("POST", "/v1/sources"): st.fixed_dictionaries(
        {**BASE, "name": TEXTS, "kind": st.sampled_from(["bulk", "managed_correction"]) | SCALARS}
    ),
    ("POST", "/v1/knowledge-bases"): st.fixed_dictionaries({"name": TEXTS}, optional=NEW_FACTS),
    ("PATCH", "/v1/knowledge-bases/{knowledge_base}"): st.fixed_dictionaries({}, optional=NEW_FACTS),
    ("PATCH", "/v1/documents/{document_id}"): st.fixed_dictionaries(
        {},
        optional={"access": st.none() | ACCESS, "metadata": st.dictionaries(st.text(max_size=8), VALUES, max_size=3)},
    ),
}


@pytest.fixture
async def document(upload: Any, work: Any) -> str:
    body = (await upload("dam.txt", b"The dam of Linhe is 120 metres high. It was built in 1887.", acl="[]")).json()
    assert work() == 1
    identity: str = body["document_id"]
    return identity


def _matches(schema: dict[str, Any], operation: dict[str, Any], response: httpx.Response) -> None:
    status = str(response.status_code)
    responses = operation["responses"]
    documented = responses.get(status) or responses[f"{status[0]}XX"]
    content = documented["content"]
    if "application/json" in content and response.headers["content-type"] == "application/json":
        model = {**content["application/json"]["schema"], "components": schema["components"]}
        jsonschema.validate(response.json(), model, cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize("route", BODIES, ids=" ".join)
async def test_random_requests_get_a_documented_answer_and_never_a_500(
    api: httpx.AsyncClient, base: dict[str, Any], document: str, route: tuple[str, str]
) -> None:
    schema = (await api.get("/openapi.json")).json()
    cases: list[str] = []

    @settings(max_examples=80, database=None, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(st.one_of(BODIES[route], BODIES[route], BODIES[route], VALUES))
    def collect(body: Any) -> None:
        cases.append(json.dumps(body))

    collect()
    method, path = route
    url = path.format(knowledge_base=base["id"], document_id=document)
    statuses = set()
    for body in cases:
        headers = {"content-type": "application/json"}
        response = await api.request(method, url, content=body.encode(), headers=headers)
        assert response.status_code < 500, (body, response.text)
        _matches(schema, schema["paths"][path][method.lower()], response)
        statuses.add(response.status_code // 100)
    assert statuses == {2, 4}


async def test_the_schema_is_valid_and_every_operation_is_described(api: httpx.AsyncClient) -> None:
    schema = (await api.get("/openapi.json")).json()
    assert schema["openapi"].startswith("3.1")
    identities = []
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"] and operation["description"], (method, path)
            assert {"4XX", "5XX"} <= operation["responses"].keys(), (method, path)
            success = next(value for status, value in operation["responses"].items() if status.startswith("2"))
            assert success["content"], (method, path)
            identities.append(operation["operationId"])
    assert len(identities) == len(set(identities))
    for name, component in schema["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(component)
        assert name.startswith("Body_") or component.get("description") or "enum" in component, name


async def test_the_readme_names_every_route(api: httpx.AsyncClient) -> None:
    schema = (await api.get("/openapi.json")).json()
    routes = {(method.upper(), path) for path, operations in schema["paths"].items() for method in operations}
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    named = {
        (method, path) for methods, path in re.findall(r"`([A-Z/]+) (/[^`]+)`", readme) for method in methods.split("/")
    }
    shapes = [{(method, re.sub(r"{.*?}", "{}", path)) for method, path in each} for each in (routes, named)]
    assert shapes[1] - shapes[0] == {("GET", "/openapi.json"), ("GET", "/docs")}
    assert shapes[0] <= shapes[1]


async def test_every_route_but_health_asks_who_is_calling(services: Services) -> None:
    app = create_api(make_backend(services, services.async_embedder))
    schema = app.openapi()
    transport = httpx.ASGITransport(app, client=("10.0.0.9", 5), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as remote:
        for path, operations in schema["paths"].items():
            for method in operations:
                body: dict[str, Any] = {"json": {}} if method in ("post", "patch") else {}
                if path.endswith("/documents") and method == "post":
                    body = {"files": {"file": ("a.txt", b"x")}}
                response = await remote.request(method, path, **body)
                assert (response.status_code == 403) == path.startswith("/v1/"), (method, path, response.text)
