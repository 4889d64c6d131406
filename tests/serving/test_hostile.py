"""A hostile or clumsy client: each request gets a clear refusal, and nothing is stored."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from rag_cluster.serving.api import create_api
from rag_cluster.serving.backend import make_backend
from rag_cluster.settings import Settings
from rag_cluster.wiring import Services

TEXT = b"The lighthouse of Wenling is 41 metres high.\n"
JSON = {"content-type": "application/json"}
DEEP = b'{"a":' * 40 + b"1" + b"}" * 40


def refused(response: httpx.Response, status: int, kind: str = "invalid_request") -> str:
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (status, kind), response.text
    assert error["request_id"] == response.headers["x-request-id"]
    assert error["message"] and len(error["message"]) <= 1000 and "Traceback" not in response.text
    message: str = error["message"]
    return message


def nothing_stored(services: Services) -> None:
    with services.database.connection() as connection:
        row = connection.execute("SELECT count(*) AS documents FROM documents").fetchone()
    assert row is not None and row["documents"] == 0
    assert list(services.objects.list("")) == []
    assert services.uploads.backlog() == 0


def multipart(*parts: tuple[bytes, bytes]) -> dict[str, Any]:
    """A body byte for byte: httpx itself would escape what is bad in it."""
    body = b"".join(
        b"--XBX\r\nContent-Disposition: form-data; " + head + b"\r\n\r\n" + text + b"\r\n" for head, text in parts
    )
    return {"content": body + b"--XBX--\r\n", "headers": {"content-type": "multipart/form-data; boundary=XBX"}}


UPLOADS = "/v1/knowledge-bases/handbook/documents"
FILE = (b'name="file"; filename="a.txt"', TEXT)


@pytest.mark.parametrize(
    "name",
    [
        b'filename="../../x.txt"',
        b'filename="..\\\\x.txt"',
        b'filename="..%2f..%2fx.txt"',
        b'filename="..%252f..%252fx.txt"',
        b'filename="%2e%2e"',
        b"filename*=UTF-8''..%2Fetc%2Fpasswd.txt",
        b"filename*=UTF-8''a%00b.txt",
        b'filename="a\x00b.txt"',
        b'filename="a%00b.txt"',
        b'filename="a\xc2\x85b.txt"',
        b'filename="a\xe2\x80\xa8b.txt"',
        b'filename="gpj\xe2\x80\xaetxt.txt"',
        b'filename=""',
        b'filename="  "',
    ],
)
async def test_names_that_are_paths_or_hide_what_they_are_are_refused(
    api: httpx.AsyncClient, base: Any, services: Services, name: bytes
) -> None:
    refused(await api.post(UPLOADS, **multipart((b'name="file"; ' + name, TEXT))), 400)
    nothing_stored(services)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("acl", b'["a\\u0000"]'),
        ("acl", b'["\\ud800"]'),
        ("acl", b'["", "  "]'),
        ("acl", b'["' + b"x" * 300 + b'"]'),
        ("acl", json.dumps([f"{number:0200}" for number in range(20)]).encode()),
        ("acl", b"[" * 100_000),
        ("acl", b"[1]"),
        ("department", b"a\x00b"),
        ("department", b"x" * 300),
        ("security_level", b"-1"),
        ("security_level", b"9" * 5000),
        ("metadata", b'{"a": NaN}'),
        ("metadata", b'{"a": -Infinity}'),
        ("metadata", b'{"a": 1e999}'),
        ("metadata", b'{"a\\u0000": 1}'),
        ("metadata", b'{"a": "\\ud800"}'),
        ("metadata", b'{"a": ' + b"9" * 400 + b"}"),
        ("metadata", b'{"a": "' + b"x" * 70_000 + b'"}'),
        ("metadata", DEEP),
        ("metadata", b"null and void"),
    ],
)
async def test_fields_that_could_not_be_kept_as_they_are_are_refused_by_name(
    api: httpx.AsyncClient, base: Any, services: Services, field: str, value: bytes
) -> None:
    assert field in refused(await api.post(UPLOADS, **multipart(FILE, (f'name="{field}"'.encode(), value))), 400)
    nothing_stored(services)


@pytest.mark.parametrize(
    "parts",
    [
        (FILE, FILE),
        (FILE, (b'name="acl"', b"[]"), (b'name="acl"', b'["x"]')),
        (FILE, (b'name="acll"', b"[]")),
        ((b'name="file"', TEXT),),
        ((b'name="document"; filename="a.txt"', TEXT),),
        (),
    ],
)
async def test_forms_with_unknown_repeated_or_missing_fields_are_refused(
    api: httpx.AsyncClient, base: Any, services: Services, parts: tuple[tuple[bytes, bytes], ...]
) -> None:
    refused(await api.post(UPLOADS, **multipart(*parts)), 400)
    nothing_stored(services)


@pytest.mark.parametrize("key", [b"x" * 300, b"\xe4", b"", b"a b"])
async def test_idempotency_keys_are_plain(api: httpx.AsyncClient, base: Any, services: Services, key: bytes) -> None:
    request = multipart(FILE)
    request["headers"] = [*request["headers"].items(), (b"Idempotency-Key", key)]
    refused(await api.post(UPLOADS, **request), 400)
    nothing_stored(services)


@pytest.mark.parametrize(
    "options",
    [
        b'{"score_threshold": NaN}',
        b'{"score_threshold": Infinity}',
        b'{"score_threshold": 1e999}',
        b'{"filters": {"a": NaN}}',
        b'{"filters": {"a": "\\u0000"}}',
        b'{"filters": {"a\\ud800": 1}}',
        b'{"filters": {"a": ' + b"9" * 400 + b"}}",
        b'{"filters": ' + DEEP + b"}",
        b'{"filters": ' + b'{"a":' * 100_000 + b"}",
        b'{"top_k": -1}',
        b'{"top_k": ' + b"9" * 5000 + b"}",
        b'{"mode": "telepathy"}',
        b'{"agent_id": "\\u0000"}',
        b'{"' + b"x" * 100_000 + b'": 1}',
        b'{"\\ud800": 1}',
    ],
)
async def test_options_that_mean_nothing_are_refused(api: httpx.AsyncClient, base: Any, options: bytes) -> None:
    body = b'{"knowledge_base": "handbook", "query": "q", "options": ' + options + b"}"
    refused(await api.post("/v1/retrieve", content=body, headers=JSON), 400)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b'"x"',
        b"\xff\xfe",
        b"{nope",
        b"[" * 100_000,
        b'{"knowledge_base": "handbook", "question": 5}',
    ],
)
async def test_bodies_that_are_not_what_the_route_takes_are_refused(
    api: httpx.AsyncClient, base: Any, content: bytes
) -> None:
    refused(await api.post("/v1/answer", content=content, headers=JSON), 400)


@pytest.mark.parametrize(
    "given", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=X"]
)
async def test_a_body_of_another_type_is_415_and_the_message_names_the_right_one(
    api: httpx.AsyncClient, base: Any, given: str | None
) -> None:
    headers = {} if given is None else {"content-type": given}
    body = b'{"knowledge_base": "handbook", "question": "why?"}'
    assert "application/json" in refused(await api.post("/v1/answer", content=body, headers=headers), 415)
    assert "multipart/form-data" in refused(await api.post(UPLOADS, json={"file": "x"}), 415)


async def test_a_json_route_takes_no_more_because_the_body_calls_itself_a_form(api: httpx.AsyncClient) -> None:
    headers = {"content-type": "multipart/form-data; boundary=X"}
    refused(await api.post("/v1/answer", content=b"x" * 600_000, headers=headers), 413, "document_too_large")


@pytest.mark.parametrize(
    "body",
    [
        {"name": "a/b"},
        {"name": ".."},
        {"name": "a\nb"},
        {"name": "a\u0000b"},
        {"name": "b", "description": "\u0000"},
        {"name": "b", "default_acl": ["a\u0000"]},
        {"name": "b", "default_acl": ["x" * 190] * 20},
        {"name": ""},
    ],
)
async def test_knowledge_bases_have_plain_names(api: httpx.AsyncClient, base: Any, body: dict[str, Any]) -> None:
    refused(await api.post("/v1/knowledge-bases", json=body), 400)
    refused(await api.patch("/v1/knowledge-bases/handbook", json=body), 400)
    listed = (await api.get("/v1/knowledge-bases")).json()["items"]
    assert [(item["name"], item["description"], item["default_acl"]) for item in listed] == [("handbook", "", [])]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/knowledge-bases?limt=3", 400),
        ("/v1/knowledge-bases?limit=1&limit=2", 400),
        ("/v1/knowledge-bases?limit=-1", 400),
        ("/v1/knowledge-bases?limit=" + "9" * 30, 400),
        ("/v1/knowledge-bases?cursor=%00", 400),
        ("/v1/knowledge-bases?cursor=%ff", 400),
        ("/v1/knowledge-bases?cursor=" + "A" * 400, 400),
        ("/v1/knowledge-bases/%00", 400),
        ("/v1/knowledge-bases/%ff", 400),
        ("/v1/documents/%00", 400),
        ("/v1/documents/00000000-0000-0000-0000-000000000000/content?version=" + "9" * 30, 404),
        ("/v1/knowledge-bases/" + "x" * 5000, 404),
        ("/v1/jobs/%2e%2e%2fetc", 404),
    ],
)
async def test_parameters_are_known_single_and_clean(api: httpx.AsyncClient, base: Any, path: str, status: int) -> None:
    refused(await api.get(path), status, "invalid_request" if status == 400 else "not_found")


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "TRACE"])
async def test_a_method_that_a_route_does_not_have_is_405_with_those_that_it_has(
    api: httpx.AsyncClient, method: str
) -> None:
    response = await api.request(method, "/v1/answer")
    assert response.status_code == 405 and response.headers["allow"] == "POST"
    assert response.headers["x-request-id"]


async def test_what_is_not_granted_is_denied_in_the_words_of_what_is_not_there(
    api: httpx.AsyncClient, base: Any, services: Services
) -> None:
    from rag_cluster.domain.access import Principal

    stranger = services.catalog.create_api_key("stranger", Principal("stranger", frozenset()))
    headers = {"Authorization": f"Bearer {stranger}"}
    hidden = refused(await api.get("/v1/knowledge-bases/handbook", headers=headers), 404, "not_found")
    absent = refused(await api.get("/v1/knowledge-bases/nowhere1", headers=headers), 404, "not_found")
    assert hidden.replace("handbook", "nowhere1") == absent


async def test_a_session_that_is_not_there_is_not_found_whichever_way_it_is_asked(
    api: httpx.AsyncClient, base: Any
) -> None:
    body = {"knowledge_base": "handbook", "question": "why?"}
    for session in ("x", "00000000-0000-0000-0000-000000000000"):
        refused(await api.post("/v1/answer", json={**body, "session_id": session}), 404, "not_found")


# -- who is asking ---------------------------------------------------------------------------------------------------


def client(services: Services, address: str, url: str = "http://localhost") -> httpx.AsyncClient:
    app = create_api(make_backend(services, services.async_embedder))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app, client=(address, 5)), base_url=url)


@pytest.mark.parametrize("address", ["10.0.0.9", "::ffff:10.0.0.9", "fe80::1%eth0", "0.0.0.0", "", "testclient"])
async def test_without_keys_another_machine_is_refused_whatever_it_says(services: Services, address: str) -> None:
    async with client(services, address) as remote:
        for headers in ({}, {"X-Forwarded-For": "127.0.0.1", "Forwarded": "for=127.0.0.1", "X-Real-IP": "127.0.0.1"}):
            refused(await remote.get("/v1/knowledge-bases", headers=headers), 403, "forbidden")
        assert (await remote.get("/healthz")).status_code == 200


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.9", "::1", "::ffff:127.0.0.1"])
async def test_without_keys_this_machine_is_served(services: Services, address: str) -> None:
    async with client(services, address) as local:
        assert (await local.get("/v1/knowledge-bases")).status_code == 200


async def test_with_a_key_any_machine_is_served(services: Services) -> None:
    from rag_cluster.domain.access import LOCAL

    secret = services.catalog.create_api_key("boss", LOCAL)
    async with client(services, "10.0.0.9", "https://rag.example") as remote:
        assert (await remote.get("/v1/knowledge-bases")).status_code == 401
        headers = {"Authorization": f"Bearer {secret}", "Origin": "https://app.example"}
        assert (await remote.get("/v1/knowledge-bases", headers=headers)).status_code == 200


async def test_without_keys_a_web_page_of_another_site_is_refused(
    api: httpx.AsyncClient, base: Any, services: Services
) -> None:
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}, {"Host": "[x"}):
        refused(await api.post(UPLOADS, files={"file": ("a.txt", TEXT)}, headers=headers), 403, "forbidden")
    nothing_stored(services)
    same = {"Origin": "http://127.0.0.1:8000", "Host": "localhost:8000"}
    assert (await api.get("/v1/knowledge-bases", headers=same)).status_code == 200


# -- bodies that do not arrive ---------------------------------------------------------------------------------------


async def test_an_upload_that_would_be_refused_anyway_is_not_read(
    api: httpx.AsyncClient, base: Any, services: Services
) -> None:
    from rag_cluster.domain.access import LOCAL

    services.catalog.create_api_key("boss", LOCAL)
    sent = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(20):
            sent += 1
            yield b"x" * 65536

    headers = {"content-type": "multipart/form-data; boundary=XBX"}
    refused(await api.post(UPLOADS, content=body(), headers=headers), 401, "unauthenticated")
    assert sent == 0


async def test_a_full_queue_refuses_uploads_with_retry_after(
    api: httpx.AsyncClient, base: Any, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services.uploads, "backlog", lambda: services.settings.upload_backlog)
    response = await api.post(UPLOADS, files={"file": ("a.txt", TEXT)})
    refused(response, 429, "overloaded")
    assert int(response.headers["retry-after"]) > 0
    assert list(services.objects.list("")) == []


@pytest.mark.parametrize("path", ["/v1/answer", UPLOADS])
async def test_a_body_that_stops_arriving_is_given_up(
    settings: Settings, base: Any, services: Services, path: str
) -> None:
    services.settings = settings.model_copy(update={"request_timeout": 0.2})
    upload = multipart(FILE)
    headers = upload["headers"] if path == UPLOADS else JSON

    async def body() -> AsyncIterator[bytes]:
        yield upload["content"][:60]
        await asyncio.sleep(30)

    async with client(services, "127.0.0.1") as slow:
        async with asyncio.timeout(10):
            refused(await slow.post(path, content=body(), headers=headers), 408)
    nothing_stored(services)


async def test_a_client_that_leaves_while_it_uploads_leaves_nothing_behind(services: Services, base: Any) -> None:
    app = create_api(make_backend(services, services.async_embedder))
    upload = multipart(FILE)
    messages = [
        {"type": "http.request", "body": upload["content"][:80], "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent: list[Any] = []

    async def receive() -> Any:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(name.encode(), value.encode()) for name, value in upload["headers"].items()]
    scope = {
        "type": "http",
        "method": "POST",
        "path": UPLOADS,
        "raw_path": UPLOADS.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [*headers, (b"host", b"localhost")],
        "client": ("127.0.0.1", 5),
        "server": ("localhost", 80),
        "scheme": "http",
        "http_version": "1.1",
    }
    await app(scope, receive, send)
    assert not sent or sent[0]["status"] < 500
    nothing_stored(services)


async def test_the_same_upload_many_times_at_once_with_one_key_is_one_document(
    api: httpx.AsyncClient, upload: Any, services: Services
) -> None:
    key = {"Idempotency-Key": "import-7"}
    answers = await asyncio.gather(*(upload("a.txt", TEXT, headers=key) for _ in range(6)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["document_id"] for answer in answers}) == 1
    assert sum(not answer.json()["deduplicated"] for answer in answers) == 1
    assert len(list(services.objects.list(""))) == 1 and services.uploads.backlog() == 1
