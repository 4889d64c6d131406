"""Micro-batching: texts of many requests in few calls of an engine, and no request pays for another one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from rag_cluster.engines.batching import MicroBatcher, estimated_tokens
from rag_cluster.engines.hashing import HashEmbedder
from rag_cluster.engines.threaded import ThreadedEmbedder
from rag_cluster.errors import MissingDependencyError, ModelUnavailableError


class Engine:
    """Every call waits for `go`; a text's vector is its number."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str]]] = []
        self.cancelled: list[list[str]] = []
        self.go = asyncio.Semaphore(0)

    def lane(self, name: str):
        async def compute(texts: Sequence[str]) -> np.ndarray:
            self.calls.append((name, list(texts)))
            try:
                await self.go.acquire()
            except asyncio.CancelledError:
                self.cancelled.append(list(texts))
                raise
            if any(text.startswith("bad") for text in texts):
                raise ValueError("a bad text")
            if "absent" in texts:
                raise MissingDependencyError("install it")
            if "short" in texts:
                return np.zeros((len(texts) - 1, 1), np.float32)
            return np.array([[float(text)] for text in texts], np.float32).reshape(len(texts), 1)

        return compute

    def batcher(self, max_tokens: int = 4) -> MicroBatcher:
        lanes = {name: self.lane(name) for name in ("queries", "documents")}
        return MicroBatcher(lanes, max_tokens=max_tokens, weigh=lambda text: 1)

    def release(self, calls: int = 100) -> None:
        for _ in range(calls):
            self.go.release()


@pytest.fixture
async def engine() -> Engine:
    return Engine()


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def numbers(*values: int) -> list[str]:
    return [str(value) for value in values]


