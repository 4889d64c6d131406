"""sentence: whole sentences up to a size and a number (seed 002)."""

from __future__ import annotations

from rag_cluster.chunking.flat import FlatChunker, Span, merge, sentence_units
from rag_cluster.domain.ports import Tokenizer


class SentenceChunker(FlatChunker):
    """Parameters: size in characters and max_sentences. A sentence longer than the size is cut."""

    name = "sentence"

    def __init__(self, tokenizer: Tokenizer, *, size: int = 512, max_sentences: int = 10) -> None:
        super().__init__(tokenizer, {"size": size, "max_sentences": max_sentences})

    def spans(self, text: str) -> list[Span]:
        """See FlatChunker."""
        size = self.parameters["size"]
        return merge(sentence_units(text, size), size, most=self.parameters["max_sentences"])
