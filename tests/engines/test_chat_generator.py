"""Answers from an endpoint of this process, over real HTTP: retries, limits of time, failures by their stable types."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from rag_cluster.domain.answers import GenerationRequest
from rag_cluster.engines.chat_completions import ChatCompletions
from rag_cluster.engines.chat_generator import OpenAIGenerator, Patience
from rag_cluster.engines.options import Endpoint
from rag_cluster.errors import (
    ContextOverflowError,
    DeadlineExceededError,
    ModelUnavailableError,
    OverloadedError,
    RagClusterError,
)
from tests.fixtures.chat_endpoint import ChatEndpoint, delta, event

REQUEST = GenerationRequest("How?", "en", (), "the rules", "the question", temperature=0.2, max_tokens=64)
DONE = [delta("", "stop"), event("[DONE]")]


def generator(endpoint: ChatEndpoint, *, retries: int = 2, key: str = "", **options: Any) -> OpenAIGenerator:
    place = Endpoint(endpoint.url, key, timeout=5.0, retries=retries, min_wait=0.01, max_wait=0.02)
    return OpenAIGenerator(ChatCompletions(place, "qwen"), **options)


async def said(writer: OpenAIGenerator) -> list[str]:
    return [text async for text in writer.stream(REQUEST)]


async def test_the_request_names_model_rules_question_and_sampling(chat_endpoint: ChatEndpoint) -> None:
    chat_endpoint.scripts = [[delta("so"), *DONE]]
    assert await said(generator(chat_endpoint, key="secret", stop=["\n\n"])) == ["so"]
    (sent,) = chat_endpoint.requests
    assert sent["messages"] == [
        {"role": "system", "content": "the rules"},
        {"role": "user", "content": "the question"},
    ]
    assert (sent["model"], sent["temperature"], sent["max_tokens"], sent["stop"]) == ("qwen", 0.2, 64, ["\n\n"])
    assert sent["stream"] and chat_endpoint.keys == ["Bearer secret"]


async def test_words_come_as_they_are_written(chat_endpoint: ChatEndpoint) -> None:
    chat_endpoint.scripts = [[delta("one "), 30.0, delta("two"), *DONE]]
    stream = generator(chat_endpoint).stream(REQUEST)
    assert await asyncio.wait_for(anext(stream), 10) == "one "
    await stream.aclose()


async def test_comments_empty_deltas_and_events_cut_anywhere_are_no_matter(chat_endpoint: ChatEndpoint) -> None:
    role = event({"choices": [{"delta": {"role": "assistant"}}]})
    whole = delta("多语言")
    chat_endpoint.scripts = [[b": alive\n\n", role, whole[:-20], whole[-20:], b"event: x\r\n", delta(""), *DONE]]
    assert await said(generator(chat_endpoint)) == ["多语言"]


async def test_tokens_are_counted_as_the_endpoint_says(chat_endpoint: ChatEndpoint) -> None:
    usage = event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
    chat_endpoint.scripts = [[delta("a", "length"), usage, event("[DONE]")]]
    writer = generator(chat_endpoint)
    await said(writer)
    counts = writer.meter.snapshot()
    assert (counts["truncated"], counts["prompt_tokens"], counts["completion_tokens"]) == (1, 7, 3)


@pytest.mark.parametrize("failure", [[503, b"loading"], [429, b"busy"], ["cut"], [0.01, "cut"]])
async def test_an_outage_before_the_first_word_is_tried_again(chat_endpoint: ChatEndpoint, failure: list[Any]) -> None:
    chat_endpoint.scripts = [failure, failure, [delta("so"), *DONE]]
    assert await said(generator(chat_endpoint)) == ["so"]
    assert len(chat_endpoint.requests) == 3


async def test_after_the_first_word_nothing_is_tried_again(chat_endpoint: ChatEndpoint) -> None:
    chat_endpoint.scripts = [[delta("half "), 0.05, "cut"]]
    texts = []
    with pytest.raises(ModelUnavailableError):
        async for text in generator(chat_endpoint).stream(REQUEST):
            texts.append(text)
    assert texts == ["half "] and len(chat_endpoint.requests) == 1


OVERFLOW = json.dumps({"error": {"code": "context_length_exceeded", "message": "too many tokens"}}).encode()


@pytest.mark.parametrize(
    ("script", "kind", "attempts", "reason"),
    [
        ([503, b"loading"], ModelUnavailableError, 3, "status 503: loading"),
        ([401, b"bad key"], ModelUnavailableError, 1, "status 401: bad key"),
        ([404, b"no such model"], ModelUnavailableError, 1, "no such model"),
        ([429, b"busy"], OverloadedError, 3, "busy"),
        ([400, OVERFLOW], ContextOverflowError, 1, "too many tokens"),
        ([event({"error": {"message": "out of memory"}})], ModelUnavailableError, 1, "out of memory"),
        ([b"data: <html>\n\n"], ModelUnavailableError, 1, "no event of a chat completion"),
        ([event({"choices": ["what"]})], ModelUnavailableError, 1, "no event of a chat completion"),
        ([delta("half"), event("[DONE]")], ModelUnavailableError, 1, "broke off"),
    ],
)
async def test_a_failure_has_its_stable_type_and_says_why(
    chat_endpoint: ChatEndpoint, script: list[Any], kind: type[RagClusterError], attempts: int, reason: str
) -> None:
    chat_endpoint.scripts = [script] * 3
    with pytest.raises(kind, match=reason):
        await said(generator(chat_endpoint))
    assert len(chat_endpoint.requests) == attempts


async def test_how_long_to_wait_is_told_on(chat_endpoint: ChatEndpoint) -> None:
    chat_endpoint.scripts, chat_endpoint.headers = [[429, b"busy"]], {"Retry-After": "7"}
    with pytest.raises(OverloadedError) as raised:
        await said(generator(chat_endpoint, retries=0))
    assert raised.value.retry_after == 7


async def test_an_endpoint_that_is_not_there_is_unavailable() -> None:
    for url in ("http://127.0.0.1:9/v1", "nonsense", "http://["):
        with pytest.raises(ModelUnavailableError, match="gave no answer"):
            await said(generator(ChatEndpoint(url), retries=0))


@pytest.mark.parametrize("script", [[5.0, delta("late"), *DONE], [delta("one"), 5.0, *DONE]])
async def test_silence_before_the_first_word_or_between_two_ends_at_its_limit(
    chat_endpoint: ChatEndpoint, script: list[Any]
) -> None:
    chat_endpoint.scripts = [script]
    with pytest.raises(DeadlineExceededError, match=r"0\.2 s"):
        await said(generator(chat_endpoint, patience=Patience(first_token=0.2, total=60)))
    assert len(chat_endpoint.requests) <= 1  # a machine that is busy has not even come so far


async def test_an_answer_that_never_ends_ends_at_its_limit(chat_endpoint: ChatEndpoint) -> None:
    chat_endpoint.scripts = [[step for _ in range(200) for step in (delta("on "), 0.02)]]
    with pytest.raises(DeadlineExceededError, match=r"0\.3 s"):
        await said(generator(chat_endpoint, patience=Patience(first_token=60, total=0.3)))


async def test_closing_the_stream_closes_the_connection(chat_endpoint: ChatEndpoint) -> None:
    chat_endpoint.scripts = [[step for _ in range(500) for step in (delta("on "), 0.02)]]
    writer = generator(chat_endpoint)
    stream = writer.stream(REQUEST)
    await anext(stream)
    await stream.aclose()
    assert await asyncio.to_thread(chat_endpoint.gone.wait, 20)
    assert writer.meter.snapshot()["aborted"] == 1