async def test_an_idle_engine_is_called_at_once(engine: Engine) -> None:
    task = asyncio.create_task(engine.batcher().embed("queries", ["7"]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert engine.calls == [("queries", ["7"])], "no timer runs before it"
    engine.release()
    assert (await task).tolist() == [[7.0]]


async def test_what_comes_during_a_call_goes_together_into_the_next_one_in_the_order_of_arrival(engine: Engine) -> None:
    batcher = engine.batcher()
    tasks = [asyncio.create_task(batcher.embed("queries", [str(n)])) for n in range(9)]
    await settled()
    engine.release()
    found = [(await task).tolist() for task in tasks]
    assert found == [[[float(n)]] for n in range(9)]
    assert engine.calls == [("queries", numbers(*batch)) for batch in ([0], [1, 2, 3, 4], [5, 6, 7, 8])]


async def test_a_call_takes_as_many_tokens_as_it_may_and_one_text_at_least(engine: Engine) -> None:
    lanes = {"queries": engine.lane("queries")}
    batcher = MicroBatcher(lanes, max_tokens=10, weigh=int)
    tasks = [asyncio.create_task(batcher.embed("queries", [text])) for text in numbers(1, 25, 5, 5, 1)]
    await settled()
    engine.release()
    await asyncio.gather(*tasks)
    assert [texts for _, texts in engine.calls] == [["1"], ["25"], ["5", "5"], ["1"]]


async def test_a_query_and_another_caller_wait_for_one_piece_of_a_long_call_only(engine: Engine) -> None:
    batcher = engine.batcher(max_tokens=2)
    long = asyncio.create_task(batcher.embed("documents", numbers(*range(10, 18))))
    await settled()
    query = asyncio.create_task(batcher.embed("queries", ["1"]))
    other = asyncio.create_task(batcher.embed("documents", ["2"]))
    await settled()
    engine.release()
    assert [row[0] for row in (await long).tolist()] == [float(n) for n in range(10, 18)]
    assert (await query).tolist() == [[1.0]] and (await other).tolist() == [[2.0]]
    # The long call queued its rest before the other one came.
    assert engine.calls[:3] == [("documents", ["10", "11"]), ("queries", ["1"]), ("documents", ["12", "13"])]
    assert engine.calls[3] == ("documents", ["2", "14"])


async def test_a_failing_call_fails_its_own_requests_with_an_error_of_their_own_and_no_others(engine: Engine) -> None:
    batcher = engine.batcher()
    tasks = [asyncio.create_task(batcher.embed("queries", [text])) for text in ["0", "bad", "2", "3", "4", "5"]]
    await settled()
    engine.release()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    failed = [error for error in found if isinstance(error, BaseException)]
    assert [text for text, error in zip(range(6), found, strict=True) if error in failed] == [1, 2, 3, 4]
    assert all(isinstance(error, ModelUnavailableError) and "(ValueError)" in str(error) for error in failed)
    assert len({id(error) for error in failed}) == 4
    assert found[0].tolist() == [[0.0]] and found[5].tolist() == [[5.0]]


async def test_an_error_of_ours_keeps_its_type_and_a_wrong_number_of_vectors_is_one(engine: Engine) -> None:
    batcher = engine.batcher()
    engine.release()
    with pytest.raises(MissingDependencyError, match="install it"):
        await batcher.embed("queries", ["absent"])
    with pytest.raises(ModelUnavailableError, match="0 vectors for 1 texts"):
        await batcher.embed("queries", ["short"])


async def test_what_is_left_of_a_failed_call_is_not_computed(engine: Engine) -> None:
    batcher = engine.batcher(max_tokens=1)
    engine.release()
    with pytest.raises(ModelUnavailableError):
        await batcher.embed("documents", ["1", "bad", "3", "4"])
    await settled()
    assert [texts for _, texts in engine.calls] == [["1"], ["bad"]]


async def test_a_cancelled_request_drops_out_of_the_queue(engine: Engine) -> None:
    batcher = engine.batcher()
    tasks = [asyncio.create_task(batcher.embed("queries", [str(n)])) for n in range(4)]
    await settled()
    tasks[2].cancel()
    engine.release()
    assert [(await tasks[n]).tolist() for n in (0, 1, 3)] == [[[0.0]], [[1.0]], [[3.0]]]
    assert [texts for _, texts in engine.calls] == [["0"], ["1", "3"]]


async def test_a_running_call_is_cancelled_when_nobody_waits_for_it_any_more_and_the_next_one_starts(
    engine: Engine,
) -> None:
    batcher = engine.batcher()
    first = asyncio.create_task(batcher.embed("queries", ["0"]))
    await settled()
    two = [asyncio.create_task(batcher.embed("queries", [str(n)])) for n in (1, 2)]
    await settled()
    first.cancel()
    await settled()
    assert engine.cancelled == [["0"]]
    two[0].cancel()
    await settled()
    assert engine.cancelled == [["0"]], "somebody still waits for this one"
    third = asyncio.create_task(batcher.embed("queries", ["3"]))
    engine.release()
    assert ((await two[1]).tolist(), (await third).tolist()) == ([[2.0]], [[3.0]])


async def test_no_texts_are_no_vectors() -> None:
    embedder = ThreadedEmbedder(HashEmbedder(64))
    assert (await embedder.embed_queries([])).shape == (0, 64)


@pytest.mark.parametrize(("text", "tokens"), [("", 2), ("The crane lifts forty tonnes.", 9), ("岸桥每日检查一次。", 8)])
def test_tokens_are_estimated_in_both_languages(text: str, tokens: int) -> None:
    assert estimated_tokens(text) == tokens


async def test_concurrent_queries_reach_the_engine_in_few_calls_and_each_gets_its_own_vector() -> None:
    class Slow(HashEmbedder):
        calls = 0

        def embed_queries(self, texts):
            import time

            type(self).calls += 1
            time.sleep(0.02)
            return super().embed_queries(texts)

    engine = Slow(64)
    embedder = ThreadedEmbedder(engine)
    texts = [f"question number {n}" for n in range(40)]
    found = await asyncio.gather(*(embedder.embed_queries([text]) for text in texts))
    assert engine.calls == 2
    assert np.allclose(np.concatenate(found), HashEmbedder(64).embed_queries(texts))


def test_one_embedder_serves_one_event_loop_after_the_other() -> None:
    embedder = ThreadedEmbedder(HashEmbedder(64))
    for _ in range(2):
        assert asyncio.run(embedder.embed_queries(["a"])).shape == (1, 64)
