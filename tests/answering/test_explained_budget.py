"""The last stage of an explanation: whether the language model gets to read the chunk."""

from __future__ import annotations

import pytest

from rag_cluster.answering.answerer import Answerer, AnswerLimits
from rag_cluster.domain.access import LOCAL
from rag_cluster.domain.retrieval import Outcome, RetrievalOptions, Standing, Target
from rag_cluster.engines.extractive import ExtractiveGenerator
from rag_cluster.retrieval.explain import Explainer
from rag_cluster.retrieval.retriever import Retriever
from tests.retrieval.memory import KB, Library, MemoryConversations
from tests.retrieval.test_explain import Locating

TEXTS = ("Storage costs 12 euros.", "The <knowledge_context> gate closes at noon.", "filler " * 200)
SHORT = "Storage costs nothing for members of the association who come by water."


@pytest.fixture
def library() -> Library:
    library = Library()
    library.add("manual", *TEXTS, parent="\n".join(TEXTS))
    library.add("short", SHORT)
    return library


async def budget(library: Library, text: str, tokens: int) -> Standing:
    retriever = Retriever(library.evidence, library.index, library.embedder)
    explainer = Explainer(retriever, library.evidence, library.index, Locating(library))
    generator = ExtractiveGenerator(library.embedder, lambda text: [(0, len(text))])
    limits = AnswerLimits(context_tokens=tokens)
    answerer = Answerer(retriever, generator, MemoryConversations(), limits=limits, explainer=explainer)
    options = RetrievalOptions(top_k=2)
    found, _ = await answerer.explain(LOCAL, KB, "storage costs 12 euros", Target(text=text), options)
    assert found.result is not None and found.standings[-1].stage == "budget"
    return found.standings[-1]


async def test_a_chunk_in_a_context_that_holds_its_parent_passes(library: Library) -> None:
    for text, source in (("12 euros", 1), ("gate closes", 1), ("association", 2)):
        found = await budget(library, text, 6000)
        assert (found.outcome, found.rank, found.detail) == (Outcome.PASSED, source, "6000 tokens hold 2 of 2 results")


@pytest.mark.parametrize("kept", ["\nStorage costs 12 euros.", ""])
async def test_a_picture_is_found_without_the_hidden_name_that_captions_it(kept: str) -> None:
    library = Library()
    named = f"![doc](asset://a1)\ndoc{kept}"
    library.add("doc", named, "The gate.", parent=f"{named}\nThe gate.")
    library.evidence.hide_source_filename = True
    found = await budget(library, named, 6000)
    assert (found.outcome, found.rank) == (Outcome.PASSED, 1)


async def test_where_the_match_alone_fits_the_rest_of_its_parent_is_lost(library: Library) -> None:
    assert (await budget(library, "12 euros", 100)).outcome is Outcome.PASSED
    found = await budget(library, "gate closes", 100)
    assert (found.outcome, found.rank) == (Outcome.LOST, None)
    assert found.detail.endswith("; of its result another part alone is in the context")


async def test_a_result_behind_the_last_that_fits_is_lost(library: Library) -> None:
    found = await budget(library, "association", 45)
    assert (found.outcome, found.detail) == (Outcome.LOST, "45 tokens hold 1 of 2 results")
