"""What the files of a model say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rag_cluster.engines.encoder.checkpoint import open_checkpoint, read
from rag_cluster.engines.options import EngineOptions
from rag_cluster.errors import InvalidSettingError

XLM = {
    "model_type": "xlm-roberta", "vocab_size": 250002, "hidden_size": 1024, "num_hidden_layers": 24,
    "num_attention_heads": 16, "intermediate_size": 4096, "max_position_embeddings": 8194, "type_vocab_size": 1,
    "layer_norm_eps": 1e-5, "pad_token_id": 1,
}  # fmt: skip
BERT = XLM | {"model_type": "bert", "max_position_embeddings": 512, "type_vocab_size": 2, "pad_token_id": 0}


def model(folder: Path, config: dict[str, Any], **files: Any) -> Path:
    """A model's folder; a file's name with "__" for "/" and without ".json"."""
    folder.mkdir(exist_ok=True)
    for name, value in {"config": config, **files}.items():
        path = folder / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(value), encoding="utf-8")
    return folder


def modules(*kinds: str) -> list[dict[str, str]]:
    return [{"path": "" if kind == "Transformer" else f"{at}_{kind}", "type": f"sentence_transformers.models.{kind}"}
            for at, kind in enumerate(kinds)]  # fmt: skip


THREE = modules("Transformer", "Pooling", "Normalize")


def test_positions_of_roberta_begin_after_the_padding(tmp_path: Path) -> None:
    xlm, bert = read("m", model(tmp_path / "a", XLM)), read("m", model(tmp_path / "b", BERT))
    assert xlm.architecture is not None
    assert bert.architecture is not None
    assert (xlm.architecture.first_position, bert.architecture.first_position) == (2, 0)
    assert (xlm.max_tokens, bert.max_tokens) == (8192, 512)


def test_the_smallest_limit_counts(tmp_path: Path) -> None:
    files = {"sentence_bert_config": {"max_seq_length": 300}, "tokenizer_config": {"model_max_length": 10**30}}
    folder = model(tmp_path / "m", BERT, **files)
    assert open_checkpoint(str(folder), EngineOptions()).max_tokens == 300
    assert open_checkpoint(str(folder), EngineOptions(max_tokens=128)).max_tokens == 128
    assert open_checkpoint(str(folder), EngineOptions(max_tokens=4096)).max_tokens == 300


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode": "cls"}, "cls"),
        ({"pooling_mode": ["mean"]}, "mean"),
    ],
)
def test_old_and_new_names_of_pooling_are_read(tmp_path: Path, config: dict[str, Any], pooling: str) -> None:
    found = read("m", model(tmp_path / "m", XLM, modules=THREE, **{"1_Pooling__config": config}))
    assert (found.pooling, found.unsupported) == (pooling, "")


@pytest.mark.parametrize(
    ("config", "files", "reason"),
    [
        (XLM | {"model_type": "modernbert"}, {}, "architecture is modernbert"),
        (BERT | {"position_embedding_type": "relative_key"}, {}, "relative_key"),
        (BERT | {"hidden_act": "silu"}, {}, "silu"),
        (BERT, {"modules": THREE, "1_Pooling__config": {"pooling_mode": "lasttoken"}}, "lasttoken"),
        (BERT, {"modules": THREE, "1_Pooling__config": {"pooling_mode": ["cls", "mean"]}}, "cls, mean"),
        (
            BERT,
            {"modules": modules("Transformer", "Pooling", "Dense"), "1_Pooling__config": {"pooling_mode": "cls"},
             "2_Dense__config": {"out_features": 256}},
            "Dense",
        ),
    ],
)  # fmt: skip
def test_what_varlen_does_not_compute_has_a_reason(
    tmp_path: Path, config: dict[str, Any], files: dict[str, Any], reason: str
) -> None:
    assert reason in read("m", model(tmp_path / "m", config, **files)).unsupported


def test_prefixes_come_from_the_files_then_from_the_family_then_from_nowhere(tmp_path: Path) -> None:
    prompts = {"prompts": {"query": "q: ", "passage": "p: "}}
    said = read("x", model(tmp_path / "a", XLM, config_sentence_transformers=prompts))
    assert (said.query_prefix, said.document_prefix) == ("q: ", "p: ")
    plain = model(tmp_path / "b", XLM)
    e5 = read("intfloat/multilingual-e5-large@main", plain)
    assert (e5.query_prefix, e5.document_prefix) == ("query: ", "passage: ")
    bge = read("BAAI/bge-large-zh-v1.5", plain)
    assert (bge.query_prefix[:4], bge.document_prefix) == ("为这个句", "")
    m3 = read("BAAI/bge-m3", plain)
    assert (m3.query_prefix, m3.document_prefix) == ("", "")


def test_settings_replace_prefixes_even_with_nothing(tmp_path: Path) -> None:
    prompts = {"prompts": {"query": "q: ", "document": "d: "}}
    folder = model(tmp_path / "m", XLM, config_sentence_transformers=prompts)
    found = open_checkpoint(str(folder), EngineOptions(query_prefix="", document_prefix="text: "))
    assert (found.query_prefix, found.document_prefix) == ("", "text: ")


def test_a_fingerprint_changes_with_what_changes_vectors_and_with_nothing_else(tmp_path: Path) -> None:
    folder = model(tmp_path / "a", XLM)
    (folder / "model.safetensors").write_bytes(bytes(3_000_000))
    first = read("a", folder)
    assert read("elsewhere/a", folder).fingerprint() == first.fingerprint()
    options = EngineOptions(query_prefix="q: ")
    assert open_checkpoint(str(folder), options).fingerprint() != first.fingerprint()
    trained = bytearray(3_000_000)
    trained[::1000] = b"\x01" * 3000
    (folder / "model.safetensors").write_bytes(trained)
    assert read("a", folder).fingerprint() != first.fingerprint()


@pytest.mark.parametrize("name", ["", "/no/such/folder", "./none", "a b/c", "org/name/too/deep"])
def test_what_is_no_model_is_refused(name: str) -> None:
    with pytest.raises(InvalidSettingError):
        open_checkpoint(name, EngineOptions())


def test_a_folder_without_configuration_or_with_a_broken_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingError, match="is missing"):
        open_checkpoint(str(tmp_path), EngineOptions())
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InvalidSettingError, match="cannot be read"):
        read("m", tmp_path)
