"""fsck on real stores: it finds each planted fault, repairs it, and finds nothing the second time."""

from __future__ import annotations

import asyncio
import base64
import io
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
import pytest
from PIL import Image

from rag_cluster.domain import keys
from rag_cluster.domain.access import LOCAL
from rag_cluster.domain.chunks import Chunk, IndexRow
from rag_cluster.domain.documents import OutboxKind, PlannedFile, SourceKind
from rag_cluster.domain.inventory import DocumentFacts, Fault, Outcome
from rag_cluster.engines.threaded import ThreadedEmbedder
from rag_cluster.errors import StoreUnavailableError
from rag_cluster.ingestion import steps
from rag_cluster.ingestion.plan import plan
from rag_cluster.ingestion.write_path import WritePath
from rag_cluster.lifecycle.fsck import FsckOptions, fsck
from rag_cluster.lifecycle.outbox import drain
from rag_cluster.lifecycle.report import FsckReport
from rag_cluster.retrieval.retriever import Retriever
from rag_cluster.stores.postgres.database import Database
from rag_cluster.stores.postgres.evidence import PostgresEvidence
from rag_cluster.stores.postgres.inventory import PostgresInventory
from tests.fixtures.write_path import Bench

COUNT = 20 if os.environ.get("RAG_FULL_COUNTS") else 3
"""Faults of each kind."""
NOW = 0.0


@dataclass
class World:
    """Documents with chunks, parents and pictures on real stores, and ways of damaging them."""

    bench: Bench
    path: WritePath
    inventory: PostgresInventory
    documents: list[str] = field(default_factory=list)

    @property
    def base(self) -> str:
        return self.bench.base.id

    @property
    def collection(self) -> str:
        return self.path.catalog.indexes()[0].collection

    def write(self, number: int, edition: int = 1) -> None:
        picture = io.BytesIO()
        Image.new("RGB", (60 + number, 50), (number * 7 % 256, edition, 90)).save(picture, "PNG")
        uri = base64.b64encode(picture.getvalue()).decode()
        paragraphs = "".join(
            f"<h2>Berth {number} section {part}</h2><p>Crane {number}-{part} of edition {edition} lifts "
            f"{number + part} tonnes over the quay. 岸桥 {number}-{part} 每月维护一次。</p>"
            for part in range(3)
        )
        html = f"<h1>Berth {number}</h1>{paragraphs}<img src='data:image/png;base64,{uri}' alt='Plan {number}'>"
        self.bench.write(f"berth-{number}.html", html)

    def prepare(self) -> list[steps.PreparedPart]:
        source = self.path.catalog.ensure_source(self.base, SourceKind.BULK, "bulk")
        parts: list[steps.PreparedPart] = []
        for item in plan(self.path, self.base, [str(self.bench.folder)]):
            if isinstance(item, PlannedFile) and item.action in ("prepare", "index"):
                work = steps.Work(self.base, source.id, item.document_id, item.file, item.content_fingerprint)
                prepared = steps.prepare(self.path, work, owner="run")
                assert isinstance(prepared, list), prepared
                parts += prepared
        return parts

    def ingest(self, count: int = COUNT, edition: int = 1) -> list[str]:
        for number in range(count):
            self.write(number, edition)
        parts = self.prepare()
        for batch in steps.batches(parts, 16):
            steps.index(self.path, steps.open_index(self.path), batch)
        drain(self.bench.stores)
        self.documents = sorted({part.document_id for part in parts})
        assert len(self.documents) == count
        return self.documents

    def facts(self, document_id: str) -> DocumentFacts:
        facts = self.inventory.document(document_id)
        assert facts is not None
        return facts

    def fsck(self, **options: Any) -> FsckReport:
        return fsck(self.path, self.inventory, FsckOptions(grace_seconds=NOW, **options))

    def sql(self, statement: str, *values: Any) -> None:
        with psycopg.connect(self.bench.recipe.dsn, autocommit=True) as connection:
            assert connection.execute(statement, values).rowcount, statement

    def chunks(self, document_id: str) -> list[Chunk]:
        version = self.facts(document_id).published_version
        assert version is not None
        return [chunk for content in self.inventory.contents(document_id, version) for chunk in content.chunks]

    def put_row(self, chunk: Chunk, **changes: Any) -> None:
        """An index row that no writer of the product writes."""
        facts = self.inventory.document(chunk.document_id)
        row = IndexRow(chunk, facts.source_id, facts.access_key, facts.metadata) if facts else IndexRow(chunk, "s", 1)
        vectors = self.path.embedder().embed_documents([chunk.content])
        self.path.index.upsert(self.collection, [replace(row, **changes)], vectors)

    def object_path(self, key: str) -> str:
        return f"{self.bench.recipe.root}/objects/{key}"

    def snapshot_key(self, document_id: str) -> str:
        version = self.facts(document_id).published_version or 0
        return keys.snapshot_prefix(self.base, document_id, version) + "snapshot.parquet"

    def state(self) -> dict[str, Any]:
        """Everything of the documents that a repair must give back."""
        found = {}
        for document_id in self.documents:
            facts = self.facts(document_id)
            rows = sorted(self.path.index.rows(self.collection, self.base, document_id=document_id), key=lambda r: r.id)
            objects = {
                e.key: self.path.objects.get(e.key) for e in self.path.objects.entries(f"{self.base}/{document_id}")
            }
            snapshot = self.path.snapshots.load(self.base, document_id, facts.published_version or 0)
            objects = {key: content for key, content in objects.items() if "/snapshot/" not in key}
            content = list(self.inventory.contents(document_id, facts.published_version or 0))
            found[document_id] = (facts.chunk_ids, facts.assets, rows, objects, snapshot, content)
        return found


