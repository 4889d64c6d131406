"""The FlagEmbedding library behind the ports: BGEM3FlagModel (its dense vectors) and FlagReranker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from rag_cluster.engines.checkpoint_engine import (
    CheckpointEmbedder,
    CheckpointEngine,
    CheckpointReranker,
    library_placement,
)
from rag_cluster.engines.encoder.checkpoint import Checkpoint, locate
from rag_cluster.engines.encoder.tokenizer import without_surrogates
from rag_cluster.engines.options import EngineOptions
from rag_cluster.errors import InvalidSettingError


class _Flag(CheckpointEngine[Any]):
    engine: ClassVar[str] = "flagembedding"
    packages: ClassVar[tuple[str, ...]] = ("torch", "FlagEmbedding")
    extra: ClassVar[str] = "flagembedding"


class FlagEmbedder(_Flag, CheckpointEmbedder[Any]):
    """`Embedder` over BGEM3FlagModel. InvalidSettingError for another pooling than CLS or mean."""

    @classmethod
    def _supported(cls, checkpoint: Checkpoint) -> Checkpoint:
        if checkpoint.unsupported:
            raise InvalidSettingError(f"{cls.engine} cannot compute {checkpoint.name}: {checkpoint.unsupported}")
        return checkpoint

    @staticmethod
    def _load(checkpoint: Checkpoint, options: EngineOptions) -> Any:
        from FlagEmbedding import BGEM3FlagModel

        return BGEM3FlagModel(
            str(_folder(checkpoint, options)),
            pooling_method=checkpoint.pooling,
            batch_size=options.batch_size,
            return_dense=True,
            return_sparse=False,
            return_colbert_vecs=False,
            **_placement(options),
        )

    def _vectors(self, texts: list[str]) -> Any:
        cleaned = [without_surrogates(text) for text in texts]
        with self._library() as model:
            return model.encode_single_device(
                cleaned,
                batch_size=self._batch_size,
                max_length=self.checkpoint.max_tokens,
                device=model.target_devices[0],
            )["dense_vecs"]


class FlagTextReranker(_Flag, CheckpointReranker[Any]):
    """`Reranker` over FlagReranker. A question is cut to 3/4 of the model's limit."""

    @staticmethod
    def _load(checkpoint: Checkpoint, options: EngineOptions) -> Any:
        from FlagEmbedding import FlagReranker

        return FlagReranker(
            str(_folder(checkpoint, options)),
            batch_size=options.batch_size,
            max_length=checkpoint.max_tokens,
            normalize=False,
            **_placement(options),
        )

    def _logits(self, query: str, texts: Sequence[str]) -> Any:
        query = without_surrogates(query)
        pairs = [(query, without_surrogates(text)) for text in texts]
        with self._library() as model:
            return model.compute_score_single_gpu(pairs, device=model.target_devices[0])


def _folder(checkpoint: Checkpoint, options: EngineOptions) -> Path:
    """With weights: the library would download others than the revision asked for."""
    for needed in (("model*.safetensors",), ("pytorch_model*.bin",)):
        folder, _ = locate(checkpoint.name, needed, options.load_timeout)
        if any(folder.glob(needed[0])):
            return folder
    raise InvalidSettingError(f"{checkpoint.name} holds no weights")


def _placement(options: EngineOptions) -> dict[str, Any]:
    """device and weights' type, as the library takes them: it has no bfloat16 for rerankers."""
    import torch

    device, dtype = library_placement(options)
    return {"devices": str(device), "use_fp16": dtype != torch.float32}
