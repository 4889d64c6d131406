"""Files of weights -> the encoder's own parameters: names of transformers; queries, keys and values fused."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import TypeVar

import torch
from torch import nn

from rag_cluster.engines.encoder.checkpoint import Architecture, Checkpoint, locate
from rag_cluster.engines.encoder.model import EmbeddingHead, Encoder, ScoreHead
from rag_cluster.errors import InvalidSettingError

SAFE = ("model*.safetensors", "model.safetensors.index.json")
PICKLED = ("pytorch_model*.bin", "pytorch_model.bin.index.json")

Tensors = Mapping[str, torch.Tensor]
M = TypeVar("M", bound=nn.Module)

_BOTH = ("weight", "bias")
_SAME = {
    "output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "norm": "output.LayerNorm",
}
"""Our part of a layer -> its name in the file."""


def load_embedder(checkpoint: Checkpoint, timeout: float) -> tuple[Encoder, EmbeddingHead]:
    """Encoder and pooling of an embedding model, float32 on the CPU. InvalidSettingError when weights are missing."""
    shape = _supported(checkpoint)
    tensors = read_tensors(checkpoint, timeout)
    return build_encoder(shape, tensors), EmbeddingHead(checkpoint.pooling, shape.hidden)


def load_reranker(checkpoint: Checkpoint, timeout: float) -> tuple[Encoder, ScoreHead]:
    """Encoder and classification head of a cross-encoder with one output."""
    shape = _supported(checkpoint)
    tensors = read_tensors(checkpoint, timeout)
    return build_encoder(shape, tensors), build_score_head(shape, tensors, checkpoint.name)


def read_tensors(checkpoint: Checkpoint, timeout: float) -> dict[str, torch.Tensor]:
    """All tensors by their names without the architecture's own prefix. A hub's weights are downloaded if need be."""
    for needed in (SAFE, PICKLED):
        locate(checkpoint.name, needed, timeout)
        if files := _files(checkpoint.transformer, *needed):
            break
    else:
        raise InvalidSettingError(f"{checkpoint.transformer} holds no weights: {SAFE[0]} or {PICKLED[0]}")
    tensors: dict[str, torch.Tensor] = {}
    for path in files:
        try:
            tensors.update(_read(path))
        except (OSError, ValueError, RuntimeError, EOFError, UnpicklingError) as error:
            raise InvalidSettingError(f"{path} cannot be read as weights: {error}") from error
    return {_plain(name): tensor for name, tensor in tensors.items()}


def _supported(checkpoint: Checkpoint) -> Architecture:
    if checkpoint.architecture is None or checkpoint.unsupported:
        raise InvalidSettingError(f"varlen cannot compute {checkpoint.name}: {checkpoint.unsupported}")
    return checkpoint.architecture


def _files(folder: Path, pattern: str, index: str) -> list[Path]:
    if (folder / index).is_file():
        names = set(json.loads((folder / index).read_text(encoding="utf-8"))["weight_map"].values())
        return [folder / name for name in sorted(names)]
    return sorted(folder.glob(pattern))


def _read(path: Path) -> dict[str, torch.Tensor]:
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        safe: dict[str, torch.Tensor] = load_file(path)
        return safe
    # torch before 1.6 wrote no archive, and only such can be mapped.
    mapped = zipfile.is_zipfile(path)
    tensors: dict[str, torch.Tensor] = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    return tensors


def _plain(name: str) -> str:
    for prefix in ("bert.", "roberta.", "model.", "0.auto_model."):
        name = name.removeprefix(prefix)
    # Names of TensorFlow's days.
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def build_encoder(shape: Architecture, tensors: Tensors) -> Encoder:
    """The encoder with these weights as float32. InvalidSettingError when they are not of that shape."""
    with torch.device("meta"):
        encoder = Encoder(shape)
    return _filled(encoder, _encoder_weights(shape, tensors))


def build_score_head(shape: Architecture, tensors: Tensors, name: str) -> ScoreHead:
    """The classification head with these weights. InvalidSettingError when the model is no reranker."""
    bert = shape.model_type == "bert"
    dense, out = ("pooler.dense", "classifier") if bert else ("classifier.dense", "classifier.out_proj")
    if f"{out}.weight" not in tensors:
        raise InvalidSettingError(f"{name} is no reranker: it has no classification head")
    if (labels := tensors[f"{out}.weight"].shape[0]) != 1:
        raise InvalidSettingError(f"{name} is no reranker: it has {labels} outputs, not one")
    with torch.device("meta"):
        head = ScoreHead(shape.hidden)
    places = (("dense", dense), ("out", out))
    return _filled(head, ((f"{ours}.{kind}", tensors[f"{theirs}.{kind}"]) for ours, theirs in places for kind in _BOTH))


def _encoder_weights(shape: Architecture, tensors: Tensors) -> Iterator[tuple[str, torch.Tensor]]:
    """(our name, tensor)."""
    for ours, theirs in (("words", "word"), ("places", "position"), ("types", "token_type")):
        yield f"{ours}.weight", tensors[f"embeddings.{theirs}_embeddings.weight"]
    for kind in _BOTH:
        yield f"norm.{kind}", tensors[f"embeddings.LayerNorm.{kind}"]
    for layer in range(shape.layers):
        here, there = f"layers.{layer}", f"encoder.layer.{layer}"
        for kind in _BOTH:
            parts = [tensors[f"{there}.attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
            yield f"{here}.qkv.{kind}", torch.cat(parts)
            for ours, theirs in _SAME.items():
                yield f"{here}.{ours}.{kind}", tensors[f"{there}.{theirs}.{kind}"]


def _filled(module: M, weights: Iterable[tuple[str, torch.Tensor]]) -> M:
    """The module, built without memory, with these weights and ready for inference."""
    try:
        module.load_state_dict({name: tensor.float() for name, tensor in weights}, assign=True)
    except KeyError as error:
        raise InvalidSettingError(f"The weights lack {error.args[0]}") from error
    except RuntimeError as error:  # of another shape
        raise InvalidSettingError(f"The weights do not fit their configuration: {error}") from error
    module.requires_grad_(False)
    module.eval()
    return module
