"""A generator that reads less than was found gets fewer sources, and citations speak of those alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rag_cluster.answering.answerer import MAX_SHRINKS, AnswerLimits
from rag_cluster.answering.context import estimate_tokens
from rag_cluster.domain.access import LOCAL
from rag_cluster.domain.answers import GenerationRequest
from rag_cluster.errors import ContextOverflowError
from tests.answering.test_answerer import answerer, events
from tests.retrieval.memory import KB, Library, MemoryConversations

QUESTION = "How much does storage cost per day?"


class ShortSighted:
    """Reads `limit` tokens, three for each that is counted here; `says` whether it tells so."""

    name = "short-sighted"

    def __init__(self, limit: int, *, says: bool) -> None:
        self.limit, self.says = limit, says
        self.requests: list[GenerationRequest] = []

    async def stream(self, request: GenerationRequest) -> AsyncIterator[str]:
        self.requests.append(request)
        tokens = 3 * (estimate_tokens(request.system_prompt) + estimate_tokens(request.user_prompt))
        if tokens > self.limit:
            told = {"tokens": tokens, "limit": self.limit} if self.says else {}
            raise ContextOverflowError("too long", **told)
        yield f"Storage costs 12 euros per day. [Source 1](citation://1)[Source {len(request.sources) + 1}](citation://9)"


@pytest.fixture
def library() -> Library:
    library = Library()
    for number in range(6):
        library.add(f"tariff {number}", f"Storage costs 12 euros per day in hall {number}. " * (1 if not number else 8))
    return library


@pytest.mark.parametrize("says", [True, False])
async def test_sources_that_the_model_cannot_read_are_left_out_and_never_cited(library: Library, says: bool) -> None:
    generator = ShortSighted(1800, says=says)
    found = await events(answerer(library, MemoryConversations(), generator).stream(LOCAL, KB, QUESTION))
    answer = found[-1].answer
    assert answer is not None and not answer.refused
    all_sources, given = (len(generator.requests[at].sources) for at in (0, -1))
    assert 1 <= given < all_sources and 2 <= len(generator.requests) <= MAX_SHRINKS + 1
    assert [citation.number for citation in answer.citations] == [1]
    assert f"{given} of {all_sources} sources were given to it" in answer.warnings[0]
    assert "citation://9" not in answer.text


async def test_a_question_that_does_not_fit_even_alone_is_the_callers_to_shorten(library: Library) -> None:
    generator: Any = ShortSighted(300, says=True)
    with pytest.raises(ContextOverflowError):
        await answerer(library, MemoryConversations(), generator).answer(LOCAL, KB, QUESTION)
    (event,) = [
        e
        for e in await events(answerer(library, MemoryConversations(), generator).stream(LOCAL, KB, QUESTION))
        if e.kind == "error"
    ]
    assert event.data["error"]["type"] == "context_overflow"


async def test_attempts_are_bounded(library: Library) -> None:
    generator: Any = ShortSighted(0, says=False)
    limits = AnswerLimits(context_tokens=100_000)
    with pytest.raises(ContextOverflowError):
        await answerer(library, MemoryConversations(), generator, limits=limits).answer(LOCAL, KB, QUESTION)
    assert len(generator.requests) <= MAX_SHRINKS + 1
