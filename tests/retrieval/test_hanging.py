"""A call that hangs: what a query can do without is given up while there is time left, and giving up stops the call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rag_cluster.answering.answerer import Answerer
from rag_cluster.chunking.boundaries import sentences
from rag_cluster.domain.access import LOCAL
from rag_cluster.domain.deadlines import Deadline
from rag_cluster.domain.retrieval import RetrievalOptions
from rag_cluster.engines.extractive import ExtractiveGenerator
from rag_cluster.errors import DeadlineExceededError
from rag_cluster.retrieval.retriever import Retriever
from tests.retrieval.memory import KB, Library, LibrarySearch, MemoryConversations
from tests.retrieval.test_stages import Rewriter

EVERYTHING = RetrievalOptions(rewrite=True, rerank=True, keyword_fallback=True)
CALLS = {
    "evidence": ["scope", "rows"],
    "index": ["search_dense", "search_sparse"],
    "embedder": ["embed_queries"],
    "rewriter": ["rewrite"],
    "reranker": ["rerank"],
    "search": ["keyword_hits"],
}
NEEDED = {"scope", "rows"}
POINTS = [(part, method) for part, methods in CALLS.items() for method in methods]


class Reranker:
    name = "test"

    async def rerank(self, query: str, texts: list[str]) -> list[float]:
        return [1.0] * len(texts)


class Hanging:
    """Passes everything on, but for one method: that hangs until it is cancelled."""

    def __init__(self, inner: Any, method: str) -> None:
        self._inner, self._method = inner, method
        self.entered, self.left = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return self._hang if name == self._method else getattr(self._inner, name)

    async def _hang(self, *_: Any, **__: Any) -> Any:
        self.entered.set()
        try:
            await asyncio.sleep(60)
        finally:
            self.left.set()


def answerer(part: str, method: str) -> tuple[Answerer, Hanging]:
    library = Library()
    library.add("cranes", "The crane stops at 72 km/h of wind.", "Cranes are greased every Monday.")
    parts: dict[str, Any] = {
        "evidence": library.evidence,
        "index": library.index,
        "embedder": library.embedder,
        "rewriter": Rewriter("wind limit of the crane"),
        "reranker": Reranker(),
        "search": LibrarySearch(library),
    }
    hanging = parts[part] = Hanging(parts[part], method)
    retriever = Retriever(
        parts["evidence"],
        parts["index"],
        parts["embedder"],
        reranker=parts["reranker"],
        rewriter=parts["rewriter"],
        search=parts["search"],
        rewrite_seconds=30,
        rerank_seconds=30,
        keyword_seconds=30,
    )
    return Answerer(retriever, ExtractiveGenerator(library.embedder, sentences), MemoryConversations()), hanging


@pytest.mark.parametrize(("part", "method"), POINTS)
async def test_what_hangs_is_given_up_before_the_deadline_and_said_in_the_trace_or_ends_the_request_there(
    part: str, method: str
) -> None:
    asked, hanging = answerer(part, method)
    loop = asyncio.get_running_loop()
    started, seconds = loop.time(), 0.3 if method in NEEDED else 1.5
    call = asked.retrieve(LOCAL, KB, "crane wind", EVERYTHING, deadline=Deadline.after(seconds))
    if method in NEEDED:
        with pytest.raises(DeadlineExceededError):
            await call
        assert loop.time() - started >= seconds
    else:
        run = await call
        assert run.results
        assert any("within" in entry for entry in run.trace.degradations), run.trace.degradations
    assert hanging.left.is_set(), "the call was stopped"


@pytest.mark.parametrize(("part", "method"), POINTS)
async def test_a_cancelled_request_stops_the_call_that_it_waits_for(part: str, method: str) -> None:
    asked, hanging = answerer(part, method)
    task = asyncio.create_task(asked.retrieve(LOCAL, KB, "crane wind", EVERYTHING))
    await asyncio.wait_for(hanging.entered.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert hanging.left.is_set()
