"""Candidates: chunks that passed the second check, with every score that they collected on the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

from rag_cluster.domain.documents import SourceKind
from rag_cluster.domain.retrieval import EvidenceRow, Hit, RetrievalMode, RetrievalOptions
from rag_cluster.retrieval.access import SecondCheck
from rag_cluster.retrieval.diversity import without_copies
from rag_cluster.retrieval.fusion import RANK_CONSTANT, reciprocal_rank_fusion
from rag_cluster.retrieval.search import Channel

CORRECTION = "correction"


@dataclass(slots=True)
class Candidate:
    """A chunk that passed the second check, with every score it collected."""

    row: EvidenceRow
    copy_key: str
    """What its copies have in common with it (`diversity.paragraph`)."""
    dense: float | None = None
    sparse: float | None = None
    fusion: float | None = None
    rerank: float | None = None
    score: float = 0.0
    sources: list[str] = field(default_factory=list)
    outranks: bool = False
    """A managed correction that this question is about: before everything else, for an agent."""

    @classmethod
    def admitted(cls, hit: Hit, check: SecondCheck) -> Self:
        """Of a hit that the second check admitted."""
        return cls(check.row(hit.chunk_id), check.copy_key(hit.chunk_id))

    @property
    def chunk_id(self) -> str:
        """Id of the chunk."""
        return self.row.chunk.id

    @property
    def correction(self) -> bool:
        """Whether it stems from a managed correction."""
        return self.row.source_kind is SourceKind.MANAGED_CORRECTION


def collect(channels: Sequence[Channel], check: SecondCheck, options: RetrievalOptions) -> list[Candidate]:
    """Every survivor of the working channels with its scores, in fused order.

    dense and sparse are those of the question itself where both it and its rewriting found the chunk.
    """
    candidates: dict[str, Candidate] = {}
    for channel in channels:
        for hit in channel.survivors:
            candidate = candidates.get(hit.chunk_id)
            if candidate is None:
                candidate = candidates[hit.chunk_id] = Candidate.admitted(hit, check)
            candidate.sources.append(channel.name)
            if channel.cosine and candidate.dense is None:
                candidate.dense = hit.score
            elif not channel.cosine and candidate.sparse is None:
                candidate.sparse = hit.score
    fused = _fused(channels, options.candidate_k)
    single = sum(not channel.targeted for channel in channels) == 1
    for chunk_id, candidate in candidates.items():
        candidate.fusion = fused[chunk_id]
        candidate.score = _score(candidate, options.mode if single else RetrievalMode.HYBRID)
    # Ties are common between the first ranks of two channels; the cosine, then the id, makes the order stable.
    return sorted(
        candidates.values(),
        key=lambda one: (-one.score, -(one.dense if one.dense is not None else -1.0), one.chunk_id),
    )


def _fused(channels: Sequence[Channel], width: int) -> dict[str, float]:
    """RRF over the general rankings. What a targeted one alone found stands behind these: a second look at a part of
    the chunks must not count as a second opinion on them."""
    general = [channel for channel in channels if not (channel.targeted or channel.foreign)]
    fused = reciprocal_rank_fusion([hit.chunk_id for hit in channel.survivors] for channel in general)
    for channel in channels:
        if channel.foreign:
            # No BM25 finds what is in another language: one vote stands for as many as a chunk in the question's own
            # can get, a rank behind it.
            for rank, hit in enumerate(channel.survivors, start=1):
                vote = len(general) / (RANK_CONSTANT + rank + 1)
                fused[hit.chunk_id] = max(fused.get(hit.chunk_id, 0.0), vote)
    for channel in channels:
        if channel.targeted:
            for rank, hit in enumerate(channel.survivors, start=1):
                fused.setdefault(hit.chunk_id, 1.0 / (RANK_CONSTANT + width + rank))
    return fused


def _score(candidate: Candidate, mode: RetrievalMode) -> float:
    """With one ranking its own score; several have only their ranks in common."""
    scores = {RetrievalMode.DENSE: candidate.dense, RetrievalMode.SPARSE: candidate.sparse}
    return scores.get(mode, candidate.fusion) or 0.0


def above_threshold(
    candidates: Sequence[Candidate], channels: Sequence[Channel], options: RetrievalOptions
) -> list[Candidate]:
    """score_threshold is a cosine, in sparse mode a BM25 score; RRF sums are ranks and bear no threshold.

    In hybrid mode a candidate that BM25 alone found is at most as near as the last dense hit, which stands for it;
    when the dense channel failed nothing is known about cosines and nothing is dropped.
    """
    threshold = options.score_threshold
    if threshold is None:
        return list(candidates)
    if options.mode is RetrievalMode.SPARSE:
        return [one for one in candidates if (one.sparse or 0.0) >= threshold]
    dense = next((channel for channel in channels if channel.name == "dense"), None)
    if dense is None or dense.error is not None:
        return list(candidates)
    bound = min((hit.score for hit in dense.survivors), default=-math.inf)
    return [one for one in candidates if (one.dense if one.dense is not None else bound) >= threshold]


def cut(candidates: Sequence[Candidate], width: int, standing: Callable[[Candidate], object]) -> list[Candidate]:
    """The first `width` candidates and every correction, without third copies: a reranker need not read those.

    standing: what sorts copies differently (a mount's priority), so that the copy that would come first is kept.
    """
    distinct = without_copies(candidates, lambda one: (one.copy_key, standing(one)))
    return [one for rank, one in enumerate(distinct) if rank < width or CORRECTION in one.sources]
