"""Whether the evidence is enough to answer at all. Decided before any generator call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rag_cluster.answering.calibration import WORDS_ONLY, Calibration
from rag_cluster.answering.language import question_language
from rag_cluster.domain.retrieval import RetrievalResult, RetrievalRun
from rag_cluster.domain.terms import question_terms, speaks, terms

NO_EVIDENCE = "no evidence"
WEAK_EVIDENCE = "evidence too weak"
_SMOOTHING = 0.5
"""Pulls the coverage of very short questions down: one common word in common proves little."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """How strong the evidence is. reason is "" when it suffices."""

    reason: str
    strength: float
    best_cosine: float | None
    best_coverage: float


def assess(run: RetrievalRun, calibration: Calibration) -> Assessment:
    """Judge a run: by the rerank score where that is calibrated, else by lexical coverage and cosine."""
    if not run.results:
        return Assessment(NO_EVIDENCE, float("-inf"), run.best_cosine, 0.0)
    coverage = best_coverage(run.query, run.results)
    rerank = [result.rerank_score for result in run.results if result.rerank_score is not None]
    if rerank and calibration.rerank_threshold is not None:
        strength = max(rerank) - calibration.rerank_threshold
    else:
        rule = calibration if run.best_cosine is not None else WORDS_ONLY
        strength = rule.strength(run.best_cosine or 0.0, coverage, question_language(run.query))
        strength = max(strength, _foreign_strength(run, rule))
    return Assessment("" if strength >= 0 else WEAK_EVIDENCE, strength, run.best_cosine, coverage)


def _foreign_strength(run: RetrievalRun, rule: Calibration) -> float:
    """A question may be answered by a passage of another language, which its cosine alone must tell."""
    language = question_language(run.query)
    cosines = [
        result.dense_score
        for result in run.results
        if result.dense_score is not None and not speaks(language, result.matched_content)
    ]
    if not cosines or rule.foreign_cosine is None:
        return float("-inf")
    return max(rule.cosine, 1.0) * (max(cosines) - rule.foreign_cosine)


def best_coverage(question: str, results: Sequence[RetrievalResult]) -> float:
    """Largest share (0-1, smoothed) of the question's terms that the matched chunks of one result hold."""
    wanted = question_terms(question)
    best = 0
    for result in results:
        text = "\n".join(chunk.content for chunk in result.matches) or result.matched_content
        held = set(terms(text))
        best = max(best, sum(term in held for term in wanted))
    return best / (len(wanted) + _SMOOTHING) if wanted else 0.0
