"""What the models that the settings name are and do on this machine, beside their reference implementation."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from rag_cluster.engines.options import EngineOptions
from rag_cluster.engines.ranking import PASSAGES, QUESTIONS, Agreement, compare_rankings
from rag_cluster.engines.varlen import VarlenEmbedder, VarlenReranker

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Embedder, Reranker

LEAST_SECONDS = 1.0
"""Of a measurement of speed."""
QUERIES = 20
GPU_CHUNKS = 1024
"""Texts of a GPU's measurement: more tokens than one pack holds."""
REFERENCE = "sentence-transformers"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCheck:
    """None: not known, or not asked."""

    role: str
    name: str
    device: str
    dtype: str = ""
    dimension: int | None = None
    max_tokens: int | None = None
    """Of one text or pair; of a generator, of prompt and answer together."""
    parameters: int | None = None
    memory_bytes: int | None = None
    """Of a GPU: the most that was allocated while speed was measured. Of a CPU: of the weights, or by how much loading
    made this process grow."""
    load_seconds: float | None = None
    tokens_per_second: float | None = None
    pairs_per_second: float | None = None
    query_milliseconds: float | None = None
    """Median of one query; of a reranker, of 30 candidates; of a generator, until its first word."""
    reference: str
    """The implementation compared with, or why there is none."""
    cosine: float | None = None
    """Least over the 64 texts."""
    score_difference: float | None = None
    """Largest of a reranker's."""
    agreement: Agreement | None = None
    problem: str = ""
    """Why it could not be measured."""


def check_embedder(name: str, embedder: Embedder, options: EngineOptions) -> ModelCheck:
    """Load, measure and compare on 32 questions and 32 passages. ModelUnavailableError and the like when it cannot."""
    others = _allocated(options.device)
    seconds, grown = _loaded(lambda: embedder.embed_queries([QUESTIONS[0]]))
    queries, passages = embedder.embed_queries(QUESTIONS), embedder.embed_documents(PASSAGES)
    facts = _facts(embedder)
    texts = chunks(GPU_CHUNKS) if _on_gpu(facts) else list(PASSAGES) * 4
    tokens = sum(embedder.tokenizer.count_many(texts))
    rounds, took = _repeated(lambda: embedder.embed_documents(texts))
    times = [_seconds(partial(embedder.embed_queries, [question])) for question in QUESTIONS[:QUERIES]]
    found = ModelCheck(
        role="embedder",
        name=name,
        device=facts.get("device", _place(name)),
        dtype=facts.get("dtype", ""),
        dimension=embedder.dimension,
        max_tokens=embedder.max_tokens,
        parameters=facts.get("parameters"),
        memory_bytes=_memory(facts, grown, others),
        load_seconds=seconds,
        tokens_per_second=tokens * rounds / took,
        query_milliseconds=1000 * median(times),
        reference=_no_reference(name, embedder),
    )
    if found.reference:
        return found
    from rag_cluster.engines.sentence_transformers import SentenceTransformersEmbedder

    other = SentenceTransformersEmbedder(_model(name), replace(options, dtype="float32"))
    theirs = other.embed_queries(QUESTIONS), other.embed_documents(PASSAGES)
    cosines = [(mine * their).sum(axis=1).min() for mine, their in zip((queries, passages), theirs, strict=True)]
    agreement = compare_rankings(theirs[0] @ theirs[1].T, queries @ passages.T)
    return replace(found, reference=f"{REFERENCE}, float32", cosine=float(min(cosines)), agreement=agreement)


