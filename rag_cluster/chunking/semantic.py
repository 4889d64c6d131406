"""semantic: a new chunk where neighbouring sentences are unlike each other (seed 002)."""

from __future__ import annotations

from rag_cluster.chunking.flat import FlatChunker, Span, sentence_units
from rag_cluster.domain.ports import Embedder, Tokenizer


class SemanticChunker(FlatChunker):
    """Parameters: threshold (a cosine), min_size and max_size in characters.

    A chunk ends before a sentence whose cosine with the sentence before it is below the threshold, once it has
    min_size characters, and always before it would pass max_size. Cosines of E5 models are high; raise the threshold
    to about 0.85 for them.
    """

    name = "semantic"

    def __init__(
        self,
        tokenizer: Tokenizer,
        embedder: Embedder,
        *,
        threshold: float = 0.7,
        min_size: int = 200,
        max_size: int = 1000,
    ) -> None:
        super().__init__(tokenizer, {"threshold": threshold, "min_size": min_size, "max_size": max_size})
        # Where it cuts depends on the vectors.
        self.parameters = {**self.parameters, "embedder": embedder.fingerprint}
        self._embedder = embedder

    def spans(self, text: str) -> list[Span]:
        """See FlatChunker."""
        units = sentence_units(text, self.parameters["max_size"])
        if not units:
            return []
        vectors = self._embedder.embed_documents([text[start:end] for start, end in units])
        likeness = (vectors[1:] * vectors[:-1]).sum(axis=1)
        chunks: list[Span] = []
        first, last = units[0]
        for (start, end), cosine in zip(units[1:], likeness, strict=True):
            unlike = cosine < self.parameters["threshold"] and last - first >= self.parameters["min_size"]
            if unlike or end - first > self.parameters["max_size"]:
                chunks.append((first, last))
                first = start
            last = end
        return [*chunks, (first, last)]
