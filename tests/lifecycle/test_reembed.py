"""Another index from snapshots, on real stores: nothing is parsed, lost, doubled or mixed, whatever happens."""

from __future__ import annotations

import asyncio
import hashlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from rag_cluster.domain import ids, keys
from rag_cluster.domain.access import LOCAL, AccessAttributes
from rag_cluster.domain.documents import IndexRecord, JobStatus, PlannedFile, Receipt, SourceKind
from rag_cluster.domain.inventory import Fault, Outcome
from rag_cluster.domain.ports import Embedder, UploadRequest
from rag_cluster.domain.retrieval import RetrievalMode, RetrievalOptions, RetrievalRun
from rag_cluster.engines.hashing import HashEmbedder
from rag_cluster.engines.threaded import ThreadedEmbedder
from rag_cluster.errors import ConflictError, IndexMismatchError, ModelUnavailableError
from rag_cluster.ingestion import steps
from rag_cluster.ingestion.pipeline import IngestionOptions, fill_stream, run_ingestion
from rag_cluster.ingestion.plan import plan
from rag_cluster.ingestion.rows import PreparedPart
from rag_cluster.ingestion.uploads import UploadWorker, work_once
from rag_cluster.ingestion.write_path import WritePath
from rag_cluster.lifecycle import index_lease, indexes, reembed
from rag_cluster.lifecycle.delete import delete_document
from rag_cluster.lifecycle.fsck import FsckOptions, fsck
from rag_cluster.lifecycle.outbox import drain
from rag_cluster.lifecycle.recall import Comparison, PinnedEvidence, Question, compare_recall
from rag_cluster.lifecycle.reembed import ReembedOptions, ReembedReport, register
from rag_cluster.retrieval.retriever import Retriever
from rag_cluster.stores.postgres.database import Database
from rag_cluster.stores.postgres.evidence import PostgresEvidence
from rag_cluster.stores.postgres.inventory import PostgresInventory
from rag_cluster.stores.postgres.uploads import PostgresUploadQueue
from tests.fixtures.write_path import Bench, Recipe

QUIET = ReembedOptions(progress=False)


@dataclass
class Library:
    """Documents in the index of one embedder, and a write path with another one."""

    bench: Bench
    new: WritePath
    database: Database
    ids: list[str] = field(default_factory=list)

    @property
    def old(self) -> WritePath:
        return self.bench.write_path

    def ingest(self, *names: str, text: str = "is {n} metres deep", path: WritePath | None = None) -> list[str]:
        """Write and publish documents; their ids."""
        path = path or self.old
        for name in names:
            self.bench.write(f"{name}.txt", f"Berth {name} {text.format(n=len(name))}. 泊位{name}。")
        source = path.catalog.ensure_source(self.bench.base.id, SourceKind.BULK, "bulk")
        parts: list[PreparedPart] = []
        for item in plan(path, self.bench.base.id, [str(self.bench.folder)]):
            if isinstance(item, PlannedFile):
                work = steps.Work(self.bench.base.id, source.id, item.document_id, item.file, item.content_fingerprint)
                prepared = steps.prepare(path, work, owner="run")
                assert isinstance(prepared, list), prepared
                parts += prepared
        record = steps.open_index(path)
        for batch in steps.batches(parts, 16):
            rows = steps.index(path, record, batch)
            assert not [row for row in rows if isinstance(row, Receipt) and row.outcome == "failed"], rows
        drain(self.bench.stores)
        return [self.id(name) for name in names]

    @property
    def only(self) -> FsckOptions:
        """The collections hold other tests' rows too."""
        return FsckOptions(grace_seconds=0, knowledge_base_id=self.bench.base.id)

    def id(self, name: str) -> str:
        return ids.bulk_document_id(self.bench.base.id, (self.bench.folder / f"{name}.txt").as_uri())

    def here(self, record: IndexRecord, then: Callable[[int], None] = lambda _: None) -> steps.FillStream:
        """A stream in this process, in batches of two parts; then(number of batches so far) after each."""
        calls = [0]

        def stream(parts: Sequence[PreparedPart]) -> Iterator[steps.Filled]:
            for batch in steps.batches(parts, 2):
                yield from steps.fill(self.new, record, batch)
                calls[0] += 1
                then(calls[0])

        return stream

    def reembed(
        self, options: ReembedOptions = QUIET, compare: Any = None, then: Callable[[int], None] = lambda _: None
    ) -> ReembedReport:
        record = register(self.new)
        return reembed.reembed(self.new, record, self.here(record, then), options, compare)

    def record(self, path: WritePath) -> IndexRecord:
        fingerprint = path.embedder().fingerprint
        return next(found for found in path.catalog.indexes() if found.embedder_fingerprint == fingerprint)

    def rows(self, path: WritePath) -> dict[str, tuple[str, int, int]]:
        """chunk id -> (document, version, access key) of this knowledge base in a path's own index."""
        found = list(path.index.rows(self.record(path).collection, self.bench.base.id))
        assert len({row.id for row in found}) == len(found), "no row twice"
        return {row.id: (row.document_id, row.version, row.access_key) for row in found}

    def truth(self) -> dict[str, tuple[str, int, int]]:
        """The same, as PostgreSQL has it."""
        with self.database.connection() as connection:
            found = connection.execute(
                """SELECT c.id, c.document_id, c.version, d.access_key FROM chunks c JOIN documents d
                   ON d.id = c.document_id AND d.published_version = c.version WHERE d.deleted_at IS NULL"""
            ).fetchall()
        return {row["id"]: (row["document_id"], row["version"], row["access_key"]) for row in found}

    def ask(self, path: WritePath, query: str, mode: RetrievalMode = RetrievalMode.HYBRID) -> RetrievalRun:
        return asyncio.run(self._ask(path.embedder(), query, mode))

    async def _ask(self, embedder: Embedder, query: str, mode: RetrievalMode) -> RetrievalRun:
        database = Database(self.bench.recipe.dsn)
        retriever = Retriever(PostgresEvidence(database), self.old.index, ThreadedEmbedder(embedder))
        try:
            return await retriever.retrieve(LOCAL, self.bench.base.id, query, RetrievalOptions(mode=mode, top_k=3))
        finally:
            await database.aclose()


