"""Two indexes on the same questions: how often, and how high, the expected document comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rag_cluster.domain.access import LOCAL, Principal
from rag_cluster.domain.documents import IndexRecord
from rag_cluster.domain.ports import Evidence
from rag_cluster.domain.retrieval import EvidenceRow, Hit, ReadScope, RetrievalMode, RetrievalOptions, RetrievalResult
from rag_cluster.errors import InvalidRequestError
from rag_cluster.retrieval.retriever import Retriever

MODES = (RetrievalMode.DENSE, RetrievalMode.HYBRID)
"""What an embedder decides, and what users see of it."""


@dataclass(frozen=True, slots=True)
class Question:
    """A query and what it should find."""

    query: str
    knowledge_base_id: str
    expected: frozenset[str]
    """Chunk ids, or documents by id, URI or file name; each counts."""


def load_questions(path: Path, knowledge_base: str | None, resolve: Callable[[str], str]) -> list[Question]:
    """JSON lines: query, document (id, URI or file name) or chunk (id), each a text or a list, and knowledge_base where
    none is given for all.

    resolve: name or id of a knowledge base -> its id. InvalidRequestError names the line that is wrong.
    """
    questions = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"{path} cannot be read: {error}") from None
    bases: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            query, base, expected = _fields(json.loads(line), knowledge_base)
        except (ValueError, TypeError, KeyError) as error:
            raise InvalidRequestError(f"{path}, line {number}: {error}") from None
        if base not in bases:
            bases[base] = resolve(base)
        questions.append(Question(query, bases[base], expected))
    if not questions:
        raise InvalidRequestError(f"{path} holds no questions.")
    return questions


def _fields(item: Any, knowledge_base: str | None) -> tuple[str, str, frozenset[str]]:
    if not isinstance(item, dict):
        raise TypeError("a question is an object")
    query, base = item.get("query"), item.get("knowledge_base") or knowledge_base
    expected: list[Any] = []
    for name in ("document", "chunk"):
        value = item.get(name) or []
        expected += value if isinstance(value, list) else [value]
    if not isinstance(query, str) or not query.strip():
        raise ValueError("query is missing")
    if not base:
        raise ValueError("knowledge_base is missing, and --knowledge-base was not given")
    if not expected or not all(isinstance(one, str) for one in expected):
        raise ValueError("document or chunk is missing")
    return query, str(base), frozenset(expected)


@dataclass(frozen=True, slots=True)
class Measures:
    """Means over the questions."""

    recall: float
    """Share of what is expected among the first k results."""
    mrr: float
    """1 / rank of the first that is expected, 0 where it is not among the first k."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Old and new side by side."""

    questions: int
    top_k: int
    old: Mapping[str, Measures]
    """By retrieval mode."""
    new: Mapping[str, Measures]

    @property
    def loss(self) -> float:
        """By how much the new index is worse where it is worst; negative when it is better everywhere."""
        return max(
            max(old.recall - self.new[mode].recall, old.mrr - self.new[mode].mrr) for mode, old in self.old.items()
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {**asdict(self), "loss": round(self.loss, 4)}


class PinnedEvidence:
    """Evidence that names one index, whatever its state: for comparing one that is not active yet."""

    def __init__(self, evidence: Evidence, record: IndexRecord) -> None:
        self._evidence = evidence
        self._record = record

    async def scope(
        self,
        principal: Principal,
        knowledge_base_id: str,
        options: RetrievalOptions,
        *,
        embedder_fingerprint: str | None = None,
    ) -> ReadScope:
        """That of the evidence, with this index."""
        scope = await self._evidence.scope(
            principal, knowledge_base_id, options, embedder_fingerprint=embedder_fingerprint
        )
        return replace(scope, index=self._record)

    async def rows(
        self, principal: Principal, knowledge_base_id: str, hits: Sequence[Hit], options: RetrievalOptions
    ) -> dict[str, EvidenceRow]:
        """Those of the evidence."""
        return await self._evidence.rows(principal, knowledge_base_id, hits, options)

    async def changed_since(self, taken: str, document_ids: Sequence[str]) -> str | None:
        """As the evidence says."""
        return await self._evidence.changed_since(taken, document_ids)


async def compare_recall(old: Retriever, new: Retriever, questions: Sequence[Question], top_k: int) -> Comparison:
    """Ask each question of both, in each mode of `MODES`."""
    measured: dict[tuple[str, RetrievalMode], list[Measures]] = {}
    for question in questions:
        calls = [(side, mode) for side in ("old", "new") for mode in MODES]
        results = await asyncio.gather(
            *(_ask(old if side == "old" else new, question, mode, top_k) for side, mode in calls)
        )
        for call, result in zip(calls, results, strict=True):
            measured.setdefault(call, []).append(_measure(question.expected, result))
    sides: dict[str, dict[str, Measures]] = {"old": {}, "new": {}}
    for (side, mode), values in measured.items():
        recall = sum(value.recall for value in values) / len(values)
        mrr = sum(value.mrr for value in values) / len(values)
        sides[side][mode.value] = Measures(round(recall, 4), round(mrr, 4))
    return Comparison(len(questions), top_k, sides["old"], sides["new"])


async def _ask(retriever: Retriever, question: Question, mode: RetrievalMode, top_k: int) -> Sequence[RetrievalResult]:
    options = RetrievalOptions(mode=mode, top_k=top_k)
    run = await retriever.retrieve(LOCAL, question.knowledge_base_id, question.query, options)
    return run.results


def _measure(expected: frozenset[str], results: Sequence[RetrievalResult]) -> Measures:
    ranks: dict[str, int] = {}
    for rank, result in enumerate(results, start=1):
        names = {result.document_id, result.document_origin, result.filename, result.chunk_id}
        for name in expected & (names | {chunk.id for chunk in result.matches}):
            ranks.setdefault(name, rank)
    return Measures(len(ranks) / len(expected), 1 / min(ranks.values()) if ranks else 0.0)
