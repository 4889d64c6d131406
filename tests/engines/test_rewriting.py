"""Rewriters: an endpoint of this process over real HTTP, and the generator that also writes answers."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from rag_cluster.domain.answers import GenerationRequest
from rag_cluster.engines import options as engine_options
from rag_cluster.engines.rewriting import MAX_ANSWER_BYTES, GeneratorQueryRewriter, OpenAIQueryRewriter
from rag_cluster.errors import ModelUnavailableError
from tests.fixtures.json_endpoint import Answer, JsonEndpoint, serving


@dataclass
class Endpoint(JsonEndpoint):
    status: int = 200
    body: bytes = b""
    delay: float = 0.0

    def answer(self, path: str, body: dict[str, Any]) -> Answer:
        time.sleep(self.delay)
        return self.status, self.body, {}


def answer(text: object) -> bytes:
    return json.dumps({"choices": [{"message": {"content": text}}]}).encode()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    state = Endpoint(body=answer(" storage tariff\n"))
    with serving(state, state.answer):
        state.url += "/"  # as people write it too
        yield state


async def test_the_question_goes_out_as_the_users_and_its_rewriting_comes_back(endpoint: Endpoint) -> None:
    rewriter = pickle.loads(pickle.dumps(OpenAIQueryRewriter(engine_options.Endpoint(endpoint.url, "secret"), "qwen")))
    assert await rewriter.rewrite("What do I pay?") == "storage tariff"
    (request,) = endpoint.requests
    assert (request["model"], request["messages"][1]) == ("qwen", {"role": "user", "content": "What do I pay?"})
    assert endpoint.keys == ["Bearer secret"]


@pytest.mark.parametrize("text", ["", "  \n", None])
async def test_an_empty_answer_is_no_rewriting(endpoint: Endpoint, text: object) -> None:
    endpoint.body = answer(text)
    assert await OpenAIQueryRewriter(engine_options.Endpoint(endpoint.url), "qwen").rewrite("a") is None
    assert endpoint.keys == [None]


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (503, b"busy", "status 503: busy"),
        (200, b"<html>", "not a chat completion"),
        (200, b"[]", "not a chat completion"),
        (200, b"x" * (MAX_ANSWER_BYTES + 1), "more than"),
    ],
)
async def test_an_endpoint_that_fails_says_how(endpoint: Endpoint, status: int, body: bytes, reason: str) -> None:
    endpoint.status, endpoint.body = status, body
    with pytest.raises(ModelUnavailableError, match=reason):
        await OpenAIQueryRewriter(engine_options.Endpoint(endpoint.url), "qwen").rewrite("a")
    assert len(endpoint.requests) == 1


async def test_a_slow_or_absent_endpoint_is_unavailable(endpoint: Endpoint) -> None:
    endpoint.delay = 1.0
    with pytest.raises(ModelUnavailableError, match="ReadTimeout"):
        await OpenAIQueryRewriter(engine_options.Endpoint(endpoint.url, timeout=0.1), "qwen").rewrite("a")
    with pytest.raises(ModelUnavailableError, match="ConnectError"):
        await OpenAIQueryRewriter(engine_options.Endpoint("http://127.0.0.1:9/v1"), "qwen").rewrite("a")


async def test_the_generator_rewrites_too() -> None:
    class Generator:
        name = "test"

        async def stream(self, request: GenerationRequest) -> AsyncIterator[str]:
            assert (request.user_prompt, request.sources, request.language) == ("堆存费多少", (), "zh")
            yield "堆存"
            yield "费率\n"

    assert await GeneratorQueryRewriter(Generator()).rewrite("堆存费多少") == "堆存费率"