@pytest.fixture(autouse=True)
def always_by_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reembed, "LOCAL_CHUNKS", 0)


@pytest.fixture
def library(bench: Bench) -> Iterator[Library]:
    new = replace(bench.recipe, dimension=128)()
    database = Database(bench.recipe.dsn)
    made = Library(bench, new, database)
    made.ids = made.ingest(*(f"b{n}" for n in range(7)))
    bench.recipe.calls.clear()
    yield made
    new.parser().close()  # type: ignore[attr-defined]
    database.close()


def test_all_that_queries_see_is_embedded_once_without_parsing_and_then_queried(library: Library) -> None:
    report = library.reembed()
    assert (report.outcome, report.chunks, report.missing, report.failed) == ("switched", 7, 0, 0)
    assert library.bench.calls == {"embed_calls": 4, "embedded": 7}
    assert library.rows(library.new) == library.truth()
    states = {record.dimension: record.state for record in library.old.catalog.indexes()}
    assert states == {128: "active", 64: "retired"}
    run = library.ask(library.new, "How deep is berth b3?")
    assert run.results[0].document_id == library.id("b3")
    assert not [text for text in run.trace.degradations if text.startswith("index")]


def test_a_second_job_embeds_nothing(library: Library) -> None:
    library.reembed()
    library.bench.recipe.calls.clear()
    assert library.reembed().outcome == "active"
    assert not library.bench.calls


# -- kills -----------------------------------------------------------------------------------------------------------


def _until_killed(recipe: Recipe, writes: int) -> None:
    """A job that dies by SIGKILL after so many writes to the index, before PostgreSQL hears of the last one."""
    reembed.LOCAL_CHUNKS = 0
    path = recipe()
    original, count = path.index.upsert, [0]

    def upsert(*arguments: Any) -> None:
        original(*arguments)
        count[0] += 1
        if count[0] == writes:
            os.kill(os.getpid(), signal.SIGKILL)

    path.index.upsert = upsert  # type: ignore[method-assign]
    record = register(path)

    def stream(parts: Sequence[PreparedPart]) -> Iterator[steps.Filled]:
        for batch in steps.batches(parts, 2):
            yield from steps.fill(path, record, batch)

    reembed.reembed(path, record, stream, QUIET)


