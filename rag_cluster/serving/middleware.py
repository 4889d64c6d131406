"""Pure ASGI middleware: a request id on every answer, and a body limit that holds while the body streams in."""

from __future__ import annotations

import json
import re

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rag_cluster.errors import DocumentTooLargeError, InternalError, RagClusterError
from rag_cluster.serving.error_responses import error_body, known_error
from rag_cluster.telemetry import new_trace_id, trace_id

_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
JSON_BODY_LIMIT = 512 * 1024


class RequestContext:
    """Outermost: takes or makes X-Request-ID, sets the log's trace id, returns it, and answers what nobody caught."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        request_id = given if _SAFE_ID.fullmatch(given) else new_trace_id()
        token = trace_id.set(request_id)
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                kept = [pair for pair in message.get("headers", []) if pair[0].lower() != b"x-request-id"]
                message["headers"] = [*kept, (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception as error:
            known = known_error(error)
            if started:
                raise InternalError("The response broke off.") from error
            await _respond(send_with_id, known)
        finally:
            trace_id.reset(token)


class BodyLimit:
    """Refuses a body that is larger than its route allows, by its declared length and again while it streams."""

    def __init__(self, app: ASGIApp, *, upload_limit: int) -> None:
        self._app = app
        self._upload_limit = upload_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        multipart = headers.get(b"content-type", b"").lower().startswith(b"multipart/form-data")
        # Room for the multipart frame and the other fields beside the file itself.
        limit = self._upload_limit + 1024 * 1024 if multipart else JSON_BODY_LIMIT
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > limit:
            await _respond(send, _too_large(limit))
            return
        received = 0

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                # FastAPI turns any other exception of a body into a 400.
                raise HTTPException(413, _too_large(limit).message)
            return message

        await self._app(scope, limited, send)


def _too_large(limit: int) -> DocumentTooLargeError:
    return DocumentTooLargeError(f"The request body is larger than the limit of {limit:,} bytes.")


async def _respond(send: Send, error: RagClusterError) -> None:
    body = json.dumps(error_body(error), ensure_ascii=False).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if error.http_status == 413:
        # The rest of the body is not read: the connection cannot be used again.
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": error.http_status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
