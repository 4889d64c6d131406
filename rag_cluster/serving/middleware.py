"""Pure ASGI middleware: a request id on every answer, and a body limit that holds while the body streams in."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rag_cluster.errors import DocumentTooLargeError, InternalError, RagClusterError
from rag_cluster.serving.error_responses import error_response, known_error
from rag_cluster.telemetry import new_trace_id, trace_id

log = logging.getLogger(__name__)

JSON_BODY_LIMIT = 512 * 1024
_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_UPLOAD_PATH = re.compile(r".*/v1/knowledge-bases/[^/]+/documents/?")


def request_id_of(scope: Scope) -> str:
    """The client's X-Request-ID if it is one that can be logged and sent back as it is, else a new id."""
    given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
    return given if _SAFE_ID.fullmatch(given) else new_trace_id()


class RequestContext:
    """Outermost: takes or makes X-Request-ID, sets the log's trace id, returns it, and answers what nobody caught."""

    def __init__(self, app: ASGIApp, *, answers_with_id: bool) -> None:
        self._app = app
        self._answers_with_id = answers_with_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = request_id_of(scope)
        token = trace_id.set(request_id)
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
            if message["type"] == "http.response.start" and self._answers_with_id:
                kept = [pair for pair in message.get("headers", []) if pair[0].lower() != b"x-request-id"]
                message["headers"] = [*kept, (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            log.info("the client left while it was sending")
        except Exception as error:
            known = known_error(error)
            if started:
                raise InternalError("The response broke off.") from error
            await respond(send_with_id, known)
        finally:
            trace_id.reset(token)


class BodyLimit:
    """Refuses a body that is larger than its route allows or that does not arrive.

    Size: by the declared length, and again while it streams. Time: a JSON body whole within `seconds`, of an upload
    each piece, so that a client that stops sending does not keep its place. admit_upload raises for a caller whose
    upload would be refused anyway.
    """

    def __init__(
        self, app: ASGIApp, *, upload_limit: int, seconds: float, admit_upload: Callable[[Request], None]
    ) -> None:
        self._app = app
        self._admit_upload = admit_upload
        self._upload_limit = upload_limit
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        upload = scope["method"] == "POST" and _UPLOAD_PATH.fullmatch(scope["path"]) is not None
        # Room for the multipart frame and the other fields beside the file itself.
        limit = self._upload_limit + 1024 * 1024 if upload else JSON_BODY_LIMIT
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > limit:
            await respond(send, _too_large(limit))
            return
        if upload:
            # Before its body is read: FastAPI asks who is calling only after that.
            try:
                await run_in_threadpool(self._admit_upload, Request(scope))
            except RagClusterError as error:
                await respond(send, error)
                return
        received, complete = 0, False
        deadline = asyncio.get_running_loop().time() + self._seconds

        async def limited() -> Message:
            nonlocal received, complete, deadline
            if complete:
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                # FastAPI turns any other exception of a body into a 400.
                raise HTTPException(408, "The request body did not arrive in time.", {"Connection": "close"}) from None
            received += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if upload:
                deadline = asyncio.get_running_loop().time() + self._seconds
            if received > limit:
                raise HTTPException(413, _too_large(limit).message, {"Connection": "close"})
            return message

        await self._app(scope, limited, send)


def _too_large(limit: int) -> DocumentTooLargeError:
    return DocumentTooLargeError(f"The request body is larger than the limit of {limit:,} bytes.")


async def respond(send: Send, error: RagClusterError, status: int | None = None) -> None:
    """Send an error's whole response."""
    response = error_response(error, status)
    if error.http_status == 413:
        # The rest of the body is not read: the connection cannot be used again.
        response.headers["Connection"] = "close"
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": bytes(response.body)})
