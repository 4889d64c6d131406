"""Models behind Serve handles: the read path awaits them, threads without an event loop block on one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from ray.serve.exceptions import BackPressureError
from ray.serve.handle import DeploymentHandle

from rag_cluster.domain.deadlines import share
from rag_cluster.domain.ports import Embedder, Tokenizer
from rag_cluster.errors import ModelUnavailableError, OverloadedError, RagClusterError, told

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Matrix

log = logging.getLogger(__name__)


class HandleEmbedder:
    """AsyncEmbedder over the embedder deployment. `described` states the facts of the same engine; it is not loaded.

    timeout: seconds, and of a request with a deadline at most its `share`. A cancelled call is cancelled there too.
    """

    def __init__(self, handle: DeploymentHandle[Any], described: Embedder, timeout: float) -> None:
        self._handle = handle
        self._timeout = timeout
        self.dimension = described.dimension
        self.fingerprint = described.fingerprint

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """float32 (len(texts), dimension), unit norm."""
        return await self._call("embed_documents", texts)

    async def embed_queries(self, texts: Sequence[str]) -> Matrix:
        """float32 (len(texts), dimension), unit norm."""
        return await self._call("embed_queries", texts)

    async def _call(self, method: str, texts: Sequence[str]) -> Matrix:
        response = getattr(self._handle, method).remote(list(texts))
        vectors: Matrix = await _answer(response, share(self._timeout), "embedder", "vectors")
        return checked(vectors, len(texts), self.dimension)


class HandleReranker:
    """AsyncReranker over the reranker deployment. name: the engine's. timeout: as `HandleEmbedder`."""

    def __init__(self, handle: DeploymentHandle[Any], name: str, timeout: float) -> None:
        self._handle = handle
        self._timeout = timeout
        self.name = name

    async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """One score per text, same order."""
        response = self._handle.rerank.remote(query, list(texts))
        scores: list[float] = await _answer(response, share(self._timeout), "reranker", "scores")
        if len(scores) != len(texts):
            raise ModelUnavailableError(f"The reranker gave {len(scores)} scores for {len(texts)} texts.")
        return scores


class BlockingHandleEmbedder:
    """Embedder over the embedder deployment, for a thread that has no event loop. timeout: seconds of one call."""

    def __init__(self, handle: DeploymentHandle[Any], described: Embedder, timeout: float) -> None:
        self._handle = handle
        self._timeout = timeout
        self.dimension = described.dimension
        self.max_tokens = described.max_tokens
        self.fingerprint = described.fingerprint
        self.tokenizer: Tokenizer = described.tokenizer

    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """float32 (len(texts), dimension), unit norm."""
        return self._call("embed_documents", texts)

    def embed_queries(self, texts: Sequence[str]) -> Matrix:
        """float32 (len(texts), dimension), unit norm."""
        return self._call("embed_queries", texts)

    def _call(self, method: str, texts: Sequence[str]) -> Matrix:
        try:
            vectors: Any = getattr(self._handle, method).remote(list(texts)).result(timeout_s=self._timeout)
        except Exception as error:
            raise model_error(error, "embedder") from error
        return checked(vectors, len(texts), self.dimension)


async def _answer(response: Any, seconds: float, model: str, what: str) -> Any:
    try:
        async with asyncio.timeout(seconds):
            return await response
    except TimeoutError:
        response.cancel()
        raise ModelUnavailableError(f"The {model} gave no {what} within {seconds:.3g} s.") from None
    except asyncio.CancelledError:
        response.cancel()
        raise
    except Exception as error:
        raise model_error(error, model) from error


def model_error(error: Exception, model: str) -> RagClusterError:
    """What a failed call through a handle means. model: "embedder", "reranker", "generator".

    What a replica raised arrives wrapped, as an instance of the same class whose text is the replica's stack trace: the
    error inside is meant. Of an unforeseen one the log has the text.
    """
    cause = getattr(error, "cause", None)
    error = cause if isinstance(cause, Exception) else error
    if isinstance(error, RagClusterError):
        return error
    if isinstance(error, BackPressureError):
        return OverloadedError(f"The {model} is at capacity; retry shortly.", retry_after=1)
    log.error("the %s failed", model, exc_info=error)
    return ModelUnavailableError(f"The {model} failed ({told(error)}).")


def checked(vectors: Matrix, rows: int, dimension: int) -> Matrix:
    """The vectors as float32, contiguous; ModelUnavailableError when there are not so many of that dimension."""
    if vectors.shape != (rows, dimension):
        raise ModelUnavailableError(f"The embedder gave vectors of shape {vectors.shape}, not {(rows, dimension)}.")
    return np.ascontiguousarray(vectors, dtype=np.float32)
