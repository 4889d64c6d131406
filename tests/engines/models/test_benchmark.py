"""The encoders' benchmark in small, with the rows of a GPU on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from rag_cluster.benchmarks import encoders
from rag_cluster.benchmarks.encoders_models import Shape
from rag_cluster.benchmarks.encoders_rows import Results
from rag_cluster.errors import ModelUnavailableError
from tests.fixtures.models import require_models

PLAN = encoders.Plan(
    Shape(30_000, 32, 1, 2, 64), texts=12, mean_tokens=20, reference_texts=6, slow_texts=2, pairs=4, reference_pairs=4,
    queries=2, rounds=1,
)  # fmt: skip


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> Results:
    """With a FlagEmbedding that cannot be loaded."""
    require_models()

    def broken(*_: object) -> None:
        raise ModelUnavailableError("cannot import name 'is_torch_fx_available'")

    monkeypatch.setattr(encoders, "FlagEmbedder", broken)
    monkeypatch.setattr(encoders, "FlagTextReranker", broken)
    return Results("CPU")


def test_a_library_that_cannot_be_loaded_costs_its_own_rows_alone(
    results: Results, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(encoders, "matrix_rate", lambda results: 1.0)
    monkeypatch.setattr(encoders, "FLOAT8_UNTIL", float("inf"))
    encoders.on_gpu(PLAN, results, tmp_path, "cpu")
    assert capsys.readouterr().out.count("not measured") == 3, "FlagEmbedding twice, and float8, which needs a GPU"
    assert [check[0] for check in results.checks] == [
        "varlen, tokens/s",
        "varlen, share of the matrix rate",
        "varlen, one query, ms",
        "varlen, 30 candidates, ms",
        "varlen, pairs/s",
        "varlen / sentence-transformers bf16",
        "varlen, cosine",
    ]


def test_a_machine_without_a_gpu_is_measured_at_small_sizes(
    results: Results, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encoders.on_cpu(PLAN, results, tmp_path, threads=1)
    assert "FlagEmbedding, fp32, 1 threads, wall time: not measured" in capsys.readouterr().out
    assert {check[0]: check[-1] for check in results.checks}["varlen, cosine"]
    assert len(results.checks) == 4 and all(value > 0 for _, value, _ in results.rows)
