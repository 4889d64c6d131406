"""The FlagEmbedding library behind the ports: BGEM3FlagModel (its dense vectors) and FlagReranker."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rag_cluster.engines.encoder.checkpoint import Checkpoint, locate, open_checkpoint
from rag_cluster.engines.encoder.tokenizer import tokenizer_of, without_surrogates
from rag_cluster.engines.lazy import Lazy
from rag_cluster.engines.options import EngineOptions, require
from rag_cluster.engines.results import probabilities, unit_rows
from rag_cluster.errors import InvalidSettingError, ModelUnavailableError

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Matrix, Tokenizer

ENGINE = "flagembedding"


class FlagEmbedder:
    """`Embedder` over BGEM3FlagModel. Picklable; loaded at its first call. Thread-safe: one call computes at a time.

    model: a folder, or a hub id with an optional "@revision". InvalidSettingError for another pooling than CLS or mean.
    """

    def __init__(self, model: str, options: EngineOptions) -> None:
        require(ENGINE, "torch", "FlagEmbedding")
        self.checkpoint = open_checkpoint(model, options)
        if self.checkpoint.unsupported:
            raise InvalidSettingError(f"{ENGINE} cannot compute {model}: {self.checkpoint.unsupported}")
        self.dimension = self.checkpoint.dimension
        self.fingerprint = self.checkpoint.fingerprint()
        self.tokenizer: Tokenizer = tokenizer_of(self.checkpoint)
        prefixes = (self.checkpoint.query_prefix, self.checkpoint.document_prefix)
        self.max_tokens = self.checkpoint.max_tokens - 2 - max(map(self.tokenizer.count, prefixes))
        self._batch_size, self._threads = options.batch_size, options.threads
        self._model = Lazy(partial(_load_embedder, self.checkpoint, options), model, options.load_timeout)

    @property
    def model(self) -> Any:
        """The library's own object, loaded."""
        return self._model.get()

    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """float32 (len(texts), dimension), unit norm, with the model's document prefix."""
        return self._embed(texts, self.checkpoint.document_prefix)

    def embed_queries(self, texts: Sequence[str]) -> Matrix:
        """The same with the query prefix."""
        return self._embed(texts, self.checkpoint.query_prefix)

    def _embed(self, texts: Sequence[str], prefix: str) -> Matrix:
        if not texts:
            return unit_rows([], 0, self.dimension, ENGINE)
        import torch

        cleaned = [prefix + without_surrogates(text) for text in texts]
        try:
            with self._model.exclusive() as model:
                torch.set_num_threads(self._threads)
                vectors = model.encode_single_device(
                    cleaned,
                    batch_size=self._batch_size,
                    max_length=self.checkpoint.max_tokens,
                    device=model.target_devices[0],
                )["dense_vecs"]
        except RuntimeError as error:
            raise ModelUnavailableError(f"{ENGINE} failed: {error}") from error
        return unit_rows(vectors, len(texts), self.dimension, ENGINE)


class FlagTextReranker:
    """`Reranker` over FlagReranker: scores from 0 to 1. A question is cut to 3/4 of the model's limit."""

    def __init__(self, model: str, options: EngineOptions) -> None:
        require(ENGINE, "torch", "FlagEmbedding")
        self.checkpoint = open_checkpoint(model, options)
        self.name = f"{ENGINE}:{model}"
        self._threads = options.threads
        self._model = Lazy(partial(_load_reranker, self.checkpoint, options), model, options.load_timeout)

    @property
    def model(self) -> Any:
        """The library's own object, loaded."""
        return self._model.get()

    def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """One score per text, same order."""
        if not texts:
            return []
        import torch

        query = without_surrogates(query)
        pairs = [(query, without_surrogates(text)) for text in texts]
        try:
            with self._model.exclusive() as model:
                torch.set_num_threads(self._threads)
                logits = model.compute_score_single_gpu(pairs, device=model.target_devices[0])
        except RuntimeError as error:
            raise ModelUnavailableError(f"{ENGINE} failed: {error}") from error
        return probabilities(logits, len(texts), self.name)


def _load_embedder(checkpoint: Checkpoint, options: EngineOptions) -> Any:
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


def _load_reranker(checkpoint: Checkpoint, options: EngineOptions) -> Any:
    from FlagEmbedding import FlagReranker

    return FlagReranker(
        str(_folder(checkpoint, options)),
        batch_size=options.batch_size,
        max_length=checkpoint.max_tokens,
        normalize=False,
        **_placement(options),
    )


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

    from rag_cluster.engines.encoder.runtime import device_of, dtype_of

    if options.dtype == "float8":
        raise InvalidSettingError("float8 is for varlen alone")
    device = device_of(options.device)
    return {"devices": str(device), "use_fp16": dtype_of(options.dtype, device) != torch.float32}
