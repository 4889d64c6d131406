"""recursive: blank lines, then lines, then sentences, then characters, merged up to a size (seed 002)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rag_cluster.chunking.flat import FlatChunker, Span, merge, sentence_units
from rag_cluster.domain.ports import Tokenizer

_LEVELS = (re.compile(r"\n\s*\n"), re.compile(r"\n"))


class RecursiveChunker(FlatChunker):
    """Parameters: size and overlap in characters. What fits is not cut; overlap is of whole units."""

    name = "recursive"

    def __init__(self, tokenizer: Tokenizer, *, size: int = 512, overlap: int = 50) -> None:
        super().__init__(tokenizer, {"size": size, "overlap": overlap})

    def spans(self, text: str) -> list[Span]:
        """See FlatChunker."""
        size: int = self.parameters["size"]
        return merge(list(_units(text, 0, len(text), size, 0)), size, self.parameters["overlap"])


def _units(text: str, start: int, end: int, size: int, level: int) -> Iterator[Span]:
    if end - start <= size:
        yield start, end
    elif level == len(_LEVELS):
        yield from sentence_units(text, size, start, end)
    else:
        at = start
        for match in _LEVELS[level].finditer(text, start, end):
            yield from _units(text, at, match.end(), size, level + 1)
            at = match.end()
        if at < end:
            yield from _units(text, at, end, size, level + 1)
