"""varlen computes what sentence-transformers and FlagEmbedding compute. Run where the extra [flagembedding] is."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rag_cluster.engines.encoder.tokenizer import tokenizer_of
from rag_cluster.engines.flagembedding import FlagEmbedder, FlagTextReranker
from rag_cluster.engines.options import EngineOptions
from rag_cluster.engines.sentence_transformers import SentenceTransformersEmbedder, SentenceTransformersReranker
from rag_cluster.engines.varlen import VarlenEmbedder, VarlenReranker
from tests.fixtures.models import EDGES, mixed_texts, require_models

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Matrix

TEXTS = mixed_texts(500)
OPTIONS = EngineOptions(threads=1, batch_size=32, device="cpu", dtype="float32")


@pytest.fixture(scope="module", params=["minilm", "small_bge_m3"])
def embedding_model(request: pytest.FixtureRequest) -> Path:
    """Real weights with the mean of all tokens, random ones with the first token and prefixes."""
    folder: Path = request.getfixturevalue(request.param)
    return folder


@pytest.fixture(scope="module")
def vectors(embedding_model: Path) -> Matrix:
    """Of the 500 texts."""
    return VarlenEmbedder(str(embedding_model), OPTIONS).embed_documents(TEXTS)


@pytest.fixture(params=["small_bge_reranker", "bert_reranker"])
def rerank_model(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.getfixturevalue(request.param)
    return folder


@lru_cache
def library(folder: Path) -> SentenceTransformersEmbedder:
    return SentenceTransformersEmbedder(str(folder), OPTIONS)


@lru_cache
def cross_encoder(folder: Path) -> SentenceTransformersReranker:
    return SentenceTransformersReranker(str(folder), OPTIONS)


def test_the_texts_are_of_every_kind(minilm: Path) -> None:
    tokenizer = VarlenEmbedder(str(minilm), OPTIONS).tokenizer
    counts = tokenizer.count_many(TEXTS)
    assert min(counts) == 0
    assert counts.count(1) >= 2
    assert sum(count > 256 for count in counts) >= 5
    assert sum("泵" in text and "crane" in text for text in TEXTS) >= 3


def test_vectors_are_those_of_sentence_transformers(embedding_model: Path, vectors: Matrix) -> None:
    ours, reference = VarlenEmbedder(str(embedding_model), OPTIONS), library(embedding_model)
    assert (vectors * reference.embed_documents(TEXTS)).sum(axis=1).min() >= 0.9999
    queries = TEXTS[:40]
    assert (ours.embed_queries(queries) * reference.embed_queries(queries)).sum(axis=1).min() >= 0.9999
    assert ours.fingerprint == reference.fingerprint


def test_vectors_are_those_of_flagembedding(embedding_model: Path, vectors: Matrix) -> None:
    require_models("FlagEmbedding")
    reference = FlagEmbedder(str(embedding_model), OPTIONS).embed_documents(TEXTS)
    assert (vectors * reference).sum(axis=1).min() >= 0.9999


def test_prefixes_are_those_of_encode_query_and_encode_document(small_bge_m3: Path) -> None:
    reference = library(small_bge_m3).model
    ours = VarlenEmbedder(str(small_bge_m3), OPTIONS)
    texts = [text for text in EDGES if text.isprintable()]
    for mine, theirs in (
        (ours.embed_queries, reference.encode_query),
        (ours.embed_documents, reference.encode_document),
    ):
        assert (mine(texts) * theirs(texts, normalize_embeddings=True)).sum(axis=1).min() >= 0.9999
    assert not np.allclose(ours.embed_queries(["pump"]), ours.embed_documents(["pump"]), atol=1e-3)


def test_texts_are_cut_where_sentence_transformers_cuts_them(embedding_model: Path) -> None:
    reference = library(embedding_model).model
    checkpoint = VarlenEmbedder(str(embedding_model), OPTIONS).checkpoint
    assert checkpoint.max_tokens == reference.max_seq_length
    for text, ids in zip(TEXTS, tokenizer_of(checkpoint).encode(TEXTS, checkpoint.max_tokens), strict=True):
        assert ids.tolist() == reference.preprocess([text])["input_ids"][0].tolist()


def test_pairs_are_cut_where_sentence_transformers_cuts_them(rerank_model: Path) -> None:
    reference = cross_encoder(rerank_model).model
    checkpoint = VarlenReranker(str(rerank_model), OPTIONS).checkpoint
    for query in ("泵 pump?", "word " * 700, ""):
        ids, _ = tokenizer_of(checkpoint).encode_pairs(query, TEXTS[:60], checkpoint.max_tokens)
        for text, mine in zip(TEXTS[:60], ids, strict=True):
            assert mine.tolist() == reference.preprocess([(query, text)])["input_ids"][0].tolist()


@pytest.mark.parametrize("query", ["How many berths has the harbour?", "泵的维护周期是多久？", "", "word " * 40])
def test_rerank_scores_are_those_of_sentence_transformers(rerank_model: Path, query: str) -> None:
    texts = TEXTS[:100]
    ours = VarlenReranker(str(rerank_model), OPTIONS).rerank(query, texts)
    assert ours == pytest.approx(
        SentenceTransformersReranker(str(rerank_model), OPTIONS).rerank(query, texts), abs=1e-4
    )
    assert max(ours) - min(ours) > 0.01


def test_rerank_scores_are_those_of_flagembedding(rerank_model: Path) -> None:
    require_models("FlagEmbedding")
    # With transformers 5 that library turns ids into text and back: empty texts fall out of their pair, and characters
    # that the tokenizer does not know become others.
    query, texts = "泵的维护周期 how long?", [text for text in TEXTS[:100] if text.strip(" \n🙂ﷺ")]
    ours = VarlenReranker(str(rerank_model), OPTIONS).rerank(query, texts)
    assert ours == pytest.approx(FlagTextReranker(str(rerank_model), OPTIONS).rerank(query, texts), abs=1e-4)