@pytest.fixture
def world(bench: Bench) -> Iterator[World]:
    bench.write_path = bench.recipe.with_small_chunks()()
    database = Database(bench.recipe.dsn, pool_size=4, timeout=20.0)
    made = World(bench, bench.write_path, PostgresInventory(database))
    steps.open_index(bench.write_path)
    made.fsck(repair=True)  # the collection is shared: what other tests left in it belongs to nobody here
    yield made
    database.close()


# -- the faults ------------------------------------------------------------------------------------------------------


def missing_row(world: World, document_id: str) -> None:
    world.path.index.delete_rows(world.collection, world.base, [world.chunks(document_id)[0].id])


def orphan_row(world: World, document_id: str) -> None:
    unknown = str(uuid.uuid4())
    world.put_row(replace(world.chunks(document_id)[0], id=str(uuid.uuid4()), document_id=unknown))


def orphan_row_of_an_unknown_base(world: World, document_id: str) -> None:
    names = {name: str(uuid.uuid4()) for name in ("id", "document_id", "knowledge_base_id")}
    world.put_row(replace(world.chunks(document_id)[0], **names))


def row_of_a_deleted_document(world: World, document_id: str) -> None:
    """A zombie writes after the delete was through."""
    chunk = world.chunks(document_id)[0]
    world.path.catalog.tombstone(document_id)
    drain(world.bench.stores)
    world.put_row(chunk)


def duplicate_row(world: World, document_id: str) -> None:
    world.put_row(replace(world.chunks(document_id)[0], id=str(uuid.uuid4())))


def row_in_another_partition(world: World, document_id: str) -> None:
    other = world.path.catalog.create_knowledge_base(f"other-{document_id}")
    world.put_row(replace(world.chunks(document_id)[0], id=str(uuid.uuid4()), knowledge_base_id=other.id))


def stale_row(world: World, document_id: str) -> None:
    """A zombie of version 1 writes after version 2 was published and the outbox drained."""
    world.put_row(replace(world.chunks(document_id)[0], id=str(uuid.uuid4()), version=1))


