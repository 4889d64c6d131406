"""How a request to a model's endpoint fails, which failures may pass, and how it is tried again."""

from __future__ import annotations

from typing import Any

import httpx
from tenacity import RetryCallState, retry_if_exception, stop_after_attempt, wait_exponential

MAX_QUOTED = 300
"""Bytes of an endpoint's answer that a message quotes."""
_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Status codes after which the same request may succeed."""


class Refused(Exception):
    """The endpoint answered with an error status, or not as the protocol says; the message quotes its answer."""

    def __init__(self, status: int, body: str, retry_after: float | None = None) -> None:
        super().__init__(body if status == 200 else f"status {status}: {body}")
        self.status = status
        self.retry_after = retry_after
        """Seconds, where the endpoint said."""


def accepted(response: httpx.Response, content: bytes) -> bytes:
    """The answer's bytes; Refused for any status but 200."""
    if response.status_code == 200:
        return content
    asked = response.headers.get("Retry-After", "")
    seconds = float(asked) if asked.isascii() and asked.isdigit() and len(asked) < 6 else None
    raise Refused(response.status_code, content[:MAX_QUOTED].decode("utf-8", "replace"), seconds)


def grown(response: httpx.Response, content: bytearray, chunk: bytes, limit: int) -> None:
    """Append what has come; Refused when the answer would pass the limit."""
    if len(content) + len(chunk) > limit:
        raise Refused(response.status_code, f"an answer of more than {limit} bytes")
    content += chunk


def reason(error: Exception) -> str:
    """What went wrong, in a few words: the kind of a failed connection, or what the endpoint said."""
    return str(error) if isinstance(error, Refused) else f"{type(error).__name__} {error}".strip()


def may_pass(error: BaseException) -> bool:
    """Whether the same request may succeed if it is tried again."""
    if isinstance(error, Refused):
        return error.status in _PASSING
    return isinstance(error, httpx.TransportError) and not isinstance(error, httpx.UnsupportedProtocol)


def retrying(retries: int, min_wait: float, max_wait: float) -> dict[str, Any]:
    """Arguments of tenacity's `Retrying` and `AsyncRetrying`: so many further attempts after what may pass, waiting
    exponentially longer between the two limits of seconds, or as long as the endpoint asks for, within the larger."""

    def wait(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        asked = error.retry_after if isinstance(error, Refused) else None
        return min(max_wait, max(asked or 0.0, wait_exponential(multiplier=min_wait, max=max_wait)(state)))

    return {
        "retry": retry_if_exception(may_pass),
        "stop": stop_after_attempt(retries + 1),
        "wait": wait,
        "reraise": True,
    }
