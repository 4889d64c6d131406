"""What the engines over Hugging Face checkpoints share: opened by its configuration, loaded at the first call, cut and
prefixed alike, results checked. An engine adds how it loads and how it computes."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from rag_cluster.engines.encoder.checkpoint import Checkpoint, open_checkpoint
from rag_cluster.engines.encoder.tokenizer import tokenizer_of
from rag_cluster.engines.lazy import Lazy
from rag_cluster.engines.options import EngineOptions, require
from rag_cluster.engines.results import probabilities, unit_rows
from rag_cluster.errors import InvalidSettingError, ModelUnavailableError

if TYPE_CHECKING:
    import torch

    from rag_cluster.domain.ports import Matrix, Tokenizer

M = TypeVar("M")
"""What computes: the library's own object, or our runtime."""


class CheckpointEngine(ABC, Generic[M]):
    """Picklable; the weights are loaded at the first call. Thread-safe: one call computes at a time.

    model: a folder, or a hub id with an optional "@revision". MissingDependencyError without the engine's packages.
    """

    engine: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]
    extra: ClassVar[str] = "models"
    """Of this package, that brings them."""

    def __init__(self, model: str, options: EngineOptions) -> None:
        require(self.engine, *self.packages, extra=self.extra)
        self.checkpoint = self._supported(open_checkpoint(model, options))
        self._tokenizer = tokenizer_of(self.checkpoint)
        self._batch_size, self._threads = options.batch_size, options.threads
        self._model = Lazy(partial(self._load, self.checkpoint, options), model, options.load_timeout)

    @property
    def model(self) -> M:
        """What computes, loaded. ModelUnavailableError."""
        return self._model.get()

    @classmethod
    def _supported(cls, checkpoint: Checkpoint) -> Checkpoint:
        """The same, or InvalidSettingError that says why this engine cannot compute it."""
        return checkpoint

    @staticmethod
    @abstractmethod
    def _load(checkpoint: Checkpoint, options: EngineOptions) -> M: ...

    @contextlib.contextmanager
    def _library(self) -> Iterator[M]:
        """A library's model for one thread at a time, on the threads of the settings, its failures as ours."""
        import torch

        try:
            with self._model.exclusive() as model:
                torch.set_num_threads(self._threads)
                yield model
        except RuntimeError as error:
            raise ModelUnavailableError(f"{self.engine} failed: {error}") from error


class CheckpointEmbedder(CheckpointEngine[M]):
    """`Embedder`. InvalidSettingError when the configuration does not say how long its vectors are."""

    def __init__(self, model: str, options: EngineOptions) -> None:
        super().__init__(model, options)
        self.dimension = self.checkpoint.dimension
        if not self.dimension:
            raise InvalidSettingError(f"The configuration of {model} does not say how long its vectors are")
        self.fingerprint = self.checkpoint.fingerprint()
        self.tokenizer: Tokenizer = self._tokenizer
        prefixes = (self.checkpoint.query_prefix, self.checkpoint.document_prefix)
        self.max_tokens = self.checkpoint.max_tokens - 2 - max(map(self._tokenizer.count, prefixes))

    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """float32 (len(texts), dimension), unit norm, with the model's document prefix."""
        return self._embed(texts, self.checkpoint.document_prefix)

    def embed_queries(self, texts: Sequence[str]) -> Matrix:
        """The same with the query prefix."""
        return self._embed(texts, self.checkpoint.query_prefix)

    def _embed(self, texts: Sequence[str], prefix: str) -> Matrix:
        vectors = self._vectors([prefix + text for text in texts]) if texts else []
        return unit_rows(vectors, len(texts), self.dimension, self.engine)

    @abstractmethod
    def _vectors(self, texts: list[str]) -> Any:
        """(len(texts), dimension) of texts with their prefix, at least one."""


class CheckpointReranker(CheckpointEngine[M]):
    """`Reranker`: scores from 0 to 1, the logistic function of a cross-encoder's only output."""

    def __init__(self, model: str, options: EngineOptions) -> None:
        super().__init__(model, options)
        self.name = f"{self.engine}:{model}"

    def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """One score per text, same order."""
        return probabilities(self._logits(query, texts), len(texts), self.name) if texts else []

    @abstractmethod
    def _logits(self, query: str, texts: Sequence[str]) -> Any:
        """The model's output for each text, at least one."""


def library_placement(options: EngineOptions) -> tuple[torch.device, torch.dtype]:
    """Where a library computes, and in which type. InvalidSettingError for what only varlen knows."""
    from rag_cluster.engines.encoder.runtime import device_of, dtype_of

    if options.dtype == "float8":
        raise InvalidSettingError("float8 is for varlen alone")
    device = device_of(options.device)
    return device, dtype_of(options.dtype, device)
