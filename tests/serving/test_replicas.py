"""The embedder deployment on a real Serve: replicas by load, limits, batches, a dead engine. No HTTP, no stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import serve

from rag_cluster.settings import Settings
from tests.serving import replicas

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def serving(ray_cluster: None) -> Iterator[None]:
    serve.start(proxy_location="Disabled")
    yield
    serve.shutdown()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path, embedder="tests.serving.engines:Told", embedder_threads=1)


@pytest.fixture
def done(serving: None, settings: Settings) -> Iterator[Callable[..., Any]]:
    """What a function of `replicas` returns, called in a Ray worker."""

    def call(function: Callable[[Settings], Any], other: Settings | None = None) -> Any:
        return ray.get(ray.remote(num_cpus=0)(function).remote(other or settings))

    yield call
    serve.delete(replicas.APP)


def test_replicas_follow_the_load_from_one_to_three_to_one_and_no_request_is_lost(done: Callable[..., Any]) -> None:
    busy = done(replicas.scales_without_loss)
    assert len(busy) == 3 and sum(one["requests"] for one in busy) > 30, busy


@pytest.mark.slow
def test_replicas_of_a_real_model_follow_the_load(
    done: Callable[..., Any], minilm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(data_dir=tmp_path, embedder=f"varlen:{minilm}", embedder_threads=1)
    busy = done(replicas.scales_without_loss, settings)
    assert len(busy) == 3 and sum(one["tokens"] for one in busy) > 0, busy
    with capsys.disabled():
        print(f"\nscaling with MiniLM: {busy}")


def test_over_the_limit_is_an_overload_at_once_and_the_rest_is_computed(done: Callable[..., Any]) -> None:
    refused, served, other = done(replicas.burst_over_the_limit)
    assert refused and served and not other
    assert set(refused) == {(429, 1)}


def test_requests_of_many_callers_share_calls_and_other_limits_need_no_new_replica(done: Callable[..., Any]) -> None:
    before, after = done(replicas.batches_and_limits)
    queries = before["lanes"]["queries"]
    assert before["batch_tokens"] == 200 and queries["failed"] == 0
    assert queries["batches"] < queries["requests"] / 2, queries
    assert queries["mean_batch_tokens"] > 2 * 6, "a question is 6 tokens"
    assert after["batch_tokens"] == 77 and after["lanes"]["bulk"]["texts"] == 8
    assert after["lanes"]["queries"]["requests"] >= queries["requests"], "the same replica counts on"


def test_a_replica_whose_engine_is_dead_is_replaced(done: Callable[..., Any]) -> None:
    assert "The embedder failed (RuntimeError)" in done(replicas.broken_engine)
    assert "RAG_SERVE_APP" in done(replicas.missing_application)
