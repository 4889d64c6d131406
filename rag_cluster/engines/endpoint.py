"""POST JSON, get JSON: time limit, bounded retries, bounded answers."""

from __future__ import annotations

import json
import threading
from typing import Any

import httpx
from tenacity import Retrying

from rag_cluster.engines.attempts import Refused, accepted, grown, reason, retrying
from rag_cluster.engines.options import Endpoint
from rag_cluster.errors import ModelUnavailableError

MAX_ANSWER_BYTES = 256 * 1024 * 1024


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
        attempts = Retrying(**retrying(settings.retries, settings.min_wait, settings.max_wait))
        try:
            answer = attempts(self._post, url, body)
        except (httpx.HTTPError, httpx.InvalidURL, Refused) as error:
            raise ModelUnavailableError(f"{url} failed: {reason(error)}") from error
        try:
            return json.loads(answer)
        except ValueError as error:
            raise ModelUnavailableError(f"{url} did not answer with JSON: {answer[:200]!r}") from error

    def _post(self, url: str, body: dict[str, Any]) -> bytes:
        """The answer's bytes, up to a limit. httpx.HTTPError, Refused."""
        key = self._endpoint.api_key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        with self._connected().stream("POST", url, json=body, headers=headers) as response:
            answer = bytearray()
            for chunk in response.iter_bytes():
                grown(response, answer, chunk, MAX_ANSWER_BYTES)
            return accepted(response, bytes(answer))

    def _connected(self) -> httpx.Client:
        with self._lock:
            if self._client is None:
                self._client = httpx.Client(timeout=self._endpoint.timeout, follow_redirects=False)
            return self._client
