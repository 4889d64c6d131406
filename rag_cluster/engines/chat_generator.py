"""Answers of a language model behind any endpoint that speaks OpenAI's chat completions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, NamedTuple

import httpx
from tenacity import AsyncRetrying

from rag_cluster.domain.answers import CutShort, GenerationRequest
from rag_cluster.domain.deadlines import Deadline, within
from rag_cluster.domain.ports import MetricSink
from rag_cluster.engines.attempts import Refused
from rag_cluster.engines.chat_completions import ChatCompletions
from rag_cluster.engines.chat_stream import BrokenStream, ChatStream
from rag_cluster.engines.metering import GenerationMeter
from rag_cluster.telemetry import NullMetrics

_FAILURES = (httpx.HTTPError, httpx.InvalidURL, Refused, BrokenStream)


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds of one attempt until its first word, between any two words, and of an answer with all its attempts."""

    first_token: float = 30.0
    total: float = 120.0


class _Begun(NamedTuple):
    stream: ChatStream
    deltas: AsyncGenerator[str]
    first: str | None
    """None: the answer is empty."""


class OpenAIGenerator:
    """`Generator`. Picklable; connects at its first answer. `client` says how often an outage is tried again.

    Nothing is tried again once a word has come. ContextOverflowError, OverloadedError, DeadlineExceededError, else
    ModelUnavailableError. Closing the stream closes the connection, by which endpoints know to stop.
    """

    def __init__(
        self,
        client: ChatCompletions,
        *,
        patience: Patience | None = None,
        stop: Sequence[str] = (),
        metrics: MetricSink | None = None,
    ) -> None:
        self._client = client
        self._patience = patience or Patience()
        self._stop = list(stop)
        self.name = client.model
        self.meter = GenerationMeter(client.model, metrics or NullMetrics())

    async def stream(self, request: GenerationRequest) -> AsyncGenerator[str]:
        """Text as it comes."""
        total = Deadline.after(self._patience.total)
        with self.meter.generation() as generation:
            try:
                stream, deltas, delta = await self._begin(request, total)
                async with aclosing(stream), aclosing(deltas):
                    while delta is not None:
                        generation.text()
                        yield delta
                        async with within(self._next(total)):
                            delta = await anext(deltas, None)
                    generation.prompt_tokens = stream.prompt_tokens
                    generation.completion_tokens = stream.completion_tokens
                    generation.truncated = stream.finish_reason == "length"
                if generation.truncated:
                    yield CutShort()
            except _FAILURES as error:
                raise self._client.failure(error) from error

    async def _begin(self, request: GenerationRequest, total: Deadline) -> _Begun:
        """An answer up to its first word, in as many attempts as it takes and may take."""

        async def attempt() -> _Begun:
            async with within(self._next(total)):
                return await self._attempt(request)

        async with within(total):
            return await AsyncRetrying(**self._client.retrying())(attempt)

    async def _attempt(self, request: GenerationRequest) -> _Begun:
        stream = await self._client.open_stream(_messages(request), **self._parameters(request))
        deltas = stream.deltas()
        try:
            return _Begun(stream, deltas, await anext(deltas, None))
        except BaseException:  # whatever it is, nobody else can close what was opened here
            await deltas.aclose()
            await stream.aclose()
            raise

    def _next(self, total: Deadline) -> Deadline:
        """When the next word must have come."""
        return min(total, Deadline.after(self._patience.first_token), key=lambda deadline: deadline.at)

    def _parameters(self, request: GenerationRequest) -> dict[str, Any]:
        parameters: dict[str, Any] = {"temperature": request.temperature, "max_tokens": request.max_tokens}
        return {**parameters, "stop": self._stop} if self._stop else parameters


def _messages(request: GenerationRequest) -> list[dict[str, str]]:
    return [
        {"role": "system", "content": request.system_prompt},
        {"role": "user", "content": request.user_prompt},
    ]
