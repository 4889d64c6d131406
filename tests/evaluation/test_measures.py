"""Figures of the evaluation, on cases small enough to check by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rag_cluster.errors import InvalidRequestError
from rag_cluster.evaluation.datasets import load, off_topic_questions
from rag_cluster.evaluation.measures import holds, percentile, retrieval_measures


def test_recall_mrr_and_ndcg_of_three_questions() -> None:
    gold = {"q1": "a", "q2": "b", "q3": "c"}
    rankings = {"q1": ["a", "x"], "q2": ["x", "b"], "q3": []}
    found = retrieval_measures(gold, rankings)
    assert found == {"recall@1": 0.3333, "recall@5": 0.6667, "mrr@10": 0.5, "ndcg@10": 0.5436}


def test_a_gold_string_counts_only_inside_a_quote_whatever_its_width_case_and_spaces() -> None:
    assert holds(["２０１９ 年"], ["The year was 2019年."])
    assert holds(["Ada Brandt"], ["built by ADA  BRANDT in 1887"])
    assert not holds(["Ada Brandt"], ["built by Ada", "Brandt in 1887"])
    assert not holds([""], ["anything"])


def test_percentiles_are_of_the_nearest_rank() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([], 0.99) == 0.0


def test_a_paragraph_that_occurs_twice_is_one_document(tmp_path: Path) -> None:
    paragraph = {"context": "P", "qas": [{"id": 1, "question": "?", "answers": [{"text": "P"}, {"text": "P"}]}]}
    path = tmp_path / "set.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}, {"paragraphs": [paragraph]}]}))
    dataset = load(f"squad:{path}")
    assert dataset.paragraphs == ("P",)
    assert [question.answers for question in dataset.questions] == [("P",), ("P",)]


@pytest.mark.parametrize("spec", ["xquad", "other:file.json", "squad:/nowhere.json"])
def test_an_unknown_dataset_is_an_error_that_says_so(spec: str) -> None:
    with pytest.raises(InvalidRequestError):
        load(spec)


def test_a_sample_is_spread_evenly_and_keeps_all_paragraphs(tmp_path: Path) -> None:
    paragraphs = [
        {"context": f"P{n}", "qas": [{"id": f"{n}", "question": "?", "answers": [{"text": "P"}]}]} for n in range(10)
    ]
    path = tmp_path / "set.json"
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    sample = load(f"squad:{path}").sample(3)
    assert [question.id for question in sample.questions] == ["0", "3", "6"]
    assert len(sample.paragraphs) == 10


def test_our_off_topic_questions_are_in_both_languages() -> None:
    questions = off_topic_questions()
    assert len(questions) == 60 and sum(question.isascii() for question in questions) == 30
