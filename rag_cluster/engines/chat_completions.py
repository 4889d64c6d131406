"""The one client of OpenAI's chat completions: for whole answers, waited for or awaited, and for streamed ones."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import httpx
from tenacity import AsyncRetrying, Retrying

from rag_cluster.engines.attempts import MAX_QUOTED, Refused, accepted, grown, reason, retrying
from rag_cluster.engines.chat_stream import BrokenStream, ChatStream
from rag_cluster.engines.options import Endpoint
from rag_cluster.errors import ContextOverflowError, ModelUnavailableError, OverloadedError, RagClusterError

Messages = Sequence[Mapping[str, Any]]
"""[{"role": ..., "content": ...}, ...]."""

MAX_ANSWER_BYTES = 1024 * 1024
MAX_STREAM_BYTES = 64 * 1024 * 1024
"""An event holds one token and some 300 bytes around it."""


class ChatCompletions:
    """One model at one endpoint. Thread-safe and picklable; connects at its first call. max_bytes: of an answer."""

    def __init__(self, endpoint: Endpoint, model: str, *, max_bytes: int = MAX_ANSWER_BYTES) -> None:
        self.url = endpoint.url.rstrip("/") + "/chat/completions"
        self.model = model
        self._endpoint = endpoint
        self._max_bytes = max_bytes
        self._unconnected()

    def _unconnected(self) -> None:
        self._client: httpx.Client | None = None
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_client", "_clients", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._unconnected()

    def complete(self, messages: Messages, **parameters: Any) -> str:
        """The whole answer, "" for an empty one; ModelUnavailableError. parameters: as the protocol names them."""
        try:
            return _text(Retrying(**self.retrying())(self._post, self.body(messages, parameters)))
        except (httpx.HTTPError, httpx.InvalidURL, Refused) as error:
            raise ModelUnavailableError(self.message(error)) from error

    async def complete_async(self, messages: Messages, **parameters: Any) -> str:
        """`complete`, awaited: cancelling closes the connection."""
        try:
            return _text(await AsyncRetrying(**self.retrying())(self._post_async, self.body(messages, parameters)))
        except (httpx.HTTPError, httpx.InvalidURL, Refused) as error:
            raise ModelUnavailableError(self.message(error)) from error

    async def open_stream(self, messages: Messages, **parameters: Any) -> ChatStream:
        """One attempt at a streamed answer, which waits as long as its caller does; the caller closes it.

        httpx.HTTPError, httpx.InvalidURL, Refused: `failure` makes of them what a caller should raise.
        """
        body = self.body(messages, {**parameters, "stream": True, "stream_options": {"include_usage": True}})
        client = self._connected_async()
        timeout = httpx.Timeout(self._endpoint.timeout, read=None)
        request = client.build_request("POST", self.url, json=body, headers=self._headers(), timeout=timeout)
        response = await client.send(request, stream=True)
        if response.status_code != 200:
            try:
                accepted(response, await self._read_async(response))
            finally:
                await response.aclose()
        return ChatStream(response, max_bytes=MAX_STREAM_BYTES)

    def body(self, messages: Messages, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """What is posted."""
        return {"model": self.model, "messages": list(messages), **parameters}

    def retrying(self) -> dict[str, Any]:
        """How to try again, for tenacity."""
        return retrying(self._endpoint.retries, self._endpoint.min_wait, self._endpoint.max_wait)

    def message(self, error: Exception) -> str:
        """What went wrong, naming the endpoint."""
        return f"{self.url} gave no answer: {str(error) if isinstance(error, BrokenStream) else reason(error)}"

    def failure(self, error: Exception) -> RagClusterError:
        """The error of this program that a streamed answer ends with."""
        if isinstance(error, Refused) and error.status == 429:
            return OverloadedError(self.message(error), retry_after=error.retry_after)
        if isinstance(error, Refused) and error.status in (400, 413) and _speaks_of_length(str(error)):
            return ContextOverflowError(self.message(error))
        return ModelUnavailableError(self.message(error))

    def _post(self, body: dict[str, Any]) -> bytes:
        with self._connected().stream("POST", self.url, json=body, headers=self._headers()) as response:
            content = bytearray()
            for chunk in response.iter_bytes():
                grown(response, content, chunk, self._max_bytes)
        return accepted(response, bytes(content))

    async def _post_async(self, body: dict[str, Any]) -> bytes:
        async with self._connected_async().stream("POST", self.url, json=body, headers=self._headers()) as response:
            return accepted(response, await self._read_async(response))

    async def _read_async(self, response: httpx.Response) -> bytes:
        content = bytearray()
        async for chunk in response.aiter_bytes():
            grown(response, content, chunk, self._max_bytes)
        return bytes(content)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._endpoint.api_key}"} if self._endpoint.api_key else {}

    def _connected(self) -> httpx.Client:
        with self._lock:
            if self._client is None:
                self._client = httpx.Client(timeout=self._endpoint.timeout, follow_redirects=False)
            return self._client

    def _connected_async(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._clients:
                self._clients[loop] = httpx.AsyncClient(timeout=self._endpoint.timeout, follow_redirects=False)
            return self._clients[loop]


def _speaks_of_length(body: str) -> bool:
    """OpenAI's code, and what vLLM, Ollama and llama.cpp say."""
    lowered = body.lower()
    return any(words in lowered for words in ("context_length_exceeded", "context length", "context size"))


def _text(answer: bytes) -> str:
    """The first choice's text. Refused when the answer is not of the form that the protocol has."""
    try:
        content = json.loads(answer)["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError):
        shown = answer[:MAX_QUOTED].decode("utf-8", "replace")
        raise Refused(200, f"what came is not a chat completion: {shown}") from None
    return content if isinstance(content, str) else ""
