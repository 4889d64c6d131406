"""Around Serve's HTTP proxy: its own responses (over capacity, timed out, replica lost) take the documented form.

Serve answers some requests before the application sees them, as plain text, and obeys headers by which any client may
switch its timeout off. `middlewares` is called by Serve's proxy when its environment names it in PROXY_CALLBACK;
`rag-cluster serve` does that, `serve run` and a cluster do it by their own environment (serve_config.yaml says how).
Without it everything works, but those few responses are Serve's.
"""

from __future__ import annotations

import logging

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rag_cluster.errors import (
    DeadlineExceededError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
    OverloadedError,
    RagClusterError,
)
from rag_cluster.serving.middleware import request_id_of, respond
from rag_cluster.telemetry import trace_id

log = logging.getLogger(__name__)

PROXY_CALLBACK = "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"
"""Serve's environment variable that names `MIDDLEWARES`."""
MIDDLEWARES = "rag_cluster.serving.proxy:middlewares"

_SWITCHES = frozenset({b"x-request-timeout-seconds", b"x-request-disconnect-disabled", b"x-request-id"})
"""Serve's per-request switches are not the client's to set; the id is set anew."""
_OWN_ROUTES = "/-/"


def middlewares() -> list[Middleware]:
    """What Serve's proxy puts around itself."""
    return [Middleware(ProxyGuard)]


class ProxyGuard:
    """One X-Request-ID on every response, no switches for clients, and Serve's own errors as JSON."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = request_id_of(scope)
        token = trace_id.set(request_id)
        try:
            await self._guarded(scope, receive, _Responses(send, request_id, scope["path"]))
        finally:
            trace_id.reset(token)

    async def _guarded(self, scope: Scope, receive: Receive, responses: _Responses) -> None:
        headers = [pair for pair in scope["headers"] if pair[0].lower() not in _SWITCHES]
        if not all(map(_is_utf8, headers)):  # Serve decodes them as UTF-8, and breaks
            await respond(responses, InvalidRequestError("A request header is not valid UTF-8."))
            return
        headers.append((b"x-request-id", responses.request_id.encode()))
        try:
            await self._app({**scope, "headers": headers}, receive, responses)
        except Exception:  # becomes the response
            if responses.started:
                raise
            log.exception("Serve's proxy failed")
        if not responses.started:  # a replica was lost before it answered: Serve then answers nothing at all
            await respond(responses, InternalError("The server lost this request; try again."))


class _Responses:
    """The `send` of one request: sets the id, and replaces an error that Serve wrote itself."""

    def __init__(self, send: Send, request_id: str, path: str) -> None:
        self._send = send
        self._path = path
        self._replaced = False
        self.request_id = request_id
        self.started = False

    async def __call__(self, message: Message) -> None:
        """ASGI send."""
        if message["type"] == "http.response.start":
            self.started = True
            headers = [pair for pair in message.get("headers", []) if pair[0].lower() != b"x-request-id"]
            own = None if self._path.startswith(_OWN_ROUTES) else _serve_error(message["status"], headers)
            if own is not None:
                self._replaced = True
                await respond(self._with_id, *own)
                return
            message = {**message, "headers": headers}
        if not self._replaced:
            await self._with_id(message)

    async def _with_id(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], (b"x-request-id", self.request_id.encode())]}
        await self._send(message)


def _is_utf8(header: tuple[bytes, bytes]) -> bool:
    try:
        header[0].decode(), header[1].decode()
    except UnicodeDecodeError:
        return False
    return True


def _serve_error(status: int, headers: list[tuple[bytes, bytes]]) -> tuple[RagClusterError, int] | None:
    """Our error for one that Serve wrote: the application's own are JSON, Serve's are plain text."""
    if status < 400 or not dict(headers).get(b"content-type", b"").startswith(b"text/plain"):
        return None
    if status == 429:
        return OverloadedError("The server is at capacity; retry shortly.", retry_after=1), 429
    if status == 408:
        return DeadlineExceededError("The request took longer than the server allows."), 504
    if status == 503:
        return OverloadedError("The service is starting or stopping; retry shortly.", retry_after=5), 503
    if status == 404:
        return NotFoundError("Nothing is served under this path."), 404
    return InternalError("An internal error occurred; the server's log has the details under this request id."), 500