def row_of_a_failed_version(world: World, document_id: str) -> None:
    world.sql(
        """INSERT INTO document_versions (document_id, version, status, content_fingerprint, error_permanent)
           VALUES (%s, 9, 'FAILED', 'f', true)""",
        document_id,
    )
    world.put_row(replace(world.chunks(document_id)[0], id=str(uuid.uuid4()), version=9))


def wrong_access_key(world: World, document_id: str) -> None:
    world.put_row(world.chunks(document_id)[0], access_key=999_999)


def wrong_metadata(world: World, document_id: str) -> None:
    world.put_row(world.chunks(document_id)[0], document_metadata={"年": 1, "quoted \"'": ["x"]})


def wrong_source(world: World, document_id: str) -> None:
    world.put_row(world.chunks(document_id)[0], source_id=str(uuid.uuid4()))


def snapshot_lost(world: World, document_id: str) -> None:
    os.unlink(world.object_path(world.snapshot_key(document_id)))


def snapshot_torn(world: World, document_id: str) -> None:
    path = world.object_path(world.snapshot_key(document_id))
    os.truncate(path, os.path.getsize(path) // 2)


def snapshot_with_a_flipped_bit(world: World, document_id: str) -> None:
    with open(world.object_path(world.snapshot_key(document_id)), "r+b") as file:
        file.seek(120)
        byte = file.read(1)
        file.seek(120)
        file.write(bytes([byte[0] ^ 0x10]))


def original_lost(world: World, document_id: str) -> None:
    os.unlink(world.object_path(f"{world.base}/{document_id}/1/source.html"))


def original_torn(world: World, document_id: str) -> None:
    os.truncate(world.object_path(f"{world.base}/{document_id}/1/source.html"), 10)


def asset_lost(world: World, document_id: str) -> None:
    (asset,) = world.facts(document_id).assets
    os.unlink(world.object_path(asset.object_key))


def orphan_object(world: World, document_id: str) -> None:
    world.path.objects.put(f"{world.base}/{uuid.uuid4()}/1/source.pdf", b"left over")


def object_of_an_unknown_base(world: World, document_id: str) -> None:
    world.path.objects.put(f"{uuid.uuid4()}/{document_id}/1/source.pdf", b"left over")


def object_of_an_old_version(world: World, document_id: str) -> None:
    world.path.objects.put(f"{world.base}/{document_id}/0/assets/{uuid.uuid4()}", b"left over")


def object_of_a_deleted_document(world: World, document_id: str) -> None:
    world.path.catalog.tombstone(document_id)
    drain(world.bench.stores)
    world.path.objects.put(f"{world.base}/{document_id}/1/source.pdf", b"left over")


def stray_asset(world: World, document_id: str) -> None:
    version = world.facts(document_id).published_version or 0
    world.path.objects.put(keys.asset_key(world.base, document_id, version, str(uuid.uuid4())), b"stray")


def chunk_missing(world: World, document_id: str) -> None:
    world.sql("DELETE FROM chunks WHERE id = %s", world.chunks(document_id)[1].id)


def parent_missing(world: World, document_id: str) -> None:
    world.sql("DELETE FROM parents WHERE id = %s", world.chunks(document_id)[0].parent_id)


def part_missing(world: World, document_id: str) -> None:
    world.sql("DELETE FROM document_parts WHERE document_id = %s AND part = 0", document_id)


def version_row_missing(world: World, document_id: str) -> None:
    world.sql("DELETE FROM document_versions WHERE document_id = %s", document_id)


def unversioned_chunks(world: World, document_id: str) -> None:
    world.sql(
        """INSERT INTO chunks (id, knowledge_base_id, document_id, version, index, content)
           VALUES (%s, %s, %s, 8, 0, 'left over')""",
        str(uuid.uuid4()),
        world.base,
        document_id,
    )


def unfinished_delete(world: World, document_id: str) -> None:
    world.path.catalog.tombstone(document_id)
    world.sql("DELETE FROM outbox WHERE document_id = %s", document_id)


def stuck_claim(world: World, document_id: str) -> None:
    world.sql(
        """INSERT INTO document_versions (document_id, version, status, content_fingerprint, claim_owner, claim_until)
           VALUES (%s, 9, 'PARSING', 'f', 'gone', now() - interval '1 day')""",
        document_id,
    )


def stuck_outbox(world: World, document_id: str) -> None:
    world.path.outbox.add(OutboxKind.INDEX_ACCESS, document_id, world.base, {})
    world.sql(
        "UPDATE outbox SET attempts = 30, available_at = now() + interval '1 hour' WHERE document_id = %s", document_id
    )


def stuck_run(world: World, document_id: str) -> None:
    run = world.path.ledger.start_run(world.base, ["/nowhere"], {}, str(uuid.uuid4()))
    world.sql("UPDATE ingestion_runs SET updated_at = now() - interval '1 day' WHERE id = %s", run.id)


Plant = Callable[[World, str], None]
PLANTS: list[tuple[Fault, Plant]] = [
    (Fault.MISSING_ROW, missing_row),
    (Fault.ORPHAN_ROW, orphan_row),
    (Fault.ORPHAN_ROW, orphan_row_of_an_unknown_base),
    (Fault.ORPHAN_ROW, row_of_a_deleted_document),
    (Fault.DUPLICATE_ROW, duplicate_row),
    (Fault.DUPLICATE_ROW, row_in_another_partition),
    (Fault.STALE_ROW, stale_row),
    (Fault.STALE_ROW, row_of_a_failed_version),
    (Fault.WRONG_FIELDS, wrong_access_key),
    (Fault.WRONG_FIELDS, wrong_metadata),
    (Fault.WRONG_FIELDS, wrong_source),
    (Fault.SNAPSHOT_LOST, snapshot_lost),
    (Fault.SNAPSHOT_CORRUPT, snapshot_torn),
    (Fault.SNAPSHOT_CORRUPT, snapshot_with_a_flipped_bit),
    (Fault.ORIGINAL_LOST, original_lost),
    (Fault.ORIGINAL_LOST, original_torn),
    (Fault.ASSET_LOST, asset_lost),
    (Fault.ORPHAN_OBJECT, orphan_object),
    (Fault.ORPHAN_OBJECT, object_of_an_unknown_base),
    (Fault.ORPHAN_OBJECT, object_of_an_old_version),
    (Fault.ORPHAN_OBJECT, object_of_a_deleted_document),
    (Fault.STRAY_ASSET, stray_asset),
    (Fault.COUNT_MISMATCH, chunk_missing),
    (Fault.COUNT_MISMATCH, parent_missing),
    (Fault.COUNT_MISMATCH, part_missing),
    (Fault.COUNT_MISMATCH, version_row_missing),
    (Fault.UNVERSIONED_CHUNKS, unversioned_chunks),
    (Fault.UNFINISHED_DELETE, unfinished_delete),
    (Fault.STUCK_CLAIM, stuck_claim),
    (Fault.STUCK_OUTBOX, stuck_outbox),
    (Fault.STUCK_RUN, stuck_run),
]
DELETING = (row_of_a_deleted_document, object_of_a_deleted_document, unfinished_delete)


def test_every_kind_of_fault_is_planted() -> None:
    assert {fault for fault, _ in PLANTS} == set(Fault)


@pytest.mark.parametrize(("fault", "plant"), PLANTS, ids=[plant.__name__ for _, plant in PLANTS])
def test_each_planted_fault_is_found_and_repaired_and_the_second_run_finds_nothing(
    world: World, fault: Fault, plant: Plant
) -> None:
    world.ingest()
    if plant is stale_row:
        world.ingest(edition=2)
    assert world.fsck().clean
    before = world.state()
    for document_id in world.documents:
        plant(world, document_id)
    found = world.fsck()
    assert found.count(fault, Outcome.FOUND) == found.count(fault) >= COUNT, found.to_dict()
    repaired = world.fsck(repair=True)
    assert repaired.count(fault, Outcome.REPAIRED) == repaired.count(fault) >= COUNT, repaired.to_dict()
    assert repaired.findings == repaired.to_dict()["repaired"], repaired.to_dict()
    again = world.fsck(deep=True)
    assert again.clean, again.to_dict()
    if plant not in DELETING:
        assert world.state() == before


def test_a_run_without_repair_changes_nothing(world: World) -> None:
    world.ingest(3)
    missing_row(world, world.documents[0])
    stray_asset(world, world.documents[1])
    chunk_missing(world, world.documents[2])
    before = world.state()
    assert world.fsck().findings == 3
    assert world.state() == before


def test_faults_of_all_kinds_at_once_over_many_pages_are_repaired_while_queries_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag_cluster.stores.postgres.inventory.PAGE_DOCUMENTS", 3)
    monkeypatch.setattr("rag_cluster.stores.milvus._ROWS_PER_PAGE", 7)
    monkeypatch.setattr("rag_cluster.lifecycle.fsck._STRAYS", 2)
    plants = [(fault, plant) for fault, plant in PLANTS if plant is not stale_row]
    documents = world.ingest(len(plants) + 2)
    assert world.fsck().clean
    sound = documents[0], documents[-1]
    for (_, plant), document_id in zip(plants, documents[1:-1], strict=True):
        plant(world, document_id)
    # Facts that only hold for whole documents: what is deleted on purpose, and hides while its chunks are damaged.
    found = world.fsck()
    assert {fault for fault in Fault if found.count(fault)} == {fault for fault, _ in plants}
    with Queries(world, sound) as queries:
        repaired = world.fsck(repair=True)
    assert repaired.findings >= len(plants)
    assert repaired.to_dict()["repaired"] == repaired.findings, repaired.to_dict()
    assert world.fsck(deep=True).clean
    assert queries.asked > 3 and queries.unanswered == []


class Queries:
    """Asks for two sound documents all the time, in a thread with its own event loop."""

    def __init__(self, world: World, documents: tuple[str, str]) -> None:
        self._world, self._documents = world, documents
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._ask()))
        self.asked = 0
        self.unanswered: list[Any] = []

    def __enter__(self) -> Queries:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join(timeout=60)

    async def _ask(self) -> None:
        database = Database(self._world.bench.recipe.dsn, pool_size=2, timeout=20.0)
        embedder = ThreadedEmbedder(self._world.path.embedder())
        retriever = Retriever(PostgresEvidence(database), self._world.path.index, embedder)
        texts = {name: self._world.chunks(name)[0].text for name in self._documents}
        while not self._stop.is_set():
            for document_id, text in texts.items():
                try:
                    run = await retriever.retrieve(LOCAL, self._world.base, text)
                    if document_id not in {result.document_id for result in run.results}:
                        self.unanswered.append(document_id)
                except Exception as error:  # what a query must never meet
                    self.unanswered.append(error)
                self.asked += 1
        await database.aclose()


