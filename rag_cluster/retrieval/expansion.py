"""Candidates become results; Small2Big merges the children of one parent into their parent's text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rag_cluster.domain.documents import SourceKind
from rag_cluster.domain.retrieval import EvidenceRow, RetrievalMode, RetrievalResult


@dataclass(slots=True)
class Candidate:
    """A chunk that passed the second check, with every score it collected."""

    row: EvidenceRow
    dense: float | None = None
    sparse: float | None = None
    fusion: float | None = None
    rerank: float | None = None
    score: float = 0.0
    sources: list[str] = field(default_factory=list)

    @property
    def chunk_id(self) -> str:
        """Id of the chunk."""
        return self.row.chunk.id

    @property
    def correction(self) -> bool:
        """Whether it stems from a managed correction."""
        return self.row.source_kind is SourceKind.MANAGED_CORRECTION


def expand(
    candidates: Sequence[Candidate], top_k: int, *, expand_parents: bool, mode: RetrievalMode
) -> tuple[RetrievalResult, ...]:
    """The first top_k distinct parents of sorted candidates, each with the children met on the way.

    Children of one parent merge into the place of the best of them; the places that this frees go to the next
    candidates. Without expansion, or for a chunk without a parent, every chunk stands for itself.
    """
    groups: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        parent = candidate.row.parent if expand_parents else None
        key = parent.id if parent is not None else candidate.chunk_id
        if key in groups:
            groups[key].append(candidate)
        elif len(groups) < top_k:
            groups[key] = [candidate]
        else:
            break
    return tuple(_result(group, expand_parents=expand_parents, mode=mode) for group in groups.values())


def _result(group: Sequence[Candidate], *, expand_parents: bool, mode: RetrievalMode) -> RetrievalResult:
    best = group[0]
    row, chunk = best.row, best.row.chunk
    parent = row.parent if expand_parents else None
    in_order = sorted((candidate.row.chunk for candidate in group), key=lambda found: found.index)
    assets = {asset.id: asset for candidate in group for asset in candidate.row.assets}
    return RetrievalResult(
        chunk_id=chunk.id,
        document_id=chunk.document_id,
        version=chunk.version,
        knowledge_base_id=chunk.knowledge_base_id,
        filename=row.filename,
        content=parent.text if parent is not None else chunk.text,
        matched_content=chunk.text,
        score=best.score,
        dense_score=best.dense,
        sparse_score=best.sparse,
        fusion_score=best.fusion,
        rerank_score=best.rerank,
        retrieval_sources=tuple(dict.fromkeys(name for candidate in group for name in candidate.sources)),
        heading_path=chunk.locator.heading_path,
        locator=chunk.locator,
        context_locator=parent.locator if parent is not None else chunk.locator,
        context_chunk_ids=tuple(found.id for found in in_order),
        content_types=tuple(dict.fromkeys(kind for found in in_order for kind in found.content_types)),
        assets=tuple(assets.values()),
        source_id=row.source_id,
        source_kind=row.source_kind,
        source_name=row.source_name,
        source_priority=row.source_priority,
        document_origin=row.uri,
        retrieval_mode=mode.value,
        matches=tuple(candidate.row.chunk for candidate in group),
        metadata=row.document_metadata,
    )
