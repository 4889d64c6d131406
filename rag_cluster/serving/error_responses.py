"""Errors as JSON: {"error": {"code", "type", "message", "request_id"}}. Stack traces stay in the log."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from ray.serve.exceptions import BackPressureError
from starlette.exceptions import HTTPException

from rag_cluster.errors import (
    AuthenticationError,
    DocumentTooLargeError,
    ForbiddenError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
    OverloadedError,
    RagClusterError,
)
from rag_cluster.telemetry import trace_id

log = logging.getLogger(__name__)

MAX_MESSAGE = 1000
"""Characters of an error's message in a response."""

_BY_STATUS: dict[int, type[RagClusterError]] = {
    401: AuthenticationError,
    403: ForbiddenError,
    404: NotFoundError,
    413: DocumentTooLargeError,
    429: OverloadedError,
}


def error_body(error: RagClusterError) -> dict[str, dict[str, object]]:
    """The JSON body of an error."""
    return {"error": {"code": error.code, "type": error.type, "message": shown(error), "request_id": trace_id.get()}}


def shown(error: RagClusterError) -> str:
    """The message as a response can carry it: messages may quote the request, however long and broken that is."""
    message = error.message if len(error.message) <= MAX_MESSAGE else error.message[: MAX_MESSAGE - 1] + "…"
    return message.encode("utf-8", "replace").decode()


def error_response(
    error: RagClusterError, status: int | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """The HTTP response of an error. headers: to add, e.g. the Allow of a 405."""
    headers = dict(headers or {})
    if error.http_status == 429 or error.retry_after is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_after or 1))
    if error.http_status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(error_body(error), status_code=status or error.http_status, headers=headers)


def known_error(error: BaseException) -> RagClusterError:
    """The error that a client may see. Anything unforeseen is logged whole and becomes internal_error."""
    if isinstance(error, RagClusterError):
        return error
    if isinstance(error, BackPressureError):
        return OverloadedError("The server is at capacity; retry shortly.", retry_after=1)
    # Errors of other deployments arrive wrapped; Ray makes the wrapper an instance of the cause's class, so only
    # what is really unknown comes here.
    log.error("unhandled error", exc_info=error)
    return InternalError("An internal error occurred; the server's log has the details under this request id.")


def _validation_message(error: RequestValidationError) -> str:
    parts = []
    for item in error.errors()[:5]:
        if item["type"] == "json_invalid":
            return f"The body is not JSON: {item['ctx']['error']} (at character {item['loc'][-1]})."
        where = ".".join(str(piece)[:100] for piece in item["loc"] if piece != "body")
        message = str(item["msg"]).removeprefix("Value error, ")[:300]
        parts.append(f"{where}: {message}" if where else message)
    return "; ".join(parts)


def install(app: FastAPI) -> None:
    """Register the handlers."""

    @app.exception_handler(RagClusterError)
    async def _known(_: Request, error: RagClusterError) -> JSONResponse:
        if error.http_status >= 500:
            log.error("request failed", exc_info=error)
        return error_response(error)

    @app.exception_handler(RequestValidationError)
    async def _invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return error_response(InvalidRequestError(_validation_message(error)))

    @app.exception_handler(HTTPException)
    async def _http(_: Request, error: HTTPException) -> JSONResponse:
        kind = _BY_STATUS.get(error.status_code, InvalidRequestError if error.status_code < 500 else InternalError)
        return error_response(kind(str(error.detail)), error.status_code, error.headers)

    @app.exception_handler(Exception)
    async def _unknown(_: Request, error: Exception) -> JSONResponse:
        return error_response(known_error(error))
