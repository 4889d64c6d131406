"""Answers and refusals of the whole read path, and the refusal curve."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rag_cluster.answering.refusal import assess
from rag_cluster.domain.access import LOCAL
from rag_cluster.domain.answers import Answer
from rag_cluster.domain.retrieval import RetrievalOptions, RetrievalRun
from rag_cluster.errors import InvalidRequestError
from rag_cluster.evaluation.datasets import Dataset, Question
from rag_cluster.evaluation.measures import holds, percentile
from rag_cluster.evaluation.runner import Progress, each, retrieve
from rag_cluster.evaluation.target import Target

CURVE_SHIFTS = (-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0)
"""Shifts of the refusal threshold, in logits, for the curve; 0 is the calibrated one."""


async def measure(
    target: Target, dataset: Dataset, off_topic: Sequence[str], progress: Progress = lambda stage, done, total: None
) -> dict[str, Any]:
    """Answers, refusals and the refusal curve, of a target that has an answerer.

    The refusal rule was calibrated on the even-numbered questions of XQuAD, so the odd ones are asked.
    off_topic: questions that no document answers.
    """
    answerer, calibration = target.answerer, target.calibration
    if answerer is None or calibration is None:
        raise InvalidRequestError("Answers are measured on an ingested knowledge base.")
    questions = dataset.questions[1::2]
    options = RetrievalOptions()
    seconds: list[float] = []

    async def answered(question: Question) -> Answer:
        started = time.perf_counter()
        answer = await answerer.answer(LOCAL, target.knowledge_base_id, question.text, options)
        seconds.append(time.perf_counter() - started)
        return answer

    answers = await each(questions, answered, "answer", progress)
    quoted = sum(
        holds(question.answers, [citation.quote for citation in answer.citations])
        for question, answer in zip(questions, answers, strict=True)
    )

    def strength(run: RetrievalRun) -> float:
        return assess(run, calibration).strength

    async def with_gold(question: Question) -> float:
        return strength(await retrieve(target, question.text, options))

    async def without_gold(question: Question) -> float:
        others = tuple(id_ for id_, name in target.names.items() if name not in question.documents)
        return strength(await retrieve(target, question.text, replace(options, document_ids=others)))

    async def stray(question: str) -> float:
        return strength(await retrieve(target, question, options))

    curve_of = {
        "answerable": await each(questions, with_gold, "strength", progress),
        "gold_removed": await each(questions, without_gold, "gold removed", progress),
        "off_topic": await each(off_topic, stray, "off-topic", progress),
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


def _refused(strengths: Sequence[float], shift: float) -> float:
    return round(sum(value < shift for value in strengths) / max(len(strengths), 1), 4)
