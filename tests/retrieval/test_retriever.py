"""The sequence from a question to evidence."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from rag_cluster.domain.access import LOCAL, AccessFilter, Principal
from rag_cluster.domain.documents import SourceKind
from rag_cluster.domain.retrieval import Hit, RetrievalMode, RetrievalOptions, RetrievalRun
from rag_cluster.errors import IndexMismatchError, InvalidRequestError, StoreUnavailableError
from rag_cluster.retrieval.retriever import Retriever
from tests.retrieval.memory import KB, Library


@pytest.fixture
def library() -> Library:
    library = Library()
    library.add("cranes", "The quay crane is inspected every 200 hours.", "Its rail brake is tested weekly.")
    library.add("tariff", "Storage costs 12 euros a day from the fourth day.")
    library.add("台风", "台风红色预警时岸桥必须停止作业并锚定。")
    return library


async def retrieve(library: Library, query: str, **options: object) -> RetrievalRun:
    retriever = Retriever(library.evidence, library.index, library.embedder)
    return await retriever.retrieve(LOCAL, KB, query, RetrievalOptions(**options))  # type: ignore[arg-type]


def documents(run: RetrievalRun) -> list[str]:
    return [result.document_id for result in run.results]


@pytest.mark.parametrize("mode", list(RetrievalMode))
@pytest.mark.parametrize(
    ("query", "document"), [("How much does storage cost?", "tariff"), ("台风红色预警时做什么", "台风")]
)
async def test_every_mode_finds_chinese_and_english_evidence(
    library: Library, mode: RetrievalMode, query: str, document: str
) -> None:
    run = await retrieve(library, query, mode=mode)
    assert documents(run)[0] == document
    assert run.trace.mode is mode


async def test_results_carry_every_score_and_the_channels_that_found_them(library: Library) -> None:
    best = (await retrieve(library, "storage costs")).results[0]
    assert best.retrieval_sources == ("dense", "sparse")
    assert best.dense_score is not None and best.sparse_score is not None and best.rerank_score is None
    assert best.score == best.fusion_score == pytest.approx(2 / 61)


async def test_the_score_of_a_single_channel_is_its_own(library: Library) -> None:
    dense = (await retrieve(library, "storage costs", mode=RetrievalMode.DENSE)).results[0]
    assert dense.score == dense.dense_score
    sparse = (await retrieve(library, "storage costs", mode=RetrievalMode.SPARSE)).results[0]
    assert sparse.score == sparse.sparse_score


async def test_the_best_cosine_and_the_query_vector_are_on_the_run(library: Library) -> None:
    run = await retrieve(library, "storage costs")
    assert run.best_cosine == max(result.dense_score or 0 for result in run.results)
    assert run.query_vector is not None and len(run.query_vector) == library.engine.dimension


async def test_the_trace_tells_stages_counts_milliseconds_and_the_missing_reranker(library: Library) -> None:
    trace = (await retrieve(library, "storage costs")).trace
    assert [stage.name for stage in trace.stages] == ["scope", "recall", "fusion", "expand"]
    assert trace.degradations == ("rerank: no reranker configured",)
    recall = trace.stages[1].counts
    assert recall["dense"] == recall["checked"] == 4 and recall["dropped"] == 0 and recall["dense_rounds"] == 1
    assert trace.milliseconds >= sum(stage.milliseconds for stage in trace.stages) > 0


async def test_a_stage_that_is_asked_for_but_not_there_is_said_in_the_trace(library: Library) -> None:
    trace = (await retrieve(library, "storage costs", rewrite=True, keyword_fallback=True)).trace
    assert "rewrite: no rewriter configured" in trace.degradations
    assert "keyword_fallback: no chunk search configured" in trace.degradations


async def test_a_principal_without_the_knowledge_base_gets_nothing_and_no_search_is_made(library: Library) -> None:
    retriever = Retriever(library.evidence, _Broken(), library.embedder)
    run = await retriever.retrieve(Principal("stranger"), KB, "storage")
    assert run.results == () and library.evidence.checks == []


@pytest.mark.parametrize("whitelist", [{"document_ids": ()}, {"source_ids": ()}])
async def test_an_empty_whitelist_finds_nothing_and_no_search_is_made(
    library: Library, whitelist: dict[str, object]
) -> None:
    retriever = Retriever(library.evidence, _Broken(), library.embedder)
    run = await retriever.retrieve(LOCAL, KB, "storage", RetrievalOptions(**whitelist))  # type: ignore[arg-type]
    assert run.results == ()


async def test_a_knowledge_base_that_was_never_indexed_has_no_results(library: Library) -> None:
    library.evidence.index = None
    assert (await retrieve(library, "storage")).results == ()


async def test_hits_that_the_facts_disown_are_dropped_and_counted(library: Library) -> None:
    library.evidence.hidden_documents = {"tariff"}
    run = await retrieve(library, "storage costs")
    assert "tariff" not in documents(run)
    assert run.trace.stages[1].counts["dropped"] == 1


async def test_only_who_may_read_everything_is_told_how_much_was_dropped(library: Library) -> None:
    library.evidence.hidden_documents = {"tariff"}
    retriever = Retriever(library.evidence, library.index, library.embedder)
    for caller in (Principal("reader", frozenset({KB}), security_level=9), LOCAL):
        counts = (await retriever.retrieve(caller, KB, "storage costs")).trace.stages[1].counts
        told = {name for name in counts if name in ("checked", "dropped") or name.endswith("_rounds")}
        assert bool(told) is caller.unrestricted and counts["dense"] == 3


async def test_a_hit_of_another_version_is_dropped(library: Library) -> None:
    (chunk,) = library.add("manual", "Storage of dangerous goods costs 99 euros.")
    library.republish(chunk, version=2)
    assert "manual" not in documents(await retrieve(library, "storage dangerous goods"))


async def test_who_asks_for_more_results_than_there_are_candidates_gets_them(library: Library) -> None:
    for number in range(40):
        library.add(f"notice{number}", f"Notice number {number} about storage.")
    assert len((await retrieve(library, "storage", top_k=40)).results) == 40


async def test_both_channels_share_one_statement_of_the_second_check(library: Library) -> None:
    await retrieve(library, "storage costs")
    assert library.evidence.scopes == 1 and len(library.evidence.checks) == 1


async def test_channels_search_deeper_until_enough_hits_survive(library: Library) -> None:
    forbidden = [library.add(f"secret{n}", "storage costs storage costs")[0] for n in range(40)]
    library.forget_in_facts(*forbidden)
    run = await retrieve(library, "storage costs", candidate_k=2, top_k=2)
    assert documents(run)[0] == "tariff" and len(run.results) == 2
    assert run.trace.stages[1].counts["dense_rounds"] > 1
    # Nothing is asked about twice.
    assert sum(library.evidence.checks) == run.trace.stages[1].counts["checked"]


async def test_one_failing_channel_degrades_and_is_recorded(library: Library) -> None:
    retriever = Retriever(library.evidence, library.index, _NoEmbedder(library))
    run = await retriever.retrieve(LOCAL, KB, "storage costs")
    assert documents(run) == ["tariff"]
    assert run.trace.degradations[0] == "dense: the embedder is away"
    assert run.best_cosine is None


async def test_all_channels_failing_raises(library: Library) -> None:
    retriever = Retriever(library.evidence, _Broken(), library.embedder)
    with pytest.raises(StoreUnavailableError):
        await retriever.retrieve(LOCAL, KB, "storage costs")


async def test_an_embedder_that_did_not_make_the_index_is_not_used(library: Library) -> None:
    library.embedder.fingerprint = "another"
    retriever = Retriever(library.evidence, library.index, library.embedder)
    with pytest.raises(IndexMismatchError, match="another"):
        await retriever.retrieve(LOCAL, KB, "storage", RetrievalOptions(mode=RetrievalMode.DENSE))


async def test_cancelling_reaches_every_call_in_flight(library: Library) -> None:
    index = _Stuck()
    retriever = Retriever(library.evidence, index, library.embedder)
    task = asyncio.create_task(retriever.retrieve(LOCAL, KB, "storage"))
    await asyncio.wait_for(index.both_started.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(index.cancelled) == ["dense", "sparse"]


async def test_a_call_that_cancels_itself_is_not_taken_for_an_empty_channel(library: Library) -> None:
    class SelfCancelling(_Broken):
        async def search_dense(self, *_: object) -> list[Hit]:
            raise asyncio.CancelledError

    retriever = Retriever(library.evidence, SelfCancelling(), library.embedder)
    with pytest.raises(asyncio.CancelledError):
        await retriever.retrieve(LOCAL, KB, "storage")


async def test_bm25_does_not_wait_for_the_query_to_be_embedded(library: Library) -> None:
    searched = asyncio.Event()

    class Waiting(_NoEmbedder):
        async def embed_queries(self, texts: Sequence[str]) -> object:
            await asyncio.wait_for(searched.wait(), 5)
            return await self.library.embedder.embed_queries(texts)

    class Telling:
        def __init__(self) -> None:
            self.search_dense = library.index.search_dense

        async def search_sparse(self, *args: object) -> list[Hit]:
            searched.set()
            return await library.index.search_sparse(*args)  # type: ignore[arg-type]

    run = await Retriever(library.evidence, Telling(), Waiting(library)).retrieve(LOCAL, KB, "storage costs")  # type: ignore[arg-type]
    assert run.results[0].retrieval_sources == ("dense", "sparse")


async def test_an_empty_query_is_refused(library: Library) -> None:
    with pytest.raises(InvalidRequestError):
        await retrieve(library, "  \n")


# -- threshold, rerank, order -----------------------------------------------------------------------------------------


async def test_a_threshold_is_a_cosine_in_dense_and_hybrid_mode(library: Library) -> None:
    run = await retrieve(library, "storage costs", mode=RetrievalMode.DENSE)
    best, second = (result.dense_score or 0.0 for result in run.results[:2])
    between = (best + second) / 2
    for mode in (RetrievalMode.DENSE, RetrievalMode.HYBRID):
        assert documents(await retrieve(library, "storage costs", mode=mode, score_threshold=between)) == ["tariff"]


async def test_a_threshold_is_a_bm25_score_in_sparse_mode(library: Library) -> None:
    best = (await retrieve(library, "storage costs", mode=RetrievalMode.SPARSE)).results[0].score
    assert not (await retrieve(library, "storage costs", mode=RetrievalMode.SPARSE, score_threshold=best + 1)).results


async def test_a_reranker_decides_the_order(library: Library) -> None:
    reranker = _Reranker(lambda text: 1.0 if "brake" in text else 0.0)
    retriever = Retriever(library.evidence, library.index, library.embedder, reranker=reranker)
    run = await retriever.retrieve(LOCAL, KB, "storage costs")
    assert run.results[0].matched_content == "Its rail brake is tested weekly."
    assert run.results[0].score == run.results[0].rerank_score == 1.0
    assert run.trace.degradations == ()


@pytest.mark.parametrize("fault", ["raises", "short"])
async def test_a_failing_reranker_keeps_the_fused_order_and_says_so(library: Library, fault: str) -> None:
    retriever = Retriever(library.evidence, library.index, library.embedder, reranker=_Reranker(None, fault))
    run = await retriever.retrieve(LOCAL, KB, "storage costs")
    assert documents(run)[0] == "tariff"
    assert run.trace.degradations[0].startswith("rerank: ")
    assert run.results[0].rerank_score is None


async def test_for_an_agent_corrections_come_first_then_the_mounts_priority(library: Library) -> None:
    library.add("low", "storage storage costs", source="low")
    library.add("high", "storage is somewhere", source="high")
    library.add(
        "corrected", "Correction: storage is free for 5 days.", source="fix", kind=SourceKind.MANAGED_CORRECTION
    )
    library.evidence.mounts = {"low": 1, "high": 9, "fix": 0, "s1": 0}
    library.evidence.corrections = ("fix",)
    run = await retrieve(library, "storage costs", agent_id="a", top_k=3)
    assert documents(run) == ["corrected", "high", "low"]
    assert "correction" in run.results[0].retrieval_sources


async def test_without_an_agent_the_score_alone_decides(library: Library) -> None:
    library.evidence.mounts = {"s1": 0, "high": 9}
    library.add("high", "nothing much", source="high")
    assert documents(await retrieve(library, "storage costs"))[0] == "tariff"


# -- Small2Big --------------------------------------------------------------------------------------------------------


async def test_children_of_one_parent_merge_and_their_places_go_to_the_next(library: Library) -> None:
    whole = "Storage costs rise. Storage costs fall. Unmatched remark."
    ids = library.add("long", "Storage costs rise.", "Storage costs fall.", parent=whole)
    run = await retrieve(library, "storage costs", top_k=2)
    merged = next(result for result in run.results if result.document_id == "long")
    assert merged.content == whole
    assert merged.matched_content in ("Storage costs rise.", "Storage costs fall.")
    assert merged.context_chunk_ids == tuple(ids)
    assert {chunk.id for chunk in merged.matches} == set(ids)
    assert merged.matches[0].id == merged.chunk_id
    assert len(run.results) == 2


async def test_without_expansion_every_chunk_stands_for_itself(library: Library) -> None:
    library.add("long", "Storage costs rise.", "Storage costs fall.", parent="Storage costs rise. Storage costs fall.")
    run = await retrieve(library, "storage costs", expand_parents=False)
    assert sum(result.document_id == "long" for result in run.results) == 2
    assert all(result.content == result.matched_content for result in run.results)


# -- doubles ----------------------------------------------------------------------------------------------------------


class _Broken:
    async def search_dense(self, *_: object) -> list[Hit]:
        raise StoreUnavailableError("Milvus is away")

    async def search_sparse(self, *_: object) -> list[Hit]:
        raise StoreUnavailableError("Milvus is away")


class _NoEmbedder:
    def __init__(self, library: Library) -> None:
        self.library, self.fingerprint, self.dimension = library, library.engine.fingerprint, library.engine.dimension

    async def embed_queries(self, texts: Sequence[str]) -> object:
        raise StoreUnavailableError("the embedder is away")


class _Stuck:
    def __init__(self) -> None:
        self.cancelled: list[str] = []
        self.started = 0
        self.both_started = asyncio.Event()

    async def _hang(self, name: str) -> list[Hit]:
        self.started += 1
        if self.started == 2:
            self.both_started.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        return []

    async def search_dense(self, collection: str, vector: object, access: AccessFilter, limit: int) -> list[Hit]:
        return await self._hang("dense")

    async def search_sparse(self, collection: str, text: str, access: AccessFilter, limit: int) -> list[Hit]:
        return await self._hang("sparse")


class _Reranker:
    name = "test"

    def __init__(self, score: object, fault: str = "") -> None:
        self._score, self._fault = score, fault

    async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        if self._fault == "raises":
            raise StoreUnavailableError("out of memory")
        if self._fault == "short":
            return [0.5]
        return [self._score(text) for text in texts]  # type: ignore[operator]
