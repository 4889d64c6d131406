"""The embedder deployment on a real Serve: replicas by load, limits, batches, a dead engine. No HTTP, no stores."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray import serve
from ray.serve.context import _get_global_client
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import ServeDeploySchema

from rag_cluster.errors import OverloadedError, RagClusterError
from rag_cluster.serving.bulk import EMBEDDER, BulkHandleEmbedder, served_embedder
from rag_cluster.serving.handles import BlockingHandleEmbedder, HandleEmbedder
from rag_cluster.settings import Settings
from rag_cluster.wiring import ServiceFactory, Services
from tests.serving.engines import Told

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]

APP = "replicas"
UP = {
    "min_replicas": 1,
    "max_replicas": 3,
    "target_ongoing_requests": 2,
    "upscale_delay_s": 0,
    "downscale_delay_s": 3600,
    "metrics_interval_s": 1,
    "look_back_period_s": 5,
}
DOWN = {**UP, "downscale_delay_s": 1}
CALLERS = 8


@pytest.fixture(scope="module")
def serving(ray_cluster: None) -> Iterator[None]:
    serve.start(proxy_location="Disabled")
    yield
    serve.shutdown()


Deploy = Callable[..., DeploymentHandle[Any]]


@pytest.fixture
def deploy(serving: None) -> Iterator[Deploy]:
    """Run the embedder deployment with these options, as `serve deploy` does; again: with others. Its handle."""

    def run(settings: Settings, **options: Any) -> DeploymentHandle[Any]:
        application = {
            "name": APP,
            "route_prefix": None,
            "import_path": "tests.serving.engines:embedder_only",
            "args": {"data_dir": str(settings.data_dir), "embedder": settings.embedder, "embedder_threads": 1},
            "deployments": [{"name": EMBEDDER, **options}],
        }
        _get_global_client().deploy_apps(ServeDeploySchema(applications=[application]))
        until(lambda: serve.status().applications[APP].status == "RUNNING")
        return served_embedder(APP)

    yield run
    serve.delete(APP)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path, embedder="tests.serving.engines:Told", embedder_threads=1)


def running() -> int:
    """Replicas that take requests; 0 while others are still on their way in or out."""
    states = serve.status().applications[APP].deployments[EMBEDDER].replica_states
    return states.get("RUNNING", 0) if len(states) == 1 else 0


def until(check: Callable[[], bool], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, serve.status()
        time.sleep(0.2)


class Load:
    """Callers that embed one text after the other and look at each vector, until they are told to stop."""

    def __init__(self, handle: DeploymentHandle[Any], services: Services) -> None:
        self._embedder = BlockingHandleEmbedder(handle, services.embedder, 120)
        self._expected = services.embedder.embed_queries(["The crane lifts forty tonnes."])
        self._callers = CALLERS
        self.answered = 0
        self.wrong: list[object] = []
        self._threads = ThreadPoolExecutor(CALLERS)
        self._done = [self._threads.submit(self._call, number) for number in range(CALLERS)]

    def _call(self, number: int) -> None:
        while number < self._callers:
            try:
                vectors = self._embedder.embed_queries(["The crane lifts forty tonnes."])
            except RagClusterError as error:
                self.wrong.append(error)
                continue
            if not np.allclose(vectors, self._expected, atol=1e-4):
                self.wrong.append(vectors)
            self.answered += 1

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave(0)
        self._threads.shutdown()

    def leave(self, callers: int) -> None:
        """Only so many go on."""
        self._callers = callers
        for done in self._done[callers:]:
            done.result()


def scales_without_loss(deploy: Deploy, settings: Settings) -> list[dict[str, Any]]:
    """Load that makes three replicas of one, then less, until one is left. What each of the three did."""
    handle = deploy(settings, autoscaling_config=UP)
    until(lambda: running() == 1)
    with Load(handle, ServiceFactory(settings)()) as load:
        until(lambda: running() == 3)
        peak = load.answered
        until(lambda: load.answered > peak + 30)
        busy = handle.broadcast("statistics").results(timeout_s=60)
        deploy(settings, autoscaling_config=DOWN)
        load.leave(1)
        calm = load.answered
        until(lambda: running() == 1)
        until(lambda: load.answered > calm + 3)
    assert load.wrong == []
    return [one["lanes"]["queries"] for one in busy]


def test_replicas_follow_the_load_from_one_to_three_to_one_and_no_request_is_lost(
    deploy: Deploy, settings: Settings
) -> None:
    replicas = scales_without_loss(deploy, settings)
    assert len(replicas) == 3 and sum(one["requests"] for one in replicas) > 30, replicas


@pytest.mark.slow
def test_replicas_of_a_real_model_follow_the_load(
    deploy: Deploy, minilm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(data_dir=tmp_path, embedder=f"varlen:{minilm}", embedder_threads=1)
    replicas = scales_without_loss(deploy, settings)
    assert len(replicas) == 3 and sum(one["tokens"] for one in replicas) > 0, replicas
    with capsys.disabled():
        print(f"\nscaling with MiniLM: {replicas}")


def test_over_the_limit_is_an_overload_at_once_and_the_rest_is_computed(deploy: Deploy, settings: Settings) -> None:
    handle = deploy(settings, max_ongoing_requests=2, max_queued_requests=2)
    services = ServiceFactory(settings)()
    embedder = HandleEmbedder(handle, services.embedder, 60)

    async def burst() -> list[Any]:
        calls = (embedder.embed_queries([f"sleep 0.5 {number}"]) for number in range(16))
        return await asyncio.gather(*calls, return_exceptions=True)

    answers = asyncio.run(burst())
    refused = [answer for answer in answers if isinstance(answer, OverloadedError)]
    served = [answer for answer in answers if isinstance(answer, np.ndarray)]
    assert len(refused) + len(served) == 16 and refused and served, answers
    assert {(error.http_status, error.retry_after) for error in refused} == {(429, 1)}


def test_requests_of_many_callers_share_calls_and_other_limits_need_no_new_replica(
    deploy: Deploy, settings: Settings
) -> None:
    limits = {"batch_tokens": 200, "bulk_requests": 1}
    handle = deploy(settings, max_ongoing_requests=100, user_config=limits)
    embedder = HandleEmbedder(handle, ServiceFactory(settings)().embedder, 60)

    async def burst() -> None:
        blocking = asyncio.create_task(embedder.embed_queries(["sleep 2"]))
        await asyncio.sleep(0.1)
        await asyncio.gather(blocking, *(embedder.embed_queries([f"question number {n}"]) for n in range(40)))

    asyncio.run(burst())
    told = handle.statistics.remote().result(timeout_s=60)
    queries = told["lanes"]["queries"]
    assert told["batch_tokens"] == 200 and queries["failed"] == 0
    assert queries["batches"] < queries["requests"] / 2, queries
    assert queries["mean_batch_tokens"] > 2 * 6, "a question is 6 tokens"

    # One bulk request at a time: the others come again.
    bulk = BulkHandleEmbedder(handle, ServiceFactory(settings)().embedder, 120, slice_tokens=20)
    texts = [f"passage number {number} of the manual" for number in range(8)]
    assert np.allclose(bulk.embed_documents(texts), Told().embed_documents(texts))

    deploy(settings, max_ongoing_requests=100, user_config={"batch_tokens": 77})
    until(lambda: handle.statistics.remote().result(timeout_s=60)["batch_tokens"] == 77)
    after = handle.statistics.remote().result(timeout_s=60)["lanes"]["queries"]["requests"]
    assert after >= queries["requests"], "the same replica counts on"


def test_a_replica_whose_engine_is_dead_is_replaced(deploy: Deploy, settings: Settings) -> None:
    handle = deploy(settings, health_check_period_s=0.5)
    embedder = BlockingHandleEmbedder(handle, ServiceFactory(settings)().embedder, 60)
    with pytest.raises(RagClusterError, match="the engine is broken"):
        embedder.embed_queries(["break"])

    def answers() -> bool:
        try:
            return embedder.embed_queries(["crane"]).shape == (1, 64)
        except RagClusterError:
            return False

    until(answers)
