"""rag-cluster models check."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from rag_cluster.cli.main import app
from rag_cluster.engines import check
from rag_cluster.engines.hashing import HashEmbedder
from rag_cluster.engines.options import EngineOptions
from rag_cluster.engines.overlap import OverlapReranker
from rag_cluster.settings import get_settings


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Runs `models` with an embedder and a reranker."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAG_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(check, "LEAST_SECONDS", 0.01)

    def run(embedder: str, reranker: str, *arguments: str, generator: str = "extractive") -> tuple[int, str]:
        monkeypatch.setenv("RAG_GENERATOR", generator)
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


def test_a_language_model_is_asked_for_one_short_answer(models) -> None:
    code, stdout = models("hash", "none", "--json", generator="rag_cluster.engines.echo:EchoGenerator")
    generator, embedder = json.loads(stdout)["models"]
    assert (code, generator["role"], generator["problem"], embedder["role"]) == (0, "generator", "", "embedder")
    assert generator["tokens_per_second"] > 0 and generator["query_milliseconds"] > 0


def test_a_language_model_that_does_not_answer_hides_no_other_model(models, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_GENERATOR_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("RAG_RETRIES", "0")
    code, stdout = models("hash", "none", "--json", generator="openai:qwen")
    generator, embedder = json.loads(stdout)["models"]
    assert (code, generator["device"], embedder["problem"]) == (1, "endpoint", "")
    assert generator["problem"].startswith("model_unavailable: ")
    code, stdout = models("hash", "none", generator="openai:qwen")
    assert code == 1 and "problem\tmodel_unavailable: " in stdout


def test_a_gpu_is_measured_with_chunks_that_fill_it_and_its_memory_is_what_it_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Counting(HashEmbedder):
        most, mean = 0, 0.0

        def embed_documents(self, texts):
            counts = self.tokenizer.count_many(texts)
            if sum(counts) > Counting.most:
                Counting.most, Counting.mean = sum(counts), sum(counts) / len(counts)
            return super().embed_documents(texts)

    memory = SimpleNamespace(
        is_initialized=lambda: True,
        reset_peak_memory_stats=lambda device: None,
        memory_allocated=lambda device: 100,
        max_memory_allocated=lambda device: 700,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=memory))
    monkeypatch.setattr(check, "_facts", lambda engine: {"device": "cuda:0", "memory": 50})
    found = check.check_embedder("hash", Counting(), EngineOptions())
    assert Counting.most > 131_072 and 200 < Counting.mean < 300 and found.memory_bytes == 600
    assert check.check_reranker("overlap", OverlapReranker(), EngineOptions()).memory_bytes == 600


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


def test_a_reranker_is_compared_with_sentence_transformers(models, small_bge_reranker: Path) -> None:
    code, stdout = models("hash", f"auto:{small_bge_reranker}", "--json")
    _, found = json.loads(stdout)["models"]
    assert (code, found["role"], found["reference"]) == (0, "reranker", "sentence-transformers, float32")
    assert found["score_difference"] < 1e-4 and found["agreement"]["first"] == 1.0
    assert found["parameters"] > 100_000
