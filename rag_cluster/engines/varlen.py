"""The engine for BERT and XLM-RoBERTa models (bge-m3, bge, e5, MiniLM, bge-reranker): no padding on any machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rag_cluster.engines.encoder.checkpoint import Checkpoint, open_checkpoint
from rag_cluster.engines.encoder.packing import Encoded, packs, slices
from rag_cluster.engines.encoder.tokenizer import EncoderTokenizer, tokenizer_of
from rag_cluster.engines.lazy import Lazy
from rag_cluster.engines.options import EngineOptions, require
from rag_cluster.engines.results import probabilities, unit_rows
from rag_cluster.errors import InvalidSettingError

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Matrix, Tokenizer
    from rag_cluster.engines.encoder.runtime import Runtime

PACKAGES = ("torch", "tokenizers", "safetensors", "huggingface_hub")
_SLICE = 1024
"""Texts that are tokenised in one call, while a GPU computes those before."""


class VarlenEmbedder:
    """`Embedder`. Picklable; the weights are loaded at the first call. Thread-safe: one call computes at a time.

    model: a Hugging Face folder, or hub id with an optional "@revision". InvalidSettingError for other models.
    """

    def __init__(self, model: str, options: EngineOptions) -> None:
        require("varlen", *PACKAGES)
        self.checkpoint = supported(open_checkpoint(model, options))
        self.dimension = self.checkpoint.dimension
        self.fingerprint = self.checkpoint.fingerprint()
        self._tokenizer = tokenizer_of(self.checkpoint)
        self.tokenizer: Tokenizer = self._tokenizer
        prefixes = (self.checkpoint.query_prefix, self.checkpoint.document_prefix)
        self.max_tokens = self.checkpoint.max_tokens - 2 - max(map(self._tokenizer.count, prefixes))
        self._runtime = Lazy(partial(_load_embedder, self.checkpoint, options), model, options.load_timeout)

    @property
    def runtime(self) -> Runtime:
        """The loaded model."""
        return self._runtime.get()

    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """float32 (len(texts), dimension), unit norm, with the model's document prefix."""
        return self._embed(texts, self.checkpoint.document_prefix)

    def embed_queries(self, texts: Sequence[str]) -> Matrix:
        """The same with the query prefix."""
        return self._embed(texts, self.checkpoint.query_prefix)

    def _embed(self, texts: Sequence[str], prefix: str) -> Matrix:
        if not texts:
            return unit_rows([], 0, self.dimension, "varlen")
        runtime = self.runtime
        encoded = _encoded(self._tokenizer, [prefix + text for text in texts], self.checkpoint.max_tokens)
        vectors = runtime.run(packs(encoded, runtime.tokens), len(texts))
        return unit_rows(vectors, len(texts), self.dimension, "varlen")


class VarlenReranker:
    """`Reranker`: scores from 0 to 1, the logistic function of a cross-encoder's only output. As `VarlenEmbedder`."""

    def __init__(self, model: str, options: EngineOptions) -> None:
        require("varlen", *PACKAGES)
        self.checkpoint = supported(open_checkpoint(model, options))
        self.name = f"varlen:{model}"
        self._tokenizer = tokenizer_of(self.checkpoint)
        self._runtime = Lazy(partial(_load_reranker, self.checkpoint, options), model, options.load_timeout)

    @property
    def runtime(self) -> Runtime:
        """The loaded model."""
        return self._runtime.get()

    def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """One score per text, same order."""
        if not texts:
            return []
        runtime = self.runtime
        encoded = _encoded_pairs(self._tokenizer, query, texts, self.checkpoint.max_tokens)
        logits = runtime.run(packs(encoded, runtime.tokens), len(texts))
        return probabilities(logits, len(texts), self.name)


def supported(checkpoint: Checkpoint) -> Checkpoint:
    """The same checkpoint, or InvalidSettingError that says why varlen cannot compute it."""
    if checkpoint.unsupported:
        raise InvalidSettingError(
            f"varlen cannot compute {checkpoint.name}: {checkpoint.unsupported}; sentence-transformers: may"
        )
    return checkpoint


def _encoded(tokenizer: EncoderTokenizer, texts: Sequence[str], max_tokens: int) -> Iterator[list[Encoded]]:
    for rows in slices([len(text) for text in texts], _SLICE):
        ids = tokenizer.encode([texts[row] for row in rows], max_tokens)
        yield [Encoded(row, one) for row, one in zip(rows, ids, strict=True)]


def _encoded_pairs(
    tokenizer: EncoderTokenizer, query: str, texts: Sequence[str], max_tokens: int
) -> Iterator[list[Encoded]]:
    for rows in slices([len(text) for text in texts], _SLICE):
        ids, types = tokenizer.encode_pairs(query, [texts[row] for row in rows], max_tokens)
        yield [Encoded(row, one, kinds) for row, one, kinds in zip(rows, ids, types, strict=True)]


def _load_embedder(checkpoint: Checkpoint, options: EngineOptions) -> Runtime:
    from rag_cluster.engines.encoder.loading import embedder_runtime

    return embedder_runtime(checkpoint, options)


def _load_reranker(checkpoint: Checkpoint, options: EngineOptions) -> Runtime:
    from rag_cluster.engines.encoder.loading import reranker_runtime

    return reranker_runtime(checkpoint, options)
