"""paragraph: whole paragraphs up to a size and a number (seed 002)."""

from __future__ import annotations

import re

from rag_cluster.chunking.flat import FlatChunker, Span, merge, sentence_units
from rag_cluster.domain.ports import Tokenizer

_BLANK_LINES = re.compile(r"\n\s*\n")


class ParagraphChunker(FlatChunker):
    """Parameters: size in characters and max_paragraphs. A paragraph longer than the size is cut at sentences."""

    name = "paragraph"

    def __init__(self, tokenizer: Tokenizer, *, size: int = 1024, max_paragraphs: int = 5) -> None:
        super().__init__(tokenizer, {"size": size, "max_paragraphs": max_paragraphs})

    def spans(self, text: str) -> list[Span]:
        """See FlatChunker."""
        size = self.parameters["size"]
        chunks: list[Span] = []
        run: list[Span] = []
        breaks = [match.span() for match in _BLANK_LINES.finditer(text)]
        starts = [0, *(end for _, end in breaks)]
        for start, end in zip(starts, [*(start for start, _ in breaks), len(text)], strict=True):
            if end - start <= size:
                run.append((start, end))
                continue
            chunks.extend(merge(run, size, most=self.parameters["max_paragraphs"]))
            chunks.extend(merge(sentence_units(text, size, start, end), size))
            run = []
        return chunks + merge(run, size, most=self.parameters["max_paragraphs"])
