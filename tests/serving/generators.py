"""A generator for the real Serve: quotes its first source, and on request takes its time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from rag_cluster.domain.answers import GenerationRequest

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
