"""Bulk embedding through a handle: slices in order, retries when it is sent away, an end to waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rag_cluster.engines.hashing import HashEmbedder
from rag_cluster.errors import IndexMismatchError, ModelUnavailableError, OverloadedError
from rag_cluster.serving.bulk import IN_FLIGHT, BulkHandleEmbedder, slice_tokens, slices
from rag_cluster.settings import Settings

TEXTS = [f"passage number {number} of the manual" for number in range(40)]


class Deployment:
    """A handle of a deployment that sends the first `refusals` requests away."""

    def __init__(self, refusals: int = 0, fingerprint: str = HashEmbedder(64).fingerprint) -> None:
        self.refusals = refusals
        self.requests: list[int] = []
        self.running = self.most = 0
        self._fingerprint = fingerprint
        self._lock = threading.Lock()

    @property
    def embed_bulk(self) -> Deployment:
        return self

    @property
    def fingerprint(self) -> Any:
        return type("Method", (), {"remote": lambda _: Response(lambda: self._fingerprint)})()

    def remote(self, texts: Sequence[str]) -> Response:
        with self._lock:
            self.requests.append(len(texts))
            refused = self.refusals > 0
            self.refusals -= refused
        return Response(lambda: self._answer(texts, refused))

    def _answer(self, texts: Sequence[str], refused: bool) -> np.ndarray:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        try:
            if refused:
                raise OverloadedError("enough", retry_after=1)
            time.sleep(0.02)
            return HashEmbedder(64).embed_documents(texts)
        finally:
            with self._lock:
                self.running -= 1


class Response:
    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def result(self, timeout_s: float) -> Any:
        return self._answer()


def embedder(deployment: Deployment, timeout: float = 30.0, tokens: int = 30) -> BulkHandleEmbedder:
    return BulkHandleEmbedder(deployment, HashEmbedder(64), timeout, slice_tokens=tokens)  # type: ignore[arg-type]


def test_texts_travel_in_slices_a_few_at_a_time_and_the_vectors_are_in_order() -> None:
    deployment = Deployment()
    vectors = embedder(deployment).embed_documents(TEXTS)
    assert np.array_equal(vectors, HashEmbedder(64).embed_documents(TEXTS))
    assert sum(deployment.requests) == 40 and max(deployment.requests) == 3, "10 tokens each"
    assert deployment.most <= IN_FLIGHT


def test_a_slice_that_is_sent_away_comes_again() -> None:
    deployment = Deployment(refusals=2)
    vectors = embedder(deployment, tokens=1000).embed_documents(TEXTS)
    assert np.array_equal(vectors, HashEmbedder(64).embed_documents(TEXTS))
    assert deployment.requests == [40, 40, 40]


def test_without_capacity_for_too_long_the_model_counts_as_away_which_ingestion_retries() -> None:
    with pytest.raises(ModelUnavailableError, match=r"no capacity for 0\.2 s"):
        embedder(Deployment(refusals=10**6), timeout=0.2).embed_documents(TEXTS[:1])


def test_another_embedder_than_ones_own_is_refused() -> None:
    embedder(Deployment()).check()
    with pytest.raises(IndexMismatchError, match="RAG_EMBEDDER"):
        embedder(Deployment(fingerprint="another")).check()


def test_slices_hold_so_many_tokens_or_one_text_and_lose_none() -> None:
    texts = ["a" * size for size in (4, 4, 400, 4, 4, 4)]
    cut = list(slices(texts, 10))
    assert [len(piece) for piece in cut] == [2, 1, 3] and [text for piece in cut for text in piece] == texts
    assert list(slices([], 10)) == []
    assert embedder(Deployment()).embed_documents([]).shape == (0, 64)


def test_a_request_is_a_few_batches_of_the_engine() -> None:
    assert slice_tokens(Settings(embedder_batch_tokens=1024)) == 4096
    assert slice_tokens(Settings(embedder_batch_tokens=10**6)) == 65_536