# -- what is no damage -----------------------------------------------------------------------------------------------


def test_a_version_in_the_making_is_no_damage_and_stays_as_it_is(world: World) -> None:
    (document_id,) = world.ingest(1)
    world.write(0, edition=2)
    world.prepare()  # claimed by "run", the lease lives
    (chunk, *_) = world.chunks(document_id)
    world.put_row(replace(chunk, id=str(uuid.uuid4()), version=2))
    missing_row(world, document_id)
    report = world.fsck(repair=True)
    assert report.clean and report.scanned["busy"] == 1
    assert world.bench.versions_in_index(document_id)[2] == 1


def test_an_unfinished_version_that_waits_for_the_next_run_is_no_damage(world: World) -> None:
    (document_id,) = world.ingest(1)
    world.write(0, edition=2)
    parts = world.prepare()
    world.path.ledger.release("run")
    (chunk, *_) = world.chunks(document_id)
    world.put_row(replace(chunk, id=str(uuid.uuid4()), version=2))
    assert world.fsck(repair=True).clean
    assert world.bench.versions_in_index(document_id)[2] == 1
    resumed = world.prepare()
    steps.index(world.path, steps.open_index(world.path), resumed)
    assert len(resumed) == len(parts)
    assert world.facts(document_id).published_version == 2


