"""Questions in one language about passages in another."""

from __future__ import annotations

import numpy as np
import pytest

from rag_cluster.domain.access import LOCAL
from rag_cluster.domain.retrieval import RetrievalMode, RetrievalOptions
from rag_cluster.retrieval import crossing
from rag_cluster.retrieval.retriever import Retriever
from tests.retrieval.memory import KB, Library

ENGLISH, CHINESE = np.eye(8, dtype=np.float32)[:2]
TOPICS = {"rope": 2, "绳": 2, "tariff": 3, "费": 3, "pilot": 4, "引航": 4}


class Regional:
    """An embedder that keeps Chinese and English apart, further than topics are."""

    dimension, max_tokens, fingerprint = 8, 100, "regional"

    def embed_documents(self, texts: list[str]) -> np.ndarray:
        return np.stack([self._vector(text) for text in texts])

    embed_queries = embed_documents

    def _vector(self, text: str) -> np.ndarray:
        region = ENGLISH if text.isascii() else CHINESE
        vector = 2 * region + sum(np.eye(8, dtype=np.float32)[at] for word, at in TOPICS.items() if word in text)
        return np.asarray(vector / np.linalg.norm(vector), np.float32)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    library = Library(Regional())  # type: ignore[arg-type]
    monkeypatch.setattr(crossing, "_offsets", lambda: {"regional": list(map(float, ENGLISH - CHINESE))})
    library.add("zh1", "堆场收费从第六天开始，费用另计。")
    library.add("zh2", "引航员须提前预约。", "会议记录与其他事项。", "值班安排见附表。", "钢材表面须除锈。")
    library.add("en1", "The wire rope is replaced every year.")
    library.add("en2", "The tariff is valid from January.", "The pilot comes aboard.")
    return library


async def found(library: Library, query: str, **options: object) -> list[str]:
    retriever = Retriever(library.evidence, library.index, library.embedder)
    chosen = RetrievalOptions(top_k=5, candidate_k=5, **options)  # type: ignore[arg-type]
    run = await retriever.retrieve(LOCAL, KB, query, chosen)
    return [result.matched_content for result in run.results]


@pytest.mark.parametrize("mode", [RetrievalMode.HYBRID, RetrievalMode.DENSE])
async def test_a_chinese_question_finds_the_english_passage_right_behind_the_best_of_its_own(
    library: Library, mode: RetrievalMode
) -> None:
    assert "The wire rope is replaced every year." not in await found(library, "绳多久更换？", mode=mode)
    crossed = await found(library, "绳多久更换？", mode=mode, cross_language=True)
    assert crossed.index("The wire rope is replaced every year.") <= 1


async def test_an_english_question_finds_the_chinese_passage(library: Library) -> None:
    assert "引航员须提前预约。" in (await found(library, "when is the pilot ordered?", cross_language=True))[:3]


async def test_what_answers_in_the_questions_own_language_stays_first(library: Library) -> None:
    for query in ("引航员何时预约？", "the pilot comes aboard when?"):
        alone, crossed = await found(library, query), await found(library, query, cross_language=True)
        assert alone[0] == crossed[0]


async def test_a_corpus_of_one_language_is_searched_as_before(library: Library) -> None:
    options = {"document_ids": ("zh1", "zh2")}
    alone = await found(library, "引航费", **options)
    assert alone == await found(library, "引航费", cross_language=True, **options)


async def test_an_embedder_whose_regions_are_not_known_searches_as_before(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crossing, "_offsets", dict)
    assert await found(library, "绳多久更换？", cross_language=True) == await found(library, "绳多久更换？")
    assert crossing.foreign_vector("regional", "绳", [0.0] * 8) is None


def test_the_vector_moves_towards_the_other_language(library: Library) -> None:
    moved = crossing.foreign_vector("regional", "绳", [0.0] * 8)
    back = crossing.foreign_vector("regional", "rope", [0.0] * 8)
    assert moved is not None and back is not None
    assert moved[0] > 0 > moved[1] and back[0] < 0 < back[1]
