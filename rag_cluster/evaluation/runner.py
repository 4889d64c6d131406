"""Asks a target every question in every arm, and scores what comes back."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rag_cluster.domain.access import LOCAL
from rag_cluster.domain.ports import Tokenizer
from rag_cluster.domain.retrieval import RetrievalOptions, RetrievalResult, RetrievalRun
from rag_cluster.evaluation.datasets import Dataset, Question
from rag_cluster.evaluation.excerpts import SourceText, excerpt_measures
from rag_cluster.evaluation.measures import Score, holds, percentile, ranking_measures
from rag_cluster.evaluation.places import matches
from rag_cluster.evaluation.results import ArmResult
from rag_cluster.evaluation.target import Target
from rag_cluster.evaluation.variants import Arm

T = TypeVar("T")
R = TypeVar("R")

CANDIDATES = 30
EXCERPT_CANDIDATES = 60
"""For excerpts: enough short chunks to fill the largest budget."""
SHOWN = 5
CONCURRENT = 4
TIMED = 50

Progress = Callable[[str, int, int], None]
"""(stage, done, total)."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with what was found, best first."""

    question: Question
    results: Sequence[RetrievalResult]


@dataclass(frozen=True, slots=True)
class Examination:
    """One data set, with what scoring it needs more than once."""

    dataset: Dataset
    sources: Mapping[str, SourceText]
    """Texts of the documents that excerpts lie in."""

    @classmethod
    def of(cls, dataset: Dataset, tokenizer: Tokenizer) -> Examination:
        """tokenizer: that counts what is returned."""
        spanned = any(question.spans for question in dataset.questions)
        texts = {one.name: one for one in dataset.documents} if spanned else {}
        return cls(dataset, {name: SourceText(one.read().decode("utf-8"), tokenizer) for name, one in texts.items()})

    def score(self, target: Target, question: Question, results: Sequence[RetrievalResult]) -> dict[str, Score]:
        """Every measure that the question has the facts for."""
        named = [(target.names.get(result.document_id, result.document_id), result) for result in results]
        scores: dict[str, Score] = {**ranking_measures(question.documents, list(dict.fromkeys(n for n, _ in named)))}
        shown = named[:SHOWN]
        if question.answers:
            scores["answer@5"] = float(holds(question.answers, [result.content for _, result in shown]))
        if question.locator:
            right = (result for name, result in shown if name in question.documents)
            scores["place@5"] = float(any(matches(question.locator, result) for result in right))
        if question.spans:
            found = ((name, self.sources[name].find(result.content)) for name, result in named)
            scores.update(excerpt_measures(self.sources, question.spans, found))
        return scores


async def examine(
    target: Target,
    examination: Examination,
    arms: Sequence[Arm],
    *,
    timed: int = TIMED,
    progress: Progress = lambda stage, done, total: None,
    listener: Callable[[Arm, Target, Sequence[Asked]], None] = lambda arm, target, asked: None,
) -> list[ArmResult]:
    """Every arm in turn. An arm that needs a reranker where there is none is left out, with a note at the others.

    timed: so many questions are asked again, one after the other, for latencies. listener: hears what each arm found.
    """
    results = []
    missing: list[str] = []
    for arm in arms:
        label = f"{target.variant} {arm.name}".strip()
        asked, notes = await _ask_all(target, examination, arm, label, progress)
        if any(note.startswith("rerank: no reranker") for note in notes):
            missing.append(f"{arm.name}: no reranker configured, left out")
            continue
        listener(arm, target, asked)
        scored = [examination.score(target, one.question, one.results) for one in asked]
        names = list(dict.fromkeys(name for scores in scored for name in scores))
        results.append(
            ArmResult(
                arm=arm.name,
                variant=target.variant,
                scores={name: [_rounded(scores.get(name)) for scores in scored] for name in names},
                latency=await _latency(target, examination.dataset.sample(timed).questions, arm) if timed else {},
                cost=target.cost,
                notes=tuple(f"{note} ({count} questions)" for note, count in notes.items()),
            )
        )
    if missing and results:
        results[-1] = _noted(results[-1], missing)
    return results


def _noted(result: ArmResult, notes: Sequence[str]) -> ArmResult:
    return ArmResult(result.arm, result.variant, result.scores, result.latency, result.cost, (*result.notes, *notes))


def _rounded(score: Score) -> Score:
    return None if score is None else round(score, 6)


async def _ask_all(
    target: Target, examination: Examination, arm: Arm, label: str, progress: Progress
) -> tuple[list[Asked], Counter[str]]:
    """What every question found, and how often what degraded."""
    options = _options(arm, EXCERPT_CANDIDATES if examination.sources else CANDIDATES)
    notes: Counter[str] = Counter()

    async def ask(question: Question) -> Asked:
        run = await retrieve(target, question.text, options)
        notes.update(run.trace.degradations)
        return Asked(question, run.results)

    questions = examination.dataset.questions
    if arm.rerank and questions:  # one is enough to know that there is no reranker
        first = await retrieve(target, questions[0].text, options)
        if any(note.startswith("rerank: no reranker") for note in first.trace.degradations):
            return [], Counter(first.trace.degradations)
    return await each(questions, ask, label, progress), notes


def _options(arm: Arm, candidates: int) -> RetrievalOptions:
    # A document may hold several chunks, so that more than ten results make ten documents.
    return RetrievalOptions(
        mode=arm.mode,
        top_k=candidates,
        candidate_k=candidates,
        rerank=arm.rerank,
        expand_parents=arm.parents,
        cross_language=arm.cross_language,
    )


async def retrieve(target: Target, text: str, options: RetrievalOptions) -> RetrievalRun:
    """One query, as the local principal."""
    return await target.retriever.retrieve(LOCAL, target.knowledge_base_id, text, options)


async def _latency(target: Target, questions: Sequence[Question], arm: Arm) -> dict[str, float]:
    options = _options(arm, CANDIDATES)
    milliseconds = []
    for question in questions:
        started = time.perf_counter()
        await target.timed.retrieve(LOCAL, target.knowledge_base_id, question.text, options)
        milliseconds.append(1000 * (time.perf_counter() - started))
    shares = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}
    return {
        **{name: round(percentile(milliseconds, share), 1) for name, share in shares.items()},
        "queries": len(milliseconds),
    }


async def each(items: Iterable[T], function: Callable[[T], Awaitable[R]], stage: str, progress: Progress) -> list[R]:
    """function of every item, a few at a time, in order."""
    listed = list(items)
    gate = asyncio.Semaphore(CONCURRENT)
    done = 0

    async def one(item: T) -> R:
        nonlocal done
        async with gate:
            result = await function(item)
        done += 1
        progress(stage, done, len(listed))
        return result

    return list(await asyncio.gather(*(one(item) for item in listed)))
