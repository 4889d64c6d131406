"""Repeated questions are embedded once, each by its own embedder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from rag_cluster.engines.hashing import HashEmbedder
from rag_cluster.engines.query_cache import MAX_CHARS, CachingEmbedder, QueryCache
from rag_cluster.engines.threaded import ThreadedEmbedder
from rag_cluster.errors import ModelUnavailableError


class Counting(ThreadedEmbedder):
    def __init__(self, dimension: int = 64) -> None:
        super().__init__(HashEmbedder(dimension))
        self.seen: list[list[str]] = []
        self.away = False

    async def embed_queries(self, texts: Sequence[str]):
        self.seen.append(list(texts))
        if self.away:
            raise ModelUnavailableError("away")
        return await super().embed_queries(texts)


async def test_a_repeated_question_is_embedded_once_and_rows_keep_their_order() -> None:
    engine = Counting()
    embedder = CachingEmbedder(engine, QueryCache(10))
    plain = HashEmbedder(64)
    for texts in (["a", "b"], ["b", "c", "b", "a"], ["c"]):
        assert np.array_equal(await embedder.embed_queries(texts), plain.embed_queries(texts))
    assert engine.seen == [["a", "b"], ["c"]]


async def test_two_embedders_never_share_a_vector() -> None:
    cache = QueryCache(10)
    small, large = Counting(64), Counting(128)
    for engine in (small, large):
        found = await CachingEmbedder(engine, cache).embed_queries(["a"])
        assert found.shape == (1, engine.dimension)
    assert small.seen == large.seen == [["a"]]


async def test_no_more_than_its_size_is_kept_and_what_was_used_last_stays() -> None:
    engine, cache = Counting(), QueryCache(2)
    embedder = CachingEmbedder(engine, cache)
    for text in ("a", "b", "a", "c", "a", "b"):
        await embedder.embed_queries([text])
    assert engine.seen == [["a"], ["b"], ["c"], ["b"]]
    assert len(cache) == 2
    await embedder.embed_queries(["x" * (MAX_CHARS + 1)])
    assert cache.get(engine.fingerprint, "b") is not None and len(cache) == 2, "a long text takes nobody's place"


@pytest.mark.parametrize("size", [0, 5])
async def test_a_caller_that_changes_its_vectors_changes_nobody_elses(size: int) -> None:
    embedder = CachingEmbedder(Counting(), QueryCache(size))
    first = await embedder.embed_queries(["a"])
    first[:] = 0
    assert np.array_equal(await embedder.embed_queries(["a"]), HashEmbedder(64).embed_queries(["a"]))


async def test_a_failure_is_not_kept_and_no_texts_are_no_vectors() -> None:
    engine = Counting()
    embedder = CachingEmbedder(engine, QueryCache(5))
    engine.away = True
    with pytest.raises(ModelUnavailableError):
        await embedder.embed_queries(["a"])
    engine.away = False
    assert (await embedder.embed_queries(["a"])).shape == (1, 64)
    assert (await embedder.embed_queries([])).shape == (0, 64)
