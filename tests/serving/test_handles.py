"""Handles: what is given up here is given up there too."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from ray.exceptions import RayTaskError

from rag_cluster.domain.deadlines import Deadline, within
from rag_cluster.domain.retrieval import RetrievalMode
from rag_cluster.engines.hashing import HashEmbedder
from rag_cluster.errors import ModelUnavailableError
from rag_cluster.retrieval.trace import TraceRecorder
from rag_cluster.serving.handles import HandleEmbedder
from rag_cluster.telemetry import NullMetrics


class Hanging:
    """A handle whose deployment never answers."""

    def __init__(self) -> None:
        self.cancelled = 0

    def __getattr__(self, method: str) -> Hanging:
        return self

    def remote(self, texts: list[str]) -> Hanging:
        return self

    def __await__(self) -> Any:
        yield from asyncio.sleep(30).__await__()

    def cancel(self) -> None:
        self.cancelled += 1


async def test_an_embedder_that_does_not_answer_is_a_missing_model_and_its_call_is_cancelled() -> None:
    handle = Hanging()
    with pytest.raises(ModelUnavailableError, match=r"no vectors within 0\.02 s"):
        await HandleEmbedder(handle, HashEmbedder(64), 0.02).embed_queries(["a"])  # type: ignore[arg-type]
    assert handle.cancelled == 1


async def test_a_request_with_a_deadline_goes_on_without_vectors_before_it_is_over() -> None:
    handle = Hanging()
    embedder = HandleEmbedder(handle, HashEmbedder(64), 30)  # type: ignore[arg-type]
    async with within(Deadline.after(0.2)):
        with pytest.raises(ModelUnavailableError):
            await embedder.embed_queries(["a"])
    assert handle.cancelled == 1


async def test_a_cancelled_request_cancels_its_call() -> None:
    handle = Hanging()
    task = asyncio.create_task(HandleEmbedder(handle, HashEmbedder(64), 30).embed_queries(["a"]))  # type: ignore[arg-type]
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert handle.cancelled == 1


class Raising(Hanging):
    """A handle whose deployment raises, as Ray hands it on: an instance of the same class, its text a stack trace."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = RayTaskError("embed", f"Traceback\n  File '/srv/replica.py', ip=10.0.0.7\n{error}", error)

    def __await__(self) -> Any:
        raise self._error.as_instanceof_cause()
        yield


@pytest.mark.parametrize(
    ("raised", "text"),
    [
        (ModelUnavailableError("The model gave no vectors."), "The model gave no vectors."),
        (RuntimeError("CUDA out of memory"), "The embedder failed (RuntimeError)."),
    ],
    ids=["known", "unforeseen"],
)
async def test_no_stack_trace_of_a_replica_reaches_a_caller(raised: Exception, text: str) -> None:
    handle = Raising(raised)
    with pytest.raises(ModelUnavailableError) as caught:
        await HandleEmbedder(handle, HashEmbedder(64), 30).embed_queries(["a"])  # type: ignore[arg-type]
    trace = TraceRecorder(RetrievalMode.DENSE, NullMetrics())
    trace.degrade("dense", caught.value)
    trace.degrade("rerank", RayTaskError("rerank", "Traceback ip=10.0.0.7", raised))
    degradations = trace.finish(()).degradations
    assert (str(caught.value), degradations[0]) == (text, f"dense: {text}")
    assert "Traceback" not in repr(degradations)
