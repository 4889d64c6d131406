"""Queries never stop while documents are ingested anew, fail, are deleted and come back: on real stores."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from rag_cluster.domain.access import LOCAL
from rag_cluster.domain.retrieval import RetrievalOptions
from rag_cluster.engines.threaded import ThreadedEmbedder
from rag_cluster.ingestion import steps
from rag_cluster.retrieval.retriever import Retriever
from rag_cluster.stores.postgres.database import Database
from rag_cluster.stores.postgres.evidence import PostgresEvidence
from tests.fixtures.write_path import Bench
from tests.resilience.updates import Truth, Writer, violations

FULL = os.environ.get("RAG_FULL_COUNTS") == "1"
DOCUMENTS = 300 if FULL else 20
CHANGES = 2 if FULL else 4
"""Of each document, on average."""
WRITERS, READERS = 2, 3


async def test_no_answer_mixes_versions_and_no_document_disappears_or_comes_back(
    bench: Bench, async_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag_cluster.domain.chunks.MAX_PART_CHUNKS", 4)
    # On a busy machine a store may not answer in time: that is no outcome of a document.
    patient = replace(bench.recipe.retry, outage_seconds=300.0)
    recipe = replace(bench.recipe, parameters={"parent_tokens": 60, "child_tokens": 20}, retry=patient)
    truth = Truth(DOCUMENTS)
    writers = [Writer(recipe(), bench.base.id, bench.folder, truth, seed) for seed in range(WRITERS)]
    writing = threading.Event()
    writing.set()

    def write(at: int) -> None:
        own = range(at, DOCUMENTS, WRITERS)
        source = random.Random(at)
        for number in own:
            writers[at].publish(number)
        for _ in range(CHANGES * len(own)):
            writers[at].change(source.choice(own))

    def drain() -> None:
        path = recipe()
        collection = steps.open_index(path).collection
        for turn in itertools.count():
            path.drain()
            if turn % 10 == 0:  # as runs and upload workers do; Milvus Lite reads unsealed rows one by one
                path.retry.call(lambda: path.index.flush(collection))
            if writing_ended.wait(0.3):
                return

    writing_ended = threading.Event()
    retriever = Retriever(
        PostgresEvidence(async_database), bench.write_path.index, ThreadedEmbedder(bench.write_path.embedder())
    )
    wrong: list[str] = []
    asked = 0

    async def read(seed: int) -> None:
        nonlocal asked
        source = random.Random(seed)
        while writing.is_set():
            number = source.randrange(DOCUMENTS)
            one = source.random() < 0.6
            options = RetrievalOptions(
                top_k=20,
                candidate_k=source.choice((3, 20)),
                document_ids=(writers[0].document_id(number),) if one else None,
                expand_parents=source.random() < 0.5,
            )
            before = truth.now()
            run = await retriever.retrieve(LOCAL, bench.base.id, f"how deep is berth{number}", options)
            wrong.extend(violations(run, before, truth.now(), number if one else None))
            asked += 1

    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(WRITERS + 1) as threads:
        draining = loop.run_in_executor(threads, drain)
        readers = [asyncio.create_task(read(seed)) for seed in range(READERS)]
        try:
            await asyncio.gather(*(loop.run_in_executor(threads, write, at) for at in range(WRITERS)))
        finally:
            writing.clear()
            writing_ended.set()
            await asyncio.gather(draining, *readers)
    did = sum((writer.did for writer in writers), Counter[str]())
    assert not wrong, f"{len(wrong)} of {asked} answers: " + "\n".join(wrong[:10])
    assert asked > 5 * DOCUMENTS and min(did["published"], did["failed"], did["deleted"]) > DOCUMENTS / 4, (asked, did)
