"""Managed corrections and mounts (seed 004): who governs an agent's sources decides their order, not the score."""

from __future__ import annotations

from collections.abc import Sequence

from rag_cluster.domain.retrieval import ReadScope, RetrievalOptions
from rag_cluster.domain.terms import question_terms, terms
from rag_cluster.retrieval.candidates import CORRECTION, Candidate
from rag_cluster.retrieval.search import Channel

SHARED_TERMS = 1 / 3
"""Of the question's words; a correction that holds so many is about it."""


def mark(
    candidates: Sequence[Candidate],
    channels: Sequence[Channel],
    scope: ReadScope,
    query: str,
    options: RetrievalOptions,
) -> list[Candidate]:
    """Mark the corrections that outrank everything; drop those that only their own recall brought and that do not.

    The targeted recall always finds something, and no threshold that suits an embedder keeps what is unrelated away.
    So a correction must be about the question: hold a third of its words, or be nearer to it than halfway between the
    average and the best hit. Otherwise one mounted correction would head the results of every question.
    """
    if options.agent_id is None or not scope.correction_source_ids:
        return list(candidates)
    wanted, bound = question_terms(query), _halfway(channels)
    for candidate in candidates:
        if candidate.correction:
            candidate.outranks = _about(candidate, wanted, bound)
    return [one for one in candidates if one.outranks or one.sources != [CORRECTION]]


def _halfway(channels: Sequence[Channel]) -> float | None:
    dense = next((channel.survivors for channel in channels if channel.name == "dense"), [])
    cosines = [hit.score for hit in dense]
    return (max(cosines) + sum(cosines) / len(cosines)) / 2 if cosines else None


def _about(candidate: Candidate, wanted: Sequence[str], bound: float | None) -> bool:
    if bound is not None and candidate.dense is not None and candidate.dense >= bound:
        return True
    held = set(terms(candidate.row.chunk.content))
    return bool(wanted) and sum(term in held for term in wanted) >= SHARED_TERMS * len(wanted)


def standing(candidate: Candidate, scope: ReadScope, options: RetrievalOptions) -> tuple[bool, int]:
    """What is sorted by before the score, lowest first: (not a correction, minus the mount's priority)."""
    if options.agent_id is None:
        return (False, 0)
    return (not candidate.outranks, -scope.mounts.get(candidate.row.source_id, 0))


def final_order(candidates: Sequence[Candidate], scope: ReadScope, options: RetrievalOptions) -> list[Candidate]:
    """For an agent corrections first, then the mount's priority, then the score; without one the score alone."""
    return sorted(candidates, key=lambda one: (*standing(one, scope, options), -one.score))
