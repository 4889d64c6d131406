"""fixed_size: windows of characters (seed 002)."""

from __future__ import annotations

from rag_cluster.chunking.flat import FlatChunker, Span
from rag_cluster.domain.ports import Tokenizer


class FixedSizeChunker(FlatChunker):
    """Parameters: size and overlap in characters. Cuts anywhere."""

    name = "fixed_size"

    def __init__(self, tokenizer: Tokenizer, *, size: int = 512, overlap: int = 50) -> None:
        super().__init__(tokenizer, {"size": size, "overlap": overlap})

    def spans(self, text: str) -> list[Span]:
        """See FlatChunker."""
        size, overlap = self.parameters["size"], self.parameters["overlap"]
        # A last window that would lie inside the one before it is left out.
        last = max(1, len(text) - overlap)
        return [(at, min(at + size, len(text))) for at in range(0, last, size - overlap)]
