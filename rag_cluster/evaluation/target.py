"""The system under evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rag_cluster.answering.answerer import Answerer
from rag_cluster.answering.calibration import Calibration
from rag_cluster.evaluation.results import Cost
from rag_cluster.retrieval.retriever import Retriever


@dataclass(frozen=True, slots=True)
class Target:
    """A knowledge base that holds a data set's documents, and what asks it."""

    retriever: Retriever
    """Its embedder may remember queries."""
    timed: Retriever
    """Its embedder does not: for latencies."""
    knowledge_base_id: str
    names: Mapping[str, str]
    """Document id -> name in the data set."""
    variant: str = ""
    cost: Cost | None = None
    answerer: Answerer | None = None
    calibration: Calibration | None = None
    """Both for `answers.measure` alone."""
