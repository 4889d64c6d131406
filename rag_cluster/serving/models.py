"""Deployments that own a model: embedder and reranker, each an engine in a thread behind its queue.

`user_config` of the Serve configuration sets their limits; Serve hands a changed one to running replicas.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field
from ray import serve

from rag_cluster import telemetry
from rag_cluster.engines.batching import estimated_tokens
from rag_cluster.errors import InternalError, OverloadedError
from rag_cluster.serving.replica import EngineHealth, assigned_gpus, replica_services
from rag_cluster.wiring import ServiceFactory

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Embedder, Matrix

WARM_TEXT_TOKENS = 256


class EmbedderLimits(BaseModel):
    """`user_config` of EmbedderDeployment. None: as the settings say."""

    model_config = ConfigDict(extra="forbid")

    batch_tokens: int | None = Field(None, ge=1, description="Of one call of the engine; RAG_EMBEDDER_BATCH_TOKENS.")
    query_p95_target: float | None = Field(None, ge=0, description="Seconds; RAG_EMBED_P95_TARGET.")
    bulk_requests: int = Field(8, ge=1, description="Bulk requests in one replica at a time; others are sent away.")


def is_remote(engine: str) -> bool:
    """Whether an engine only asks an endpoint: it is neither warmed nor probed. Its being away is not the replica's
    fault, and keeps none from starting; a call would be paid."""
    return engine.partition(":")[0] == "openai"


@serve.deployment
class EmbedderDeployment:
    """Owns the embedding model; loaded and warmed before the replica counts as ready."""

    def __init__(self, factory: ServiceFactory) -> None:
        services = replica_services(factory)
        self._settings = services.settings
        self._embedder = services.async_embedder
        self._bulk = 0
        self._limits = EmbedderLimits()
        self._health = EngineHealth(
            self._settings.embedder, self._done, lambda: self._embedder.embed_queries(["alive"])
        )
        if not is_remote(self._settings.embedder):
            warm_up(services.embedder, self._settings.embedder_batch_tokens if assigned_gpus() else 0)

    def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Other limits, from the next call of the engine on; requests in hand are not touched."""
        self._limits = EmbedderLimits(**user_config)
        tokens, target = self._limits.batch_tokens, self._limits.query_p95_target
        self._embedder.configure(
            batch_tokens=self._settings.embedder_batch_tokens if tokens is None else tokens,
            query_target=self._settings.embed_p95_target if target is None else target,
        )

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """float32 (len(texts), dimension)."""
        return await self._embedder.embed_documents(texts)

    async def embed_queries(self, texts: Sequence[str]) -> Matrix:
        """float32 (len(texts), dimension)."""
        return await self._embedder.embed_queries(texts)

    async def embed_bulk(self, texts: Sequence[str]) -> Matrix:
        """As `embed_documents`, after the queries. OverloadedError over `bulk_requests`: what waits here would take the
        queries' places in this replica."""
        if self._bulk >= self._limits.bulk_requests:
            raise OverloadedError("The embedder has enough bulk work in hand; retry shortly.", retry_after=1)
        self._bulk += 1
        try:
            return await self._embedder.embed_bulk(texts)
        finally:
            self._bulk -= 1

    async def fingerprint(self) -> str:
        """Of the engine, to compare with one's own settings."""
        return self._embedder.fingerprint

    async def statistics(self) -> dict[str, Any]:
        """Of this replica: see `ThreadedEmbedder.statistics`."""
        return self._embedder.statistics()

    async def check_health(self) -> None:
        """Raises for a dead engine."""
        if not is_remote(self._settings.embedder):
            await self._health.check()

    def _done(self) -> int:
        lanes = self._embedder.statistics()["lanes"].values()
        return sum(int(lane["batches"] - lane["failed"]) for lane in lanes)


def warm_up(embedder: Embedder, batch_tokens: int) -> None:
    """Load the model, and let it meet what will come: short and longer queries, and a batch of that many tokens, for
    which engines on a GPU compile and allocate."""
    for words in (2, 16, 64):
        embedder.embed_queries([" ".join(["warm"] * words)])
    if batch_tokens:
        text = " ".join(["warm"] * WARM_TEXT_TOKENS)
        embedder.embed_documents([text] * max(1, batch_tokens // WARM_TEXT_TOKENS))


@serve.deployment
class RerankerDeployment:
    """Owns the reranker; likewise. Requests are computed one after the other: one holds a batch's worth of pairs."""

    def __init__(self, factory: ServiceFactory) -> None:
        services = replica_services(factory)
        engine, reranker = services.reranker, services.async_reranker
        if engine is None or reranker is None:
            raise InternalError("RAG_RERANKER names no reranker, and this deployment is for one")
        self._name = services.settings.reranker
        self._metrics = services.metrics
        self._reranker = reranker
        self._counts = {"requests": 0, "done": 0, "pairs": 0, "tokens": 0}
        self._seconds = 0.0
        self._health = EngineHealth(
            self._name, lambda: self._counts["done"], lambda: reranker.rerank("a", ["b"]), running=reranker.running
        )
        if not is_remote(self._name):
            gpu_texts = ["warm " * WARM_TEXT_TOKENS] * services.settings.candidate_k
            engine.rerank("warm up", gpu_texts if assigned_gpus() else ["a"])

    async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """One score per text, same order."""
        started = time.perf_counter()
        self._counts["requests"] += 1
        scores = await self._reranker.rerank(query, texts)
        seconds = time.perf_counter() - started
        self._counts["done"] += 1
        self._counts["pairs"] += len(texts)
        self._counts["tokens"] += sum(map(estimated_tokens, texts)) + len(texts) * estimated_tokens(query)
        self._seconds += seconds
        self._metrics.count(telemetry.RERANK_PAIRS_TOTAL, len(texts))
        self._metrics.observe(telemetry.RERANK_SECONDS, seconds)
        return scores

    async def statistics(self) -> dict[str, Any]:
        """Of this replica. tokens: estimated; seconds: waiting included."""
        done = max(self._counts["done"], 1)
        return {**self._counts, "seconds": self._seconds, "mean_request_tokens": self._counts["tokens"] / done}

    async def check_health(self) -> None:
        """Raises for a dead engine."""
        if not is_remote(self._name):
            await self._health.check()
