"""What stands around Serve's own proxy: its plain-text errors become ours, and clients do not work its switches."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import Receive, Scope, Send

from rag_cluster.serving.proxy import ProxyGuard, middlewares


class Serve:
    """Stands for Serve's proxy: puts the id that it was given on a response, as RequestIdMiddleware does."""

    def __init__(self, response: Any) -> None:
        self.response = response
        self.headers: dict[bytes, bytes] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.headers = dict(scope["headers"])
        if isinstance(self.response, Exception):
            raise self.response
        if self.response is not None:
            self.response.headers["X-Request-ID"] = self.headers[b"x-request-id"].decode()
            await self.response(scope, receive, send)


async def ask(serve: Serve, path: str = "/v1/answer", headers: Any = None) -> httpx.Response:
    transport = httpx.ASGITransport(ProxyGuard(serve), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.get(path, headers=headers)


@pytest.mark.parametrize(
    ("response", "status", "kind"),
    [
        (PlainTextResponse("Request dropped due to backpressure", 429), 429, "overloaded"),
        (PlainTextResponse("Request x timed out after 90s.", 408), 504, "deadline_exceeded"),
        (PlainTextResponse("Application is deploying", 503), 503, "overloaded"),
        (PlainTextResponse("Path '/x' not found", 404), 404, "not_found"),
        (PlainTextResponse("Traceback (most recent call last)", 500), 500, "internal_error"),
        (None, 500, "internal_error"),
        (RuntimeError("Traceback"), 500, "internal_error"),
    ],
)
async def test_an_error_of_serve_itself_takes_the_documented_form(response: Any, status: int, kind: str) -> None:
    answer = await ask(Serve(response))
    assert (answer.status_code, answer.json()["error"]["type"]) == (status, kind)
    assert answer.headers.get_list("x-request-id") == [answer.json()["error"]["request_id"]]
    assert "Traceback" not in answer.text
    assert ("retry-after" in answer.headers) == (kind == "overloaded")


async def test_a_response_of_the_application_passes_with_one_id() -> None:
    answer = await ask(Serve(JSONResponse({"error": {}}, 404)), headers={"X-Request-ID": "trace-1"})
    assert (answer.status_code, answer.json()) == (404, {"error": {}})
    assert answer.headers.get_list("x-request-id") == ["trace-1"]


async def test_serves_own_routes_stay_as_they_are() -> None:
    assert (await ask(Serve(PlainTextResponse("draining", 503)), "/-/healthz")).text == "draining"


async def test_clients_do_not_work_serves_switches_nor_choose_hostile_ids() -> None:
    serve = Serve(JSONResponse({}))
    given = {
        "x-request-timeout-seconds": "0",
        "X-Request-Disconnect-Disabled": "?1",
        "X-Request-ID": "a <b>",
        "Accept": "text/event-stream",
    }
    answer = await ask(serve, headers=given)
    assert serve.headers.keys().isdisjoint({b"x-request-timeout-seconds", b"x-request-disconnect-disabled"})
    assert serve.headers[b"accept"] == b"text/event-stream"
    assert answer.headers["x-request-id"] == serve.headers[b"x-request-id"].decode() != "a <b>"


async def test_headers_that_are_no_utf8_are_refused_before_serve_breaks_on_them() -> None:
    serve = Serve(JSONResponse({}))
    answer = await ask(serve, headers=[(b"X-Name", b"\xff\xfe")])
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request")
    assert serve.headers == {}


def test_serve_accepts_what_it_is_given() -> None:
    from ray.serve._private.http_util import validate_http_proxy_callback_return

    assert validate_http_proxy_callback_return(middlewares())
