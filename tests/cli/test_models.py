"""rag-cluster models check."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rag_cluster.cli.main import app
from rag_cluster.settings import get_settings


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Runs `models` with an embedder and a reranker."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAG_DATA_DIR", str(tmp_path))

    def run(embedder: str, reranker: str, *arguments: str) -> tuple[int, str]:
        monkeypatch.setenv("RAG_EMBEDDER", embedder)
        monkeypatch.setenv("RAG_RERANKER", reranker)
        get_settings.cache_clear()
        outcome = CliRunner().invoke(app, ["models", "check", *arguments])
        return outcome.exit_code, outcome.stdout

    yield run
    get_settings.cache_clear()


def test_engines_without_another_implementation_are_measured_and_it_is_said(models) -> None:
    code, stdout = models("hash:64", "overlap", "--json")
    embedder, reranker = json.loads(stdout)["models"]
    assert code == 0
    assert (embedder["role"], embedder["dimension"], embedder["cosine"]) == ("embedder", 64, None)
    assert embedder["tokens_per_second"] > 0
    assert embedder["query_milliseconds"] > 0
    assert embedder["reference"].startswith("none: hash")
    assert (reranker["role"], reranker["agreement"]) == ("reranker", None)
    assert reranker["pairs_per_second"] > 0


def test_people_get_a_column_for_each_model(models) -> None:
    code, stdout = models("hash", "none")
    assert code == 0
    assert "dimension\t256" in stdout
    assert "reference\tnone: hash has no other implementation here" in stdout


def test_a_model_that_is_not_there_is_a_clear_error(models) -> None:
    code, stdout = models("auto:/no/such/model", "none", "--json")
    assert code == 1
    assert json.loads(stdout)["error"]["type"] == "invalid_setting"


def test_a_missing_extra_is_named(models, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rag_cluster.engines.options.importlib.util.find_spec", lambda name: None)
    code, stdout = models("varlen:some/model", "none", "--json")
    error = json.loads(stdout)["error"]
    assert (code, error["type"]) == (1, "missing_dependency")
    assert "rag-cluster[models]" in error["message"]


def test_varlen_is_compared_with_sentence_transformers(models, minilm: Path) -> None:
    code, stdout = models(f"varlen:{minilm}", "none", "--json")
    (found,) = json.loads(stdout)["models"]
    assert (code, found["dimension"], found["reference"]) == (0, 384, "sentence-transformers, float32")
    assert found["parameters"] > 20_000_000
    assert found["memory_bytes"] == 4 * found["parameters"]
    assert found["cosine"] > 0.9999
    assert found["agreement"]["first"] == 1.0
