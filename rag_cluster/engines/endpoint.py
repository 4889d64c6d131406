"""POST JSON, get JSON: time limit, bounded retries, bounded answers."""

from __future__ import annotations

import json
import threading
from typing import Any

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from rag_cluster.engines.options import Endpoint
from rag_cluster.errors import ModelUnavailableError

MAX_ANSWER_BYTES = 256 * 1024 * 1024
_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Status codes after which the same request may succeed."""


class _Refused(Exception):
    """The endpoint answered with an error status; the message quotes the start of its answer."""

    def __init__(self, status: int, body: str, wait: float | None) -> None:
        super().__init__(f"status {status}: {body}")
        self.status = status
        self.wait = wait


class JsonEndpoint:
    """Thread-safe and picklable; connects at its first call."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._url = endpoint.url.rstrip("/")
        self._client: httpx.Client | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_client", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._client, self._lock = None, threading.Lock()

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The answer to POST url/path. ModelUnavailableError after the last retry, or when it is no JSON."""
        url, settings = f"{self._url}/{path}", self._endpoint
        attempts = Retrying(
            retry=retry_if_exception(_may_pass),
            stop=stop_after_attempt(settings.retries + 1),
            wait=self._wait,
            reraise=True,
        )
        try:
            answer = attempts(self._post, url, body)
        except (httpx.HTTPError, httpx.InvalidURL, _Refused) as error:
            reason = f"{type(error).__name__} {error}".strip().removeprefix("_Refused ")
            raise ModelUnavailableError(f"{url} failed: {reason}") from error
        try:
            return json.loads(answer)
        except ValueError as error:
            raise ModelUnavailableError(f"{url} did not answer with JSON: {answer[:200]!r}") from error

    def _wait(self, state: RetryCallState) -> float:
        """Exponential, or as long as the endpoint asks for, within the limit."""
        settings = self._endpoint
        usual = wait_exponential(multiplier=settings.min_wait, max=settings.max_wait)(state)
        error = state.outcome.exception() if state.outcome else None
        asked = error.wait if isinstance(error, _Refused) else None
        return usual if asked is None else min(max(asked, 0.0), settings.max_wait)

    def _post(self, url: str, body: dict[str, Any]) -> bytes:
        """The answer's bytes, up to a limit. httpx.HTTPError, _Refused."""
        key = self._endpoint.api_key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        with self._connected().stream("POST", url, json=body, headers=headers) as response:
            answer = bytearray()
            for chunk in response.iter_bytes():
                answer += chunk
                if len(answer) > MAX_ANSWER_BYTES:
                    raise _Refused(response.status_code, f"an answer of more than {MAX_ANSWER_BYTES} bytes", None)
            if response.status_code != 200:
                wait = response.headers.get("retry-after", "")
                shown = bytes(answer[:300]).decode("utf-8", "replace")
                raise _Refused(response.status_code, shown, float(wait) if wait.isdecimal() else None)
            return bytes(answer)

    def _connected(self) -> httpx.Client:
        with self._lock:
            if self._client is None:
                self._client = httpx.Client(timeout=self._endpoint.timeout, follow_redirects=False)
            return self._client


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, _Refused):
        return error.status in _PASSING
    return isinstance(error, httpx.TransportError) and not isinstance(error, httpx.UnsupportedProtocol)
