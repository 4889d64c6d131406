"""Keyword fallback (seed 004): a keyword-like question that found too little gets its free places filled by its words.

A semantic chunk can be too long for one rare word to weigh in it, or a threshold too high. Then chunks that hold the
question's words as they are come behind what was found, marked as what they are; nothing that was found gives way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from rag_cluster.domain.deadlines import share
from rag_cluster.domain.ports import ChunkSearch
from rag_cluster.domain.retrieval import MAX_PUSHED_DOCUMENTS, Hit, ReadScope
from rag_cluster.domain.terms import keywords, word_count
from rag_cluster.retrieval.access import SecondCheck
from rag_cluster.retrieval.candidates import Candidate
from rag_cluster.retrieval.trace import TraceRecorder

NAME = "keyword_fallback"
SHORT_WORDS = 3
"""A question of so few words is keywords; one of them suffices."""
LONG_WORDS = 24
"""A longer text is not keywords, however dense."""
DENSITY = 0.5
"""Share of a longer question's words that must be keywords."""
LEAST_OF_MANY = 2
"""A longer question's chunk must hold so many: one word alone is there by accident."""
MAX_KEYWORDS = 12
_SPARE = 8
"""So many times more hits than places: the second check, and what is there already, take some."""
MOST_READ = 500
"""Chunks whose text is looked at: as many as PostgreSQL matches within some milliseconds."""


@dataclass(frozen=True, slots=True)
class Keywords:
    """What to look for, and how much of it a chunk must hold."""

    words: tuple[str, ...]
    least: int


def keyword_like(query: str) -> Keywords | None:
    """The keywords of a question that consists of such; None for one in whole sentences."""
    found, words = keywords(query), word_count(query)
    if not found or words > LONG_WORDS:
        return None
    if words <= SHORT_WORDS:
        return Keywords(tuple(found), 1)
    weight = sum(word_count(word) for word in found)
    if len(found) < LEAST_OF_MANY or weight < DENSITY * words:
        return None
    return Keywords(tuple(found[:MAX_KEYWORDS]), LEAST_OF_MANY)


Recall = Callable[[str, int], Awaitable[list[Hit]]]
"""Text, limit -> hits of BM25 in the scope."""


async def fill(
    search: ChunkSearch | None,
    recall: Recall,
    query: str,
    scope: ReadScope,
    check: SecondCheck,
    shown: Sequence[str],
    places: int,
    trace: TraceRecorder,
    *,
    seconds: float,
) -> list[Candidate]:
    """Candidates for the free places, most keywords first, none of the chunks shown already; [] when it cannot be.

    A question that is not keyword-like looks for nothing, nor does one without free places. Of a scope with more chunks
    than are read, only those that BM25 finds first by the keywords are looked at.
    """
    access = scope.filter
    wanted = keyword_like(query) if places > 0 else None
    if search is None:
        trace.note(NAME, "no chunk search configured")
    if wanted is None or search is None:
        return []
    seconds = share(seconds)
    with trace.stage(NAME) as counts:
        try:
            async with asyncio.timeout(seconds):
                limit = len(shown) + places * _SPARE
                among = None
                # Of so many documents not even the chunks are counted.
                if scope.visible_documents > MAX_PUSHED_DOCUMENTS or await search.exceeds(access, MOST_READ):
                    among = [hit.chunk_id for hit in await recall(" ".join(wanted.words), MOST_READ)]
                hits = await search.keyword_hits(access, wanted.words, least=wanted.least, limit=limit, among=among)
                await check.admit(hits)
        except TimeoutError:
            trace.degrade(NAME, f"no answer within {seconds:.3g} s")
            hits = []
        except Exception as error:  # becomes a trace entry
            trace.degrade(NAME, error)
            hits = []
        found = [Candidate.admitted(hit, check) for hit in check.survivors(hits) if hit.chunk_id not in shown]
        for candidate in found:  # its score stays 0: a number of words has nothing in common with the scores above
            candidate.sources.append(NAME)
        counts["keywords"], counts["hits"], counts["out"] = len(wanted.words), len(hits), len(found)
    return found
