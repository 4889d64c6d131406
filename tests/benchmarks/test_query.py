"""The query benchmark: what it writes is found by the real read path, and what it counts is what happened."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest
import typer
from psycopg.conninfo import conninfo_to_dict
from typer.testing import CliRunner

from rag_cluster.benchmarks import query
from rag_cluster.benchmarks.query_corpus import CHILDREN, Drawer, fill
from rag_cluster.benchmarks.query_large import LongRun, RecordedIndex, keyword_run, long_run, record
from rag_cluster.benchmarks.query_measures import FILTERED, BareLoop, Level, Timings, percentile
from rag_cluster.benchmarks.query_relay import relayed
from rag_cluster.benchmarks.query_statements import Call, StatementClock, TimedDatabase
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
    filtered = await services.retriever(services.async_embedder).retrieve(
        LOCAL, filled.knowledge_base_id, Drawer(1).question(2), FILTERED
    )
    assert len(filtered.results) == 5 and "000000.txt" not in {one.filename for one in filtered.results}
    recording = await record(services, filled, 80, searches=10)
    assert (len(recording.dense), len(recording.sparse)) == (10, 10) and min(recording.dense) > 0
    clock = StatementClock(limit=0.0)
    replaying = Services(services.settings)
    replaying.__dict__["index"] = RecordedIndex(filled.hits, recording)
    with relayed(services.database.dsn) as (dsn, reader):
        replaying.__dict__["database"] = TimedDatabase(dsn, clock, reader)
        run = await long_run(replaying, filled.knowledge_base_id, 40, 4)
        assert len(run.seconds) == 40 and len(run.memory) == 20 and run.wall > 0
        await keyword_run(replaying, filled, 2)
        await replaying.database.aclose()
        replaying.database.close()
    assert sorted(len(kind.elapsed) for kind in clock.kinds.values()) == [2, 2, 40, 40, 40, 41]
    with services.database.connection() as connection:
        (row,) = connection.execute("SELECT count(*) AS rows FROM retrieval_records").fetchall()
    assert row["rows"] == 41
    await services.database.aclose()
    services.database.close()


def test_of_a_slow_statement_what_others_made_it_wait_is_told_apart() -> None:
    clock = StatementClock(limit=0.02)
    clock.keep("SELECT  1", Call(7, 100.0, 100.01, 0.001, 0.0, 0.0))
    clock.keep("SELECT  1", Call(7, 100.02, 100.09, 0.004, 0.03, 0.002))
    log = """100.005 [7] LOG:  duration: 30.0 ms  execute <unnamed>:
SELECT 2
100.085 [7] LOG:  duration: 21.5 ms  bind _pg3_0:
        SELECT 1, ':'
100.089 [7] LOG:  duration: 40.5 ms  execute _pg3_0: SELECT 1, ':'
100.089 [8] LOG:  duration: 25.0 ms  statement: VACUUM
100.090 [7] LOG:  checkpoint starting: time
"""
    other, called, vacuum = clock.slow(log)
    assert (other.text, other.own, vacuum.text, vacuum.own) == ("SELECT 2", 30, "VACUUM", 25)
    assert called.text == "SELECT 1, ':'" and called.total == 62
    figures = (called.computed, called.waited, called.unread, called.own, called.most)
    assert [round(figure, 6) for figure in figures] == [4, 30, 2, 30, 32], "26 ms of a lock or the disk are its own"
    assert [len(kind.elapsed) for kind in clock.kinds.values()] == [2]


def test_who_sends_through_the_relay_waits_for_no_reader(tmp_path: Path) -> None:
    sent = random.Random(1).randbytes(4 << 20)
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as reader:
        server.bind(str(tmp_path / ".s.PGSQL.5432"))
        server.listen()
        with relayed(f"host={tmp_path}") as (dsn, _):
            reader.settimeout(60)
            reader.connect(f"{conninfo_to_dict(dsn)['host']}/.s.PGSQL.5432")
            connection, _ = server.accept()
            with connection:
                connection.settimeout(60)
                reader.sendall(b"query")
                assert connection.recv(5) == b"query"
                connection.sendall(sent)  # many times what sockets hold, and nobody has read a byte
            assert b"".join(iter(lambda: reader.recv(1 << 16), b"")) == sent


@pytest.mark.parametrize("missed", ["overhead", "load", "large", ""])
def test_a_missed_bar_of_any_part_is_the_exit_code(monkeypatch: pytest.MonkeyPatch, missed: str) -> None:
    served = {"overhead": {"ok": missed != "overhead"}, "load": [{"ok": True}, {"ok": missed != "load"}]}
    monkeypatch.setattr(query, "measure_served", lambda *_: served)
    monkeypatch.setattr(query, "measure_large", lambda *_: {"ok": missed != "large"})
    app = typer.Typer()
    app.command()(query.run)
    assert CliRunner().invoke(app, []).exit_code == bool(missed)


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
