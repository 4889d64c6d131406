"""A language model's deployment on the real Serve, without a language model: what passes through its handle."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from ray import serve

from rag_cluster.domain.answers import ContextSource, CutShort, GenerationRequest
from rag_cluster.domain.retrieval import RetrievalResult
from rag_cluster.errors import ContextOverflowError, ModelUnavailableError, OverloadedError
from rag_cluster.serving.generator import GeneratorDeployment, HandleGenerator
from rag_cluster.settings import Settings
from tests.serving.generators import Mortal

pytestmark = pytest.mark.ray

APP = "generator-alone"
CONTEXT_WORDS = 500


@dataclass
class Replica:
    """What a deployment asks of a process's services."""

    settings: Settings
    metrics: Any = None

    def hosted_generator(self) -> Mortal:
        return Mortal(CONTEXT_WORDS)


@dataclass(frozen=True)
class Factory:
    settings: Settings

    def __call__(self) -> Replica:
        return Replica(self.settings)


@pytest.fixture(scope="module")
def generator(ray_cluster: None) -> Iterator[HandleGenerator]:
    deployment: Any = GeneratorDeployment.options(  # type: ignore[attr-defined]
        ray_actor_options={"num_cpus": 0},
        health_check_period_s=0.5,
        max_ongoing_requests=4,
        max_queued_requests=1,
        graceful_shutdown_wait_loop_s=0.1,
        graceful_shutdown_timeout_s=1,
    )
    serve.start(proxy_location="Disabled")
    handle = serve.run(deployment.bind(Factory(Settings())), name=APP, route_prefix=None)
    yield HandleGenerator(handle, "vllm:echo")
    serve.shutdown()


def asked(question: str = "How?", text: str = "one two three") -> GenerationRequest:
    result = RetrievalResult("c", "d", 1, "kb", "f.md", text, text, 1.0)
    return GenerationRequest(question, "en", (ContextSource(1, result, text),), "rules", text)


async def statistics() -> dict[str, float]:
    found: dict[str, float] = await serve.get_deployment_handle("GeneratorDeployment", APP).statistics.remote()
    return found


async def eventually(holds: Callable[[], Any], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not await holds():
        assert time.monotonic() < deadline, "it did not come to hold"
        await asyncio.sleep(0.1)


async def said(generator: HandleGenerator, request: GenerationRequest) -> list[str]:
    return [text async for text in generator.stream(request)]


async def test_words_come_through_the_handle_one_by_one(generator: HandleGenerator) -> None:
    assert await said(generator, asked()) == ["one ", "two ", "three ", "[Source 1](citation://1)"]


async def test_that_an_answer_was_cut_comes_through_the_handle(generator: HandleGenerator) -> None:
    deltas = await said(generator, replace(asked(), max_tokens=1))
    assert deltas[0] == "one " and isinstance(deltas[-1], CutShort)


async def test_an_error_of_the_model_keeps_its_type_and_what_it_says_of_its_limit(generator: HandleGenerator) -> None:
    with pytest.raises(ContextOverflowError) as raised:
        await said(generator, asked(text="word " * 600))
    assert (type(raised.value), raised.value.tokens, raised.value.limit) == (ContextOverflowError, 601, CONTEXT_WORDS)


@pytest.mark.parametrize("way", ["closed", "cancelled"])
async def test_an_answer_that_nobody_reads_ends_in_the_replica(generator: HandleGenerator, way: str) -> None:
    before = await statistics()
    stream = generator.stream(asked(text="word " * 400))
    assert await anext(stream) == "word "
    if way == "closed":
        await stream.aclose()
    else:
        reader = asyncio.create_task(_rest(stream))
        await asyncio.sleep(0.1)
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)

    async def aborted() -> bool:
        now = await statistics()
        return now["running"] == 0 and now["aborted"] == before["aborted"] + 1

    await eventually(aborted)


async def _rest(stream: AsyncIterator[str]) -> None:
    async for _ in stream:
        pass


async def test_more_answers_than_fit_are_refused_as_overload(generator: HandleGenerator) -> None:
    streams = [generator.stream(asked(text="word " * 400)) for _ in range(8)]
    begun = await asyncio.gather(*(anext(stream) for stream in streams[:1]))
    first = [asyncio.create_task(anext(stream)) for stream in streams[1:]]
    done, _ = await asyncio.wait(first, timeout=60, return_when=asyncio.FIRST_EXCEPTION)
    refused = [task.exception() for task in done if task.exception() is not None]
    assert begun == ["word "] and refused and {type(error) for error in refused} == {OverloadedError}
    for task in first:
        task.cancel()
    await asyncio.gather(*first, return_exceptions=True)
    for stream in streams:
        await stream.aclose()
    assert await asyncio.wait_for(said(generator, asked()), 60)


async def test_a_dead_model_is_unavailable_until_its_replica_is_replaced(generator: HandleGenerator) -> None:
    before = await statistics()
    with pytest.raises(ModelUnavailableError, match="it is dead"):
        await said(generator, asked("die"))

    async def answers() -> bool:
        with contextlib.suppress(ModelUnavailableError):
            return bool(await said(generator, asked()))
        return False

    await eventually(answers, 120)
    assert (await statistics())["pid"] != before["pid"]
