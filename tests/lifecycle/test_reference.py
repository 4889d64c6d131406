"""`ingest --reference`: originals stay where they lie, are never written or deleted there, nor pass for others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rag_cluster.domain import keys
from rag_cluster.domain.access import LOCAL
from rag_cluster.domain.documents import Document, DocumentStatus, JobStatus, PlannedFile, Receipt, SourceKind
from rag_cluster.domain.inventory import Fault, Outcome
from rag_cluster.errors import CorruptDocumentError, OriginalChangedError, OriginalGoneError, SourceUnavailableError
from rag_cluster.ingestion import steps
from rag_cluster.ingestion.originals import open_original, referenced_file
from rag_cluster.ingestion.plan import PlanOptions, plan
from rag_cluster.ingestion.uploads import UploadWorker, retry_document, work_once
from rag_cluster.ingestion.write_path import WritePath
from rag_cluster.lifecycle.delete import delete_document
from rag_cluster.lifecycle.fsck import FsckOptions, fsck
from rag_cluster.lifecycle.outbox import drain
from rag_cluster.lifecycle.report import FsckReport
from rag_cluster.stores.inputs import FsspecInputFiles
from rag_cluster.stores.postgres.database import Database
from rag_cluster.stores.postgres.inventory import PostgresInventory
from rag_cluster.stores.postgres.uploads import PostgresUploadQueue
from rag_cluster.stores.s3 import S3Options
from tests.fixtures.s3 import S3Server
from tests.fixtures.write_path import Bench

TEXT = "Berth 7 is 400 metres long. 七号泊位长四百米。"


def prepare(write_path: WritePath, base: str, location: str, *, reference: bool = True) -> list[steps.Prepared]:
    source = write_path.catalog.ensure_source(base, SourceKind.BULK, "bulk")
    return [
        steps.prepare(
            write_path,
            steps.Work(base, source.id, item.document_id, item.file, item.content_fingerprint),
            owner="run",
        )
        for item in plan(write_path, base, [location], PlanOptions(reference=reference))
        if isinstance(item, PlannedFile)
    ]


def ingest(write_path: WritePath, base: str, location: str, *, reference: bool = True) -> Document:
    """The one document that a location gives."""
    (prepared,) = prepare(write_path, base, location, reference=reference)
    assert isinstance(prepared, list), prepared
    steps.index(write_path, steps.open_index(write_path), prepared)
    write_path.drain()
    return write_path.catalog.document(prepared[0].document_id, LOCAL)


def original(write_path: WritePath, document: Document) -> bytes:
    version = write_path.catalog.versions(document.id)[-1]
    stream, size = open_original(write_path.inputs, write_path.objects, document, version)
    with stream:
        content = stream.read()
    assert size == len(content)
    return content


def stored(bench: Bench, document: Document) -> list[str]:
    return list(bench.write_path.objects.list(keys.document_prefix(bench.base.id, document.id)))


@pytest.fixture
def inventory(bench: Bench) -> Iterator[PostgresInventory]:
    database = Database(bench.recipe.dsn)
    yield PostgresInventory(database)
    database.close()


def check(bench: Bench, inventory: PostgresInventory, **options: Any) -> FsckReport:
    return fsck(bench.write_path, inventory, FsckOptions(knowledge_base_id=bench.base.id, grace_seconds=0.0, **options))


def test_a_referenced_original_is_not_copied_and_comes_from_where_it_lies(bench: Bench) -> None:
    path = bench.write("泊位 7.txt", TEXT)
    document = ingest(bench.write_path, bench.base.id, str(path))
    assert document.status is DocumentStatus.READY
    assert [key.split("/")[-1] for key in stored(bench, document)] == ["snapshot.parquet"]
    (version,) = bench.write_path.catalog.versions(document.id)
    assert version.referenced
    assert original(bench.write_path, document).decode() == TEXT
    (again,) = plan(bench.write_path, bench.base.id, [str(path)], PlanOptions(reference=True))
    assert isinstance(again, Receipt) and again.outcome == "unchanged"


def test_without_the_choice_the_original_is_copied_and_outlives_its_source(bench: Bench) -> None:
    path = bench.write("a.txt", TEXT)
    document = ingest(bench.write_path, bench.base.id, str(path), reference=False)
    path.unlink()
    assert original(bench.write_path, document).decode() == TEXT


def test_a_new_version_may_be_copied_where_the_one_before_was_referenced(bench: Bench) -> None:
    path = bench.write("a.txt", TEXT)
    ingest(bench.write_path, bench.base.id, str(path))
    path.write_text("another text")
    document = ingest(bench.write_path, bench.base.id, str(path), reference=False)
    assert [version.referenced for version in bench.write_path.catalog.versions(document.id)] == [True, False]
    path.unlink()
    assert original(bench.write_path, document) == b"another text"


def test_a_changed_original_is_an_error_and_never_passes_for_the_cited_one(bench: Bench) -> None:
    path = bench.write("a.txt", TEXT)
    document = ingest(bench.write_path, bench.base.id, str(path))
    state = path.stat()
    path.write_text(TEXT.replace("400", "500"))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))  # same size, same time, other bytes
    with pytest.raises(OriginalChangedError, match="ingest it again"):
        original(bench.write_path, document)
    path.write_text(TEXT)
    assert original(bench.write_path, document).decode() == TEXT, "only the bytes count, not the time"


@pytest.mark.parametrize("instead", ["nothing", "a folder", "a broken link"])
def test_a_vanished_original_is_an_error_of_its_own(bench: Bench, instead: str) -> None:
    path = bench.write("a.txt", TEXT)
    document = ingest(bench.write_path, bench.base.id, str(path))
    path.unlink()
    if instead == "a folder":
        path.mkdir()
        (path / "b.txt").write_text(TEXT)
    elif instead == "a broken link":
        path.symlink_to("nowhere")
    with pytest.raises(OriginalGoneError, match="not there any more"):
        original(bench.write_path, document)
    with pytest.raises(OriginalGoneError, match="not there any more"):
        referenced_file(bench.write_path.inputs, document.uri)


def test_deleting_a_document_leaves_the_users_file_alone(bench: Bench) -> None:
    path = bench.write("a.txt", TEXT)
    document = ingest(bench.write_path, bench.base.id, str(path))
    receipt = delete_document(bench.stores, document.id)
    assert set(receipt.stores.values()) == {"gone"} and not receipt.pending
    assert not stored(bench, document)
    assert path.read_text() == TEXT


def test_a_replaced_version_leaves_every_store_and_the_users_file_alone(bench: Bench) -> None:
    path = bench.write("a.txt", TEXT)
    ingest(bench.write_path, bench.base.id, str(path))
    path.write_text("another text")
    document = ingest(bench.write_path, bench.base.id, str(path))
    drain(bench.stores)
    assert [key.split("/")[2] for key in stored(bench, document)] == ["2"]
    assert original(bench.write_path, document) == b"another text"


def test_fsck_looks_at_the_referenced_place_and_repairs_nothing_there(
    bench: Bench, inventory: PostgresInventory
) -> None:
    path = bench.write("a.txt", TEXT)
    document = ingest(bench.write_path, bench.base.id, str(path))
    assert check(bench, inventory).clean and check(bench, inventory, deep=True).clean
    os.utime(path)
    assert check(bench, inventory, deep=True).clean, "a touched file is the same"

    path.write_text("short")
    (entry,) = check(bench, inventory).entries
    assert (entry.finding.fault, entry.finding.subject) == (Fault.ORIGINAL_LOST, document.uri)
    path.write_text(TEXT.replace("400", "500"))
    assert check(bench, inventory).clean, "another content of the same size is seen by reading only"
    (entry,) = check(bench, inventory, deep=True).entries
    assert (entry.finding.fault, entry.finding.detail) == (Fault.ORIGINAL_LOST, "other content")

    before = stored(bench, document)
    (entry,) = check(bench, inventory, deep=True, repair=True).entries
    assert (entry.outcome, "changed since" in entry.message) == (Outcome.LOST, True)
    assert path.exists() and stored(bench, document) == before, "neither is deleted nor copied"
    assert check(bench, inventory, deep=True, repair=True).clean, "it is noted, and not reported twice"


def test_fsck_tells_a_vanished_original_and_leaves_what_is_there(bench: Bench, inventory: PostgresInventory) -> None:
    path = bench.write("a.txt", TEXT)
    document = ingest(bench.write_path, bench.base.id, str(path))
    path.unlink()
    (entry,) = check(bench, inventory).entries
    assert (entry.finding.fault, entry.finding.detail) == (Fault.ORIGINAL_LOST, "not there")
    (entry,) = check(bench, inventory, repair=True).entries
    assert (entry.outcome, "gone too" in entry.message) == (Outcome.LOST, True)
    assert bench.write_path.catalog.document(document.id, LOCAL).visible


def test_a_place_that_does_not_answer_is_no_fault(bench: Bench, inventory: PostgresInventory) -> None:
    class Down(FsspecInputFiles):
        def list(self, location: str) -> Any:
            raise SourceUnavailableError(f"{location}: timeout")

    ingest(bench.write_path, bench.base.id, str(bench.write("a.txt", TEXT)))
    bench.write_path = replace(bench.write_path, inputs=Down())
    with pytest.raises(SourceUnavailableError):
        check(bench, inventory, repair=True)


def test_a_lost_snapshot_is_rebuilt_from_the_referenced_original(bench: Bench, inventory: PostgresInventory) -> None:
    document = ingest(bench.write_path, bench.base.id, str(bench.write("a.txt", TEXT)))
    path = bench.write_path
    blocks = path.snapshots.read_blocks(bench.base.id, document.id, 1)
    path.snapshots.delete(bench.base.id, document.id, 1)
    (entry,) = check(bench, inventory, repair=True).entries
    assert (entry.finding.fault, entry.outcome) == (Fault.SNAPSHOT_LOST, Outcome.REPAIRED)
    assert path.snapshots.read_blocks(bench.base.id, document.id, 1) == blocks


def _refuses() -> Any:
    raise CorruptDocumentError("torn")


def test_a_retry_reads_the_referenced_original_and_still_makes_no_copy(bench: Bench) -> None:
    path = bench.write("a.txt", TEXT)
    (failed,) = prepare(replace(bench.write_path, parser=_refuses), bench.base.id, str(path))
    assert isinstance(failed, Receipt) and failed.outcome == "failed"
    database = Database(bench.recipe.dsn)
    queue = PostgresUploadQueue(database)
    retry_document(bench.write_path, queue, failed.document_id)
    assert work_once(UploadWorker(bench.write_path, queue))
    database.close()
    document = bench.write_path.catalog.document(failed.document_id, LOCAL)
    assert (document.status, document.published_version) == (DocumentStatus.READY, 2)
    assert not any("source" in key for key in stored(bench, document))
    assert original(bench.write_path, document).decode() == TEXT


def test_a_retry_of_a_file_that_changed_since_says_so_instead_of_reading_other_bytes(bench: Bench) -> None:
    path = bench.write("a.txt", TEXT)
    (failed,) = prepare(replace(bench.write_path, parser=_refuses), bench.base.id, str(path))
    assert isinstance(failed, Receipt)
    path.write_text("other bytes")
    database = Database(bench.recipe.dsn)
    queue = PostgresUploadQueue(database, max_attempts=1)
    job = retry_document(bench.write_path, queue, failed.document_id)
    assert work_once(UploadWorker(bench.write_path, queue))
    found = queue.job(job.id, LOCAL)
    database.close()
    assert (found.status, found.error_type) == (JobStatus.FAILED, "original_changed")


def test_an_unfinished_version_follows_the_choice_of_the_run_that_finishes_it(bench: Bench) -> None:
    path = bench.write("a.txt", TEXT)
    down = replace(bench.write_path, parser=_down)
    (failed,) = prepare(down, bench.base.id, str(path), reference=False)
    assert isinstance(failed, Receipt) and failed.outcome == "failed"
    document = ingest(bench.write_path, bench.base.id, str(path))
    (version,) = bench.write_path.catalog.versions(document.id)
    assert version.referenced and not any("source" in key for key in stored(bench, document))


def _down() -> Any:
    raise SourceUnavailableError("later")


def test_objects_of_s3_are_referenced_alike(bench: Bench, s3_server: S3Server) -> None:
    prefix, files = s3_server.new_prefix(), s3_server.filesystem()
    name = f"{prefix}/泊位 #7.txt"
    files.pipe_file(name, TEXT.encode())
    inputs = FsspecInputFiles(
        S3Options(endpoint_url=s3_server.endpoint_url, access_key=s3_server.access_key, secret_key=s3_server.secret_key)
    )
    path = replace(bench.write_path, inputs=inputs)
    document = ingest(path, bench.base.id, f"s3://{prefix}/")
    assert not any("source" in key for key in stored(bench, document))
    assert original(path, document).decode() == TEXT
    files.pipe_file(name, TEXT.replace("400", "500").encode())
    with pytest.raises(OriginalChangedError):
        original(path, document)
    files.rm_file(name)
    with pytest.raises(OriginalGoneError):
        original(path, document)
    files.pipe_file(name, TEXT.encode())
    delete_document(bench.stores, document.id)
    assert files.cat_file(name).decode() == TEXT
    assert Path(document.uri).name == "泊位 #7.txt"
