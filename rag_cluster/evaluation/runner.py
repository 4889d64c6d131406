"""Runs a data set through the real system: ingested by the bulk job, retrieved and answered as a caller would be."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from rag_cluster.answering.answerer import Answerer
from rag_cluster.answering.calibration import Calibration
from rag_cluster.answering.refusal import assess
from rag_cluster.domain.access import LOCAL
from rag_cluster.domain.answers import Answer
from rag_cluster.domain.retrieval import RetrievalMode, RetrievalOptions, RetrievalRun
from rag_cluster.evaluation.datasets import Dataset, Question
from rag_cluster.evaluation.measures import holds, percentile, retrieval_measures
from rag_cluster.retrieval.retriever import Retriever

T = TypeVar("T")
R = TypeVar("R")

RANKED = 10
CONCURRENT = 4
CURVE_SHIFTS = (-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0)
"""Shifts of the refusal threshold, in logits, for the curve; 0 is the calibrated one."""

Progress = Callable[[str, int, int], None]
"""(stage, done, total)."""


@dataclass(frozen=True, slots=True)
class Target:
    """The system under evaluation."""

    retriever: Retriever
    answerer: Answerer
    knowledge_base_id: str
    documents: Sequence[str]
    """Document id of each paragraph."""
    calibration: Calibration


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What was measured; `to_dict` is the command's JSON line."""

    dataset: str
    paragraphs: int
    questions: int
    modes: Mapping[str, Mapping[str, float]]
    answers: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "dataset": self.dataset,
            "paragraphs": self.paragraphs,
            "questions": self.questions,
            "modes": {mode: dict(values) for mode, values in self.modes.items()},
            "answers": dict(self.answers),
        }


def write_paragraphs(dataset: Dataset, folder: Path) -> None:
    """One text file per paragraph, left alone when it is there already, so that a second run finds nothing changed."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, paragraph in enumerate(dataset.paragraphs):
        path = folder / paragraph_filename(number)
        if not path.exists():
            path.write_text(paragraph, encoding="utf-8")


def paragraph_filename(number: int) -> str:
    """File name of a paragraph; it carries no word that a question could match."""
    return f"{number:05d}.txt"


async def evaluate(
    target: Target,
    dataset: Dataset,
    off_topic: Sequence[str],
    *,
    modes: Sequence[RetrievalMode] = tuple(RetrievalMode),
    answers: bool = True,
    progress: Progress = lambda stage, done, total: None,
) -> Evaluation:
    """Retrieval of every question in every mode, then answers, refusals and the refusal curve.

    The refusal rule was calibrated on the even-numbered questions of XQuAD, so answers are measured on the odd ones.
    """
    by_mode: dict[str, Mapping[str, float]] = {}
    for mode in modes:
        by_mode[mode.value] = await _retrieval(target, dataset, mode, progress)
    measured: Mapping[str, Any] = {}
    if answers:
        held_out = replace(dataset, questions=dataset.questions[1::2])
        measured = await _answers(target, held_out, off_topic, progress)
    return Evaluation(dataset.name, len(dataset.paragraphs), len(dataset.questions), by_mode, measured)


async def _retrieval(target: Target, dataset: Dataset, mode: RetrievalMode, progress: Progress) -> dict[str, float]:
    # Without expansion each result is one chunk; a paragraph may hold several, so more than ten are asked for.
    options = RetrievalOptions(mode=mode, top_k=30, candidate_k=30, expand_parents=False)
    seconds: list[float] = []

    async def ranking(question: Question) -> list[str]:
        started = time.perf_counter()
        run = await target.retriever.retrieve(LOCAL, target.knowledge_base_id, question.text, options)
        seconds.append(time.perf_counter() - started)
        return list(dict.fromkeys(result.document_id for result in run.results))[:RANKED]

    found = await _each(dataset.questions, ranking, f"retrieve {mode.value}", progress)
    gold = {question.id: target.documents[question.paragraph] for question in dataset.questions}
    rankings = {question.id: ranked for question, ranked in zip(dataset.questions, found, strict=True)}
    return {
        **retrieval_measures(gold, rankings),
        "p50_ms": round(1000 * percentile(seconds, 0.5), 1),
        "p99_ms": round(1000 * percentile(seconds, 0.99), 1),
    }


async def _answers(target: Target, dataset: Dataset, off_topic: Sequence[str], progress: Progress) -> dict[str, Any]:
    options = RetrievalOptions()
    seconds: list[float] = []

    async def answered(question: Question) -> Answer:
        started = time.perf_counter()
        answer = await target.answerer.answer(LOCAL, target.knowledge_base_id, question.text, options)
        seconds.append(time.perf_counter() - started)
        return answer

    answers = await _each(dataset.questions, answered, "answer", progress)
    quoted = sum(
        holds(question.answers, [citation.quote for citation in answer.citations])
        for question, answer in zip(dataset.questions, answers, strict=True)
    )

    def strength(run: RetrievalRun) -> float:
        return assess(run, target.calibration).strength

    async def with_gold(question: Question) -> float:
        return strength(await _retrieve(target, question.text, options))

    async def without_gold(question: Question) -> float:
        gold = target.documents[question.paragraph]
        others = tuple(document for document in target.documents if document != gold)
        return strength(await _retrieve(target, question.text, replace(options, document_ids=others)))

    async def stray(question: str) -> float:
        return strength(await _retrieve(target, question, options))

    curve_of = {
        "answerable": await _each(dataset.questions, with_gold, "strength", progress),
        "gold_removed": await _each(dataset.questions, without_gold, "gold removed", progress),
        "off_topic": await _each(off_topic, stray, "off-topic", progress),
    }
    total = max(len(answers), 1)
    return {
        "questions": len(answers),
        "gold_in_quote": round(quoted / total, 4),
        "false_refusals": round(sum(answer.refused for answer in answers) / total, 4),
        "off_topic_refusals": _refused(curve_of["off_topic"], 0.0),
        "gold_removed_refusals": _refused(curve_of["gold_removed"], 0.0),
        "warnings": sum(bool(answer.warnings) for answer in answers),
        "p50_ms": round(1000 * percentile(seconds, 0.5), 1),
        "p99_ms": round(1000 * percentile(seconds, 0.99), 1),
        "refusal_curve": [
            {"shift": shift, **{name: _refused(values, shift) for name, values in curve_of.items()}}
            for shift in CURVE_SHIFTS
        ],
    }


async def _retrieve(target: Target, text: str, options: RetrievalOptions) -> RetrievalRun:
    return await target.retriever.retrieve(LOCAL, target.knowledge_base_id, text, options)


def _refused(strengths: Sequence[float], shift: float) -> float:
    return round(sum(value < shift for value in strengths) / max(len(strengths), 1), 4)


async def _each(items: Iterable[T], function: Callable[[T], Awaitable[R]], stage: str, progress: Progress) -> list[R]:
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
