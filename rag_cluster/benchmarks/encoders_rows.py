"""How the encoders' benchmark measures, and the rows that it gives."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Embedder, Reranker


@dataclass(slots=True)
class Results:
    """What was measured, in the order of the rows."""

    device: str
    rows: list[tuple[str, float, str]] = field(default_factory=list)
    """(what, value, unit)."""
    checks: list[tuple[str, float, str, float, bool]] = field(default_factory=list)
    """(what, value, relation, target, met)."""

    def add(self, what: str, value: float, unit: str) -> float:
        """A row; also printed, so that a run that is cut short has told what it knew."""
        self.rows.append((what, value, unit))
        print(f"{what:<64} {number(value):>12} {unit}", flush=True)
        return value

    def expect(self, what: str, value: float, relation: str, target: float) -> None:
        """A number with its target."""
        self.checks.append((what, value, relation, target, value >= target if relation == ">=" else value <= target))


def number(value: float) -> str:
    """For people."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.4g}"


def matrix_rate(results: Results) -> float:
    """TFLOP/s of a large bfloat16 matrix product."""
    import torch

    size, times = 8192, 30
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(5):
        a @ b
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        a @ b
    torch.cuda.synchronize()
    return results.add("bf16 matrix product", 2 * size**3 * times / (time.perf_counter() - start) / 1e12, "TFLOP/s")


def seconds(work: Callable[[], object], rounds: int = 1) -> float:
    """Least wall time of some rounds."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def embed_rate(name: str, embedder: Embedder, texts: list[str], results: Results, rounds: int, warm: int) -> float:
    """Tokens per second, special tokens and cutting included."""
    embedder.embed_documents(texts[:warm])
    tokens = sum(lengths_of(embedder, texts))
    return results.add(name, tokens / seconds(lambda: embedder.embed_documents(texts), rounds), "tokens/s")


def lengths_of(embedder: Any, texts: list[str]) -> list[int]:
    """Tokens of each text as the model reads it."""
    return [min(count + 2, embedder.checkpoint.max_tokens) for count in embedder.tokenizer.count_many(texts)]


def query_latency(name: str, embedder: Embedder, queries: list[str], results: Results) -> float:
    """Median milliseconds of one query."""
    for query in queries[:10]:
        embedder.embed_queries([query])
    times = [seconds(partial(embedder.embed_queries, [query])) for query in queries]
    return results.add(name, 1000 * median(times), "ms")


def rerank_latency(name: str, reranker: Reranker, query: str, texts: list[str], results: Results) -> float:
    """Median milliseconds of 30 candidates."""
    reranker.rerank(query, texts)
    return results.add(name, 1000 * median(seconds(lambda: reranker.rerank(query, texts)) for _ in range(9)), "ms")


def pair_rate(name: str, reranker: Reranker, query: str, texts: list[str], results: Results) -> float:
    """Pairs per second in bulk."""
    reranker.rerank(query, texts[:64])
    return results.add(name, len(texts) / seconds(lambda: reranker.rerank(query, texts)), "pairs/s")


def least_cosine(name: str, one: Embedder, other: Embedder, texts: list[str], results: Results) -> float:
    """Over the texts."""
    cosines = (one.embed_documents(texts) * other.embed_documents(texts)).sum(axis=1)
    return results.add(name, float(cosines.min()), "")
