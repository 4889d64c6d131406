"""The fake embedder beside the real one: hashed terms, so that similar texts are near, at no cost."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from rag_cluster.domain import ids
from rag_cluster.domain.terms import terms
from rag_cluster.engines.tokenizers import RegexTokenizer
from rag_cluster.errors import InvalidSettingError

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Matrix, Tokenizer


@lru_cache(maxsize=1 << 16)
def _hash(term: str) -> int:
    return zlib.crc32(term.encode("utf-8", "replace"))


class HashEmbedder:
    """A bag of hashed terms (English stems, Chinese bigrams), signed, damped by the square root of their frequency.

    Deterministic across processes and machines. Texts that share no term are about orthogonal. A text without terms
    is the first basis vector.
    """

    max_tokens = 512

    def __init__(self, dimension: int = 256) -> None:
        if dimension < 2:
            raise InvalidSettingError(f"The hash embedder needs a dimension of at least 2, not {dimension}")
        self.dimension = dimension
        self.fingerprint = ids.fingerprint(model="hash", revision="1", dimension=dimension)
        self.tokenizer: Tokenizer = RegexTokenizer()

    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """float32 (len(texts), dimension), unit norm."""
        out = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in zip(out, texts, strict=True):
            self._fill(row, text)
        return out

    def embed_queries(self, texts: Sequence[str]) -> Matrix:
        """The same: there is no prefix."""
        return self.embed_documents(texts)

    def _fill(self, row: Matrix, text: str) -> None:
        hashes = np.fromiter(map(_hash, terms(text)), dtype=np.int64)
        distinct, counts = np.unique(hashes, return_counts=True)
        # Bit 31 is the sign, the rest chooses the place.
        signs = np.where(distinct >> 31, np.float32(-1), np.float32(1))
        places = (distinct & 0x7FFFFFFF) % self.dimension
        row += np.bincount(places, weights=signs * np.sqrt(counts), minlength=self.dimension).astype(np.float32)
        norm = float(np.linalg.norm(row))
        if norm > 0:
            row /= norm
        else:
            row[0] = 1.0
