"""Every reranker keeps the port's promises."""

from __future__ import annotations

import asyncio
import math
import pickle

import pytest

from rag_cluster.domain.ports import Reranker
from rag_cluster.engines.options import Endpoint, EngineOptions
from rag_cluster.engines.registry import create_reranker
from rag_cluster.engines.threaded import ThreadedReranker
from tests.fixtures.models import require_models

AWKWARD = ["", " ", "\x00", "a\x00b", "\ud800", "ﷺ" * 40, "你好", "word " * 900, "🙂"]
LEARNED = ("varlen", "sentence-transformers", "flagembedding")


@pytest.fixture(params=["overlap", "openai", *(f"{engine} {kind}" for engine in LEARNED for kind in ("xlm", "bert"))])
def reranker(request: pytest.FixtureRequest) -> Reranker:
    """Learned ones have random weights in the shapes of bge-reranker-v2-m3 and of a BERT cross-encoder."""
    name, options = request.param, EngineOptions(threads=1, batch_size=8, device="cpu")
    if name == "openai":
        url = request.getfixturevalue("embedding_endpoint").url
        name, options = "openai:overlap", EngineOptions(batch_size=4, endpoint=Endpoint(url, retries=0))
    elif name.startswith(LEARNED):
        engine, kind = name.split()
        if engine == "flagembedding":
            require_models("FlagEmbedding")
        folder = request.getfixturevalue("small_bge_reranker" if kind == "xlm" else "bert_reranker")
        name = f"{engine}:{folder}"
    created = create_reranker(name, options)
    assert created is not None
    return created


def test_every_text_gets_a_finite_score(reranker: Reranker) -> None:
    scores = reranker.rerank("How many berths has the harbour? 泵", AWKWARD)
    assert len(scores) == len(AWKWARD)
    assert all(isinstance(score, float) and math.isfinite(score) for score in scores)


def test_an_awkward_question_is_a_question(reranker: Reranker) -> None:
    for query in AWKWARD:
        assert len(reranker.rerank(query, ["The harbour has three berths.", "泵"])) == 2


def test_scores_lie_between_0_and_1(reranker: Reranker) -> None:
    assert all(0 <= score <= 1 for score in reranker.rerank("berths", ["berths", "泵的维护周期", "x"]))


def test_no_texts_give_no_scores(reranker: Reranker) -> None:
    assert reranker.rerank("berths", []) == []


def test_a_score_does_not_depend_on_its_company_or_place(reranker: Reranker) -> None:
    texts = [f"Report {n} on pumps and valves. 泵 " * (n % 3 + 1) for n in range(9)]
    together = reranker.rerank("valves 泵", texts)
    assert reranker.rerank("valves 泵", [texts[7]]) == pytest.approx([together[7]], abs=1e-5)
    assert reranker.rerank("valves 泵", texts[::-1]) == pytest.approx(together[::-1], abs=1e-5)


def test_a_reranker_travels_to_other_processes(reranker: Reranker) -> None:
    scores = reranker.rerank("pump", ["A pump.", "A cat."])
    copy = pickle.loads(pickle.dumps(reranker))
    assert copy.name == reranker.name
    assert copy.rerank("pump", ["A pump.", "A cat."]) == pytest.approx(scores, abs=1e-6)


async def test_a_reranker_can_be_awaited(reranker: Reranker) -> None:
    awaitable = pickle.loads(pickle.dumps(ThreadedReranker(reranker)))
    assert awaitable.name == reranker.name
    first, second = await asyncio.gather(awaitable.rerank("pump", ["A pump."]), awaitable.rerank("cat", ["A", "B"]))
    assert (len(first), len(second)) == (1, 2)
