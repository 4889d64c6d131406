"""The query benchmark: what it writes is found by the real read path, and what it counts is what happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from rag_cluster.benchmarks.query_corpus import CHILDREN, Drawer, fill
from rag_cluster.benchmarks.query_measures import BareLoop, Level, LongRun, RecordedIndex, Timings, long_run, percentile
from rag_cluster.domain.access import LOCAL
from rag_cluster.settings import Settings
from rag_cluster.stores.embedded import EmbeddedStores
from rag_cluster.wiring import Services


@pytest.fixture
def services(tmp_path: Path, postgres_dsn: str, milvus_stores: EmbeddedStores) -> Services:
    settings = Settings(
        data_dir=tmp_path, postgres_dsn=postgres_dsn, milvus_uri=milvus_stores.ensure_milvus(), embedder="hash:64"
    )
    return Services(settings)


async def test_the_bare_loop_and_the_long_run_find_what_was_filled(services: Services) -> None:
    filled = fill(services, 80, per_document=8, characters=200)
    assert len(filled.hits) == 80
    timings = Timings()
    await BareLoop(services, filled.knowledge_base_id, timings)(Drawer(1).question(1))
    assert set(timings.seconds) == {"scope", "embedding", "dense search", "BM25 search", "facts"}
    answerer = services.answerer(services.async_embedder)
    found = await answerer.retrieve(LOCAL, filled.knowledge_base_id, Drawer(1).question(2))
    assert len(found.results) == 5 and found.results[0].content.count("\n\n") == CHILDREN - 1
    services.__dict__["index"] = RecordedIndex(filled.hits)
    run = await long_run(services.answerer(services.async_embedder), filled.knowledge_base_id, 40, 4)
    assert len(run.seconds) == 40 and len(run.memory) == 20 and run.wall > 0
    with services.database.connection() as connection:
        (row,) = connection.execute("SELECT count(*) AS rows FROM retrieval_records").fetchall()
    assert row["rows"] == 41
    await services.database.aclose()
    services.database.close()


def test_no_question_comes_twice() -> None:
    drawer = Drawer(2)
    questions = [drawer.question(number) for number in range(300)]
    assert len(set(questions)) == 300 and any(not question.isascii() for question in questions)


def test_figures() -> None:
    assert (percentile([3, 1, 2], 0.5), percentile([], 0.99), percentile(range(100), 0.99)) == (2, 0.0, 99)
    assert Level("/v1/retrieve", 1, [0.1], {200: 1, 429: 3}, 0.5).ok
    assert not Level("/v1/retrieve", 1, [0.1], {200: 1, 502: 1}, 0.5).ok
    assert LongRun(memory=[100, *[110] * 19]).growth == 1.0, "the first figure is not warm yet"
    assert LongRun(memory=[*[100] * 10, *[120] * 10]).growth == 1.2
