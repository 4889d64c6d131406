"""The engine for BERT and XLM-RoBERTa models (bge-m3, bge, e5, MiniLM, bge-reranker): no padding on any machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from rag_cluster.engines.checkpoint_engine import CheckpointEmbedder, CheckpointEngine, CheckpointReranker
from rag_cluster.engines.encoder.checkpoint import Checkpoint
from rag_cluster.engines.encoder.packing import Encoded, packs, slices
from rag_cluster.engines.encoder.tokenizer import EncoderTokenizer
from rag_cluster.engines.options import EngineOptions
from rag_cluster.errors import InvalidSettingError

if TYPE_CHECKING:
    from rag_cluster.engines.encoder.runtime import Runtime

_SLICES = (64, 1024)
"""Texts that are tokenised in one call, while a GPU computes those before: of the first call, and at most."""


class _Varlen(CheckpointEngine["Runtime"]):
    engine: ClassVar[str] = "varlen"
    packages: ClassVar[tuple[str, ...]] = ("torch", "tokenizers", "safetensors", "huggingface_hub")

    @classmethod
    def _supported(cls, checkpoint: Checkpoint) -> Checkpoint:
        return supported(checkpoint)


class VarlenEmbedder(_Varlen, CheckpointEmbedder["Runtime"]):
    """`Embedder`. InvalidSettingError for models of other kinds."""

    @staticmethod
    def _load(checkpoint: Checkpoint, options: EngineOptions) -> Runtime:
        from rag_cluster.engines.encoder.loading import embedder_runtime

        return embedder_runtime(checkpoint, options)

    def _vectors(self, texts: list[str]) -> Any:
        runtime = self.model
        encoded = _encoded(self._tokenizer, texts, self.checkpoint.max_tokens)
        return runtime.run(packs(encoded, runtime.tokens), len(texts))


class VarlenReranker(_Varlen, CheckpointReranker["Runtime"]):
    """`Reranker`. InvalidSettingError for models of other kinds."""

    @staticmethod
    def _load(checkpoint: Checkpoint, options: EngineOptions) -> Runtime:
        from rag_cluster.engines.encoder.loading import reranker_runtime

        return reranker_runtime(checkpoint, options)

    def _logits(self, query: str, texts: Sequence[str]) -> Any:
        runtime = self.model
        encoded = _encoded_pairs(self._tokenizer, query, texts, self.checkpoint.max_tokens)
        return runtime.run(packs(encoded, runtime.tokens), len(texts))


def supported(checkpoint: Checkpoint) -> Checkpoint:
    """The same checkpoint, or InvalidSettingError that says why varlen cannot compute it."""
    if checkpoint.unsupported:
        raise InvalidSettingError(
            f"varlen cannot compute {checkpoint.name}: {checkpoint.unsupported}; sentence-transformers: may"
        )
    return checkpoint


def _encoded(tokenizer: EncoderTokenizer, texts: Sequence[str], max_tokens: int) -> Iterator[list[Encoded]]:
    for rows in slices([len(text) for text in texts], *_SLICES):
        ids = tokenizer.encode([texts[row] for row in rows], max_tokens)
        yield [Encoded(row, one) for row, one in zip(rows, ids, strict=True)]


def _encoded_pairs(
    tokenizer: EncoderTokenizer, query: str, texts: Sequence[str], max_tokens: int
) -> Iterator[list[Encoded]]:
    for rows in slices([len(text) for text in texts], *_SLICES):
        ids, types = tokenizer.encode_pairs(query, [texts[row] for row in rows], max_tokens)
        yield [Encoded(row, one, kinds) for row, one, kinds in zip(rows, ids, types, strict=True)]
