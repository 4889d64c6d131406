"""Candidates become results; Small2Big merges the children of one parent into their parent's text, and neighbours that
have no parent into one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rag_cluster.domain.blocks import SourceLocator
from rag_cluster.domain.chunks import Chunk
from rag_cluster.domain.locators import merge_locators
from rag_cluster.domain.retrieval import RetrievalResult
from rag_cluster.retrieval.candidates import Candidate
from rag_cluster.retrieval.diversity import MAX_COPIES, paragraph
from rag_cluster.retrieval.neighbours import adjoin, merged_text


def expand(
    candidates: Sequence[Candidate],
    top_k: int,
    *,
    expand_parents: bool,
    mode: str,
    taken: Sequence[RetrievalResult] = (),
) -> tuple[RetrievalResult, ...]:
    """The first top_k distinct parents of sorted candidates, each with the children met on the way.

    Children of one parent merge into the place of the best of them, and so do neighbours of one document that have no
    parent; the places that this frees go to the next candidates, and so do those of third copies. Without expansion
    every chunk stands for itself. taken: results that are there already: their parents are not shown again, their texts
    count as copies.
    """
    groups: dict[str, list[Candidate]] = {}
    copies = Counter(paragraph(result.content) for result in taken)
    closed = {_key(result.matches[0], expand_parents) for result in taken if result.matches}
    for candidate in candidates:
        key = _key(candidate.row.chunk, expand_parents and candidate.row.parent is not None)
        if key in closed:
            continue
        places = [key] if key in groups else _neighbours(candidate, groups) if expand_parents else []
        if places:
            first, *others = places
            groups[first].append(candidate)
            for other in others:
                groups[first] += groups.pop(other)
            continue
        if len(groups) == top_k:
            break
        parent = candidate.row.parent if expand_parents else None
        text = candidate.copy_key if parent is None else paragraph(parent.text)
        copies[text] += 1
        if copies[text] <= MAX_COPIES:
            groups[key] = [candidate]
        else:
            closed.add(key)
    return tuple(_result(group, expand_parents=expand_parents, mode=mode) for group in groups.values())


def _neighbours(candidate: Candidate, groups: Mapping[str, Sequence[Candidate]]) -> list[str]:
    """The groups that it joins, best first: one, or the two between which it stands."""
    chunk = candidate.row.chunk
    if chunk.parent_id is not None:
        return []
    found: list[str] = []
    joined = [chunk]
    for key, group in groups.items():
        chunks = [one.row.chunk for one in group]
        if adjoin(joined, chunks):
            found.append(key)
            joined += chunks
    return found


def _key(chunk: Chunk, expand_parents: bool) -> str:
    return chunk.parent_id if expand_parents and chunk.parent_id is not None else chunk.id


def _result(group: Sequence[Candidate], *, expand_parents: bool, mode: str) -> RetrievalResult:
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
        content=parent.text if parent is not None else merged_text(in_order),
        matched_content=chunk.text,
        score=best.score,
        dense_score=best.dense,
        sparse_score=best.sparse,
        fusion_score=best.fusion,
        rerank_score=best.rerank,
        retrieval_sources=tuple(dict.fromkeys(name for candidate in group for name in candidate.sources)),
        heading_path=chunk.locator.heading_path,
        locator=chunk.locator,
        context_locator=parent.locator if parent is not None else _around(in_order),
        context_chunk_ids=tuple(found.id for found in in_order),
        content_types=tuple(dict.fromkeys(kind for found in in_order for kind in found.content_types)),
        assets=tuple(assets.values()),
        source_id=row.source_id,
        source_kind=row.source_kind,
        source_name=row.source_name,
        source_priority=row.source_priority,
        document_origin=row.uri,
        retrieval_mode=mode,
        matches=tuple(candidate.row.chunk for candidate in group),
        metadata=row.document_metadata,
    )


def _around(chunks: Sequence[Chunk]) -> SourceLocator:
    return merge_locators([chunk.locator for chunk in chunks], chunks[0].locator.heading_path)
