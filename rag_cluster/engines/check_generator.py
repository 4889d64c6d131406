"""What the language model that the settings name is and does: loaded, or reached, and asked for one short answer."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rag_cluster.domain.answers import ContextSource, GenerationRequest
from rag_cluster.domain.retrieval import RetrievalResult
from rag_cluster.engines.check import ModelCheck
from rag_cluster.engines.ranking import PASSAGES, QUESTIONS
from rag_cluster.engines.vllm import VllmGenerator
from rag_cluster.errors import RagClusterError

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Generator

ANSWER_TOKENS = 64
_PLACES = {"openai": "endpoint", "vllm": "vLLM's choice"}


def check_generator(name: str, generator: Generator, context_tokens: int) -> ModelCheck:
    """Speed of one answer of at most `ANSWER_TOKENS`. The model is given back afterwards, so that others find a GPU's
    memory free; what keeps it from answering is the result's `problem`."""
    found = ModelCheck(
        role="generator",
        name=name,
        device=_PLACES.get(name.partition(":")[0], "cpu"),
        max_tokens=context_tokens or None,
        reference="none: no two models answer alike",
    )
    try:
        return asyncio.run(_measured(found, generator))
    except RagClusterError as error:
        return replace(found, problem=f"{error.type}: {error}")


async def _measured(found: ModelCheck, generator: Generator) -> ModelCheck:
    began = time.perf_counter()
    try:
        if isinstance(generator, VllmGenerator):
            await generator.start()
            found = replace(found, max_tokens=generator.context_tokens, load_seconds=time.perf_counter() - began)
        asked, first = time.perf_counter(), None
        stream: Any = generator.stream(_request())
        async with aclosing(stream) as deltas:
            async for _ in deltas:
                first = first or time.perf_counter()
        seconds = time.perf_counter() - asked
    finally:
        if isinstance(generator, VllmGenerator):
            generator.close()
    meter = getattr(generator, "meter", None)
    return replace(
        found,
        tokens_per_second=meter.snapshot()["completion_tokens"] / seconds if meter else None,
        query_milliseconds=1000 * (first - asked) if first else None,
    )


def _request() -> GenerationRequest:
    question, passage = QUESTIONS[0], PASSAGES[0]
    result = RetrievalResult("chunk", "document", 1, "base", "cranes.txt", passage, passage, 1.0)
    return GenerationRequest(
        question,
        "en",
        (ContextSource(1, result, passage),),
        "You answer from the given text.",
        f"{passage}\n\n{question} Explain in three sentences.",
        max_tokens=ANSWER_TOKENS,
    )
