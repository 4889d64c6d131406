"""The stages that a request may ask for: rewriting, keyword fallback, diversity, corrections."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from rag_cluster.domain.access import LOCAL
from rag_cluster.domain.documents import SourceKind
from rag_cluster.domain.retrieval import Hit, RetrievalMode, RetrievalOptions, RetrievalRun
from rag_cluster.errors import ModelUnavailableError, StoreUnavailableError
from rag_cluster.retrieval.diversity import paragraph
from rag_cluster.retrieval.keyword_fallback import keyword_like
from rag_cluster.retrieval.retriever import Retriever
from tests.retrieval.memory import KB, Library, LibrarySearch


@dataclass
class Rewriter:
    """Writes what it is told to, or fails."""

    written: str | None = None
    error: Exception | None = None
    delay: float = 0.0
    name: str = "test"
    asked: list[str] = field(default_factory=list)

    async def rewrite(self, query: str) -> str | None:
        self.asked.append(query)
        await asyncio.sleep(self.delay)
        if self.error:
            raise self.error
        return self.written


@pytest.fixture
def library() -> Library:
    library = Library()
    library.add("cranes", "The quay crane is inspected every 200 hours.")
    library.add("tariff", "Storage costs 12 euros a day from the fourth day.")
    library.add("goods", "De Well ships hazardous materials under licence.")
    return library


async def retrieve(library: Library, query: str, parts: dict[str, Any] | None = None, **options: Any) -> RetrievalRun:
    retriever = Retriever(library.evidence, library.index, library.embedder, **(parts or {}))
    return await retriever.retrieve(LOCAL, KB, query, RetrievalOptions(**options))


def documents(run: RetrievalRun) -> list[str]:
    return [result.document_id for result in run.results]


# -- rewriting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(RetrievalMode))
async def test_a_rewriting_is_one_more_list_for_every_channel(library: Library, mode: RetrievalMode) -> None:
    rewriter = Rewriter("storage costs")
    run = await retrieve(library, "demurrage charges", {"rewriter": rewriter}, rewrite=True, mode=mode)
    assert "tariff" in documents(run)
    assert run.trace.query_variants == ("demurrage charges", "storage costs")
    names = {name for result in run.results for name in result.retrieval_sources}
    wanted = {"dense": {"rewrite_dense"}, "sparse": {"rewrite_sparse"}}.get(mode, {"rewrite_dense", "rewrite_sparse"})
    assert wanted <= names
    assert rewriter.asked == ["demurrage charges"]


async def test_all_lists_are_fused_by_rank(library: Library) -> None:
    run = await retrieve(library, "storage", {"rewriter": Rewriter("storage costs")}, rewrite=True)
    best = run.results[0]
    assert best.document_id == "tariff"
    assert best.retrieval_sources == ("dense", "sparse", "rewrite_dense", "rewrite_sparse")
    assert best.score == best.fusion_score == pytest.approx(4 / 61)


async def test_the_variants_are_embedded_by_one_call(library: Library) -> None:
    calls: list[list[str]] = []
    embed = library.embedder.embed_queries

    async def counted(texts: Sequence[str]) -> Any:
        calls.append(list(texts))
        return await embed(texts)

    library.embedder.embed_queries = counted  # type: ignore[method-assign]
    await retrieve(library, "storage", {"rewriter": Rewriter("costs of storage")}, rewrite=True)
    assert calls == [["storage", "costs of storage"]]


async def test_refusal_and_generator_see_the_question_itself_not_its_rewriting(library: Library) -> None:
    plain = await retrieve(library, "demurrage charges", rewrite=False)
    run = await retrieve(library, "demurrage charges", {"rewriter": Rewriter("storage costs")}, rewrite=True)
    assert (run.query_vector, run.best_cosine) == (plain.query_vector, plain.best_cosine)


@pytest.mark.parametrize(
    ("rewriter", "reason"),
    [
        (Rewriter(error=ModelUnavailableError("it is away")), "rewrite: it is away"),
        (Rewriter(error=ValueError()), "rewrite: ValueError"),
        (Rewriter("late", delay=5), "rewrite: no answer within 0.05 s"),
        (Rewriter("x" * 2000), "rewrite: the rewriter wrote 2000 characters"),
    ],
)
async def test_a_failing_rewriter_leaves_the_original_question(
    library: Library, rewriter: Rewriter, reason: str
) -> None:
    parts = {"rewriter": rewriter, "rewrite_seconds": 0.05}
    run = await retrieve(library, "storage costs", parts, rewrite=True)
    assert documents(run)[0] == "tariff"
    assert reason in run.trace.degradations
    assert run.trace.query_variants == ("storage costs",)


@pytest.mark.parametrize("written", [None, "", "  ", "Storage  COSTS", '"storage costs"', "<think>hm</think>"])
async def test_a_rewriting_that_says_nothing_new_is_not_searched_for(library: Library, written: str | None) -> None:
    run = await retrieve(library, "storage costs", {"rewriter": Rewriter(written)}, rewrite=True)
    assert run.trace.query_variants == ("storage costs",)
    assert run.trace.degradations == ("rerank: no reranker configured",)


async def test_nothing_is_rewritten_unless_asked_for(library: Library) -> None:
    rewriter = Rewriter("costs")
    await retrieve(library, "storage", {"rewriter": rewriter})
    assert rewriter.asked == []


async def test_a_failing_channel_of_the_rewriting_degrades(library: Library) -> None:
    class Failing:
        def __init__(self) -> None:
            self.search_dense = library.index.search_dense

        async def search_sparse(self, collection: str, text: str, *rest: Any) -> list[Hit]:
            if text == "costs":
                raise StoreUnavailableError("gone")
            return await library.index.search_sparse(collection, text, *rest)

    retriever = Retriever(library.evidence, Failing(), library.embedder, rewriter=Rewriter("costs"))  # type: ignore[arg-type]
    run = await retriever.retrieve(LOCAL, KB, "storage", RetrievalOptions(rewrite=True))
    assert documents(run)[0] == "tariff" and "rewrite_sparse: gone" in run.trace.degradations


# -- keyword fallback -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "least"),
    [
        ("hazardous", 1),
        ("ddp", 1),
        ("cargo pulse", 1),
        ("危险品", 1),
        ("Is De Well certified to transport hazardous materials?", 2),
        ("岸桥制动器的标准间隙", 2),
    ],
)
def test_a_keyword_like_question_has_keywords(query: str, least: int) -> None:
    found = keyword_like(query)
    assert found is not None and found.least == least


@pytest.mark.parametrize(
    "query",
    [
        "How do I get my money back if it does not arrive?",
        "What is the height of the dam?",
        "why?",
        "我们应该怎么办呢",
        "…",
        "crane " * 40,
    ],
)
def test_a_question_in_whole_sentences_has_none(query: str) -> None:
    assert keyword_like(query) is None


async def test_keyword_hits_fill_free_places_behind_what_was_found(library: Library) -> None:
    search = LibrarySearch(library)
    run = await retrieve(
        library, "hazardous materials storage", {"search": search}, keyword_fallback=True, score_threshold=0.45
    )
    fallback = [result for result in run.results if result.retrieval_mode == "keyword_fallback"]
    found = [result for result in run.results if result.retrieval_mode == "hybrid"]
    assert [*found, *fallback] == list(run.results)
    assert {result.document_id for result in run.results} == {"goods", "tariff"}
    assert all(result.retrieval_sources == ("keyword_fallback",) and result.score == 0 for result in fallback)
    assert run.trace.stages[-1].name == "keyword_fallback"
    assert run.trace.stages[-1].counts["keywords"] == 3


async def test_without_free_places_nothing_is_looked_for(library: Library) -> None:
    search = LibrarySearch(library)
    run = await retrieve(library, "hazardous", {"search": search}, keyword_fallback=True, top_k=2)
    assert len(run.results) == 2 and search.calls == 0


async def test_the_free_places_are_all_that_is_filled_and_nothing_is_shown_twice(library: Library) -> None:
    for number in range(9):
        library.add(f"more{number}", f"hazardous cargo number {number}, whose long description nobody would look for")
    run = await retrieve(
        library,
        "hazardous",
        {"search": LibrarySearch(library)},
        keyword_fallback=True,
        score_threshold=0.37,
        top_k=4,
    )
    assert len(run.results) == len({result.chunk_id for result in run.results}) == 4
    assert [result.retrieval_mode for result in run.results] == ["hybrid", *["keyword_fallback"] * 3]


async def test_the_fallback_passes_the_same_second_check(library: Library) -> None:
    library.evidence.hidden_documents = {"goods"}
    parts = {"search": LibrarySearch(library)}
    run = await retrieve(library, "hazardous", parts, keyword_fallback=True, score_threshold=0.99)
    assert run.results == ()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [({"error": StoreUnavailableError("away")}, "away"), ({"delay": 30.0}, "no answer within 0.05 s")],
)
async def test_a_failing_fallback_keeps_what_was_found(library: Library, fault: dict[str, Any], reason: str) -> None:
    parts = {"search": LibrarySearch(library, **fault), "keyword_seconds": 0.05 if "delay" in fault else 30.0}
    run = await retrieve(library, "hazardous", parts, keyword_fallback=True)
    assert "goods" in documents(run)
    assert f"keyword_fallback: {reason}" in run.trace.degradations


@pytest.mark.parametrize(("visible", "most", "large"), [(1000, 99, False), (1001, 99, True), (1000, 1, True)])
async def test_of_a_scope_with_very_many_documents_or_chunks_only_what_bm25_finds_is_read(
    library: Library, visible: int, most: int, large: bool
) -> None:
    search = LibrarySearch(library, most=most)
    library.evidence.visible_documents = visible
    run = await retrieve(library, "hazardous", {"search": search}, keyword_fallback=True, score_threshold=0.99)
    assert documents(run) == ["goods"] and run.results[0].retrieval_mode == "keyword_fallback"
    (among,) = search.among
    assert (among is not None) == large
    assert among is None or 0 < len(among) < len(library.evidence.rows_by_id)


async def test_keyword_hits_of_a_parent_that_is_shown_are_not_shown_again(library: Library) -> None:
    parent = "Toxic goods. Toxic waste and other things that only a permit allows to be moved at night."
    library.add("permit", "Toxic goods.", "Toxic waste and other things that only a permit allows.", parent=parent)
    parts = {"search": LibrarySearch(library)}
    run = await retrieve(library, "toxic goods", parts, keyword_fallback=True, score_threshold=0.9)
    assert documents(run).count("permit") == 1


# -- diversity --------------------------------------------------------------------------------------------------------


async def test_the_third_copy_of_a_paragraph_makes_room(library: Library) -> None:
    for number in range(6):
        library.add(
            f"copy{number}", "Storage costs  12 euros, a day!" if number % 2 else "storage costs 12 euros a day"
        )
    run = await retrieve(library, "storage costs 12 euros a day", top_k=3)
    assert sum(document.startswith("copy") for document in documents(run)) == 2
    assert documents(run)[2] == "tariff"


@pytest.mark.parametrize(
    "others",
    [
        ("1.5 tonnes", "15 tonnes"),
        ("-5 degrees", "5 degrees"),
        ("rows 1 and 23", "rows 1, and 2 3"),
        ("written in C++", "written in C", "written in C#"),
        ("≤ 5 t", "≥ 5 t", "> 5 t"),
        ("5 %", "5"),
        ("间隙1.2毫米", "间隙12毫米"),
    ],
)
def test_texts_that_differ_in_a_number_or_a_sign_are_no_copies(others: tuple[str, ...]) -> None:
    assert len({paragraph(text) for text in others}) == len(others)


@pytest.mark.parametrize("others", [("Storage, 12 euros!", "storage 12  euros."), ("## 岸桥，检查。", "岸桥 检查")])
def test_texts_that_differ_in_punctuation_alone_are_copies(others: tuple[str, ...]) -> None:
    assert len({paragraph(text) for text in others}) == 1


async def test_copies_do_not_keep_the_search_from_what_lies_behind_them(library: Library) -> None:
    for number in range(40):
        library.add(f"copy{number}", "storage costs")
    run = await retrieve(library, "storage costs", top_k=3, candidate_k=5)
    assert "tariff" in documents(run) and len(run.results) == 3


async def test_parents_that_are_copies_count_as_copies(library: Library) -> None:
    for number in range(4):
        library.add(f"copy{number}", f"storage {number}", parent="One text that holds all of it.")
    run = await retrieve(library, "storage", top_k=5)
    assert sum(document.startswith("copy") for document in documents(run)) == 2


async def test_of_copies_the_one_from_the_higher_mount_is_kept(library: Library) -> None:
    for name in ("a", "b", "c", "d"):
        library.add(name, "storage costs", source=name)
    library.evidence.mounts = {"a": 0, "b": 1, "c": 2, "d": 3}
    run = await retrieve(library, "storage costs", agent_id="agent")
    assert documents(run)[:2] == ["d", "c"]


# -- corrections ------------------------------------------------------------------------------------------------------


@pytest.fixture
def corrected(library: Library) -> Library:
    library.add("fix", "Correction: storage is free for 5 days.", source="fixes", kind=SourceKind.MANAGED_CORRECTION)
    library.evidence.mounts = {"s1": 5, "fixes": 0}
    library.evidence.corrections = ("fixes",)
    return library


@pytest.mark.parametrize("mode", list(RetrievalMode))
async def test_a_correction_about_the_question_comes_first_without_a_reranker(
    corrected: Library, mode: RetrievalMode
) -> None:
    run = await retrieve(corrected, "What does storage cost?", agent_id="agent", mode=mode, top_k=1)
    assert documents(run) == ["fix"]


async def test_a_correction_about_something_else_outranks_nothing(corrected: Library) -> None:
    run = await retrieve(corrected, "How often is the quay crane inspected?", agent_id="agent", top_k=1)
    assert documents(run) == ["cranes"]
    assert next(stage for stage in run.trace.stages if stage.name == "fusion").counts["corrections"] == 0


async def test_a_threshold_that_everything_passes_does_not_make_a_correction_outrank(corrected: Library) -> None:
    options: dict[str, Any] = {"agent_id": "agent", "score_threshold": -1.0}
    assert documents(await retrieve(corrected, "How often is the quay crane inspected?", **options))[0] == "cranes"
    assert documents(await retrieve(corrected, "What does storage cost?", **options))[0] == "fix"


async def test_a_correction_below_the_threshold_is_not_shown(corrected: Library) -> None:
    assert documents(await retrieve(corrected, "storage costs", agent_id="agent", score_threshold=0.99)) == []


async def test_a_reranker_does_not_put_a_correction_down(corrected: Library) -> None:
    class Reranker:
        name = "test"

        async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
            return [0.0 if "Correction" in text else 1.0 for text in texts]

    run = await retrieve(corrected, "storage costs", {"reranker": Reranker()}, agent_id="agent")
    assert documents(run)[0] == "fix"
