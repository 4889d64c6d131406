"""The steps on real PostgreSQL, Milvus Lite and files, in one process."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rag_cluster.domain.access import LOCAL, AccessAttributes
from rag_cluster.domain.documents import DocumentStatus, OutboxKind, PlannedFile, Receipt, SourceKind
from rag_cluster.errors import StoreUnavailableError
from rag_cluster.ingestion import steps
from rag_cluster.ingestion.plan import PlanOptions, plan
from rag_cluster.ingestion.rows import PartDone, PreparedPart
from rag_cluster.lifecycle.delete import delete_document
from tests.fixtures.write_path import Bench

LONG = "\n\n".join(f"Paragraph {n} tells how berth {n} was dredged and what that cost." for n in range(900))


def planned(bench: Bench, options: PlanOptions = PlanOptions()) -> list[PlannedFile | Receipt]:
    return list(plan(bench.write_path, bench.base.id, [str(bench.folder)], options))


def work(bench: Bench, name: str, options: PlanOptions = PlanOptions()) -> steps.Work:
    source = bench.write_path.catalog.ensure_source(bench.base.id, SourceKind.BULK, "bulk")
    for item in planned(bench, options):
        if isinstance(item, PlannedFile) and item.file.filename == name:
            return steps.Work(bench.base.id, source.id, item.document_id, item.file, item.content_fingerprint)
    raise AssertionError(f"{name} is not planned")


def prepare(bench: Bench, name: str, owner: str = "run") -> list[PreparedPart]:
    prepared = steps.prepare(bench.write_path, work(bench, name), owner=owner)
    assert isinstance(prepared, list), prepared
    return prepared


def index(bench: Bench, parts: list[PreparedPart]) -> list[PartDone | Receipt]:
    return steps.index(bench.write_path, steps.open_index(bench.write_path), parts)


def ingest(bench: Bench, name: str) -> Receipt:
    (receipt,) = [row for row in index(bench, prepare(bench, name)) if isinstance(row, Receipt)]
    assert receipt.outcome == "ready", receipt
    return receipt


def status(bench: Bench, document_id: str) -> DocumentStatus:
    return bench.write_path.catalog.document(document_id, LOCAL).status


def test_a_file_becomes_a_visible_document_with_chunks_in_index_and_postgres(bench: Bench) -> None:
    bench.write("harbour.md", "# Quay\n\nThe quay is 400 metres long.\n\n# 码头\n\n码头长四百米。")
    receipt = ingest(bench, "harbour.md")
    document = bench.write_path.catalog.document(receipt.document_id, LOCAL)
    assert document.published_version == 1
    assert document.status is DocumentStatus.READY
    assert bench.versions_in_index(document.id) == {1: receipt.chunks}
    assert bench.write_path.catalog.remains(document.id)["chunks"] == receipt.chunks


def test_the_original_and_the_snapshot_are_kept_and_chunks_carry_the_filename(bench: Bench) -> None:
    bench.write("harbour.txt", "The quay is 400 metres long.")
    (part,) = prepare(bench, "harbour.txt")
    stored = list(bench.write_path.objects.list(f"{bench.base.id}/{part.document_id}/1/"))
    assert any(key.endswith("/source.txt") for key in stored)
    content = bench.write_path.snapshots.read_part(bench.base.id, part.slice)
    assert [chunk.metadata["filename"] for chunk in content.chunks] == ["harbour.txt"]


def test_nothing_is_embedded_or_indexed_before_the_snapshot_is_committed(bench: Bench) -> None:
    bench.write("harbour.txt", "The quay is 400 metres long.")
    (part,) = prepare(bench, "harbour.txt")
    assert bench.calls["embedded"] == 0
    assert status(bench, part.document_id) is DocumentStatus.EMBEDDING
    assert bench.write_path.snapshots.exists(bench.base.id, part.document_id, 1)


def test_a_resumed_version_is_indexed_without_fetching_or_parsing_again(bench: Bench) -> None:
    bench.write("harbour.txt", "The quay is 400 metres long.")
    prepare(bench, "harbour.txt", owner="killed")
    bench.write_path.ledger.release("killed")
    before = bench.calls
    receipt = ingest(bench, "harbour.txt")
    assert receipt.version == 1
    assert (bench.calls["parsed"], bench.calls["fetched"]) == (before["parsed"], before["fetched"])


def test_parts_that_are_done_are_not_embedded_again(bench: Bench) -> None:
    bench.write_path = bench.recipe.with_small_chunks()()
    bench.write("long.txt", LONG)
    parts = prepare(bench, "long.txt", owner="killed")
    assert len(parts) > 2
    index(bench, parts[:1])
    bench.write_path.ledger.release("killed")
    embedded = bench.calls["embedded"]
    resumed = prepare(bench, "long.txt", owner="next")
    assert [part.part for part in resumed] == [part.part for part in parts[1:]]
    rows = index(bench, resumed)
    assert bench.calls["embedded"] - embedded == sum(part.end - part.start for part in parts[1:])
    assert [row.outcome for row in rows if isinstance(row, Receipt)] == ["ready"]
    assert bench.versions_in_index(parts[0].document_id) == {1: parts[0].chunks}


def test_a_batch_that_comes_twice_is_embedded_once_and_still_gives_the_receipt(bench: Bench) -> None:
    bench.write("harbour.txt", "The quay is 400 metres long.")
    parts = prepare(bench, "harbour.txt")
    index(bench, parts)
    embedded = bench.calls["embedded"]
    rows = index(bench, parts)
    assert bench.calls["embedded"] == embedded
    assert [row.outcome for row in rows if isinstance(row, Receipt)] == ["ready"]


def test_parts_of_several_documents_are_one_embed_call(bench: Bench) -> None:
    parts = []
    for n in range(5):
        bench.write(f"{n}.txt", f"Berth {n} is deep.")
        parts += prepare(bench, f"{n}.txt")
    rows = index(bench, parts)
    assert bench.calls["embed_calls"] == 1
    assert sum(isinstance(row, Receipt) and row.outcome == "ready" for row in rows) == 5


def test_one_text_that_the_model_refuses_fails_its_document_and_no_other(bench: Bench) -> None:
    bench.write("good.txt", "The quay is long.")
    bench.write("bad.txt", "POISON")
    rows = index(bench, prepare(bench, "good.txt") + prepare(bench, "bad.txt"))
    receipts = {Path(row.uri).name: row for row in rows if isinstance(row, Receipt)}
    assert receipts["good.txt"].outcome == "ready"
    bad = receipts["bad.txt"]
    assert (bad.outcome, bad.stage, bad.error_type) == ("failed", "embed", "model_unavailable")
    assert bench.versions_in_index(bad.document_id) == {}


def test_a_failed_part_fails_the_version_which_the_next_run_resumes(bench: Bench) -> None:
    bench.write_path = bench.recipe.with_small_chunks()()
    bench.write("long.txt", LONG + "\n\nPOISON")
    parts = prepare(bench, "long.txt")
    rows = [row for part in parts for row in index(bench, [part])]
    assert [row.outcome for row in rows if isinstance(row, Receipt)] == ["failed"]
    assert status(bench, parts[0].document_id) is DocumentStatus.FAILED
    assert bench.write_path.catalog.document(parts[0].document_id, LOCAL).published_version is None
    assert [part.part for part in prepare(bench, "long.txt", owner="next")] == [parts[-1].part]


@pytest.mark.parametrize(
    ("name", "content", "error_type", "stage"),
    [
        ("empty.txt", b"", "empty_document", "parse"),
        ("blank.md", b"  \n\n  ", "empty_document", "parse"),
        ("broken.docx", b"this is no archive", None, "parse"),
        ("dies.exit", b"anything", "parse_crash", "parse"),
    ],
)
def test_a_document_at_fault_is_a_permanent_failure_row_without_embedding(
    bench: Bench, name: str, content: bytes, error_type: str | None, stage: str
) -> None:
    (bench.folder / name).write_bytes(content)
    receipt = steps.prepare(bench.write_path, work(bench, name), owner="run")
    assert isinstance(receipt, Receipt)
    assert (receipt.outcome, receipt.stage) == ("failed", stage)
    assert error_type is None or receipt.error_type == error_type
    (version,) = bench.write_path.catalog.versions(receipt.document_id)
    assert version.status is DocumentStatus.FAILED
    assert version.error_permanent
    assert bench.calls["embedded"] == 0


def test_a_task_that_is_repeated_in_its_run_does_not_fail_a_document_a_second_time(bench: Bench) -> None:
    bench.write("blank.md", "  ")
    todo = work(bench, "blank.md")
    first, later = str(uuid.uuid4()), str(uuid.uuid4())
    bench.write_path.ledger.start_run(bench.base.id, [], {}, first)
    failed = steps.prepare(bench.write_path, todo, owner=first)
    again = steps.prepare(bench.write_path, todo, owner=first)
    assert isinstance(failed, Receipt) and isinstance(again, Receipt)
    assert replace(again, seconds=0.0) == replace(failed, seconds=0.0)
    assert bench.calls["parsed"] == 1
    bench.write_path.ledger.start_run(bench.base.id, [], {}, later)  # with --retry-failed
    steps.prepare(bench.write_path, todo, owner=later)
    assert [version.version for version in bench.write_path.catalog.versions(todo.document_id)] == [1, 2]


def test_a_file_above_the_limit_is_refused_before_it_is_fetched(bench: Bench) -> None:
    bench.write_path = replace(bench.write_path, max_file_bytes=10)
    bench.write("large.txt", "more than ten bytes")
    receipt = steps.prepare(bench.write_path, work(bench, "large.txt"), owner="run")
    assert isinstance(receipt, Receipt)
    assert receipt.error_type == "document_too_large"
    assert bench.calls["fetched"] == 0


def test_a_file_that_vanished_after_listing_fails_and_is_tried_again_by_the_next_run(bench: Bench) -> None:
    path = bench.write("gone.txt", "The quay is long.")
    todo = work(bench, "gone.txt")
    path.unlink()
    receipt = steps.prepare(bench.write_path, todo, owner="run")
    assert isinstance(receipt, Receipt)
    assert (receipt.outcome, receipt.stage) == ("failed", "fetch")
    assert not bench.write_path.catalog.versions(receipt.document_id)[0].error_permanent


def test_an_outage_of_the_object_store_is_retried_and_then_a_failure_that_is_not_permanent(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("harbour.txt", "The quay is long.")
    tries: list[str] = []

    def refuse(key: str, path: str) -> None:
        tries.append(key)
        raise StoreUnavailableError("the bucket does not answer")

    monkeypatch.setattr(bench.write_path.objects, "put_file", refuse)
    receipt = steps.prepare(bench.write_path, work(bench, "harbour.txt"), owner="run")
    assert isinstance(receipt, Receipt)
    assert (receipt.stage, receipt.error_type) == ("store", "store_unavailable")
    assert len(tries) == 2
    monkeypatch.undo()
    assert ingest(bench, "harbour.txt").version == 1


def test_a_document_that_another_owner_holds_is_busy_and_untouched(bench: Bench) -> None:
    bench.write("harbour.txt", "The quay is long.")
    prepare(bench, "harbour.txt", owner="first")
    receipt = steps.prepare(bench.write_path, work(bench, "harbour.txt"), owner="second")
    assert isinstance(receipt, Receipt)
    assert receipt.outcome == "busy"
    assert bench.calls["parsed"] == 1


def test_an_owner_whose_claim_was_taken_over_writes_nothing_and_the_new_owner_finishes(bench: Bench) -> None:
    bench.write("harbour.txt", "The quay is long.")
    stale = prepare(bench, "harbour.txt", owner="first")
    bench.write_path.ledger.release("first")
    fresh = prepare(bench, "harbour.txt", owner="second")
    late = index(bench, stale)
    assert [row.outcome for row in late if isinstance(row, Receipt)] == ["busy"]
    assert bench.versions_in_index(stale[0].document_id) == {}
    assert [row.outcome for row in index(bench, fresh) if isinstance(row, Receipt)] == ["ready"]


def test_what_was_deleted_after_its_run_began_is_left_out_and_the_next_run_brings_it_back(bench: Bench) -> None:
    bench.write("harbour.txt", "The quay is long.")
    run, later = str(uuid.uuid4()), str(uuid.uuid4())
    document_id = ingest(bench, "harbour.txt").document_id
    bench.write("harbour.txt", "The quay is longer.")
    todo = work(bench, "harbour.txt")
    bench.write_path.ledger.start_run(bench.base.id, [], {}, run)
    delete_document(bench.stores, document_id)
    receipt = steps.prepare(bench.write_path, todo, owner=run)
    assert isinstance(receipt, Receipt)
    assert (receipt.outcome, receipt.error_type) == ("skipped", "deleted_meanwhile")
    assert bench.calls["parsed"] == 1
    bench.write_path.ledger.start_run(bench.base.id, [], {}, later)
    assert prepare(bench, "harbour.txt", owner=later)


def index_after(bench: Bench, parts: list[PreparedPart], meanwhile: Callable[[], object]) -> None:
    """Index parts whose claim ends while their rows are on the way to the index; those arrive last."""
    upsert = bench.write_path.index.upsert

    def late(*arguments: object) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bench.write_path.index, "upsert", upsert)
            bench.write_path.ledger.release("run")
            meanwhile()
        bench.write_path.drain()
        upsert(*arguments)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.write_path.index, "upsert", late)
        rows = index(bench, parts)
    assert [row.outcome for row in rows if isinstance(row, Receipt)] == ["busy"]
    assert bench.versions_in_index(parts[0].document_id)[parts[0].version], "they did arrive"
    bench.write_path.drain()


def test_what_was_written_for_a_document_deleted_meanwhile_is_owed_a_delete(bench: Bench) -> None:
    bench.write("harbour.txt", "The quay is long.")
    parts = prepare(bench, "harbour.txt")
    document_id = parts[0].document_id
    index_after(bench, parts, lambda: delete_document(bench.stores, document_id))
    assert bench.versions_in_index(document_id) == {}
    assert list(bench.write_path.objects.list(f"{bench.base.id}/{document_id}/")) == []


def test_what_was_written_for_a_document_deleted_and_ingested_again_meanwhile_leaves_the_index(bench: Bench) -> None:
    bench.write("harbour.txt", "The quay is long.")
    parts = prepare(bench, "harbour.txt")
    document_id = parts[0].document_id

    def delete_and_ingest() -> None:
        delete_document(bench.stores, document_id)
        bench.write("harbour.txt", "The quay is 400 metres long.")
        ingest(bench, "harbour.txt")

    index_after(bench, parts, delete_and_ingest)
    assert bench.versions_in_index(document_id) == {2: 1}


def test_what_was_written_for_a_version_that_a_later_one_replaced_leaves_the_index(bench: Bench) -> None:
    bench.write("harbour.txt", "The quay is long.")
    parts = prepare(bench, "harbour.txt")

    def publish_twice() -> None:
        ingest(bench, "harbour.txt")
        bench.write("harbour.txt", "The quay is 400 metres long.")
        ingest(bench, "harbour.txt")

    index_after(bench, parts, publish_twice)
    assert bench.versions_in_index(parts[0].document_id) == {2: 1}


def test_a_changed_file_is_a_new_version_and_the_old_chunks_leave_every_store(bench: Bench) -> None:
    bench.write("harbour.txt", "The quay is 400 metres long.")
    first = ingest(bench, "harbour.txt")
    bench.write("harbour.txt", "The quay is 500 metres long since the works.")
    second = ingest(bench, "harbour.txt")
    assert (second.document_id, second.version) == (first.document_id, 2)
    bench.write_path.drain()
    assert bench.versions_in_index(first.document_id) == {2: second.chunks}
    assert bench.write_path.catalog.remains(first.document_id)["chunks"] == second.chunks
    assert not bench.write_path.snapshots.exists(bench.base.id, first.document_id, 1)


def test_a_version_that_fails_leaves_the_one_before_visible(bench: Bench) -> None:
    bench.write("harbour.txt", "The quay is 400 metres long.")
    first = ingest(bench, "harbour.txt")
    bench.write("harbour.txt", "   ")
    receipt = steps.prepare(bench.write_path, work(bench, "harbour.txt"), owner="run")
    assert isinstance(receipt, Receipt)
    assert receipt.outcome == "failed"
    document = bench.write_path.catalog.document(first.document_id, LOCAL)
    assert (document.published_version, document.status) == (1, DocumentStatus.FAILED)
    assert bench.versions_in_index(first.document_id) == {1: first.chunks}


def test_a_touched_file_with_the_same_bytes_is_settled_without_parsing(bench: Bench) -> None:
    path = bench.write("harbour.txt", "The quay is 400 metres long.")
    ingest(bench, "harbour.txt")
    parsed = bench.calls["parsed"]
    stat = path.stat()
    import os

    os.utime(path, (stat.st_atime, stat.st_mtime + 100))
    receipt = steps.prepare(bench.write_path, work(bench, "harbour.txt"), owner="run")
    assert isinstance(receipt, Receipt)
    assert receipt.outcome == "unchanged"
    assert bench.calls["parsed"] == parsed
    assert [item.outcome for item in planned(bench) if isinstance(item, Receipt)] == ["unchanged"]


def test_the_same_bytes_under_another_name_are_reported_as_a_duplicate(bench: Bench) -> None:
    first = bench.write("a.txt", "The quay is 400 metres long.")
    bench.write("b.txt", "The quay is 400 metres long.")
    ingest(bench, "a.txt")
    assert Path(str(ingest(bench, "b.txt").duplicate_of)).name == first.name


def test_access_that_changes_while_a_part_is_written_reaches_its_rows(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("harbour.txt", "The quay is long.")
    parts = prepare(bench, "harbour.txt")
    catalog, upsert = bench.write_path.catalog, bench.write_path.index.upsert

    def upsert_after_change(*arguments: object) -> None:
        catalog.update_document(parts[0].document_id, access=AccessAttributes(("crew",)))
        bench.write_path.drain()  # its own outbox row finds nothing to rewrite yet
        upsert(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(bench.write_path.index, "upsert", upsert_after_change)
    index(bench, parts)
    entries = bench.write_path.outbox.claim(10, 1.0, document_id=parts[0].document_id)
    assert OutboxKind.INDEX_ACCESS in {entry.kind for entry in entries}
