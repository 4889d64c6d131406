"""What test_replicas does with the embedder deployment, inside Ray workers: Serve's threads behind a handle would
outlive the suite's Ray, and end its process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from ray import serve
from ray.serve.context import _get_global_client
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import ServeDeploySchema

from rag_cluster.errors import ModelUnavailableError, OverloadedError, RagClusterError
from rag_cluster.serving.bulk import EMBEDDER, BulkHandleEmbedder, served_embedder
from rag_cluster.serving.handles import BlockingHandleEmbedder, HandleEmbedder
from rag_cluster.settings import Settings
from rag_cluster.wiring import ServiceFactory, Services
from tests.serving.engines import Told

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


def deploy(settings: Settings, **options: Any) -> DeploymentHandle[Any]:
    """Run the embedder deployment with these options, as `serve deploy` does; again: with others. Its handle."""
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


def running() -> int:
    """Replicas that take requests; 0 while others are still on their way in or out."""
    states = serve.status().applications[APP].deployments[EMBEDDER].replica_states
    return states.get("RUNNING", 0) if len(states) == 1 else 0


def until(check: Callable[[], bool], seconds: float = 240) -> None:
    """Wait for it; the seconds are for machines that do much else."""
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


def scales_without_loss(settings: Settings) -> list[dict[str, Any]]:
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
    assert load.wrong == [], load.wrong
    return [one["lanes"]["queries"] for one in busy]


def burst_over_the_limit(settings: Settings) -> tuple[list[tuple[int, float | None]], int, int]:
    """16 requests at once where 2 run and 2 wait: status and retry-after of the refused, how many got vectors, and how
    many got anything else."""
    handle = deploy(settings, max_ongoing_requests=2, max_queued_requests=2)
    embedder = HandleEmbedder(handle, ServiceFactory(settings)().embedder, 60)

    async def burst() -> list[Any]:
        calls = (embedder.embed_queries([f"sleep 0.5 {number}"]) for number in range(16))
        return await asyncio.gather(*calls, return_exceptions=True)

    answers = asyncio.run(burst())
    refused = [(one.http_status, one.retry_after) for one in answers if isinstance(one, OverloadedError)]
    served = sum(isinstance(one, np.ndarray) for one in answers)
    return refused, served, len(answers) - len(refused) - served


def batches_and_limits(settings: Settings) -> tuple[dict[str, Any], dict[str, Any]]:
    """The replica's counters after 40 queries that came during a call, and after bulk work and other limits."""
    handle = deploy(settings, max_ongoing_requests=100, user_config={"batch_tokens": 200, "bulk_requests": 1})
    described = ServiceFactory(settings)().embedder
    embedder = HandleEmbedder(handle, described, 60)

    async def burst() -> None:
        first = asyncio.create_task(embedder.embed_queries(["sleep 2"]))
        await asyncio.sleep(0.1)
        await asyncio.gather(first, *(embedder.embed_queries([f"question number {n}"]) for n in range(40)))

    asyncio.run(burst())
    before = handle.statistics.remote().result(timeout_s=60)
    # One bulk request at a time: the others come again.
    bulk = BulkHandleEmbedder(handle, described, 120, slice_tokens=20)
    texts = [f"passage number {number} of the manual" for number in range(8)]
    assert np.allclose(bulk.embed_documents(texts), Told().embed_documents(texts))
    bulk.check()
    deploy(settings, max_ongoing_requests=100, user_config={"batch_tokens": 77})
    until(lambda: handle.statistics.remote().result(timeout_s=60)["batch_tokens"] == 77)
    return before, handle.statistics.remote().result(timeout_s=60)


def broken_engine(settings: Settings) -> str:
    """The error of the engine that breaks; returns when another replica computes."""
    handle = deploy(settings, health_check_period_s=0.5)
    embedder = BlockingHandleEmbedder(handle, ServiceFactory(settings)().embedder, 60)
    told = ""
    try:
        embedder.embed_queries(["break"])
    except ModelUnavailableError as error:
        told = str(error)

    def answers() -> bool:
        try:
            return embedder.embed_queries(["crane"]).shape == (1, 64)
        except RagClusterError:
            return False

    until(answers)
    return told


def missing_application(settings: Settings) -> str:
    """What a job is told that looks for an application that is not there."""
    try:
        served_embedder("another application")
    except ModelUnavailableError as error:
        return str(error)
    return ""
