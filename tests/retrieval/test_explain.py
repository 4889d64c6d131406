"""Explain names the first stage that lost a chunk, and shows nobody what they may not read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from rag_cluster.domain.access import LOCAL, Principal
from rag_cluster.domain.documents import Document, DocumentStatus, SourceKind
from rag_cluster.domain.retrieval import (
    Explanation,
    Located,
    Outcome,
    RetrievalMode,
    RetrievalOptions,
    Standing,
    Target,
)
from rag_cluster.errors import NotFoundError
from rag_cluster.retrieval import crossing
from rag_cluster.retrieval.explain import MAX_CHUNKS, Explainer
from rag_cluster.retrieval.retriever import Retriever
from tests.retrieval.memory import KB, Library, LibrarySearch
from tests.retrieval.test_stages import Rewriter


class Words:
    """The Analyzer port: lower-cased words."""

    async def analyze(self, texts: Sequence[str]) -> list[list[str]]:
        return [re.findall(r"\w+", text.lower()) for text in texts]


class Locating(LibrarySearch):
    """Finds every chunk of the library, or tells what a test told it."""

    found: list[Located] | None = None

    async def located(self, *_: object, **names: Any) -> list[Located]:
        if self.found is not None:
            return self.found
        out = []
        for row in self.library.evidence.rows_by_id.values():
            chunk = row.chunk
            asked = chunk.id == names.get("chunk_id") or chunk.document_id == names.get("document_id")
            if asked or (names.get("text") or "\0") in chunk.content:
                facts = document(chunk.document_id, published_version=chunk.version, source_id=row.source_id)
                out.append(Located(facts, chunk))
        return out[: names.get("limit", 20)]


def document(name: str, **values: Any) -> Document:
    facts = {"source_id": "s1", "status": DocumentStatus.READY, "version": 1, **values}
    return Document(name, KB, uri=f"file:///{name}.md", filename=f"{name}.md", **facts)


@pytest.fixture
def library() -> Library:
    library = Library()
    library.add("cranes", "The quay crane is inspected every 200 hours.")
    library.add("tariff", "Storage costs 12 euros a day from the fourth day.")
    library.add("goods", "De Well ships hazardous materials under licence.")
    return library


async def explain(
    library: Library,
    query: str,
    target: str | Target,
    parts: dict[str, Any] | None = None,
    found: list[Located] | None = None,
    **options: Any,
) -> Explanation:
    search = Locating(library)
    search.found = found
    retriever = Retriever(library.evidence, library.index, library.embedder, search=search, **(parts or {}))
    explainer = Explainer(retriever, library.evidence, library.index, search, Words())
    asked = Target(document_id=target) if isinstance(target, str) else target
    explanation, run = await explainer.explain(LOCAL, KB, query, asked, RetrievalOptions(**options))
    shown = [one for one in run.results if one.document_id == explanation.document_id]
    assert any(explanation.text in one.content for one in shown) == (explanation.lost_at == ""), (shown, explanation)
    return explanation


def standing(explanation: Explanation, stage: str) -> Standing:
    return next(one for one in explanation.standings if one.stage == stage)


async def test_a_chunk_that_is_shown_has_its_rank_in_every_stage(library: Library) -> None:
    found = await explain(library, "storage costs", "tariff")
    assert (found.lost_at, found.result, found.filename) == ("", 1, "tariff.md")
    assert [one.stage for one in found.standings] == [
        "ready", "access", "source", "filter", "index", "tokens", "dense", "sparse", "fusion", "rerank", "order",
        "expansion",
    ]  # fmt: skip
    for stage in ("dense", "sparse", "fusion", "order", "expansion"):
        assert (standing(found, stage).outcome, standing(found, stage).rank) == (Outcome.PASSED, 1)
    assert found.shared_tokens == ("storage", "costs") == found.query_tokens
    assert standing(found, "fusion").score == pytest.approx(2 / 61)


async def test_the_explained_run_is_the_one_that_a_query_gets(library: Library) -> None:
    retriever = Retriever(library.evidence, library.index, library.embedder)
    explainer = Explainer(retriever, library.evidence, library.index, Locating(library))
    _, run = await explainer.explain(LOCAL, KB, "storage", Target(document_id="goods"))
    assert run.results == (await retriever.retrieve(LOCAL, KB, "storage")).results


async def test_what_is_not_located_is_not_found(library: Library) -> None:
    with pytest.raises(NotFoundError):
        await explain(library, "storage", "nothing")


@pytest.mark.parametrize(
    ("facts", "detail"),
    [
        ({"status": DocumentStatus.FAILED, "error_type": "corrupt_document"}, "corrupt_document"),
        ({"status": DocumentStatus.INDEXING}, "INDEXING"),
        ({"published_version": 2}, "version 2 is published, the chunk is of version 1"),
    ],
)
async def test_a_chunk_that_is_not_published_is_lost_at_ready(
    library: Library, facts: dict[str, Any], detail: str
) -> None:
    (chunk_id,) = library.add("late", "Storage of late goods.")
    chunk = library.evidence.rows_by_id[chunk_id].chunk
    library.evidence.hidden_documents = {"late"}
    found = await explain(library, "storage", "late", found=[Located(document("late", **facts), chunk)])
    assert found.lost_at == "ready" and detail in standing(found, "ready").detail


async def test_a_document_without_chunks_is_lost_at_ready(library: Library) -> None:
    found = await explain(library, "storage", "x", found=[Located(document("x", status=DocumentStatus.PARSING), None)])
    assert (found.lost_at, found.chunk_id, found.text) == ("ready", None, "")


async def test_a_chunk_that_the_index_lacks_is_lost_there(library: Library) -> None:
    library.index.delete("chunks_test", "tariff")
    assert (await explain(library, "storage costs", "tariff")).lost_at == "index"


async def test_no_token_in_common_loses_in_sparse_mode(library: Library) -> None:
    found = await explain(library, "demurrage", "tariff", mode=RetrievalMode.SPARSE)
    assert found.lost_at == "tokens" and found.shared_tokens == ()
    assert standing(found, "sparse").outcome is Outcome.MISSED


async def test_a_channels_limit_loses_what_lies_deeper(library: Library) -> None:
    found = await explain(library, "storage costs", "cranes", top_k=1, candidate_k=1, mode=RetrievalMode.DENSE)
    assert found.lost_at == "dense"
    assert standing(found, "dense").rank in (2, 3) and standing(found, "dense").score is not None
    assert standing(found, "dense").detail.endswith("the channel gave 1")


async def test_one_channel_may_miss_what_the_other_brings(library: Library) -> None:
    found = await explain(library, "hazardous", "cranes")
    assert standing(found, "sparse").outcome is Outcome.MISSED
    assert standing(found, "dense").outcome is Outcome.PASSED and found.lost_at == ""


async def test_the_rrf_cut_loses_what_is_behind_candidate_k(library: Library) -> None:
    library.add("short", "Demurrage.")
    library.add("long", "Demurrage and detention of any sort, as the terms of a carrier have it for every container.")
    found = await explain(library, "demurrage detention", "long", top_k=1, candidate_k=1)
    assert (found.lost_at, standing(found, "sparse").rank) == ("fusion", 1)
    assert standing(found, "fusion").detail == "only the first 1 go on"


async def test_the_threshold_loses_what_is_too_far(library: Library) -> None:
    found = await explain(library, "storage costs", "cranes", score_threshold=0.4)
    assert found.lost_at == "threshold" and standing(found, "threshold").detail == "the threshold is 0.4"


async def test_the_reranker_loses_what_was_among_the_results_before(library: Library) -> None:
    class Reranker:
        name = "test"

        async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
            return [0.0 if "Storage" in text else 1.0 for text in texts]

    found = await explain(library, "storage costs", "tariff", {"reranker": Reranker()}, top_k=1)
    assert found.lost_at == "rerank" and standing(found, "rerank").rank == 3


async def test_the_places_lose_what_is_behind_top_k(library: Library) -> None:
    found = await explain(library, "storage costs", "cranes", top_k=1)
    assert found.lost_at == "expansion" and standing(found, "order").rank in (2, 3)


async def test_the_reranker_is_not_blamed_for_what_a_mount_outranks(library: Library) -> None:
    class Reranker:
        name = "test"

        async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
            return [float("12 euros" in text) for text in texts]

    library.add("rules", "Storage rules.", source="rules")
    library.evidence.mounts = {"rules": 9, "s1": 0}
    parts = {"reranker": Reranker()}
    found = await explain(library, "storage costs a day", "tariff", parts, agent_id="agent", top_k=1)
    assert (standing(found, "fusion").rank, standing(found, "rerank").rank, found.lost_at) == (1, 1, "order")


async def test_corrections_and_mounts_lose_what_they_outrank(library: Library) -> None:
    library.add("fix", "Storage costs nothing.", source="fixes", kind=SourceKind.MANAGED_CORRECTION)
    library.evidence.mounts, library.evidence.corrections = {"fixes": 0, "s1": 0}, ("fixes",)
    found = await explain(
        library, "storage costs 12 euros a day from the fourth day", "tariff", agent_id="agent", top_k=1
    )
    assert found.lost_at == "order"


async def test_the_third_copy_is_lost_as_one(library: Library) -> None:
    for number in range(3):
        library.add(f"copy{number}", "storage costs")
    lost = [await explain(library, "storage costs", f"copy{number}") for number in range(3)]
    (third,) = [one for one in lost if one.lost_at]
    assert third.lost_at == "fusion" and standing(third, "fusion").detail == "2 copies of it come before"


async def test_what_the_keyword_fallback_brought_is_shown_although_the_channels_lost_it(library: Library) -> None:
    found = await explain(library, "hazardous", "goods", keyword_fallback=True, score_threshold=0.99)
    assert found.lost_at == "" and standing(found, "keyword_fallback").rank == 1
    assert standing(found, "threshold").outcome is Outcome.MISSED


async def test_the_rewritten_question_has_channels_of_its_own(library: Library) -> None:
    found = await explain(library, "demurrage", "tariff", {"rewriter": Rewriter("storage costs")}, rewrite=True)
    assert standing(found, "rewrite_sparse").rank == 1 and standing(found, "sparse").outcome is Outcome.MISSED
    assert "storage" in found.shared_tokens


async def test_of_a_document_the_chunk_that_came_furthest_is_explained(library: Library) -> None:
    ids = library.add("long", "Nothing of interest.", "Storage costs more on Sundays.", "Another remark.")
    found = await explain(library, "storage costs on Sundays", "long")
    assert found.chunk_id == ids[1]


@pytest.mark.parametrize("target", [Target(document_id="long"), Target(text="Remark")])
@pytest.mark.parametrize("chunks", [3, MAX_CHUNKS + 1])
async def test_of_however_many_chunks_the_one_that_came_furthest_is_explained(
    library: Library, target: Target, chunks: int
) -> None:
    ids = library.add("long", *(f"Remark {at}." for at in range(chunks)), "Remark: storage costs more on Sundays.")
    found = await explain(library, "storage costs on Sundays", target)
    assert (found.chunk_id, found.result) == (ids[-1], 1)


async def test_of_many_chunks_that_came_nowhere_the_nearest_is_explained(library: Library) -> None:
    ids = library.add("long", *(f"Remark {at}." for at in range(MAX_CHUNKS + 1)), "Storage costs more on Sundays.")
    found = await explain(library, "storage costs 12 euros", "long", top_k=1, candidate_k=1)
    assert (found.chunk_id, found.lost_at) == (ids[-1], "dense")


@pytest.mark.parametrize("candidate_k", [1, 30])
async def test_a_chunk_whose_parent_is_shown_for_a_sibling_is_not_lost(library: Library, candidate_k: int) -> None:
    texts = ("Storage costs.", "The gate closes at noon.")
    ids = library.add("manual", *texts, parent=" ".join(texts))
    gate = Target(text="gate closes")
    options = {"top_k": 1, "candidate_k": candidate_k}
    found = await explain(library, "storage costs", gate, **options)
    assert (found.chunk_id, found.result, found.lost_at) == (ids[1], 1, "")
    assert standing(found, "expansion").detail == "in the parent of another chunk"
    assert standing(found, "dense").outcome is (Outcome.MISSED if candidate_k == 1 else Outcome.PASSED)
    assert (await explain(library, "storage costs", gate, **options, expand_parents=False)).lost_at


async def test_a_channel_says_why_it_cannot_bring_a_chunk(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crossing, "_offsets", lambda: {library.engine.fingerprint: [0.0] * library.engine.dimension})
    for name in ("fix", "other"):
        library.add(name, f"Storage costs {name}.", source="fixes", kind=SourceKind.MANAGED_CORRECTION)
    library.evidence.mounts, library.evidence.corrections = {"fixes": 0, "s1": 0}, ("fixes",)
    options = {"agent_id": "agent", "top_k": 1, "cross_language": True}
    tariff = await explain(library, "storage costs fix", "tariff", **options)
    other = await explain(library, "storage costs fix", "other", **options)
    found = [standing(one, stage) for one in (tariff, other) for stage in ("cross_language", "correction")]
    assert [(one.outcome, one.detail) for one in found] == [
        (Outcome.SKIPPED, "it speaks the question's own language"),
        (Outcome.SKIPPED, "not a mounted correction"),
        (Outcome.SKIPPED, "it speaks the question's own language"),
        (Outcome.MISSED, "rank 2; the channel gave 1"),
    ]


async def test_a_reader_without_the_right_loses_at_access(library: Library) -> None:
    class Strict(type(library.evidence)):  # type: ignore[misc]
        async def rows(self, principal: Principal, *rest: Any) -> Any:
            return await super().rows(principal, *rest) if principal.unrestricted else {}

    evidence = Strict(**{name: getattr(library.evidence, name) for name in library.evidence.__dataclass_fields__})
    search = Locating(library)
    retriever = Retriever(evidence, library.index, library.embedder)
    explainer = Explainer(retriever, evidence, library.index, search, Words())
    reader = replace(LOCAL, unrestricted=False)
    found, run = await explainer.explain(LOCAL, KB, "storage", Target(document_id="tariff"), reader=reader)
    assert found.lost_at == "access" and run.results == ()
