"""Files of weights in every form that checkpoints have had."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from rag_cluster.engines.options import EngineOptions
from rag_cluster.engines.varlen import VarlenEmbedder
from rag_cluster.errors import InvalidSettingError

OPTIONS = EngineOptions(device="cpu", threads=1)


@pytest.mark.parametrize("archive", [True, False])
def test_weights_that_torch_saved_are_read_also_from_before_its_archives(
    archive: bool, small_bge_m3: Path, tmp_path: Path
) -> None:
    import torch
    from safetensors.torch import load_file

    folder = tmp_path / "model"
    shutil.copytree(small_bge_m3, folder)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin", _use_new_zipfile_serialization=archive)
    found = VarlenEmbedder(str(folder), OPTIONS).embed_documents(["泵"])
    assert np.array_equal(found, VarlenEmbedder(str(small_bge_m3), OPTIONS).embed_documents(["泵"]))


@pytest.mark.parametrize("damage", [b"", b"not weights", b"PK\x03\x04"])
def test_a_file_that_holds_no_weights_is_named(damage: bytes, small_bge_m3: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(small_bge_m3, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    (folder / "pytorch_model.bin").write_bytes(damage)
    with pytest.raises(InvalidSettingError, match=r"pytorch_model\.bin cannot be read as weights"):
        VarlenEmbedder(str(folder), OPTIONS).embed_documents(["泵"])
