"""The generator's stream: begun, cleaned and closed within the request's deadline."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from rag_cluster.answering.marks import MarkFilter
from rag_cluster.domain.answers import GenerationRequest
from rag_cluster.domain.deadlines import Deadline, within
from rag_cluster.domain.ports import Generator


async def started(
    generator: Generator, request: GenerationRequest, deadline: Deadline | None
) -> tuple[AsyncIterator[str], str | None]:
    """A stream and its first delta, None where it says nothing."""
    stream = generator.stream(request)
    async with within(deadline):
        return stream, await anext(stream, None)


async def deltas(
    stream: AsyncIterator[str], first: str | None, cleaner: MarkFilter, deadline: Deadline | None
) -> AsyncGenerator[str]:
    """The generator's text without marks that stand for nothing. Closing this closes the generator's stream."""
    try:
        raw = first
        while raw is not None:
            if text := cleaner.feed(raw):
                yield text
            async with within(deadline):
                raw = await anext(stream, None)
        if text := cleaner.flush():
            yield text
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()
