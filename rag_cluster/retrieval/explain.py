"""Why is this chunk not among the results? The rank in every stage, and the first one that lost it.

The query runs as it always does (`Retriever.passage`); what is added only looks: where the chunk stands in what each
stage left, what the second check says when one condition after the other is lifted, and how deep it lies in a channel
that did not reach it. A chunk that the asker may not read is not found, whatever became of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rag_cluster.domain.access import Principal
from rag_cluster.domain.chunks import Chunk
from rag_cluster.domain.documents import Document
from rag_cluster.domain.ports import Analyzer, ChunkIndex, ChunkSearch, Evidence
from rag_cluster.domain.retrieval import (
    Explanation,
    Hit,
    Located,
    Outcome,
    RetrievalMode,
    RetrievalOptions,
    RetrievalRun,
    Standing,
    Target,
)
from rag_cluster.errors import NotFoundError
from rag_cluster.retrieval.candidates import CORRECTION, Candidate
from rag_cluster.retrieval.corrections import final_order
from rag_cluster.retrieval.diversity import MAX_COPIES
from rag_cluster.retrieval.expansion import expand
from rag_cluster.retrieval.keyword_fallback import NAME as FALLBACK
from rag_cluster.retrieval.retriever import Passage, Retriever
from rag_cluster.retrieval.search import Channel, SearchCall

DEEP = 1000
"""How deep a channel is searched for a chunk that it did not bring."""
MAX_CHUNKS = 200
"""Of a document or of a text's places, that are looked at."""


class Explainer:
    """Explains what a retriever does. Nothing here changes what it finds."""

    def __init__(
        self,
        retriever: Retriever,
        evidence: Evidence,
        index: ChunkIndex,
        search: ChunkSearch,
        analyzer: Analyzer | None = None,
    ) -> None:
        self._retriever = retriever
        self._evidence = evidence
        self._index = index
        self._search = search
        self._analyzer = analyzer

    async def explain(
        self,
        principal: Principal,
        knowledge_base_id: str,
        query: str,
        target: Target,
        options: RetrievalOptions | None = None,
        *,
        reader: Principal | None = None,
    ) -> tuple[Explanation, RetrievalRun]:
        """The explanation, and the run that it is about.

        reader: as whom the query is made, where an administrator asks for somebody else; the target is looked up with
        the rights of `principal`. NotFoundError when it is not there, or not for the principal; else as `retrieve`.
        """
        options = options or RetrievalOptions()
        located = await self._search.located(
            principal,
            knowledge_base_id,
            chunk_id=target.chunk_id,
            document_id=target.document_id,
            text=target.text,
            limit=MAX_CHUNKS,
        )
        if not located:
            raise NotFoundError("There is no such chunk, document or text in this knowledge base.")
        passage = await self._retriever.passage(reader or principal, knowledge_base_id, query, options)
        chosen = await _meant(located, passage)
        way = _Way(self._evidence, principal, reader or principal, knowledge_base_id, options, passage, chosen)
        explanation = await self._explained(way, query, options)
        return explanation, passage.run

    async def _explained(self, way: _Way, query: str, options: RetrievalOptions) -> Explanation:
        document, chunk, passage = way.document, way.chunk, way.passage
        query_tokens: list[str] = []
        chunk_tokens: list[str] = []
        if chunk is not None:
            await way.facts()
            if passage.channels:
                await self._indexed(way)
                if self._analyzer is not None:
                    *variants, held = await self._analyzer.analyze([*passage.variants, chunk.content])
                    query_tokens = list(dict.fromkeys(token for tokens in variants for token in tokens))
                    chunk_tokens = list(dict.fromkeys(held))
                    way.tokens(query_tokens, chunk_tokens)
                await way.channels()
                way.stages()
        else:
            way.ready()
        return Explanation(
            query=query,
            document_id=document.id,
            filename=document.filename,
            version=chunk.version if chunk is not None else document.version,
            chunk_id=chunk.id if chunk is not None else None,
            text=chunk.text if chunk is not None else "",
            standings=tuple(way.standings),
            query_tokens=tuple(query_tokens),
            chunk_tokens=tuple(chunk_tokens),
            shared_tokens=tuple(token for token in query_tokens if token in set(chunk_tokens)),
            result=way.result,
        )

    async def _indexed(self, way: _Way) -> None:
        """Whether the index has the chunk's row at all."""
        assert way.chunk is not None and way.passage.scope.index is not None
        collection = way.passage.scope.index.collection
        held = await asyncio.to_thread(self._index.chunk_ids, collection, way.document.id)
        way.add("index", way.chunk.id in held, detail="" if way.chunk.id in held else f"{collection} lacks its row")


