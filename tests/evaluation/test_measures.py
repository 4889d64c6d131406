"""Figures of the evaluation, on cases small enough to check by hand, and against ir_measures."""

from __future__ import annotations

import random

import ir_measures
import pytest

from rag_cluster.engines.tokenizers import RegexTokenizer
from rag_cluster.evaluation.datasets import Span
from rag_cluster.evaluation.excerpts import SourceText, excerpt_measures, intersection, union
from rag_cluster.evaluation.measures import RANKING, holds, mean, means, percentile, ranking_measures


def test_recall_mrr_and_ndcg_of_a_second_place() -> None:
    found = ranking_measures({"b"}, ["x", "b"])
    assert found == pytest.approx(
        {"recall@1": 0.0, "recall@5": 1.0, "recall@10": 1.0, "mrr@10": 0.5, "ndcg@10": 0.63093}, abs=1e-5
    )


def test_ranking_measures_are_those_of_ir_measures() -> None:
    names = [ir_measures.parse_measure(name) for name in ("R@1", "R@5", "R@10", "RR@10", "nDCG@10")]
    draw = random.Random(3)
    for _ in range(200):
        documents = [f"d{number}" for number in range(20)]
        relevant = draw.sample(documents, draw.randint(1, 4))
        ranking = draw.sample(documents, draw.randint(1, 20))
        qrels = [ir_measures.Qrel("q", document, 1) for document in relevant]
        run = [ir_measures.ScoredDoc("q", document, -float(rank)) for rank, document in enumerate(ranking)]
        expected = ir_measures.calc_aggregate(names, qrels, run)
        found = ranking_measures(relevant, ranking)
        assert [found[name] for name in RANKING] == pytest.approx([expected[name] for name in names])


def test_a_mean_is_of_the_questions_that_can_be_measured() -> None:
    assert mean([1.0, None, 0.0]) == 0.5 and mean([None]) is None
    assert means({"a": [1.0, 0.0, 1.0], "b": [None, None, 1.0]}, [0, 1]) == {"a": 0.5}


def test_a_gold_string_counts_only_inside_a_quote_whatever_its_width_case_and_spaces() -> None:
    assert holds(["２０１９ 年"], ["The year was 2019年."])
    assert holds(["Ada Brandt"], ["built by ADA  BRANDT in 1887"])
    assert not holds(["Ada Brandt"], ["built by Ada", "Brandt in 1887"])
    assert not holds([""], ["anything"])


def test_percentiles_are_of_the_nearest_rank() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([], 0.99) == 0.0


TEXT = "One two three four. Five six seven eight.\n\n第一句话在这里。第二句话在那里。"
SOURCE = SourceText(TEXT, RegexTokenizer())


def test_a_text_is_found_in_its_document_whatever_stands_between_its_letters() -> None:
    (start, end), *rest = SOURCE.find("Five **six**  seven\neight")
    assert not rest and TEXT[start:end] == "Five six seven eight."
    assert [TEXT[a:b] for a, b in SOURCE.find("第二句话在那里。")] == ["第二句话在那里。"]


def test_a_text_that_is_no_literal_slice_is_found_part_by_part() -> None:
    found = [TEXT[a:b] for a, b in SOURCE.find("One two three four. Nowhere at all. 第二句话在那里。")]
    assert found == ["One two three four.", "第二句话在那里。"]


def test_tokens_of_a_document_are_those_that_its_tokenizer_counts() -> None:
    assert SOURCE.tokens([(0, len(TEXT))]) == pytest.approx(RegexTokenizer().count(TEXT))


def test_the_last_range_is_cut_at_the_budget_and_what_comes_twice_costs_twice() -> None:
    source = SourceText(" ".join(f"w{number}" for number in range(100)), RegexTokenizer())
    start, end = source.find("w10 w11 w12 w13 w14 w15 w16 w17 w18 w19")[0]
    relevant = [Span("d", start, end)]
    first_half = source.find("w10 w11 w12 w13 w14")
    found = excerpt_measures({"d": source}, relevant, [(source, first_half), (source, first_half)], [10])
    expected = {"token_recall@10": 0.5, "token_precision@10": 0.5, "token_iou@10": 1 / 3, "first_5_recall": 0.5}
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=0.03)
    assert found["first_5_tokens"] == pytest.approx(10, abs=0.5)
    whole = source.find(source.text)
    cut = excerpt_measures({"d": source}, relevant, [(source, whole)], [15, 100])
    assert cut["token_recall@15"] == pytest.approx(0.5, abs=0.11) and cut["token_recall@100"] == pytest.approx(1)
    assert cut["token_precision@100"] == pytest.approx(0.1, abs=0.01)


def test_ranges_are_united_and_met() -> None:
    assert union([(5, 9), (0, 3), (2, 4)]) == [(0, 4), (5, 9)]
    assert intersection([(0, 4), (5, 9)], [(3, 6)]) == [(3, 4), (5, 6)]
