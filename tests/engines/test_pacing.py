"""Bulk work waits while queries take longer than they should, and never for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from rag_cluster.engines.batching import MicroBatcher
from rag_cluster.engines.hashing import HashEmbedder
from rag_cluster.engines.pacing import BULK, LONGEST_HOLD, QUERIES, QueryPace
from rag_cluster.engines.threaded import ThreadedEmbedder


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def pace(clock: Clock) -> QueryPace:
    return QueryPace(0.5, window=10, clock=clock)


def test_bulk_work_goes_on_while_queries_are_fast_and_waits_when_5_percent_are_too_slow() -> None:
    clock = Clock()
    paced = pace(clock)
    paced.computed(BULK, 1000, 0.5)
    for _ in range(95):
        paced.answered(0.1)
    assert paced.p95 == 0.1 and paced.hold(BULK) == 0
    for _ in range(6):
        paced.answered(0.9)
    assert paced.p95 == 0.9 and paced.hold(BULK) == pytest.approx(2.0), "a fifth of the time"
    assert paced.hold(QUERIES) == paced.hold("documents") == 0


def test_bulk_work_is_never_stuck() -> None:
    clock = Clock()
    paced = pace(clock)
    paced.answered(0.9)
    assert paced.hold(BULK) == 0, "the first call"
    paced.computed(BULK, 1000, 0.5)
    clock.now += 1.5
    assert paced.hold(BULK) == pytest.approx(0.5)
    clock.now += 0.6
    assert paced.hold(BULK) == 0
    paced.computed(BULK, 1000, 1000.0)
    assert paced.hold(BULK) <= LONGEST_HOLD


def test_beside_queries_a_bulk_call_is_small_enough_for_them_to_wait() -> None:
    clock = Clock()
    paced = pace(clock)
    assert paced.tokens(BULK, 1024) == 1024
    paced.computed(BULK, 1000, 1.0)
    assert paced.tokens(BULK, 1024) == 1024, "no query is there"
    paced.answered(0.1)
    assert paced.tokens(BULK, 1024) == 250, "half of half a second at 1,000 tokens a second"
    assert paced.tokens(BULK, 100) == 100 and paced.tokens("documents", 1024) == 1024
    clock.now += 10.1
    assert paced.tokens(BULK, 1024) == 1024


def test_slow_queries_of_long_ago_are_forgotten() -> None:
    clock = Clock()
    paced = pace(clock)
    paced.answered(0.9)
    paced.computed(BULK, 1000, 5.0)
    assert paced.hold(BULK) > 0
    clock.now += 10.1
    assert paced.p95 is None and paced.hold(BULK) == 0


def test_without_a_target_nothing_waits() -> None:
    paced = QueryPace(0)
    paced.answered(1e6)
    paced.computed(BULK, 1, 100.0)
    assert paced.hold(BULK) == 0 and paced.tokens(BULK, 7) == 7


async def test_a_batch_request_waits_while_queries_and_answers_are_computed_and_then_gets_its_vectors() -> None:
    clock, calls = Clock(), []
    paced = pace(clock)

    def lane(name: str):
        async def compute(texts: Sequence[str]) -> np.ndarray:
            calls.append(name)
            return np.ones((len(texts), 1), np.float32)

        return compute

    batcher = MicroBatcher({name: lane(name) for name in (QUERIES, "documents", BULK)}, pace=paced)
    paced.answered(0.9)
    paced.computed(BULK, 1, 0.02)  # a hold of 0.08 s, which the event loop waits for, and the clock decides on
    bulk = asyncio.create_task(batcher.embed(BULK, ["a"]))
    for name in (QUERIES, "documents", QUERIES):
        await batcher.embed(name, ["b"])
    assert calls == [QUERIES, "documents", QUERIES] and not bulk.done() and batcher.waiting == 1
    clock.now += 0.1
    assert (await bulk).shape == (1, 1) and calls[-1] == BULK


async def test_a_server_tells_how_well_its_batches_are_filled() -> None:
    embedder = ThreadedEmbedder(HashEmbedder(64), batch_tokens=30)
    texts = ["The crane lifts forty tonnes."] * 12  # 9 tokens each, as they are estimated
    await asyncio.gather(embedder.embed_queries(["a"]), embedder.embed_bulk(texts))
    told = embedder.statistics()
    assert told["lanes"]["queries"]["batches"] == told["lanes"]["queries"]["requests"] == 1
    bulk = told["lanes"]["bulk"]
    assert (bulk["requests"], bulk["batches"], bulk["texts"], bulk["tokens"]) == (1, 4, 12, 108)
    assert bulk["mean_batch_tokens"] == 27 and told["lanes"]["documents"]["mean_batch_tokens"] == 0
    assert told["batch_tokens"] == 30 and told["query_p95_seconds"] > 0

    embedder.configure(batch_tokens=1000, query_target=0)
    await embedder.embed_bulk(texts)
    assert embedder.statistics()["lanes"]["bulk"]["batches"] == 5
