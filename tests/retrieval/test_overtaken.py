"""Documents that are published or deleted while a query looks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from rag_cluster.domain.access import LOCAL
from rag_cluster.domain.retrieval import EvidenceRow, Hit, RetrievalOptions
from rag_cluster.retrieval.retriever import Retriever
from tests.retrieval.memory import KB, Library

Rows = Mapping[str, EvidenceRow]


@pytest.fixture
def library() -> Library:
    return Library()


def at_check(library: Library, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], *, before: bool) -> None:
    """Do something once, right before or right after the first check: after the search that found its hits."""
    todo, rows = [act], library.evidence.rows

    async def acting(principal: Any, base: str, hits: Sequence[Hit], options: RetrievalOptions) -> Rows:
        if before and todo:
            todo.pop()()
        found = await rows(principal, base, hits, options)
        if todo:
            todo.pop()()
        return found

    monkeypatch.setattr(library.evidence, "rows", acting)


async def found(library: Library, **options: Any) -> list[tuple[str, int]]:
    run = await Retriever(library.evidence, library.index, library.embedder).retrieve(
        LOCAL, KB, "how deep is the berth", RetrievalOptions(**options)
    )
    return [(result.document_id, result.version) for result in run.results]


async def test_a_document_that_is_published_between_the_search_and_its_check_does_not_disappear(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = library.add("d", "The berth is 9 metres deep.")

    def publish() -> None:
        library.add("d", "The berth is 12 metres deep.", version=2)
        library.forget_in_facts(*old)
        library.evidence.changed.append("later")

    at_check(library, monkeypatch, publish, before=True)
    assert await found(library) == [("d", 2)]


async def test_one_answer_never_holds_two_versions_of_a_document(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.add("d", "How deep is the berth? It is 9 metres deep.")
    refused = library.add("f", "How deep is the berth?")
    library.forget_in_facts(*refused)  # what is refused makes the channels search deeper

    def publish() -> None:
        library.add("d", "The berth is 12 metres deep, it was 9.", version=2)

    at_check(library, monkeypatch, publish, before=False)
    assert set(await found(library, top_k=2, candidate_k=2)) == {("d", 2)}
    assert len(library.evidence.checks) == 2


async def test_a_query_that_is_overtaken_again_and_again_ends(library: Library) -> None:
    library.add("e", "How deep is the berth? Ask the harbour master.")
    library.forget_in_facts(*library.add("f", "How deep is the berth?"))
    library.evidence.changed.extend(["later"] * 100)
    assert await found(library) == [("e", 1)]
    assert len(library.evidence.changed) > 90


async def test_nothing_is_asked_or_searched_twice_where_nothing_is_refused(library: Library) -> None:
    library.add("e", "How deep is the berth? Ask the harbour master.")
    library.evidence.changed.append("later")
    assert await found(library) == [("e", 1)]
    assert library.evidence.changed == ["later"] and len(library.evidence.checks) == 1
