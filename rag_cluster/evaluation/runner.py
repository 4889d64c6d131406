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
from rag_cluster.errors import InvalidRequestError
from rag_cluster.evaluation.datasets import Dataset, Question
from rag_cluster.evaluation.excerpts import Range, SourceText, excerpt_measures
from rag_cluster.evaluation.measures import Score, holds, percentile, ranking_measures
from rag_cluster.evaluation.places import matches
from rag_cluster.evaluation.results import ArmResult, Evaluation
from rag_cluster.evaluation.target import Target
from rag_cluster.evaluation.variants import Arm, Variant

T = TypeVar("T")
R = TypeVar("R")

CANDIDATES = 30
EXCERPT_CANDIDATES = 60
"""For excerpts: enough short chunks to fill the largest budget."""
SHOWN = 5
CONCURRENT = 4
TIMED = 50
LATENCIES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}

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
    tokenizer: Tokenizer

    @classmethod
    def of(cls, dataset: Dataset, tokenizer: Tokenizer) -> Examination:
        """tokenizer: that counts what is returned. InvalidRequestError for excerpts that are not there."""
        spans = [span for question in dataset.questions for span in question.spans]
        wanted = {span.document for span in spans}
        sources = {one.name: SourceText(one.characters(), tokenizer) for one in dataset.documents if one.name in wanted}
        for span in spans:
            length = len(sources[span.document].text)
            if not 0 <= span.start < span.end <= length:
                place = f"[{span.start}, {span.end})"
                raise InvalidRequestError(f"{span.document} has {length} characters; there is no excerpt {place}.")
        return cls(dataset, sources, tokenizer)

    def blank(self, arms: Sequence[Arm], variants: Sequence[Variant], timed: int) -> Evaluation:
        """The run before anything is asked: what will be measured, as zeros. A gate that has no place here has none."""
        scores = _columns([self.score({}, question, ()) for question in self.dataset.questions])
        latency = dict.fromkeys((*LATENCIES, "queries"), 0.0) if timed else {}
        labels = [variant.label for variant in variants] or [""]
        return Evaluation(
            dataset=self.dataset.name,
            documents=len(self.dataset.documents),
            questions=[question.id for question in self.dataset.questions],
            arms=[ArmResult(arm.name, label, scores, latency) for label in labels for arm in arms],
            groups=self.dataset.groups,
        )

    def score(
        self, names: Mapping[str, str], question: Question, results: Sequence[RetrievalResult]
    ) -> dict[str, Score]:
        """Every measure that the question has the facts for. names: document id -> name in the data set."""
        named = [(names.get(result.document_id, result.document_id), result) for result in results]
        ranking = [names.get(one, one) for one in dict.fromkeys(result.document_id for result in results)]
        scores: dict[str, Score] = {**ranking_measures(question.documents, ranking)}
        shown = named[:SHOWN]
        if question.answers:
            scores["answer@5"] = float(holds(question.answers, [result.content for _, result in shown]))
        if question.locator:
            right = (result for name, result in shown if name in question.documents)
            scores["place@5"] = float(any(matches(question.locator, result) for result in right))
        if question.spans:
            found = (self._place(name, result.content) for name, result in named)
            scores.update(excerpt_measures(self.sources, question.spans, found))
        return scores

    def _place(self, name: str, content: str) -> tuple[SourceText, Sequence[Range]]:
        """Where a result stands. What is of a document without excerpts stands for itself, so that its tokens miss."""
        source = self.sources.get(name)
        if source is not None:
            return source, source.find(content)
        return SourceText(content, self.tokenizer), [(0, len(content))]


async def examine(
    target: Target,
    examination: Examination,
    arms: Sequence[Arm],
    *,
    timed: int = TIMED,
    progress: Progress = lambda stage, done, total: None,
    listener: Callable[[Arm, Target, Sequence[Asked]], None] = lambda arm, target, asked: None,
) -> list[ArmResult]:
    """Every arm in turn.

    timed: so many questions are asked again, one after the other, for latencies. listener: hears what each arm found.
    """
    results = []
    for arm in arms:
        label = f"{target.variant} {arm.name}".strip()
        asked, notes = await _ask_all(target, examination, arm, label, progress)
        listener(arm, target, asked)
        results.append(
            ArmResult(
                arm=arm.name,
                variant=target.variant,
                scores=_columns([examination.score(target.names, one.question, one.results) for one in asked]),
                latency=await _latency(target, examination.dataset.sample(timed).questions, arm) if timed else {},
                cost=target.cost,
                notes=tuple(f"{note} ({count} questions)" for note, count in notes.items()),
            )
        )
    return results


def _columns(scored: Sequence[Mapping[str, Score]]) -> dict[str, list[Score]]:
    """Measure -> one value a question."""
    names = dict.fromkeys(name for scores in scored for name in scores)
    return {name: [_rounded(scores.get(name)) for scores in scored] for name in names}


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

    return await each(examination.dataset.questions, ask, label, progress), notes


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
    return {
        **{name: round(percentile(milliseconds, share), 1) for name, share in LATENCIES.items()},
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
