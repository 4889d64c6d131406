"""One chunk's way through one query: what every stage did with it, and the first one that lost it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile

from rag_cluster.domain.access import Principal
from rag_cluster.domain.chunks import Chunk
from rag_cluster.domain.documents import Document
from rag_cluster.domain.ports import Evidence
from rag_cluster.domain.retrieval import (
    Hit,
    Located,
    Outcome,
    RetrievalMode,
    RetrievalOptions,
    RetrievalResult,
    Standing,
)
from rag_cluster.domain.terms import speaks
from rag_cluster.errors import told
from rag_cluster.retrieval.candidates import CORRECTION, Candidate
from rag_cluster.retrieval.channels import REWRITTEN, ChannelFactory
from rag_cluster.retrieval.corrections import final_order, standing
from rag_cluster.retrieval.diversity import MAX_COPIES
from rag_cluster.retrieval.expansion import expand
from rag_cluster.retrieval.keyword_fallback import NAME as FALLBACK
from rag_cluster.retrieval.retriever import Passage
from rag_cluster.retrieval.search import Channel, SearchCall

DEEP = 1000
"""How deep a channel is searched for a chunk that it did not bring."""


def shows(result: RetrievalResult, chunk: Chunk, *, expand_parents: bool) -> bool:
    """Whether a result's content holds the chunk: as a match, or in the parent that a sibling brought."""
    return any(
        chunk.id == match.id or (expand_parents and chunk.parent_id is not None and chunk.parent_id == match.parent_id)
        for match in result.matches
    )


async def tolerant(search: SearchCall, limit: int) -> list[Hit]:
    """The hits, or none where the channel is away: the trace of the query says so already."""
    try:
        return await search(limit)
    except Exception:  # becomes a standing without rank
        return []


class Way:
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
        return next((number for number, _ in self._showing(self.passage.results)), None)

    def _showing(self, results: Iterable[RetrievalResult]) -> Iterable[tuple[int, RetrievalResult]]:
        for number, result in enumerate(results, start=1):
            if self.chunk is not None and shows(result, self.chunk, expand_parents=self._options.expand_parents):
                yield number, result

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
            found = await self._channel(channel)
            if found.outcome is Outcome.MISSED and decisive and not self.lost:
                found = replace(found, outcome=Outcome.LOST)
            self.standings.append(found)

    async def _channel(self, channel: Channel) -> Standing:
        """PASSED where the channel brought it, SKIPPED where it could not, MISSED where it gave others only."""
        chunk, passage, name = self.chunk, self.passage, channel.name
        assert chunk is not None and passage.factory is not None
        if channel.error is not None:
            return Standing(name, Outcome.SKIPPED, detail=told(channel.error))
        if found := _place(chunk.id, channel.survivors):
            return Standing(name, Outcome.PASSED, *found)
        if channel.targeted and self.document.source_id not in passage.scope.correction_source_ids:
            return Standing(name, Outcome.SKIPPED, detail="not a mounted correction")
        if channel.foreign and speaks(channel.foreign, chunk.text):
            return Standing(name, Outcome.SKIPPED, detail="it speaks the question's own language")
        limit = f"the channel gave {len(channel.survivors)}"
        if found := _place(chunk.id, await tolerant(channel.search, DEEP)):
            return Standing(name, Outcome.MISSED, *found, detail=f"rank {found[0]}; {limit}")
        if found := _place(chunk.id, await tolerant(self._within_document(channel, passage.factory), DEEP)):
            return Standing(name, Outcome.MISSED, None, found[1], f"beyond rank {DEEP:,}; {limit}")
        return Standing(name, Outcome.MISSED, detail=f"not found at all; {limit}")

    def _within_document(self, channel: Channel, factory: ChannelFactory) -> SearchCall:
        access = replace(self.passage.scope.filter, document_ids=(self.document.id,))
        if channel.foreign:
            return factory.crossing(access)
        return (factory.dense if channel.cosine else factory.sparse)(access, int(channel.name.startswith(REWRITTEN)))

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
        if self.result is not None:
            self._in_results(self.result, self.passage.results[self.result - 1])
        elif self._candidate(self.passage.ordered) is not None:
            self.add("expansion", False, detail=f"the {self._options.top_k} places were taken")

    def _in_results(self, number: int, result: RetrievalResult) -> None:
        """Where it came by another way, what was lost on its own is only missed."""
        self.standings = [
            replace(one, outcome=Outcome.MISSED) if one.outcome is Outcome.LOST else one for one in self.standings
        ]
        fallback = result.retrieval_mode == FALLBACK
        detail = "holds the question's keywords" if fallback else ""
        if self.chunk is not None and self.chunk.id not in result.context_chunk_ids:
            detail = "in the parent of another chunk"
        self.add(FALLBACK if fallback else "expansion", True, rank=number, detail=detail)

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
        detail = "" if kept is not None else self._why_cut(candidate)
        self.add("fusion", kept is not None, rank=rank, score=candidate.fusion, detail=detail)
        if kept is None:
            return
        self._rerank(candidate)
        self._final(candidate)

    def _why_cut(self, candidate: Candidate) -> str:
        def key(one: Candidate) -> tuple[object, ...]:
            return one.copy_key, standing(one, self.passage.scope, self._options)

        before = takewhile(lambda one: one is not candidate, self.passage.passed)
        copies = sum(key(one) == key(candidate) for one in before)
        if copies >= MAX_COPIES:
            return f"{copies} copies of it come before"
        return f"only the first {self._options.candidate_k} go on"

    def _rerank(self, candidate: Candidate) -> None:
        if candidate.rerank is None:
            self.note("rerank", Outcome.SKIPPED, detail="not reranked")
            return
        scores = [one.rerank for one in self.passage.candidates if one.rerank is not None]
        rank = 1 + sum(score > candidate.rerank for score in scores)
        scope, options = self.passage.scope, self._options
        before = sorted(self.passage.candidates, key=lambda one: standing(one, scope, options))  # in fused order
        if self.result is None and self._would_show(before):
            self.add("rerank", False, rank=rank, score=candidate.rerank, detail="before it, it was among the results")
        else:
            self.note("rerank", Outcome.PASSED, rank=rank, score=candidate.rerank)

    def _final(self, candidate: Candidate) -> None:
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

    def _would_show(self, candidates: Sequence[Candidate]) -> bool:
        """Whether this order would have brought it into the results."""
        options = self._options
        results = expand(candidates, options.top_k, expand_parents=options.expand_parents, mode=options.mode.value)
        return any(self._showing(results))


def _place(chunk_id: str, hits: Sequence[Hit]) -> tuple[int, float] | None:
    return next(((rank, hit.score) for rank, hit in enumerate(hits, start=1) if hit.chunk_id == chunk_id), None)
