"""Generators for the real Serve: one quotes its first source, and on request takes its time; one dies on request."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator

from rag_cluster.domain.answers import GenerationRequest
from rag_cluster.engines.echo import EchoGenerator
from rag_cluster.errors import ModelUnavailableError

WORDS = 40
SECONDS_A_WORD = 0.2


class Paced:
    """With "slowly" in the question: WORDS words, one every SECONDS_A_WORD."""

    name = "paced"

    async def stream(self, request: GenerationRequest) -> AsyncIterator[str]:
        """The text of the first source with its mark."""
        if "slowly" in request.question:
            for number in range(WORDS):
                yield f"word{number} "
                await asyncio.sleep(SECONDS_A_WORD)
        yield f"{request.sources[0].result.content} [Source 1](citation://1)"


class Mortal(EchoGenerator):
    """A `HostedGenerator` that dies of the question "die", and writes a word every SECONDS_A_WORD."""

    def __init__(self, context_tokens: int = 0) -> None:
        super().__init__(context_tokens)
        self._alive = True

    async def start(self) -> None:
        """Nothing to load."""

    async def stream(self, request: GenerationRequest) -> AsyncGenerator[str]:
        self._alive = self._alive and request.question != "die"
        if not self._alive:
            raise ModelUnavailableError("it is dead")
        async for word in super().stream(request):
            yield word
            await asyncio.sleep(SECONDS_A_WORD)

    async def check_health(self) -> None:
        if not self._alive:
            raise ModelUnavailableError("it is dead")

    def statistics(self) -> dict[str, float]:
        return {"pid": os.getpid(), **self.meter.snapshot()}

    def close(self) -> None:
        """Nothing to give back."""
