"""Models: embedders, rerankers, rewriters and generators."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from rag_cluster.domain.answers import GenerationRequest
from rag_cluster.domain.ports.content import Tokenizer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Matrix = npt.NDArray[np.float32]
    """float32, shape (n, dimension), rows of unit norm."""


class Embedder(Protocol):
    """Text -> unit vectors. Synchronous; deployments wrap it in a thread."""

    max_tokens: int
    """Longer texts are truncated or windowed by the engine."""
    tokenizer: Tokenizer

    @property
    def dimension(self) -> int:
        """Numbers in a vector. An endpoint's may be asked for at the first use."""
        ...

    @property
    def fingerprint(self) -> str:
        """Hash of model, revision, dimension, prefixes, normalisation: names an index."""
        ...

    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """float32 (len(texts), dimension), unit norm, with the passage prefix; ModelUnavailableError otherwise."""
        ...

    def embed_queries(self, texts: Sequence[str]) -> Matrix:
        """The same with the query prefix."""
        ...


class AsyncEmbedder(Protocol):
    """The read path's view of an embedder: a Serve handle or a thread around an engine."""

    dimension: int
    fingerprint: str

    async def embed_documents(self, texts: Sequence[str]) -> Matrix: ...

    async def embed_queries(self, texts: Sequence[str]) -> Matrix: ...


class Reranker(Protocol):
    """Cross-encoder scores."""

    name: str

    def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """One score per text, same order; higher is better."""
        ...


class AsyncReranker(Protocol):
    """The read path's view of a reranker."""

    name: str

    async def rerank(self, query: str, texts: Sequence[str]) -> list[float]: ...


class QueryRewriter(Protocol):
    """Says a question in other words, for one more try at finding it."""

    name: str

    async def rewrite(self, query: str) -> str | None:
        """One other wording as plain text, or None without one. ModelUnavailableError."""
        ...


class Generator(Protocol):
    """Writes the answer. Asynchronous, so that a disconnect aborts it."""

    name: str

    def stream(self, request: GenerationRequest) -> AsyncIterator[str]:
        """Text deltas, none empty, whose concatenation is the answer, with [来源 N](citation://N) or
        [Source N](citation://N); none at all where the sources hold no answer. `CutShort()` is the last where the
        limit of tokens ended it.

        ContextOverflowError comes before the first delta. ModelUnavailableError, OverloadedError and
        DeadlineExceededError may come at any time. Closing the iterator, and cancelling who waits for it, stop the
        work.
        """
        ...


class HostedGenerator(Generator, Protocol):
    """A generator whose model this process loads and owns."""

    async def start(self) -> None:
        """Load the model and let it say a word, so that the first answer waits for nothing. InvalidSettingError,
        MissingDependencyError, ModelUnavailableError."""
        ...

    async def check_health(self) -> None:
        """ModelUnavailableError from an engine that is dead or hangs: it does not come back by itself."""
        ...

    def statistics(self) -> Mapping[str, float]:
        """Answers by how they ended, tokens, and what runs now."""
        ...

    def close(self) -> None:
        """Give the model's memory back. Safe without a start, and twice."""
        ...