def test_what_is_owed_is_no_damage(world: World) -> None:
    (document_id,) = world.ingest(1)
    world.path.catalog.update_document(document_id, metadata={"place": "quay"})
    report = fsck(world.path, world.inventory, FsckOptions())
    assert report.clean and report.scanned["owed"] == 1
    assert fsck(world.path, world.inventory, FsckOptions(repair=True)).clean


def test_a_young_object_may_belong_to_an_upload_under_way(world: World) -> None:
    world.ingest(1)
    orphan_object(world, world.documents[0])
    stray_asset(world, world.documents[0])
    assert fsck(world.path, world.inventory, FsckOptions(repair=True)).clean
    assert world.fsck().count(Fault.ORPHAN_OBJECT) == 1


def test_a_version_published_while_the_scan_reads_is_not_taken_for_damage(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (document_id,) = world.ingest(1)
    rows = world.path.index.rows
    published = []

    def publish_first(*arguments: Any, **options: Any) -> Any:
        if not published:
            published.append(True)
            world.ingest(1, edition=2)
        return rows(*arguments, **options)

    monkeypatch.setattr(world.path.index, "rows", publish_first)
    assert world.fsck(repair=True).clean
    assert world.facts(document_id).published_version == 2
    assert set(world.bench.versions_in_index(document_id)) == {2}


def test_a_document_deleted_between_two_looks_is_not_written_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (document_id,) = world.ingest(1)
    missing_row(world, document_id)
    embedder = world.path.embedder()
    embed = embedder.embed_documents

    def delete_first(texts: Any) -> Any:
        world.path.catalog.tombstone(document_id)
        drain(world.bench.stores)
        return embed(texts)

    monkeypatch.setattr(embedder, "embed_documents", delete_first)
    world.fsck(repair=True)
    drain(world.bench.stores)
    assert world.bench.versions_in_index(document_id) == {}
    assert world.fsck().clean


# -- what is left to repair from -------------------------------------------------------------------------------------


def test_an_unfinished_version_whose_snapshot_is_lost_is_prepared_again_by_the_next_run(world: World) -> None:
    world.write(0)
    (part, *_) = world.prepare()
    world.path.ledger.release("run")
    world.path.snapshots.delete(world.base, part.document_id, 1)
    assert world.fsck(repair=True).count(Fault.SNAPSHOT_LOST, Outcome.REPAIRED) == 1
    assert world.fsck().clean
    steps.index(world.path, steps.open_index(world.path), world.prepare())
    assert world.facts(part.document_id).published_version == 1
    assert world.fsck(deep=True).clean


def test_nobody_takes_up_a_version_while_it_is_made_ready_to_be_prepared_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write(0)
    (part, *_) = world.prepare()
    ledger, snapshots = world.path.ledger, world.path.snapshots
    ledger.release("run")
    snapshots.delete(world.base, part.document_id, 1)
    delete, claims = snapshots.delete, []

    def delete_beside_a_run(*where: Any) -> None:
        claims.append(ledger.claim_version(part.document_id, 1, owner="another run", lease_seconds=60))
        delete(*where)

    monkeypatch.setattr(snapshots, "delete", delete_beside_a_run)
    assert world.fsck(repair=True).count(Fault.SNAPSHOT_LOST, Outcome.REPAIRED) == 1
    assert claims == [None]
    assert world.prepare(), "at once, when it is done"


def test_a_snapshot_without_an_original_is_rebuilt_from_postgres_and_can_be_indexed_from(world: World) -> None:
    (document_id,) = world.ingest(1)
    before = world.path.snapshots.load(world.base, document_id, 1)
    snapshot_torn(world, document_id)
    original_lost(world, document_id)
    (path,) = world.bench.folder.iterdir()
    path.unlink()
    report = world.fsck(repair=True)
    assert report.count(Fault.SNAPSHOT_CORRUPT, Outcome.REPAIRED) == 1
    after = world.path.snapshots.load(world.base, document_id, 1)
    assert [chunk.content for chunk in after.chunked.chunks] == [chunk.content for chunk in before.chunked.chunks]
    assert (after.parts, after.blocks) == (before.parts, ())
    assert "without blocks" in after.warnings[0]


def test_what_cannot_be_had_again_is_noted_and_not_reported_twice(world: World) -> None:
    (document_id,) = world.ingest(1)
    original_lost(world, document_id)
    asset_lost(world, document_id)
    (path,) = world.bench.folder.iterdir()
    path.unlink()
    report = world.fsck(repair=True)
    assert {entry.finding.fault: entry.outcome for entry in report.entries} == {
        Fault.ORIGINAL_LOST: Outcome.LOST,
        Fault.ASSET_LOST: Outcome.LOST,
    }
    assert "gone too" in next(e.message for e in report.entries if e.finding.fault is Fault.ORIGINAL_LOST)
    assert world.facts(document_id).assets == (), "nothing may point at what is not there"
    assert world.fsck(repair=True).clean


def test_a_changed_source_is_not_taken_for_the_original(world: World) -> None:
    (document_id,) = world.ingest(1)
    original_lost(world, document_id)
    world.write(0, edition=2)
    (entry,) = world.fsck(repair=True).entries
    assert (entry.outcome, "changed since" in entry.message) == (Outcome.LOST, True)


def test_an_index_that_was_wiped_is_filled_again(world: World) -> None:
    documents = world.ingest(2)
    before = world.state()
    for document_id in documents:
        world.path.index.delete(world.collection, document_id)
    chunks = sum(len(world.chunks(document_id)) for document_id in documents)
    assert world.fsck(repair=True).count(Fault.MISSING_ROW, Outcome.REPAIRED) == chunks
    assert world.state() == before


def test_rows_are_not_written_with_another_embedder_than_the_index_has(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (document_id,) = world.ingest(1)
    missing_row(world, document_id)
    monkeypatch.setattr(world.path.embedder(), "fingerprint", "another")
    (entry,) = world.fsck(repair=True).entries
    assert (entry.outcome, "RAG_EMBEDDER" in entry.message) == (Outcome.FAILED, True)


def test_a_store_that_stays_down_ends_the_run_and_one_that_comes_back_does_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (document_id,) = world.ingest(1)
    missing_row(world, document_id)
    calls: list[int] = []
    upsert = world.path.index.upsert

    def fail_once(*arguments: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise StoreUnavailableError("Milvus: not now")
        upsert(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(world.path.index, "upsert", fail_once)
        assert world.fsck(repair=True).count(Fault.MISSING_ROW, Outcome.REPAIRED) == 1

    def refuse(*_: Any, **__: Any) -> Any:
        raise StoreUnavailableError("Milvus: down")

    monkeypatch.setattr(world.path.index, "rows", refuse)
    with pytest.raises(StoreUnavailableError):
        world.fsck()


def test_metadata_of_every_kind_compares_equal_in_all_stores(world: World) -> None:
    (document_id,) = world.ingest(1)
    metadata = {
        "one": 1.0,
        "small": 1e-7,
        "big": 2**62,
        "nothing": None,
        "嵌套": {"list": [1, "2", True, [], {}], "text": "\"'\\\n\t\u0000 😀"},
        "": "empty name",
    }
    world.path.catalog.update_document(document_id, metadata=metadata)
    drain(world.bench.stores)
    assert world.fsck().clean