@pytest.mark.parametrize("writes", [1, 3])
def test_a_killed_job_goes_on_and_embeds_again_only_the_batch_in_flight(library: Library, writes: int) -> None:
    recipe = replace(library.bench.recipe, dimension=128)
    child = multiprocessing.get_context("spawn").Process(target=_until_killed, args=(recipe, writes))
    child.start()
    child.join(120)
    assert child.exitcode == -signal.SIGKILL
    assert {record.state for record in library.old.catalog.indexes()} == {"active", "building"}
    assert library.ask(library.old, "How deep is berth b3?").results[0].document_id == library.id("b3")
    report = library.reembed()
    assert report.outcome == "switched"
    assert report.chunks == 7 - 2 * (writes - 1), "what was confirmed is there"
    assert library.bench.calls["embedded"] == 7 + 2 + 1, "all, the two whose write was not confirmed, a query"
    assert library.rows(library.new) == library.truth()


# -- two at once -----------------------------------------------------------------------------------------------------


def test_a_second_job_on_an_index_is_refused_while_the_first_is_alive_and_disturbs_nothing(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.new = replace(library.new, lease_seconds=30.0)
    record = register(library.new)
    refused: list[str] = []

    def first_beats(_: float) -> None:
        """While the second waits whether the first is alive."""
        held = library.new.catalog.lease_index(record.id, "second", 1.0)
        assert held is not None
        assert library.new.catalog.lease_index(record.id, held[0], 60.0) is None

    def second(batches: int) -> None:
        if batches == 1:
            with monkeypatch.context() as patch, pytest.raises(ConflictError, match="another job"):
                patch.setattr(index_lease.time, "sleep", first_beats)
                library.reembed()
            refused.append(library.record(library.new).state)

    report = library.reembed(then=second)
    assert refused == ["building"]
    assert (report.outcome, report.chunks) == ("switched", 7), "none was embedded twice"
    assert library.rows(library.new) == library.truth()
    assert library.reembed().outcome == "active", "the lease ends with its job"


def test_a_job_waits_for_the_lease_of_one_that_was_killed_and_goes_on(library: Library) -> None:
    record = register(library.new)
    assert library.new.catalog.lease_index(record.id, "killed", 1.0) is None
    assert library.reembed().outcome == "switched"


def test_a_job_that_was_frozen_for_longer_than_its_lease_stops_when_another_took_over(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.new = replace(library.new, lease_seconds=0.6)
    record = register(library.new)
    leases: list[index_lease.IndexLease] = []

    class Watched(index_lease.IndexLease):
        def __enter__(self) -> Watched:
            leases.append(self)
            return super().__enter__()

    def frozen(batches: int) -> None:
        if batches == 1:
            with library.database.connection() as connection:
                connection.execute("UPDATE index_leases SET owner = 'another', held_until = now() + interval '1 h'")
            while not leases[0].lost:  # until its next heartbeat
                time.sleep(0.05)

    monkeypatch.setattr(reembed, "IndexLease", Watched)
    with pytest.raises(ConflictError, match="taken over"):
        library.reembed(then=frozen)
    held = library.new.catalog.lease_index(record.id, "third", 1.0)
    assert held is not None and held[0] == "another", "what is another's is not given back"
    assert library.record(library.new).state == "building"


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_the_second_graph_fills_on_ray_and_outlives_the_death_of_an_actor(library: Library) -> None:
    library.bench.recipe.calls.note("killed")  # so that this process is spared
    library.ingest("killer", text="has a crane KILL-ONCE")
    library.bench.recipe.calls.clear()
    record = register(library.new)
    stream = fill_stream(replace(library.bench.recipe, dimension=128), record, "reembed-run")
    report = reembed.reembed(library.new, record, stream, QUIET)
    assert (report.outcome, report.chunks) == ("switched", 8)
    assert library.bench.calls["killed"] == 1
    assert library.rows(library.new) == library.truth()


# -- meanwhile -------------------------------------------------------------------------------------------------------


def test_writes_deletes_and_changes_of_access_meanwhile_reach_the_new_index(library: Library) -> None:
    def meanwhile(batches: int) -> None:
        if batches == 2:
            library.ingest("late")
            library.ingest("b0", text="was dredged and is 19 metres deep")
            library.ingest("b6", text="was dredged and is 21 metres deep")
            delete_document(library.bench.stores, library.id("b1"))
            delete_document(library.bench.stores, library.id("b5"))
            for name in ("b2", "b4"):
                library.old.catalog.update_document(library.id(name), access=AccessAttributes(("crew",)))
            drain(library.bench.stores)

    report = library.reembed(then=meanwhile)
    assert report.outcome == "switched"
    assert library.rows(library.new) == library.truth() == library.rows(library.old)
    assert {document for document, _, _ in library.truth().values()} == {
        library.id(name) for name in ("b0", "b2", "b3", "b4", "b6", "late")
    }
    assert fsck(library.new, PostgresInventory(library.database), library.only).clean


def test_a_document_deleted_while_it_is_embedded_is_not_written(library: Library) -> None:
    deleted: list[str] = []

    class Deleting(HashEmbedder):
        def embed_documents(self, texts: Sequence[str]) -> Any:
            if not deleted:
                deleted.append(library.id("b0"))
                assert not delete_document(library.bench.stores, deleted[0]).pending
            return super().embed_documents(texts)

    engine = Deleting(128)
    library.new = replace(library.new, embedder=lambda: engine)
    assert library.reembed().outcome == "switched"
    assert library.rows(library.new) == library.truth()
    assert deleted[0] not in {document for document, _, _ in library.rows(library.new).values()}


def test_a_delete_waits_for_the_rows_that_are_being_written_and_takes_them_along(library: Library) -> None:
    receipts: list[bool] = []
    index, record = library.new.index, register(library.new)
    original = index.upsert
    threads: list[threading.Thread] = []

    def upsert(*arguments: Any) -> None:
        if not threads:
            delete = lambda: receipts.append(delete_document(library.bench.stores, library.id("b0")).pending)  # noqa: E731
            threads.append(threading.Thread(target=delete))
            threads[0].start()
            threads[0].join(0.5)
            assert threads[0].is_alive()
        original(*arguments)

    index.upsert = upsert  # type: ignore[method-assign]
    (part,) = [
        p
        for p in steps.from_snapshots(library.new.catalog.missing_parts(record.id))
        if library.id("b0") == p.document_id
    ]
    steps.fill(library.new, record, [part])
    threads[0].join(30)
    assert receipts == [False]
    assert library.rows(library.new) == {}


def test_what_is_published_between_the_last_look_and_the_switch_is_filled_in_by_the_switch(library: Library) -> None:
    record, catalog = register(library.new), library.new.catalog
    list(library.here(record)(steps.from_snapshots(catalog.missing_parts(record.id))))
    library.ingest("last")
    assert catalog.switch_index(record.id) == 1
    assert library.record(library.old).state == "active", "nothing is switched while something is missing"

    def fill(missing: Any) -> None:
        steps.fill(library.new, record, steps.from_snapshots(missing))

    assert catalog.switch_index(record.id, fill) == 0
    assert library.rows(library.new) == library.truth()


def test_publishing_waits_for_a_switch_and_is_refused_afterwards(library: Library) -> None:
    record, catalog = register(library.new), library.new.catalog
    library.bench.write("late.txt", "Berth late is deep.")
    path, errors = library.old, list[BaseException]()

    def publish() -> None:
        try:
            library.ingest("late")
        except IndexMismatchError as error:
            errors.append(error)

    def fill(missing: Any) -> None:
        steps.fill(library.new, record, steps.from_snapshots(missing))
        if not threads:
            threads.append(threading.Thread(target=publish))
            threads[0].start()
            threads[0].join(1.5)
            assert threads[0].is_alive(), "it waits"

    threads: list[threading.Thread] = []
    assert catalog.switch_index(record.id, fill) == 0
    threads[0].join(30)
    assert len(errors) == 1
    assert library.rows(library.new) == library.truth()
    path.ledger.release("run")
    library.bench.recipe.calls.clear()
    library.ingest(path=library.new)  # the same version, from its snapshot, into the index of now
    assert library.bench.calls["parsed"] == 0
    assert library.rows(library.new) == library.truth()
    assert len(library.truth()) == 8


def test_parts_done_for_the_old_index_are_embedded_for_the_new_one_before_their_version_is_published(
    library: Library,
) -> None:
    small = library.bench.recipe.with_small_chunks()
    path, new = small(), replace(small, dimension=128)()
    library.bench.write("long.txt", "\n\n".join(f"Paragraph {n} tells how berth {n} was dredged." for n in range(1500)))
    source = path.catalog.ensure_source(library.bench.base.id, SourceKind.BULK, "bulk")
    items = plan(path, library.bench.base.id, [str(library.bench.folder / "long.txt")])
    (item,) = [item for item in items if isinstance(item, PlannedFile)]
    work = steps.Work(library.bench.base.id, source.id, item.document_id, item.file, item.content_fingerprint)
    prepared = steps.prepare(path, work, owner="run")
    assert isinstance(prepared, list)
    assert len(prepared) > 1
    steps.index(path, steps.open_index(path), prepared[:1])
    library.reembed()
    with pytest.raises(IndexMismatchError):
        steps.index(path, library.record(path), prepared[1:])
    path.ledger.release("run")
    resumed = steps.prepare(new, work, owner="again")
    assert isinstance(resumed, list)
    assert len(resumed) == len(prepared)
    steps.index(new, steps.open_index(new), resumed)
    assert library.rows(new) == library.truth()
    for opened in (path, new):
        opened.parser().close()  # type: ignore[attr-defined]


def test_ingestion_with_another_embedder_than_the_active_index_s_is_refused_at_once(library: Library) -> None:
    options = IngestionOptions(progress=False)
    recipe = replace(library.bench.recipe, dimension=128)
    with pytest.raises(IndexMismatchError, match="reembed"):
        run_ingestion(recipe, library.bench.base.name, [str(library.bench.folder)], options)
    assert len(library.old.catalog.indexes()) == 1
    assert library.old.ledger.runs()[0] == []


def test_uploads_wait_for_a_worker_with_the_new_embedder(library: Library) -> None:
    library.reembed()
    queue = PostgresUploadQueue(library.database, max_attempts=2)
    document_id, content = ids.upload_document_id(), b"The upload is long."
    library.old.objects.put(keys.source_key(library.bench.base.id, document_id, 1, "u.txt"), content)
    job = queue.submit(
        UploadRequest(
            document_id,
            library.bench.base.id,
            "u.txt",
            "text/plain",
            hashlib.sha256(content).hexdigest(),
            len(content),
            library.new.content_fingerprint("u.txt", None),
            AccessAttributes(),
            {},
        )
    )
    assert not work_once(UploadWorker(library.old, queue))
    assert (queue.job(job.id, LOCAL).status, queue.job(job.id, LOCAL).attempts) == (JobStatus.PENDING, 0)
    assert work_once(UploadWorker(library.new, queue))
    assert queue.job(job.id, LOCAL).status is JobStatus.SUCCEEDED
    assert library.rows(library.new) == library.truth()


# -- queries ---------------------------------------------------------------------------------------------------------


def test_queries_never_fail_and_never_mix_embedders_while_an_index_is_built_and_switched_to(library: Library) -> None:
    stop, failures, asked = threading.Event(), list[str](), [0]

    def keep_asking() -> None:
        while not stop.is_set():
            for n in range(7):
                run = library.ask(library.old, f"How deep is berth b{n}?")
                asked[0] += 1
                if not run.results or run.results[0].document_id != library.id(f"b{n}"):
                    failures.append(f"b{n}: {run.results}")
                failures.extend(text for text in run.trace.degradations if text.startswith(("dense", "sparse")))

    def asking() -> None:
        try:
            keep_asking()
        except Exception as error:
            failures.append(repr(error))

    thread = threading.Thread(target=asking)
    thread.start()
    try:
        assert library.reembed(then=lambda _: stop.wait(0.3) and None).outcome == "switched"
        before = asked[0]
        while asked[0] < before + 8:
            assert not stop.wait(0.05)
            assert thread.is_alive()
    finally:
        stop.set()
        thread.join(30)
    assert failures == []


def test_a_server_asks_only_the_index_of_its_own_embedder(library: Library) -> None:
    library.reembed(replace(QUIET, switch=False))
    with pytest.raises(IndexMismatchError, match="RAG_EMBEDDER"):
        library.ask(library.new, "berth b1")  # built, and not active yet
    assert library.ask(library.new, "berth b1", RetrievalMode.SPARSE).results, "BM25 needs no embedder"
    indexes.switch(library.new.catalog, library.record(library.new).collection)
    assert library.ask(library.new, "berth b1").results
    run = library.ask(library.old, "berth b1")
    assert run.results[0].document_id == library.id("b1")
    assert any("retired" in text for text in run.trace.degradations)
    indexes.drop(library.new.catalog, library.new.index, library.record(library.old).collection)
    with pytest.raises(IndexMismatchError, match="RAG_EMBEDDER"):
        library.ask(library.old, "berth b1")


# -- back, and away --------------------------------------------------------------------------------------------------


def test_switching_back_is_at_once_while_nothing_is_missing(library: Library) -> None:
    library.reembed()
    library.bench.recipe.calls.clear()
    indexes.switch(library.old.catalog, library.old.embedder().fingerprint)
    assert not library.bench.calls
    assert {record.dimension: record.state for record in library.old.catalog.indexes()} == {
        64: "active",
        128: "retired",
    }
    assert library.ask(library.old, "berth b1").results


def test_switching_back_after_further_writes_embeds_only_those(library: Library) -> None:
    library.reembed()
    library.ingest("late", path=library.new)
    delete_document(library.bench.stores, library.id("b1"))
    with pytest.raises(ConflictError, match="1 parts"):
        indexes.switch(library.old.catalog, library.record(library.old).collection)
    assert library.record(library.new).state == "active"
    library.new, library.bench.write_path = library.old, library.new
    library.bench.recipe.calls.clear()
    assert library.reembed().outcome == "switched"
    assert library.bench.calls["embedded"] == 1
    assert library.rows(library.new) == library.truth()


def test_a_deleted_document_leaves_the_retired_index_too(library: Library) -> None:
    library.reembed()
    receipt = delete_document(library.bench.stores, library.id("b1"))
    assert (receipt.stores["milvus"], receipt.pending) == ("gone", False)
    assert library.id("b1") not in {document for document, _, _ in library.rows(library.old).values()}


def test_an_index_is_dropped_whole_also_when_the_first_try_was_killed(library: Library) -> None:
    library.reembed()
    retired, active = library.record(library.old), library.record(library.new)
    with pytest.raises(ConflictError, match="active"):
        indexes.drop(library.new.catalog, library.new.index, active.collection)
    library.new.catalog.begin_drop(retired.collection)  # and killed
    with pytest.raises(ConflictError, match="drop"):
        register(library.old)
    with pytest.raises(ConflictError, match="drop"):
        indexes.switch(library.new.catalog, retired.collection)
    assert fsck(library.new, PostgresInventory(library.database), library.only).clean
    indexes.drop(library.new.catalog, library.new.index, retired.collection)
    assert library.new.catalog.indexes() == [active]
    assert list(library.new.index.rows(retired.collection, library.bench.base.id)) == []
    library.new, library.bench.write_path = library.old, library.new
    assert library.reembed().chunks == 7, "built anew from snapshots"


def test_an_index_whose_collection_was_lost_is_built_anew_also_the_active_one(library: Library) -> None:
    library.old.index.drop(library.record(library.old).collection)
    library.new = library.old
    report = library.reembed()
    assert (report.outcome, report.chunks) == ("active", 7)
    assert library.rows(library.old) == library.truth()
    assert library.ask(library.old, "berth b1").results


def test_a_lost_collection_is_filled_also_when_whoever_made_it_anew_was_killed_at_that(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.new, index = library.old, library.old.index
    index.drop(library.record(library.old).collection)
    ensure = index.ensure

    def ensure_then_killed(record: IndexRecord) -> None:
        ensure(record)
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(index, "ensure", ensure_then_killed)
        with pytest.raises(RuntimeError, match="killed"):
            library.reembed()
    assert library.reembed().chunks == 7
    assert library.rows(library.old) == library.truth()


def test_a_model_that_is_away_ends_the_job_early(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    class Away(HashEmbedder):
        def embed_documents(self, texts: Sequence[str]) -> Any:
            raise ModelUnavailableError("away")

    monkeypatch.setattr(reembed, "GIVE_UP", 3)
    engine = Away(128)
    library.new = replace(library.new, embedder=lambda: engine)
    with pytest.raises(ModelUnavailableError, match="every part fails"):
        library.reembed()
    assert library.record(library.old).state == "active"


# -- quality ---------------------------------------------------------------------------------------------------------


class Constant(HashEmbedder):
    """Says the same of everything: as bad as an embedder can be."""

    def __init__(self) -> None:
        super().__init__(32)
        self.fingerprint = "constant"

    def embed_documents(self, texts: Sequence[str]) -> Any:
        return super().embed_documents(["the same"] * len(texts))


def comparison(library: Library) -> Any:
    asked = [
        Question(f"How deep is berth b{n}?", library.bench.base.id, frozenset({f"b{n}.txt", "elsewhere"}))
        for n in range(7)
    ]

    def compare(active: IndexRecord, record: IndexRecord) -> Comparison:
        evidence = PostgresEvidence(Database(library.bench.recipe.dsn))
        old, new = (
            Retriever(PinnedEvidence(evidence, index), path.index, ThreadedEmbedder(path.embedder()))
            for path, index in ((library.old, active), (library.new, record))
        )
        return asyncio.run(compare_recall(old, new, asked, 2))

    return compare


def test_an_index_that_finds_less_is_not_switched_to_unless_forced(library: Library) -> None:
    engine = Constant()
    library.new = replace(library.new, embedder=lambda: engine)
    report = library.reembed(compare=comparison(library))
    assert report.outcome == "refused"
    assert not report.ok
    found = report.comparison
    assert found is not None
    assert (found.questions, found.old["dense"].recall, found.old["dense"].mrr) == (7, 0.5, 1.0)
    assert found.new["dense"].recall < 0.5
    assert found.loss > 0.2
    assert library.record(library.old).state == "active"
    assert library.reembed(replace(QUIET, force=True), comparison(library)).outcome == "switched"


def test_an_index_that_finds_as_much_is_switched_to(library: Library) -> None:
    report = library.reembed(compare=comparison(library))
    assert report.outcome == "switched"
    assert report.comparison is not None
    assert report.comparison.loss <= 0
    assert report.to_dict()["comparison"]["new"]["hybrid"] == {"recall": 0.5, "mrr": 1.0}


def test_a_part_that_the_new_model_refuses_keeps_the_switch_away_and_is_tried_again(library: Library) -> None:
    class Refusing(HashEmbedder):
        refuses = True

        def embed_documents(self, texts: Sequence[str]) -> Any:
            if self.refuses and any("b3" in text for text in texts):
                raise ModelUnavailableError("not this one")
            return super().embed_documents(texts)

    engine = Refusing(128)
    library.new = replace(library.new, embedder=lambda: engine)
    report = library.reembed()
    assert (report.outcome, report.chunks, report.missing, report.failed) == ("incomplete", 6, 1, 1)
    assert [(receipt.document_id, receipt.error_type) for receipt in report.failures] == [
        (library.id("b3"), "model_unavailable")
    ]
    engine.refuses = False
    assert (again := library.reembed()).outcome == "switched"
    assert again.chunks == 1


# -- fsck ------------------------------------------------------------------------------------------------------------


def test_fsck_takes_a_half_built_index_for_what_it_is_and_finds_what_it_lost(library: Library) -> None:
    record, inventory = register(library.new), PostgresInventory(library.database)
    missing = steps.from_snapshots(library.new.catalog.missing_parts(record.id))
    list(library.here(record)(missing[:4]))
    options = library.only
    assert fsck(library.old, inventory, options).clean
    lost = next(iter(library.rows(library.new)))
    library.new.index.delete_rows(record.collection, library.bench.base.id, [lost])
    report = fsck(library.old, inventory, replace(options, repair=True))
    assert report.count(Fault.MISSING_ROW, Outcome.REPAIRED) == report.findings == 1
    assert fsck(library.old, inventory, options).clean
    assert library.reembed().chunks == 7 - 4 + 1, "what was lost is embedded with what was missing"
    assert library.rows(library.new) == library.truth()
