"""Ways of chunking and retrieving on real Milvus Lite, without ingestion; and the golden set of our samples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rag_cluster.errors import InvalidRequestError
from rag_cluster.evaluation.datasets import Dataset, Question, SourceDocument, Span, load
from rag_cluster.evaluation.embedding_cache import CachedEmbedder
from rag_cluster.evaluation.gates import check, parse_gates
from rag_cluster.evaluation.hard_negatives import mine
from rag_cluster.evaluation.laboratory import Laboratory
from rag_cluster.evaluation.regions import offset
from rag_cluster.evaluation.results import ArmResult, Evaluation
from rag_cluster.evaluation.runner import Asked, Examination, examine
from rag_cluster.evaluation.variants import measurable, parse_arms, parse_variants
from rag_cluster.retrieval import crossing
from rag_cluster.settings import Settings
from rag_cluster.wiring import Services

TEXTS = {
    "cranes.txt": "The wire rope of the crane is replaced after 2,400 hours. " * 2 + "Its colour is orange. " * 30,
    "storage.txt": "Storage costs 60 yuan a day. " + "Containers are stacked in block D. " * 30,
    "pilot.txt": "引航员应至少提前四小时预约。" + "船长超过九十米的船舶必须使用引航员。" * 12,
}


def dataset() -> Dataset:
    start = TEXTS["storage.txt"].index("Storage")
    excerpt = (Span("storage.txt", start, start + 28),)
    return Dataset(
        "three",
        tuple(SourceDocument(name, text) for name, text in TEXTS.items()),
        (
            Question("q1", "When is the wire rope replaced?", ("cranes.txt",), ("2,400 hours",)),
            Question("q2", "What does storage cost a day?", ("storage.txt",), ("60 yuan",), excerpt, group="en"),
            Question("q3", "引航员提前多久预约？", ("pilot.txt",), ("四小时",), group="zh"),
        ),
    )


@pytest.fixture
def services(milvus_uri: str, tmp_path: Path) -> Iterator[Services]:
    opened = Services(
        Settings(data_dir=tmp_path, milvus_uri=milvus_uri, embedder="hash:256", ocr="off", _env_file=None)
    )
    yield opened
    opened.parser.close()


async def test_each_way_of_chunking_is_asked_in_each_way_of_retrieving(services: Services, tmp_path: Path) -> None:
    data, embedder = dataset(), CachedEmbedder(services.embedder, tmp_path / "cache")
    laboratory = Laboratory(services, data, embedder)
    examination = Examination.of(data, embedder.tokenizer)
    heard: list[tuple[str, list[Asked]]] = []
    results: list[ArmResult] = []
    for variant in parse_variants(["structured:40/120,fixed_size:200/0"]):
        with laboratory.target(variant) as target:
            results += await examine(
                target,
                examination,
                parse_arms("sparse,hybrid,parents"),
                timed=2,
                listener=lambda arm, target, asked: heard.append((arm.name, list(asked))),
            )
    names = [result.name for result in results]
    assert names[:3] == ["structured:40/120 sparse", "structured:40/120 hybrid", "structured:40/120 parents"]
    sparse = results[0]
    assert sparse.means["recall@1"] == 1.0 and sparse.means["answer@5"] == 1.0
    assert sparse.scores["token_recall@250"][0] is None and sparse.scores["token_recall@250"][1] == 1.0
    assert sparse.latency["queries"] == 2 and sparse.cost and sparse.cost.chunks > 6
    assert results[2].scores["first_5_tokens"][1] > results[1].scores["first_5_tokens"][1]  # parents are longer
    (line, *_) = mine(heard[1][1], {name: name for name in TEXTS})
    assert line["positives"] and all(negative["document"] != "cranes.txt" for negative in line["negatives"])


async def test_what_was_embedded_once_is_not_embedded_again(services: Services, tmp_path: Path) -> None:
    costs = []
    for _ in range(2):
        embedder = CachedEmbedder(services.embedder, tmp_path / "cache")
        with Laboratory(services, dataset(), embedder).target(None) as target:
            costs.append(target.cost)
        embedder.close()
    first, second = costs
    assert first.embedded_tokens == first.tokens > 0
    assert (second.tokens, second.embedded_tokens) == (first.tokens, 0)


def test_cached_vectors_are_the_embedders_and_those_of_queries_are_kept_apart(services: Services) -> None:
    embedder = CachedEmbedder(services.embedder)
    texts = ["a b", "c", "a b"]
    for _ in range(2):
        assert (embedder.embed_documents(texts) == services.embedder.embed_documents(texts)).all()
        assert (embedder.embed_queries(texts) == services.embedder.embed_queries(texts)).all()
    assert embedder.embedded == ["a b", "c", "a b", "c"]
    assert embedder.embed_documents([]).shape == (0, 256)


@pytest.mark.parametrize("text", ["nonsense", "structured:1/2/3", "fixed_size:many"])
def test_a_way_of_chunking_that_is_not_known_is_an_error(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="not"):
        parse_variants([text])


def test_without_a_reranker_its_arms_are_left_out_unless_none_is_left() -> None:
    arms = parse_arms("hybrid,rerank")
    assert measurable(arms, reranker=True) == arms
    assert measurable(arms, reranker=False) == arms[:1]
    with pytest.raises(InvalidRequestError, match="no reranker"):
        measurable(arms[1:], reranker=False)


def test_an_ablation_that_is_not_known_is_an_error() -> None:
    with pytest.raises(InvalidRequestError, match="rerank"):
        parse_arms("hybrid,nonsense")


async def test_the_golden_set_finds_every_answer_at_its_place_and_across_languages(
    milvus_uri: str, tmp_path: Path
) -> None:
    services = Services(Settings(data_dir=tmp_path, milvus_uri=milvus_uri, _env_file=None))
    data, embedder = load("golden"), CachedEmbedder(services.embedder)
    with Laboratory(services, data, embedder).target(None) as target:
        arms = await examine(target, Examination.of(data, embedder.tokenizer), parse_arms("hybrid,cross"), timed=0)
    run = Evaluation(data.name, len(data.documents), [one.id for one in data.questions], arms, data.groups)
    wanted = [f"{measure}/{group}>=1" for group in ("zh", "en") for measure in ("recall@1", "answer@5", "place@5")]
    wanted += ["cross recall@1/zh>=1", "cross recall@1/en>=1", "cross answer@5/cross>=0.9", "cross place@5/cross>=0.85"]
    missed = [(one.gate.text, one.found) for one in check(parse_gates(wanted), run) if not one.passed]
    assert not missed
    known = crossing.offset_of(embedder.fingerprint)
    assert known == pytest.approx(offset(embedder), abs=2e-3), "python -m rag_cluster.evaluation.regions"
