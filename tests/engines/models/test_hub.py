"""Models of the hub, from its cache: no test reaches the network."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rag_cluster.engines.encoder.checkpoint import open_checkpoint
from rag_cluster.engines.options import EngineOptions
from rag_cluster.engines.varlen import VarlenEmbedder
from rag_cluster.errors import InvalidSettingError, ModelUnavailableError

COMMIT = "c5f93f70e82d9e3fbd0d1a6b5c0f9b6f2b1ad2c7"
NAME = "sentence-transformers/all-MiniLM-L6-v2"
OPTIONS = EngineOptions(threads=1, device="cpu", load_timeout=60)


@pytest.fixture
def cache(minilm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub's cache with MiniLM in it."""
    from huggingface_hub import constants

    root = tmp_path / f"models--{NAME.replace('/', '--')}"
    shutil.copytree(minilm, root / "snapshots" / COMMIT)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return root


def test_a_cached_model_is_used_without_asking_the_hub(cache: Path, minilm: Path) -> None:
    engine = VarlenEmbedder(NAME, OPTIONS)
    assert (engine.checkpoint.model, engine.checkpoint.revision) == (NAME, COMMIT)
    texts = ["The harbour has three berths.", "泵"]
    folder = VarlenEmbedder(str(minilm), OPTIONS)
    assert (engine.embed_documents(texts) * folder.embed_documents(texts)).sum(axis=1).min() > 0.99999


def test_a_revision_is_the_same_model_under_its_own_name(cache: Path) -> None:
    pinned = open_checkpoint(f"{NAME}@{COMMIT}", OPTIONS)
    assert pinned.fingerprint() == open_checkpoint(NAME, EngineOptions(load_timeout=61)).fingerprint()


def test_what_is_not_cached_is_an_outage_where_there_is_no_network(cache: Path) -> None:
    with pytest.raises(ModelUnavailableError, match="org/other"):
        open_checkpoint("org/other", OPTIONS)


def test_weights_that_are_not_there_are_named(cache: Path) -> None:
    (cache / "snapshots" / COMMIT / "model.safetensors").unlink()
    with pytest.raises(InvalidSettingError, match="holds no weights"):
        VarlenEmbedder(NAME, EngineOptions(threads=1, device="cpu", load_timeout=62)).embed_documents(["a"])
