"""The sentence-transformers library behind the ports: any architecture that it knows, and the reference of `varlen`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rag_cluster.engines.encoder.checkpoint import Checkpoint, open_checkpoint
from rag_cluster.engines.encoder.tokenizer import tokenizer_of, without_surrogates
from rag_cluster.engines.lazy import Lazy
from rag_cluster.engines.options import EngineOptions, require
from rag_cluster.engines.results import probabilities, unit_rows
from rag_cluster.errors import InvalidSettingError, ModelUnavailableError

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Matrix, Tokenizer

ENGINE = "sentence-transformers"


class SentenceTransformersEmbedder:
    """`Embedder`. Picklable; loaded at its first call. Thread-safe: one call computes at a time.

    model: a folder, or a hub id with an optional "@revision".
    """

    def __init__(self, model: str, options: EngineOptions) -> None:
        require(ENGINE, "torch", "sentence_transformers")
        self.checkpoint = open_checkpoint(model, options)
        self.dimension = self.checkpoint.dimension
        if not self.dimension:
            raise InvalidSettingError(f"The configuration of {model} does not say how long its vectors are")
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
                # prompt="": the library would add a default of the model's own otherwise.
                vectors = model.encode(
                    cleaned, prompt="", batch_size=self._batch_size, convert_to_numpy=True, show_progress_bar=False
                )
        except RuntimeError as error:
            raise ModelUnavailableError(f"{ENGINE} failed: {error}") from error
        return unit_rows(vectors, len(texts), self.dimension, ENGINE)


class SentenceTransformersReranker:
    """`Reranker` over the library's CrossEncoder: scores from 0 to 1."""

    def __init__(self, model: str, options: EngineOptions) -> None:
        require(ENGINE, "torch", "sentence_transformers")
        self.checkpoint = open_checkpoint(model, options)
        self.name = f"{ENGINE}:{model}"
        self._batch_size, self._threads = options.batch_size, options.threads
        self._model = Lazy(partial(_load_reranker, self.checkpoint, options), model, options.load_timeout)

    @property
    def model(self) -> Any:
        """The library's own object, loaded."""
        return self._model.get()

    def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """One score per text, same order."""
        import torch

        if not texts:
            return []
        query = without_surrogates(query)
        pairs = [(query, without_surrogates(text)) for text in texts]
        try:
            with self._model.exclusive() as model:
                torch.set_num_threads(self._threads)
                logits = model.predict(
                    pairs, batch_size=self._batch_size, activation_fn=torch.nn.Identity(), show_progress_bar=False
                )
        except RuntimeError as error:
            raise ModelUnavailableError(f"{ENGINE} failed: {error}") from error
        return probabilities(logits, len(texts), self.name)


def _load_embedder(checkpoint: Checkpoint, options: EngineOptions) -> Any:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(*_place(checkpoint), revision=_revision(checkpoint), **_placement(options))
    model.max_seq_length = checkpoint.max_tokens
    return model


def _load_reranker(checkpoint: Checkpoint, options: EngineOptions) -> Any:
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(*_place(checkpoint), revision=_revision(checkpoint), **_placement(options))
    if model.config.num_labels != 1:
        raise InvalidSettingError(
            f"{checkpoint.name} is no reranker: it has {model.config.num_labels} outputs, not one"
        )
    model.max_seq_length = checkpoint.max_tokens
    return model


def _place(checkpoint: Checkpoint) -> tuple[str]:
    return (checkpoint.model or str(checkpoint.folder),)


def _revision(checkpoint: Checkpoint) -> str | None:
    return checkpoint.revision if checkpoint.model else None


def _placement(options: EngineOptions) -> dict[str, Any]:
    """device and weights' type, as the library takes them."""
    from rag_cluster.engines.encoder.runtime import device_of, dtype_of

    if options.dtype == "float8":
        raise InvalidSettingError("float8 is for varlen alone")
    device = device_of(options.device)
    return {"device": str(device), "model_kwargs": {"dtype": dtype_of(options.dtype, device)}}
