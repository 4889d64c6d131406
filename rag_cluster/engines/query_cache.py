"""Vectors of the questions that were asked last: people ask again, and pages ask for the same twice."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from rag_cluster.domain.ports import AsyncEmbedder, Matrix

MAX_CHARS = 1000
"""Longer questions are not kept: they do not come again, and would take the memory of many."""


class QueryCache:
    """The vectors used last, by embedder fingerprint and text: of another embedder nothing is ever found."""

    def __init__(self, size: int) -> None:
        """size: questions at most; 0 keeps none."""
        self._size = size
        self._vectors: OrderedDict[tuple[str, str], npt.NDArray[np.float32]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._vectors)

    def get(self, fingerprint: str, text: str) -> npt.NDArray[np.float32] | None:
        """The vector, or None."""
        found = self._vectors.get((fingerprint, text))
        if found is not None:
            self._vectors.move_to_end((fingerprint, text))
        return found

    def put(self, fingerprint: str, text: str, vector: npt.NDArray[np.float32]) -> None:
        """Keep it; the one used longest ago goes."""
        if len(text) > MAX_CHARS:
            return
        self._vectors[fingerprint, text] = vector.copy()
        while len(self._vectors) > self._size:
            self._vectors.popitem(last=False)


class CachingEmbedder:
    """AsyncEmbedder that asks another one only for the questions that its cache does not hold. For one event loop."""

    def __init__(self, embedder: AsyncEmbedder, cache: QueryCache) -> None:
        self._embedder = embedder
        self._cache = cache
        self.dimension = embedder.dimension
        self.fingerprint = embedder.fingerprint

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """As the embedder does: nothing is kept."""
        return await self._embedder.embed_documents(texts)

    async def embed_queries(self, texts: Sequence[str]) -> Matrix:
        """float32 (len(texts), dimension), unit norm. What the embedder raises; a failure is not kept."""
        found = {text: vector for text in texts if (vector := self._cache.get(self.fingerprint, text)) is not None}
        missing = [text for text in dict.fromkeys(texts) if text not in found]
        if missing or not texts:
            matrix = await self._embedder.embed_queries(missing)
            if not texts:
                return matrix
            for text, vector in zip(missing, matrix, strict=True):
                self._cache.put(self.fingerprint, text, vector)
                found[text] = vector
        return np.stack([found[text] for text in texts])
