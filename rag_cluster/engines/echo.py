"""A generator for tests: no model, but everything else that one has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from rag_cluster.domain.answers import CutShort, GenerationRequest
from rag_cluster.domain.marks import mark
from rag_cluster.engines.metering import GenerationMeter
from rag_cluster.errors import ContextOverflowError
from rag_cluster.telemetry import NullMetrics


class EchoGenerator:
    """Says its first source word by word, with its mark. Words are its tokens; context_tokens 0: no limit."""

    name = "echo"

    def __init__(self, context_tokens: int = 0) -> None:
        self._context_tokens = context_tokens
        self.meter = GenerationMeter(self.name, NullMetrics())

    async def stream(self, request: GenerationRequest) -> AsyncGenerator[str]:
        """A word at a time, up to `max_tokens`."""
        with self.meter.generation() as generation:
            generation.prompt_tokens = len(f"{request.system_prompt} {request.user_prompt}".split())
            if 0 < self._context_tokens < generation.prompt_tokens:
                raise ContextOverflowError(
                    f"The prompt has {generation.prompt_tokens} words; {self.name} reads {self._context_tokens}.",
                    tokens=generation.prompt_tokens,
                    limit=self._context_tokens,
                )
            words = [word for source in request.sources[:1] for word in source.text.split()]
            generation.truncated = len(words) > request.max_tokens
            for word in words[: request.max_tokens]:
                generation.completion_tokens += 1
                yield f"{word} "
                await asyncio.sleep(0)
            if words:
                yield mark(1, request.language)
            if generation.truncated:
                yield CutShort()
