"""A store goes away in the middle of a run: the run waits, and if that is not enough, no document pays for it."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rag_cluster.domain.access import LOCAL
from rag_cluster.domain.documents import DocumentStatus, RunStatus
from rag_cluster.errors import StoreUnavailableError
from rag_cluster.ingestion.pipeline import IngestionOptions, run_ingestion
from rag_cluster.ingestion.run import OUTAGE_FAILURES
from rag_cluster.ingestion.write_path import RetryPolicy
from rag_cluster.stores.embedded import EmbeddedStores
from rag_cluster.stores.postgres.migration import migrate
from tests.fixtures.in_process import in_process
from tests.fixtures.postgres import PostgresServer
from tests.fixtures.write_path import Bench, Recipe

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]
QUIET = IngestionOptions(progress=False)
PATIENT = RetryPolicy(retries=1, min_wait=0.2, max_wait=1.0, outage_seconds=60.0)
HASTY = RetryPolicy(retries=0, min_wait=0.1, max_wait=0.1, outage_seconds=0.5)
COUNT = 40


def corpus(folder: Path, count: int = COUNT) -> None:
    """Documents that take a while, one after the other."""
    folder.mkdir(exist_ok=True)
    for n in range(count):
        (folder / f"{n:03}.pages").write_text(f"slow|0.1|Berth {n} is {n + 5} metres deep.")


@contextmanager
def once_embedded(recipe: Recipe, act: Callable[[], object]) -> Iterator[None]:
    """Do something in another thread as soon as the first texts were embedded."""
    stop = threading.Event()
    done: list[str] = []

    def watch() -> None:
        while not stop.wait(0.05):
            if recipe.calls.totals()["embedded"]:
                act()
                done.append("done")
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert done, "the run was over before the store went away"


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    with tempfile.TemporaryDirectory(prefix="rag-pg-", ignore_cleanup_errors=True) as directory:
        server = PostgresServer(Path(directory) / "data")
        migrate(server.dsn)
        yield server
        server.close()


@pytest.fixture
def own_milvus() -> Iterator[EmbeddedStores]:
    with tempfile.TemporaryDirectory(prefix="rag-mv-", ignore_cleanup_errors=True) as directory:
        stores = EmbeddedStores(Path(directory))
        stores.ensure_milvus()
        yield stores
        stores.down()


def test_a_run_waits_for_postgresql_longer_than_its_lease_and_goes_on(
    own_postgres: PostgresServer, milvus_stores: EmbeddedStores, tmp_path: Path
) -> None:
    recipe = Recipe(
        own_postgres.dsn, str(milvus_stores.home), str(tmp_path), lease_seconds=3.0, retry=PATIENT, postgres_timeout=2.0
    )
    write_path = recipe()
    base = write_path.catalog.create_knowledge_base("outage", default_acl=())
    corpus(tmp_path / "files")

    def outage() -> None:
        own_postgres.kill()
        time.sleep(6)
        own_postgres.restart()

    with once_embedded(recipe, outage):
        report = run_ingestion(recipe, base.id, [str(tmp_path / "files")], QUIET)
    assert report.ok, report.to_dict()
    assert report.outcomes["ready"] == COUNT
    assert write_path.ledger.run(report.run_id).status is RunStatus.SUCCEEDED


def test_a_run_waits_for_milvus_and_goes_on(bench: Bench, own_milvus: EmbeddedStores) -> None:
    recipe = replace(bench.recipe, milvus_uri=own_milvus.ensure_milvus(), retry=PATIENT)
    corpus(bench.folder)

    def outage() -> None:
        own_milvus.down()
        time.sleep(3)
        own_milvus.ensure_milvus()

    with once_embedded(recipe, outage):
        report = run_ingestion(recipe, bench.base.id, [str(bench.folder)], QUIET)
    assert report.ok, report.to_dict()
    assert report.outcomes["ready"] == COUNT


def test_an_outage_that_outlasts_the_waiting_ends_the_run_and_fails_no_document_for_good(
    bench: Bench, own_milvus: EmbeddedStores
) -> None:
    recipe = replace(bench.recipe, milvus_uri=own_milvus.ensure_milvus(), retry=HASTY)
    corpus(bench.folder)
    with (
        once_embedded(recipe, own_milvus.down),
        pytest.raises(StoreUnavailableError, match=f"{OUTAGE_FAILURES} documents in a row"),
    ):
        run_ingestion(recipe, bench.base.id, [str(bench.folder)], QUIET)
    (ended,), _ = bench.write_path.ledger.runs()
    assert ended.status is RunStatus.FAILED
    assert (ended.error_message or "").startswith("store_unavailable: ")
    documents, _ = bench.write_path.catalog.list_documents(bench.base.id, LOCAL, limit=1000)
    failed = [document.id for document in documents if document.status is DocumentStatus.FAILED]
    assert len(failed) >= OUTAGE_FAILURES
    for document_id in failed:
        (version,) = bench.write_path.catalog.versions(document_id)
        assert (version.error_type, version.error_permanent) == ("store_unavailable", False)
    parsed = bench.calls["parsed"]
    own_milvus.ensure_milvus()
    with in_process():
        report = run_ingestion(recipe, bench.base.id, [str(bench.folder)], QUIET)
    assert report.ok, report.to_dict()
    assert report.outcomes["ready"] + report.outcomes["unchanged"] == COUNT
    assert bench.calls["parsed"] <= COUNT + 1 < 2 * parsed, "what had its snapshot is not parsed again"


def test_two_runs_over_the_same_files_at_once_make_each_document_once(bench: Bench) -> None:
    corpus(bench.folder, 20)
    reports = []

    def run() -> None:
        reports.append(run_ingestion(bench.recipe, bench.base.id, [str(bench.folder)], QUIET))

    other = threading.Thread(target=run)
    other.start()
    run()
    other.join()
    ready = sum(report.outcomes["ready"] for report in reports)
    assert ready == bench.calls["parsed"] == 20, [report.to_dict() for report in reports]
    assert not any(report.outcomes["failed"] for report in reports)
    documents, _ = bench.write_path.catalog.list_documents(bench.base.id, LOCAL, limit=100)
    assert [document.published_version for document in documents] == [1] * 20
    assert all(bench.versions_in_index(document.id) == {1: 1} for document in documents)


def test_a_run_ends_at_its_time_limit_and_the_next_one_goes_on(bench: Bench) -> None:
    corpus(bench.folder, 10)
    (bench.folder / "999.pages").write_text("slow|60|Berth 999 is deep.")
    started = time.monotonic()
    report = run_ingestion(bench.recipe, bench.base.id, [str(bench.folder)], replace(QUIET, time_limit=6.0))
    assert time.monotonic() - started < 40
    assert report.status is RunStatus.CANCELLED
    (run,), _ = bench.write_path.ledger.runs()
    assert "its 6 s are over" in (run.error_message or "")
    (bench.folder / "999.pages").write_text("text|Berth 999 is deep.")
    with in_process():
        assert run_ingestion(bench.recipe, bench.base.id, [str(bench.folder)], QUIET).ok


def test_a_document_beyond_its_time_limit_fails_alone(bench: Bench) -> None:
    recipe = replace(bench.recipe, document_timeout=1.0)
    corpus(bench.folder, 6)
    (bench.folder / "003.pages").write_text("slow|60|Berth 3 is deep.")
    with in_process():
        report = run_ingestion(recipe, bench.base.id, [str(bench.folder)], QUIET)
    assert (report.outcomes["ready"], report.failures) == (5, {"parse_timeout": 1})
