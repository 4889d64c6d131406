"""Comparing two runs, gates, and files of runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from rag_cluster.errors import InvalidRequestError
from rag_cluster.evaluation.gates import check, parse_gates
from rag_cluster.evaluation.html_report import page
from rag_cluster.evaluation.results import ArmResult, Cost, Evaluation
from rag_cluster.evaluation.significance import bootstrap_interval, caveats, compare, randomisation_p


def run(*arms: ArmResult, questions: int = 40) -> Evaluation:
    names = [f"q{number}" for number in range(questions)]
    return Evaluation("set", 3, names, arms, groups={"zh": [0, 1]}, system={"embedder": "hash"})


def arm(scores: list[float | None], name: str = "hybrid", variant: str = "") -> ArmResult:
    cost = Cost(chunks=2, tokens=30)
    return ArmResult(
        name, variant, {"recall@5": scores}, {"p50_ms": 3.0, "p95_ms": 4.0, "p99_ms": 5.0}, cost, ("note",)
    )


def test_the_p_value_is_that_of_scipys_permutation_test() -> None:
    differences = np.random.default_rng(1).normal(0.15, 0.5, 40)
    expected = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=20_000, rng=np.random.default_rng(2)
    ).pvalue
    assert randomisation_p(differences) == pytest.approx(expected, abs=0.015)


def test_a_few_differences_are_tested_exactly() -> None:
    assert randomisation_p(np.array([1.0, 1.0, 1.0, 0.0, 0.0])) == 0.25  # two of the eight patterns of signs
    assert randomisation_p(np.zeros(5)) == 1.0


def test_the_interval_holds_the_mean_and_narrows_with_more_questions() -> None:
    draw = np.random.default_rng(4)
    few, many = (bootstrap_interval(draw.normal(0.1, 1.0, size)) for size in (50, 2000))
    assert few[0] < 0.1 < few[1] and many[1] - many[0] < (few[1] - few[0]) / 4


def test_runs_are_compared_on_the_questions_that_both_have() -> None:
    a = run(arm([0.0] * 40))
    b = run(arm([1.0] * 30 + [0.0] * 10))
    (found,) = compare(a, b)
    assert (found.a, found.b, found.difference, found.questions) == (0.0, 0.75, 0.75, 40)
    assert found.significant and found.low > 0.5
    fewer = Evaluation("set", 3, ["q39", "other"], [arm([0.0, 1.0])])
    assert compare(a, fewer)[0].questions == 1


def test_what_two_runs_do_not_share_is_said() -> None:
    a, b = run(arm([0.0] * 40)), run(arm([1.0] * 40))
    assert caveats(a, b) == []
    data_sets, questions = caveats(a, Evaluation("other", 3, ["q39", "new"], [arm([0.0, 1.0])]))
    assert "set and other" in data_sets and questions == "1 questions are compared, of 40 and 2."


def test_one_way_of_chunking_is_compared_with_another() -> None:
    a, b = run(arm([0.5] * 40, variant="fixed_size:512/50")), run(arm([0.5] * 40, variant="structured"))
    assert compare(a, b)[0].arm == "fixed_size:512/50 hybrid -> structured hybrid"


def test_runs_that_share_nothing_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="no question"):
        compare(run(arm([1.0] * 40)), Evaluation("set", 3, ["x"], [arm([1.0])]))
    with pytest.raises(InvalidRequestError, match="no arm"):
        compare(run(arm([1.0] * 40), arm([1.0] * 40, "dense")), run(arm([1.0] * 40, "sparse")))


@pytest.mark.parametrize(
    ("gate", "passed"),
    [
        ("recall@5>=0.5", True),
        ("recall@5 > 0.5", False),
        ("dense recall@5>=0.9", True),
        ("recall@5/zh<1", True),
        ("p99_ms<=5", True),
    ],
)
def test_a_gate_asks_one_arm_for_one_measure(gate: str, passed: bool) -> None:
    evaluation = run(arm([0.5] * 40), arm([1.0] * 40, "dense"))
    (verdict,) = check(parse_gates([gate]), evaluation)
    assert verdict.passed is passed


@pytest.mark.parametrize("gate", ["recall@5", "recall@5>=much", "nonsense@5>=1", "other recall@5>=1", "recall@5/fr>=1"])
def test_a_gate_that_tests_nothing_is_an_error(gate: str) -> None:
    with pytest.raises(InvalidRequestError):
        check(parse_gates([gate]), run(arm([0.5] * 40)))


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    evaluation = run(arm([0.5, None] * 20), arm([1.0] * 40, variant="structured:200/600"))
    path = tmp_path / "run.json"
    evaluation.write(path)
    assert Evaluation.read(path).summary() == evaluation.summary()
    path.write_text('{"schema": 99}')
    with pytest.raises(InvalidRequestError, match="not a report"):
        Evaluation.read(path)


def test_the_page_needs_nothing_else_and_escapes_names() -> None:
    excerpts = ArmResult("parents", "a<b", {"token_recall@250": [0.5] * 40, "token_recall@500": [0.75] * 40})
    evaluation = run(arm([0.5] * 40), excerpts)
    html = page(evaluation, check(parse_gates(["hybrid recall@5>=0.9"]), evaluation))
    assert html.count("<svg") == 3 and "a&lt;b parents" in html and "a<b" not in html
    assert "http" not in html and "<script" not in html and ">failed<" in html
