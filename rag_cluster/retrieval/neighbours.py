"""Chunks without a parent: neighbours of one document read as one text, in which nothing stands twice."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from rag_cluster.domain.chunks import Chunk

MERGED_CHARS = 5000
"""Of one merged text, about: as long as a parent. Chunks beyond it stand for themselves."""
MAX_OVERLAP = 2000
LEAST_OVERLAP = 8
"""Characters. What is shorter may end one text and begin the next one by chance."""
_TABLE_HEAD = re.compile(r"\|[^\n]*\|[ \t]*\n\|(?:[ \t]*:?-+:?[ \t]*\|)+[ \t]*\n")


def adjoin(some: Sequence[Chunk], others: Sequence[Chunk]) -> bool:
    """Whether two runs of chunks stand next to each other in one version, and are not too long together."""
    one, other = some[0], others[0]
    if (one.document_id, one.version) != (other.document_id, other.version) or other.parent_id is not None:
        return False
    near = any(abs(left.index - right.index) == 1 for left in some for right in others)
    return near and sum(len(chunk.text) for chunk in (*some, *others)) <= MERGED_CHARS


def merged_text(chunks: Sequence[Chunk]) -> str:
    """The texts of consecutive chunks, in order: without what one repeats of the one before it, and without the table
    head that it repeats."""
    text = chunks[0].text
    for before, chunk in itertools.pairwise(chunks):
        text = _joined(text, before.text, chunk.text)
    return text


def _joined(text: str, before: str, following: str) -> str:
    overlap = _overlap(before, following)
    if overlap:
        return text + following[overlap:]
    head = _TABLE_HEAD.match(following)
    if head is not None and head[0] in before:
        return text + "\n" + following[head.end() :]
    return text + "\n" + following


def _overlap(before: str, following: str) -> int:
    for length in range(min(len(before), len(following), MAX_OVERLAP), LEAST_OVERLAP - 1, -1):
        if before.endswith(following[:length]):
            return length
    return 0
