"""Why is this chunk not among the results? The rank in every stage, and the first one that lost it.

The query runs as it always does (`Retriever.passage`); what is added only looks: where the chunk stands in what each
stage left, what the second check says when one condition after the other is lifted, and how deep it lies in a channel
that did not reach it. A chunk that the asker may not read is not found, whatever became of it.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Sequence
from dataclasses import replace

from rag_cluster.domain.access import Principal
from rag_cluster.domain.chunks import Chunk
from rag_cluster.domain.ports import Analyzer, ChunkIndex, ChunkSearch, Evidence
from rag_cluster.domain.retrieval import Explanation, Located, RetrievalOptions, RetrievalRun, Target
from rag_cluster.errors import NotFoundError
from rag_cluster.retrieval.retriever import Passage, Retriever
from rag_cluster.retrieval.standings import DEEP, Way, shows, tolerant

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
        chosen = located[0]
        if len(located) > 1:
            furthest = await _furthest(located, target, passage, expand_parents=options.expand_parents)
            there = [one for one in located if one.chunk is not None and one.chunk.id == furthest]
            if furthest is not None and not there:
                there = await self._search.located(principal, knowledge_base_id, chunk_id=furthest)
            chosen = (there or located)[0]
        way = Way(self._evidence, principal, reader or principal, knowledge_base_id, options, passage, chosen)
        explanation = await self._explained(way, query, options)
        return explanation, passage.run

    async def _explained(self, way: Way, query: str, options: RetrievalOptions) -> Explanation:
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

    async def _indexed(self, way: Way) -> None:
        """Whether the index has the chunk's row at all."""
        assert way.chunk is not None and way.passage.scope.index is not None
        collection = way.passage.scope.index.collection
        held = await asyncio.to_thread(self._index.chunk_ids, collection, way.document.id)
        way.add("index", way.chunk.id in held, detail="" if way.chunk.id in held else f"{collection} lacks its row")


async def _furthest(
    located: Sequence[Located], target: Target, passage: Passage, *, expand_parents: bool
) -> str | None:
    """Id of the meant chunk that came furthest; of those that came nowhere the one nearest to the question.

    located: the first `MAX_CHUNKS` of them. A chunk that the query met is meant if it is of the document or holds the
    text, be it among these or not.
    """
    chunks = [one.chunk for one in located if one.chunk is not None]
    known = {chunk.id for chunk in chunks}
    words = re.compile(r"\s+".join(map(re.escape, (target.text or "").split())), re.IGNORECASE)

    def meant(chunk: Chunk) -> bool:
        if target.text is not None:
            return chunk.id in known or words.search(chunk.content) is not None
        return chunk.document_id == located[0].document.id

    shown = (chunk for result in passage.results for chunk in result.matches)
    beside = (one for result in passage.results for one in chunks if shows(result, one, expand_parents=expand_parents))
    met = (one.row.chunk for stage in (passage.ordered, passage.candidates, passage.fused) for one in stage)
    for chunk in itertools.chain(shown, beside, met):
        if meant(chunk):
            return chunk.id
    if passage.factory is None:
        return None
    access = replace(passage.scope.filter, document_ids=tuple({one.document.id for one in located}))
    for search in (passage.factory.dense(access), passage.factory.sparse(access)):
        for hit in await tolerant(search, DEEP):
            if hit.chunk_id in known or (target.text is None and hit.version == chunks[0].version):
                return hit.chunk_id
    return None