def check_reranker(name: str, reranker: Reranker, options: EngineOptions) -> ModelCheck:
    """Load, measure with 30 candidates a question, and compare."""
    others = _allocated(options.device)
    seconds, grown = _loaded(lambda: reranker.rerank(QUESTIONS[0], PASSAGES[:1]))
    # Half of them English.
    candidates = [passage for pair in zip(PASSAGES[:15], PASSAGES[16:31], strict=True) for passage in pair]
    questions = [QUESTIONS[0], QUESTIONS[16], QUESTIONS[5], QUESTIONS[21]]
    scores, times = [], []
    for question in questions:
        start = time.perf_counter()
        scores.append(reranker.rerank(question, candidates))
        times.append(time.perf_counter() - start)
    facts = _facts(reranker)
    if _on_gpu(facts):
        texts = chunks(len(candidates))
        times = [_seconds(partial(reranker.rerank, question, texts)) for question in questions]
    found = ModelCheck(
        role="reranker",
        name=name,
        device=facts.get("device", _place(name)),
        dtype=facts.get("dtype", ""),
        max_tokens=facts.get("max_tokens"),
        parameters=facts.get("parameters"),
        memory_bytes=_memory(facts, grown, others),
        load_seconds=seconds,
        pairs_per_second=len(questions) * len(candidates) / sum(times),
        query_milliseconds=1000 * median(times),
        reference=_no_reference(name, reranker),
    )
    if found.reference:
        return found
    from rag_cluster.engines.sentence_transformers import SentenceTransformersReranker

    other = SentenceTransformersReranker(_model(name), replace(options, dtype="float32"))
    mine, theirs = np.array(scores), np.array([other.rerank(question, candidates) for question in questions])
    return replace(
        found,
        reference=f"{REFERENCE}, float32",
        score_difference=float(np.abs(mine - theirs).max()),
        agreement=compare_rankings(theirs.astype(np.float32), mine.astype(np.float32)),
    )


def chunks(count: int) -> list[str]:
    """Texts of about 250 tokens, as ingestion makes them: what keeps a GPU busy."""
    return [" ".join((PASSAGES * 2)[at % len(PASSAGES) :][:14]) for at in range(count)]


def _on_gpu(facts: dict[str, Any]) -> bool:
    return str(facts.get("device")).startswith("cuda")


def _allocated(device: str) -> int:
    """Bytes of the GPU that models before this one hold in this process. From here on the most is counted anew."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized() or device == "cpu":
        return 0
    place = None if device == "auto" else device
    torch.cuda.reset_peak_memory_stats(place)
    return int(torch.cuda.memory_allocated(place))


def _memory(facts: dict[str, Any], grown: int, others: int) -> int:
    if not _on_gpu(facts):
        return int(facts.get("memory", grown))
    import torch

    return int(torch.cuda.max_memory_allocated(facts["device"])) - others


def _place(name: str) -> str:
    return "endpoint" if name.startswith("openai:") else "cpu"


def _model(name: str) -> str:
    return name.partition(":")[2]


def _no_reference(name: str, made: object) -> str:
    """Why an engine is not compared; empty when it is."""
    engine = name.partition(":")[0]
    if type(made).__module__ == "rag_cluster.engines.sentence_transformers":
        return f"none: {REFERENCE} is the reference itself"
    if engine not in ("varlen", "flagembedding", "auto"):
        return f"none: {engine} has no other implementation here"
    return "" if find_spec("sentence_transformers") else f"none: {REFERENCE} is not installed"


def _facts(engine: Any) -> dict[str, Any]:
    """Of what computes inside an engine of ours or a library's model; empty for other engines."""
    if isinstance(engine, VarlenEmbedder | VarlenReranker):
        runtime = engine.model
        return {
            "device": str(runtime.device),
            "dtype": str(runtime.dtype).removeprefix("torch."),
            "parameters": runtime.parameters,
            "memory": runtime.memory,
            "max_tokens": engine.checkpoint.max_tokens,
        }
    module: Any = getattr(engine, "model", None)
    if not hasattr(module, "parameters"):  # FlagEmbedding's own objects hold it
        module = getattr(module, "model", None)
    if module is None or not hasattr(module, "parameters"):
        return {}
    weights = list(module.parameters())
    return {
        "device": str(weights[0].device),
        "dtype": str(weights[0].dtype).removeprefix("torch."),
        "parameters": sum(weight.numel() for weight in weights),
        "memory": sum(weight.nbytes for weight in weights),
        "max_tokens": engine.checkpoint.max_tokens,
    }


def _loaded(call: Callable[[], object]) -> tuple[float, int]:
    """(seconds, bytes by which this process grew) of the first call."""
    process = psutil.Process()
    before = process.memory_info().rss
    seconds = _seconds(call)
    return seconds, max(process.memory_info().rss - before, 0)


def _repeated(call: Callable[[], object]) -> tuple[int, float]:
    """(times, seconds) of calls that took long enough to be measured."""
    rounds, start = 0, time.perf_counter()
    while not rounds or time.perf_counter() - start < LEAST_SECONDS:
        call()
        rounds += 1
    return rounds, time.perf_counter() - start


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
