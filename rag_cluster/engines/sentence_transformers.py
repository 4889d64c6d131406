"""The sentence-transformers library behind the ports: any architecture that it knows, and the reference of `varlen`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rag_cluster.engines.checkpoint_engine import (
    CheckpointEmbedder,
    CheckpointEngine,
    CheckpointReranker,
    library_placement,
)
from rag_cluster.engines.encoder.checkpoint import Checkpoint
from rag_cluster.engines.encoder.tokenizer import without_surrogates
from rag_cluster.engines.options import EngineOptions
from rag_cluster.errors import InvalidSettingError


class _SentenceTransformers(CheckpointEngine[Any]):
    engine: ClassVar[str] = "sentence-transformers"
    packages: ClassVar[tuple[str, ...]] = ("torch", "sentence_transformers")


class SentenceTransformersEmbedder(_SentenceTransformers, CheckpointEmbedder[Any]):
    """`Embedder`."""

    @staticmethod
    def _load(checkpoint: Checkpoint, options: EngineOptions) -> Any:
        from sentence_transformers import SentenceTransformer

        return _cut(SentenceTransformer(_place(checkpoint), **_arguments(checkpoint, options)), checkpoint)

    def _vectors(self, texts: list[str]) -> Any:
        cleaned = [without_surrogates(text) for text in texts]
        with self._library() as model:
            # prompt="": the library would add a default of the model's own otherwise.
            return model.encode(
                cleaned, prompt="", batch_size=self._batch_size, convert_to_numpy=True, show_progress_bar=False
            )


class SentenceTransformersReranker(_SentenceTransformers, CheckpointReranker[Any]):
    """`Reranker` over the library's CrossEncoder."""

    @staticmethod
    def _load(checkpoint: Checkpoint, options: EngineOptions) -> Any:
        from sentence_transformers import CrossEncoder

        model = CrossEncoder(_place(checkpoint), **_arguments(checkpoint, options))
        if model.config.num_labels != 1:
            raise InvalidSettingError(
                f"{checkpoint.name} is no reranker: it has {model.config.num_labels} outputs, not one"
            )
        return _cut(model, checkpoint)

    def _logits(self, query: str, texts: Sequence[str]) -> Any:
        import torch

        query = without_surrogates(query)
        pairs = [(query, without_surrogates(text)) for text in texts]
        with self._library() as model:
            return model.predict(
                pairs, batch_size=self._batch_size, activation_fn=torch.nn.Identity(), show_progress_bar=False
            )


def _place(checkpoint: Checkpoint) -> str:
    return checkpoint.model or str(checkpoint.folder)


def _arguments(checkpoint: Checkpoint, options: EngineOptions) -> dict[str, Any]:
    """Which revision, where and in which type, as the library's constructors take them."""
    device, dtype = library_placement(options)
    return {
        "revision": checkpoint.revision if checkpoint.model else None,
        "device": str(device),
        "model_kwargs": {"dtype": dtype},
    }


def _cut(model: Any, checkpoint: Checkpoint) -> Any:
    """The same, with longer texts cut at the checkpoint's limit."""
    model.max_seq_length = checkpoint.max_tokens
    return model
