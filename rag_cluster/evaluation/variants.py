"""What is compared with what: ways of retrieving (arms) and ways of chunking (variants)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rag_cluster.domain.retrieval import RetrievalMode
from rag_cluster.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of retrieving."""

    name: str
    mode: RetrievalMode = RetrievalMode.HYBRID
    rerank: bool = False
    parents: bool = False
    cross_language: bool = False


ARMS = {
    arm.name: arm
    for arm in (
        Arm("dense", RetrievalMode.DENSE),
        Arm("sparse", RetrievalMode.SPARSE),
        Arm("hybrid"),
        Arm("rerank", rerank=True),
        Arm("parents", parents=True),
        Arm("rerank+parents", rerank=True, parents=True),
        Arm("cross", cross_language=True),
    )
}
"""Hybrid unless named otherwise; a result is a chunk, with parents its parent."""

_POSITIONS: Mapping[str, tuple[str, ...]] = {
    "structured": ("child_tokens", "parent_tokens"),
    "fixed_size": ("size", "overlap"),
    "recursive": ("size", "overlap"),
    "sentence": ("size", "max_sentences"),
    "paragraph": ("size", "max_paragraphs"),
    "semantic": ("threshold", "min_size", "max_size"),
}


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of chunking. Without parameters: the settings'."""

    label: str
    strategy: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


def parse_arms(text: str) -> tuple[Arm, ...]:
    """Names apart by commas. InvalidRequestError for one that is not known."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or any(name not in ARMS for name in names):
        raise InvalidRequestError(f"An ablation is a list of {', '.join(ARMS)}; not {text!r}.")
    return tuple(ARMS[name] for name in dict.fromkeys(names))


def measurable(arms: Sequence[Arm], *, reranker: bool) -> tuple[Arm, ...]:
    """Those that a system with or without a reranker can be asked. InvalidRequestError where none is left."""
    left = tuple(arm for arm in arms if reranker or not arm.rerank)
    if not left:
        raise InvalidRequestError(f"{', '.join(arm.name for arm in arms)}: no reranker is configured (RAG_RERANKER).")
    return left


def parse_variants(texts: Iterable[str]) -> tuple[Variant, ...]:
    """Each text lists variants apart by commas, as `structured:300/1200` or `fixed_size:512/50` or `semantic`."""
    labels = [label.strip() for text in texts for label in text.split(",") if label.strip()]
    return tuple(_variant(label) for label in dict.fromkeys(labels))


def _variant(label: str) -> Variant:
    strategy, _, given = label.partition(":")
    names: Sequence[str] = _POSITIONS.get(strategy, ())
    values = given.split("/") if given else []
    if strategy not in _POSITIONS or len(values) > len(names):
        known = ", ".join(f"{name}:{'/'.join(parameters)}" for name, parameters in _POSITIONS.items())
        raise InvalidRequestError(f"A way of chunking is one of {known}; not {label!r}.")
    try:
        numbers = [float(value) if "." in value else int(value) for value in values]
    except ValueError:
        raise InvalidRequestError(f"{label!r}: {given!r} is not numbers apart by /.") from None
    return Variant(label, strategy, dict(zip(names, numbers, strict=False)))
