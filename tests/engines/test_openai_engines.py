"""Embeddings and rerank scores over real HTTP."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

from rag_cluster.engines.hashing import HashEmbedder
from rag_cluster.engines.openai import EndpointReranker, OpenAIEmbedder, batches
from rag_cluster.engines.options import Endpoint, EngineOptions
from rag_cluster.errors import InvalidSettingError, ModelUnavailableError
from tests.fixtures.embedding_endpoint import EmbeddingEndpoint


def embedder(endpoint: EmbeddingEndpoint, **options: object) -> OpenAIEmbedder:
    place = Endpoint(endpoint.url, api_key="secret", timeout=5, retries=2, min_wait=0.01, max_wait=0.05)
    return OpenAIEmbedder("m", EngineOptions(endpoint=place, **options))  # type: ignore[arg-type]


def test_vectors_are_in_the_order_of_the_texts_even_if_the_answer_is_not(embedding_endpoint: EmbeddingEndpoint) -> None:
    embedding_endpoint.change = lambda data: data[::-1]
    texts = ["pump", "泵", "valve"]
    assert np.allclose(embedder(embedding_endpoint).embed_documents(texts), HashEmbedder(64).embed_documents(texts))
    assert embedding_endpoint.keys[-1] == "Bearer secret"


def test_requests_hold_at_most_batch_size_texts_with_their_prefix(embedding_endpoint: EmbeddingEndpoint) -> None:
    engine = embedder(embedding_endpoint, batch_size=2, dimension=64, query_prefix="q: ", document_prefix="d: ")
    engine.embed_documents(["a", "b", "c"])
    engine.embed_queries(["a"])
    assert [request["input"] for request in embedding_endpoint.requests] == [["d: a", "d: b"], ["d: c"], ["q: a"]]


def test_a_request_has_a_bounded_size() -> None:
    assert [len(batch) for batch in batches(["x" * 90_000] * 5, 64)] == [2, 2, 1]
    assert [len(batch) for batch in batches(["x" * 900_000] * 2, 64)] == [1, 1]


def test_a_text_is_cut_at_its_limit(embedding_endpoint: EmbeddingEndpoint) -> None:
    embedder(embedding_endpoint, dimension=64, max_tokens=3).embed_documents(["one two three four", "泵输送水"])
    assert embedding_endpoint.requests[-1]["input"] == ["one two three", "泵输送"]


def test_the_dimension_is_asked_for_once(embedding_endpoint: EmbeddingEndpoint) -> None:
    engine = embedder(embedding_endpoint)
    assert (engine.dimension, engine.dimension, len(embedding_endpoint.requests)) == (64, 64, 1)


def test_an_outage_is_tried_again_and_what_cannot_pass_is_not(embedding_endpoint: EmbeddingEndpoint) -> None:
    engine = embedder(embedding_endpoint, dimension=64)
    embedding_endpoint.answers = [(503, b"busy", {}), (429, b"slow", {"Retry-After": "0"})]
    assert engine.embed_queries(["a"]).shape == (1, 64)
    assert len(embedding_endpoint.requests) == 3
    embedding_endpoint.answers = [(400, b"no such model", {})] * 5
    with pytest.raises(ModelUnavailableError, match="no such model"):
        engine.embed_queries(["a"])
    assert len(embedding_endpoint.requests) == 4


def test_retries_are_bounded_whatever_the_endpoint_asks_for(embedding_endpoint: EmbeddingEndpoint) -> None:
    embedding_endpoint.answers = [(503, b"busy", {"Retry-After": "3600"})] * 9
    start = time.monotonic()
    with pytest.raises(ModelUnavailableError, match="503"):
        embedder(embedding_endpoint, dimension=64).embed_queries(["a"])
    assert len(embedding_endpoint.requests) == 3
    assert time.monotonic() - start < 30


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: [*data, data[0]],
        lambda data: [{**entry, "index": 0} for entry in data],
        lambda data: [{**entry, "embedding": entry["embedding"][:10]} for entry in data],
        lambda data: [data[0], {**data[1], "embedding": []}],
        lambda data: [data[0], {**data[1], "embedding": [0.0] * 64}],
        lambda data: [{"embedding": entry["embedding"]} for entry in data],
        lambda data: ["text"],
    ],
)
def test_an_answer_that_does_not_fit_is_an_outage(embedding_endpoint: EmbeddingEndpoint, change) -> None:
    embedding_endpoint.change = change
    with pytest.raises(ModelUnavailableError):
        embedder(embedding_endpoint, dimension=64).embed_documents(["pump", "valve"])


def test_an_answer_that_is_no_json_is_an_outage(embedding_endpoint: EmbeddingEndpoint) -> None:
    embedding_endpoint.answers = [(200, b"<html>", {})]
    with pytest.raises(ModelUnavailableError, match="JSON"):
        embedder(embedding_endpoint, dimension=64).embed_documents(["pump"])


def test_nobody_listening_is_an_outage() -> None:
    place = Endpoint("http://127.0.0.1:9/v1", timeout=2, retries=0)
    with pytest.raises(ModelUnavailableError):
        OpenAIEmbedder("m", EngineOptions(endpoint=place, dimension=8)).embed_documents(["pump"])


def test_scores_are_in_the_order_of_the_texts(embedding_endpoint: EmbeddingEndpoint) -> None:
    engine = EndpointReranker("m", EngineOptions(batch_size=2, endpoint=Endpoint(embedding_endpoint.url)))
    assert engine.rerank("pump valve", ["cat", "pump valve", "a pump"]) == [0.0, 1.0, 0.5]
    assert len(embedding_endpoint.requests) == 2


def test_a_score_that_is_no_number_is_an_outage(embedding_endpoint: EmbeddingEndpoint) -> None:
    result = {"results": [{"index": 0, "relevance_score": None}]}
    embedding_endpoint.answers = [(200, json.dumps(result).encode(), {})]
    with pytest.raises(ModelUnavailableError, match="number"):
        EndpointReranker("m", EngineOptions(endpoint=Endpoint(embedding_endpoint.url))).rerank("q", ["a"])


def test_an_endpoint_without_url_or_model_is_refused() -> None:
    for engine in (OpenAIEmbedder, EndpointReranker):
        with pytest.raises(InvalidSettingError, match="_URL"):
            engine("m", EngineOptions())
        with pytest.raises(InvalidSettingError, match="name"):
            engine("", EngineOptions(endpoint=Endpoint("http://localhost")))


def test_a_key_is_in_no_message() -> None:
    assert "secret" not in repr(EngineOptions(endpoint=Endpoint("http://localhost", "secret")))
