"""Every generator keeps the port's promises. vLLM's part runs where vLLM is: .ci/vllm."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from rag_cluster.answering import prompts
from rag_cluster.answering.context import build_context
from rag_cluster.answering.marks import MarkFilter
from rag_cluster.chunking.boundaries import sentences
from rag_cluster.domain.answers import CutShort, GenerationRequest
from rag_cluster.domain.chunks import Chunk
from rag_cluster.domain.ports import Generator
from rag_cluster.domain.retrieval import RetrievalResult
from rag_cluster.engines.chat_completions import ChatCompletions
from rag_cluster.engines.chat_generator import OpenAIGenerator
from rag_cluster.engines.echo import EchoGenerator
from rag_cluster.engines.extractive import ExtractiveGenerator
from rag_cluster.engines.hashing import HashEmbedder
from rag_cluster.engines.options import Endpoint
from rag_cluster.engines.threaded import ThreadedEmbedder
from rag_cluster.engines.vllm import VllmGenerator
from rag_cluster.errors import ContextOverflowError
from tests.fixtures.chat_endpoint import CONTEXT_WORDS, chat_server
from tests.fixtures.vllm import CONTEXT_TOKENS, VLLM_OPTIONS

pytestmark = pytest.mark.asyncio(loop_scope="module")

FERRY = "The ferry to Langya Island leaves at 07:45 every morning."
QUESTIONS = {"en": "When does the ferry to Langya Island leave?", "zh": "去琅琊岛的渡轮什么时候开？"}
LONG = " ".join(f"On day {day} the ferry carried {day * 7} passengers." for day in range(1, 60))


def request(language: str = "en", text: str = FERRY, **options: Any) -> GenerationRequest:
    chunk = Chunk("c", "kb", "d", 1, 0, text)
    result = RetrievalResult("c", "d", 1, "kb", "ferry.md", text, text, 1.0, matches=(chunk,))
    context = build_context([result], 100_000)
    question = QUESTIONS[language]
    rules, asked = prompts.system_prompt(language), prompts.user_prompt(context.text, question, language)
    options = {"temperature": 0.0, "max_tokens": 48, **options}
    return GenerationRequest(question, language, context.sources, rules, asked, **options)


@dataclass
class Case:
    generator: Generator
    reads: int | None = None
    """Tokens, where there is a limit."""
    at_work: Callable[[], float] = lambda: 0
    """Answers that are being written, as whoever writes them sees it."""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["extractive", "echo", "openai", "vllm"])
async def case(request: pytest.FixtureRequest) -> AsyncIterator[Case]:
    if request.param == "extractive":
        yield Case(ExtractiveGenerator(ThreadedEmbedder(HashEmbedder(64)), sentences))
    elif request.param == "echo":
        echo = EchoGenerator(CONTEXT_WORDS)
        yield Case(echo, CONTEXT_WORDS, lambda: echo.meter.running)
    elif request.param == "openai":
        with chat_server() as endpoint:
            endpoint.pause = 0.01
            remote = OpenAIGenerator(ChatCompletions(Endpoint(endpoint.url, retries=0), "ferry"))
            yield Case(remote, CONTEXT_WORDS, lambda: endpoint.writing)
    else:
        model = request.getfixturevalue("smollm2")
        engine = VllmGenerator(str(model), context_tokens=CONTEXT_TOKENS, options=VLLM_OPTIONS, load_timeout=600)
        await engine.start()
        yield Case(engine, CONTEXT_TOKENS, lambda: engine.statistics()["vllm:num_requests_running"])
        engine.close()


async def _idle(case: Case) -> None:
    deadline = time.monotonic() + 60
    while case.at_work() and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    assert case.at_work() == 0


async def _said(case: Case, asked: GenerationRequest) -> list[str]:
    return [delta async for delta in case.generator.stream(asked)]


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_deltas_are_never_empty_and_make_an_answer(case: Case, language: str) -> None:
    deltas = await _said(case, request(language))
    assert deltas and all(text or isinstance(text, CutShort) for text in deltas)
    cleaner = MarkFilter(1, frozenset(), language)
    assert (cleaner.feed("".join(deltas)) + cleaner.flush()).strip()


async def test_the_same_request_at_temperature_zero_gives_the_same_answer(case: Case) -> None:
    first, second = [await _said(case, request()) for _ in range(2)]
    assert "".join(first) == "".join(second)
    await _idle(case)


async def test_answers_at_the_same_time_are_kept_apart(case: Case) -> None:
    asked = [request(), request("en", "The lighthouse of Gull Rock opens at nine.")]
    alone = ["".join(await _said(case, one)) for one in asked]
    together = await asyncio.gather(*(_said(case, one) for one in asked))
    # A model may round otherwise in a batch, and then say it in other words; not what the other one was asked.
    assert [text[:12] for text in map("".join, together)] == [text[:12] for text in alone]
    await _idle(case)


async def test_an_answer_that_the_limit_of_its_tokens_ends_says_so_at_last(case: Case) -> None:
    deltas = await _said(case, request(text=LONG, max_tokens=5))
    limited = not isinstance(case.generator, ExtractiveGenerator)  # which copies whole sentences
    assert [isinstance(text, CutShort) for text in deltas] == [False] * (len(deltas) - limited) + [True] * limited
    travelled = pickle.loads(pickle.dumps(deltas[-1]))
    assert type(travelled) is type(deltas[-1])


async def test_closing_the_stream_stops_the_work(case: Case) -> None:
    stream = case.generator.stream(request(text=LONG, max_tokens=400))
    assert await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]
    await _idle(case)


async def test_cancelling_who_reads_stops_the_work(case: Case) -> None:
    begun = asyncio.Event()

    async def read() -> None:
        async for _ in case.generator.stream(request(text=LONG, max_tokens=400)):
            begun.set()

    reader = asyncio.create_task(read())
    await asyncio.wait_for(begun.wait(), 60)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    await _idle(case)


async def test_a_prompt_that_is_too_long_is_refused_before_the_first_word(case: Case) -> None:
    if case.reads is None:
        pytest.skip("reads as much as there is")
    stream = case.generator.stream(request(text=f"{FERRY} " * case.reads))
    with pytest.raises(ContextOverflowError):
        await anext(stream)
    await _idle(case)
    assert await _said(case, request())


async def test_it_has_a_name_and_travels_to_its_process_before_it_is_started(case: Case) -> None:
    assert case.generator.name
    assert pickle.loads(pickle.dumps(_fresh(case.generator))).name == case.generator.name


def _fresh(generator: Generator) -> Generator:
    if isinstance(generator, VllmGenerator):
        return VllmGenerator(generator.name)
    return generator
