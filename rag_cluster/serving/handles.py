"""Embedders behind Serve handles: the read path awaits one, the upload worker's thread blocks on one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from ray.serve.exceptions import BackPressureError
from ray.serve.handle import DeploymentHandle

from rag_cluster.domain.deadlines import share
from rag_cluster.domain.ports import Embedder, Tokenizer
from rag_cluster.errors import ModelUnavailableError, OverloadedError, RagClusterError

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Matrix


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
        seconds = share(self._timeout)
        try:
            async with asyncio.timeout(seconds):
                vectors: Matrix = await response
        except TimeoutError:
            response.cancel()
            raise ModelUnavailableError(f"The embedder gave no vectors within {seconds:.3g} s.") from None
        except asyncio.CancelledError:
            response.cancel()
            raise
        except Exception as error:
            raise _embedder_error(error) from error
        return _checked(vectors, len(texts), self.dimension)


class BlockingHandleEmbedder:
    """Embedder over the same deployment, for a thread that has no event loop."""

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
            raise _embedder_error(error) from error
        return _checked(vectors, len(texts), self.dimension)


def _embedder_error(error: Exception) -> RagClusterError:
    if isinstance(error, RagClusterError):
        return error
    if isinstance(error, BackPressureError):
        return OverloadedError("The embedder is at capacity; retry shortly.", retry_after=1)
    return ModelUnavailableError(f"The embedder failed: {type(error).__name__}: {error}")


def _checked(vectors: Matrix, rows: int, dimension: int) -> Matrix:
    if vectors.shape != (rows, dimension):
        raise ModelUnavailableError(f"The embedder gave vectors of shape {vectors.shape}, not {(rows, dimension)}.")
    return np.ascontiguousarray(vectors, dtype=np.float32)