async def _meant(located: Sequence[Located], passage: Passage) -> Located:
    """Of several chunks the one that came furthest; of those that came nowhere the one nearest to the question."""
    if len(located) == 1:
        return located[0]
    by_id = {one.chunk.id: one for one in located if one.chunk is not None}
    reached = [
        *(chunk_id for result in passage.results for chunk_id in (result.chunk_id, *result.context_chunk_ids)),
        *(one.chunk_id for stage in (passage.ordered, passage.candidates, passage.fused) for one in stage),
    ]
    for chunk_id in reached:
        if chunk_id in by_id:
            return by_id[chunk_id]
    if passage.factory is not None and by_id:
        documents = tuple({one.document.id for one in located})
        access = replace(passage.scope.filter, document_ids=documents)
        for search in (passage.factory.dense(access), passage.factory.sparse(access)):
            for hit in await _tolerant(search, DEEP):
                if hit.chunk_id in by_id:
                    return by_id[hit.chunk_id]
    return located[0]


async def _tolerant(search: SearchCall, limit: int) -> list[Hit]:
    """The hits, or none where the channel is away: the trace of the query says so already."""
    try:
        return await search(limit)
    except Exception:  # becomes a standing without rank
        return []


class _Way:
    """One chunk's way through one query, standing by standing. After it was lost nothing is lost again."""

    def __init__(
        self,
        evidence: Evidence,
        asker: Principal,
        reader: Principal,
        knowledge_base_id: str,
        options: RetrievalOptions,
        passage: Passage,
        located: Located,
    ) -> None:
        self._evidence = evidence
        self._asker = asker
        self._reader = reader
        self._base = knowledge_base_id
        self._options = options
        self.passage = passage
        self.document: Document = located.document
        self.chunk: Chunk | None = located.chunk
        self.standings: list[Standing] = []
        self.result = self._shown()

    def add(
        self, stage: str, passed: bool, *, rank: int | None = None, score: float | None = None, detail: str = ""
    ) -> None:
        """A standing that passed, or that lost the chunk if nothing did before."""
        outcome = Outcome.PASSED if passed else (Outcome.SKIPPED if self.lost else Outcome.LOST)
        self.standings.append(Standing(stage, outcome, rank, score, detail))

    def note(
        self, stage: str, outcome: Outcome, *, rank: int | None = None, score: float | None = None, detail: str = ""
    ) -> None:
        """A standing that decides nothing."""
        self.standings.append(Standing(stage, outcome, rank, score, detail))

    @property
    def lost(self) -> bool:
        """Whether a stage lost it."""
        return any(one.outcome is Outcome.LOST for one in self.standings)

    def _shown(self) -> int | None:
        for number, result in enumerate(self.passage.results, start=1):
            if self.chunk is not None and self.chunk.id in (result.chunk_id, *result.context_chunk_ids):
                return number
        return None

    # -- what the facts say ------------------------------------------------------------------------------------------

    def ready(self) -> bool:
        """Whether queries see the version that the chunk is of."""
        document, chunk = self.document, self.chunk
        if document.published_version is None:
            why = f": {document.error_type}, {document.error_message}" if document.error_type else ""
            self.add(
                "ready", False, detail=f"no version is published; version {document.version} is {document.status}{why}"
            )
        elif chunk is None:
            self.add("ready", False, detail=f"version {document.published_version} has no chunks")
        elif chunk.version != document.published_version:
            detail = f"version {document.published_version} is published, the chunk is of version {chunk.version}"
            self.add("ready", False, detail=detail)
        else:
            self.add("ready", True, detail=f"version {chunk.version} is published")
        return not self.lost

    async def facts(self) -> None:
        """Publication, access, source and filters: the second check, with one condition more at a time."""
        if not self.ready():
            return
        bare = replace(self._options, filters={}, document_ids=None, source_ids=None, agent_id=None)
        steps = [
            ("source", self._asker, bare, "its source is disabled"),
            ("access", self._reader, bare, "the reader may not read the document"),
            (
                "source",
                self._reader,
                replace(bare, agent_id=self._options.agent_id),
                "the agent does not mount its source",
            ),
            ("source", self._reader, replace(bare, source_ids=self._options.source_ids), "its source is not asked for"),
            ("filter", self._reader, replace(bare, document_ids=self._options.document_ids), "not among document_ids"),
            ("filter", self._reader, replace(bare, filters=self._options.filters), "its metadata do not match"),
        ]
        # The last one is the whole check: where that admits the chunk, the others do too.
        if await self._admits(self._reader, self._options):
            for stage in ("access", "source", "filter"):
                self.add(stage, True)
            return
        for stage, principal, options, why in steps:
            if not await self._admits(principal, options):
                self.add(stage, False, detail=why)
                return
        self.add("filter", False, detail="it was published or changed at this moment")

    async def _admits(self, principal: Principal, options: RetrievalOptions) -> bool:
        assert self.chunk is not None
        hit = Hit(self.chunk.id, self.chunk.document_id, self.chunk.version, 0.0)
        return bool(await self._evidence.rows(principal, self._base, [hit], options))

    # -- what the channels say ---------------------------------------------------------------------------------------

    def tokens(self, query: Sequence[str], held: Sequence[str]) -> None:
        """What BM25 can compare at all."""
        shared = [token for token in query if token in set(held)]
        if shared:
            self.note("tokens", Outcome.PASSED, detail=f"in common: {' '.join(shared[:20])}")
        elif self._options.mode is RetrievalMode.SPARSE:
            self.add("tokens", self._found, detail="no token in common")
        else:
            self.note("tokens", Outcome.MISSED, detail="no token in common")

    @property
    def _found(self) -> bool:
        """Whether any channel brought it."""
        return self._candidate(self.passage.fused) is not None

    async def channels(self) -> None:
        """Its rank in each; where none brought it, the first one's limit is what lost it."""
        decisive = not self._found
        for channel in self.passage.channels:
            rank, score, detail = await self._channel(channel)
            if channel.error is not None or ((channel.targeted or channel.foreign) and rank is None):
                self.note(channel.name, Outcome.SKIPPED, detail=detail)
            elif rank is not None and rank <= len(channel.survivors) and not detail:
                self.note(channel.name, Outcome.PASSED, rank=rank, score=score)
            elif decisive and not self.lost:
                self.add(channel.name, False, rank=rank, score=score, detail=detail)
            else:
                self.note(channel.name, Outcome.MISSED, rank=rank, score=score, detail=detail)

    async def _channel(self, channel: Channel) -> tuple[int | None, float | None, str]:
        """(rank, score, why it was not brought or "")."""
        assert self.chunk is not None
        if channel.error is not None:
            return None, None, str(channel.error) or type(channel.error).__name__
        if found := _place(self.chunk.id, channel.survivors):
            return *found, ""
        if channel.targeted or channel.foreign:
            return None, None, "not a mounted correction"
        limit = f"the channel gave {len(channel.survivors)}"
        if found := _place(self.chunk.id, await _tolerant(channel.search, DEEP)):
            return *found, f"rank {found[0]}; {limit}"
        assert self.passage.factory is not None
        access = replace(self.passage.scope.filter, document_ids=(self.document.id,))
        factory, variant = self.passage.factory, int(channel.name.startswith("rewrite_"))
        search = (factory.dense if channel.cosine else factory.sparse)(access, variant)
        if found := _place(self.chunk.id, await _tolerant(search, DEEP)):
            return None, found[1], f"beyond rank {DEEP:,}; {limit}"
        return None, None, f"not found at all; {limit}"

    # -- what the stages say -----------------------------------------------------------------------------------------

    def _candidate(self, stage: Iterable[Candidate]) -> tuple[int, Candidate] | None:
        for rank, candidate in enumerate(stage, start=1):
            if self.chunk is not None and candidate.chunk_id == self.chunk.id:
                return rank, candidate
        return None

    def stages(self) -> None:
        """From the fused list to the results."""
        fused = self._candidate(self.passage.fused)
        if fused is not None:
            self._after_recall(*fused)
        if self.result is not None and self.passage.results[self.result - 1].retrieval_mode == FALLBACK:
            # It came by another way: what was lost on the first one is only missed.
            self.standings = [
                replace(one, outcome=Outcome.MISSED) if one.outcome is Outcome.LOST else one for one in self.standings
            ]
            self.add(FALLBACK, True, rank=self.result, detail="holds the question's keywords")

    def _after_recall(self, rank: int, candidate: Candidate) -> None:
        passage, options = self.passage, self._options
        if options.score_threshold is not None:
            passed = self._candidate(passage.passed) is not None
            scale = candidate.sparse if options.mode is RetrievalMode.SPARSE else candidate.dense
            self.add("threshold", passed, score=scale, detail=f"the threshold is {options.score_threshold:g}")
            if not passed:
                return
        kept = self._candidate(passage.candidates)
        if kept is None and candidate.sources == [CORRECTION] and not candidate.outranks:
            self.add("corrections", False, detail="found as a correction only, and not about the question")
            return
        detail = "" if kept is not None else self._why_cut(rank, candidate)
        self.add("fusion", kept is not None, rank=rank, score=candidate.fusion, detail=detail)
        if kept is None:
            return
        self._rerank(candidate)
        self._final(*kept)

    def _why_cut(self, rank: int, candidate: Candidate) -> str:
        copies = sum(one.copy_key == candidate.copy_key for one in self.passage.fused[: rank - 1])
        if copies >= MAX_COPIES:
            return f"{copies} copies of it come before"
        return f"only the first {self._options.candidate_k} go on"

    def _rerank(self, candidate: Candidate) -> None:
        if candidate.rerank is None:
            self.note("rerank", Outcome.SKIPPED, detail="not reranked")
            return
        scores = [one.rerank for one in self.passage.candidates if one.rerank is not None]
        rank = 1 + sum(score > candidate.rerank for score in scores)
        moved = self.result is None and self._would_show(self.passage.candidates)
        if moved:
            self.add("rerank", False, rank=rank, score=candidate.rerank, detail="before it, it was among the results")
        else:
            self.note("rerank", Outcome.PASSED, rank=rank, score=candidate.rerank)

    def _final(self, fused_rank: int, candidate: Candidate) -> None:
        passage, options = self.passage, self._options
        ordered = self._candidate(passage.ordered)
        if ordered is None:
            self.add("order", False, detail=f"{MAX_COPIES} copies of it come before")
            return
        rank = ordered[0]
        by_score = final_order(passage.candidates, passage.scope, replace(options, agent_id=None))
        if self.result is None and options.agent_id is not None and self._would_show(by_score):
            self.add("order", False, rank=rank, detail="corrections or mounts of higher priority come before")
        else:
            self.note("order", Outcome.PASSED, rank=rank, score=candidate.score)
        places = f"the {options.top_k} places were taken" if self.result is None else ""
        self.add("expansion", self.result is not None, rank=self.result, detail=places)

    def _would_show(self, candidates: Sequence[Candidate]) -> bool:
        """Whether this order would have brought it into the results."""
        assert self.chunk is not None
        options = self._options
        results = expand(candidates, options.top_k, expand_parents=options.expand_parents, mode=options.mode.value)
        return any(self.chunk.id in (one.chunk_id, *one.context_chunk_ids) for one in results)


def _place(chunk_id: str, hits: Sequence[Hit]) -> tuple[int, float] | None:
    return next(((rank, hit.score) for rank, hit in enumerate(hits, start=1) if hit.chunk_id == chunk_id), None)
