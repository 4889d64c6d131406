"""Deleting, on real stores: everything goes, the receipt looks, what fails stays owed."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from rag_cluster.domain import ids
from rag_cluster.domain.access import LOCAL, AccessAttributes
from rag_cluster.domain.documents import OutboxKind, PlannedFile, SourceKind
from rag_cluster.errors import DocumentBusyError, NotFoundError, StoreUnavailableError
from rag_cluster.ingestion import steps
from rag_cluster.ingestion.plan import plan
from rag_cluster.lifecycle.delete import delete_document, delete_knowledge_base, delete_source
from rag_cluster.lifecycle.outbox import drain
from tests.fixtures.write_path import Bench

GONE = {"postgres": "gone", "milvus": "gone", "snapshots": "gone", "objects": "gone"}


def prepare(bench: Bench) -> list[steps.PreparedPart]:
    source = bench.write_path.catalog.ensure_source(bench.base.id, SourceKind.BULK, "bulk")
    parts: list[steps.PreparedPart] = []
    for item in plan(bench.write_path, bench.base.id, [str(bench.folder)]):
        if isinstance(item, PlannedFile):
            work = steps.Work(bench.base.id, source.id, item.document_id, item.file, item.content_fingerprint)
            prepared = steps.prepare(bench.write_path, work, owner="run")
            assert isinstance(prepared, list)
            parts += prepared
    return parts


def ingest(bench: Bench) -> list[str]:
    parts = prepare(bench)
    steps.index(bench.write_path, steps.open_index(bench.write_path), parts)
    drain(bench.stores)
    return [part.document_id for part in parts]


def traces(bench: Bench, document_id: str) -> dict[str, int]:
    return {
        "rows": sum(bench.versions_in_index(document_id).values()),
        "objects": len(list(bench.write_path.objects.list(f"{bench.base.id}/{document_id}/"))),
        "facts": sum(bench.write_path.catalog.remains(document_id).values()),
    }


def test_a_drain_tries_each_effect_once_also_what_is_due_again_before_it_ends(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("a.txt", "The quay is long.")
    (document_id,) = ingest(bench)
    tries: list[str] = []

    def refuse(collection: str, *_: Any, **__: Any) -> None:
        tries.append(collection)
        if len(tries) > 1:
            pytest.fail("the same drain tried it again")
        raise StoreUnavailableError("Milvus does not answer")

    monkeypatch.setattr("rag_cluster.lifecycle.outbox.MAX_DELAY_SECONDS", 0.0)
    monkeypatch.setattr(bench.write_path.index, "delete", refuse)
    assert delete_document(bench.stores, document_id).pending
    assert len(tries) == 1
    monkeypatch.undo()
    assert drain(bench.stores) == 1


def test_a_deleted_document_is_gone_from_every_store_and_the_receipt_says_so(bench: Bench) -> None:
    bench.write("a.txt", "The quay is long.")
    (document_id,) = ingest(bench)
    assert all(traces(bench, document_id).values())
    receipt = delete_document(bench.stores, document_id)
    assert (receipt.stores, receipt.pending) == (GONE, False)
    assert traces(bench, document_id) == {"rows": 0, "objects": 0, "facts": 0}
    with pytest.raises(NotFoundError):
        bench.write_path.catalog.document(document_id, LOCAL)


def test_other_documents_stay(bench: Bench) -> None:
    bench.write("a.txt", "The quay is long.")
    bench.write("b.txt", "The crane is tall.")
    first, second = ingest(bench)
    before = traces(bench, second)
    delete_document(bench.stores, first)
    assert traces(bench, second) == before


def test_deleting_again_is_harmless(bench: Bench) -> None:
    bench.write("a.txt", "The quay is long.")
    (document_id,) = ingest(bench)
    delete_document(bench.stores, document_id)
    assert delete_document(bench.stores, document_id).stores == GONE


def test_deleting_what_never_was_is_not_found(bench: Bench) -> None:
    with pytest.raises(NotFoundError):
        delete_document(bench.stores, ids.upload_document_id())


def test_a_document_under_a_live_claim_is_busy(bench: Bench) -> None:
    bench.write("a.txt", "The quay is long.")
    (part,) = prepare(bench)
    with pytest.raises(DocumentBusyError):
        delete_document(bench.stores, part.document_id)


def test_a_document_that_failed_halfway_can_be_deleted(bench: Bench) -> None:
    bench.write("a.txt", "POISON")
    parts = prepare(bench)
    steps.index(bench.write_path, steps.open_index(bench.write_path), parts)
    assert delete_document(bench.stores, parts[0].document_id).stores == GONE
    assert traces(bench, parts[0].document_id) == {"rows": 0, "objects": 0, "facts": 0}


@pytest.mark.parametrize(
    ("store", "method"), [("index", "delete"), ("snapshots", "delete"), ("objects", "delete_prefix")]
)
def test_a_store_that_is_down_makes_the_receipt_pending_and_a_later_drain_finishes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, store: str, method: str
) -> None:
    bench.write("a.txt", "The quay is long.")
    (document_id,) = ingest(bench)

    def refuse(*_: Any, **__: Any) -> None:
        raise StoreUnavailableError(f"{store} does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(getattr(bench.write_path, store), method, refuse)
        receipt = delete_document(bench.stores, document_id)
    assert receipt.pending
    assert receipt.stores["postgres"] != "gone"
    with pytest.raises(NotFoundError):
        bench.write_path.catalog.document(document_id, LOCAL)
    make_due(bench, document_id)
    assert drain(bench.stores, document_id=document_id) == 1
    assert traces(bench, document_id) == {"rows": 0, "objects": 0, "facts": 0}


def test_a_document_ingested_again_before_its_purge_keeps_its_new_version(bench: Bench) -> None:
    bench.write("a.txt", "The quay is long.")
    (document_id,) = ingest(bench)
    bench.write_path.catalog.tombstone(document_id)
    (again,) = prepare(bench)
    steps.index(bench.write_path, steps.open_index(bench.write_path), [again])
    drain(bench.stores)
    assert again.document_id == document_id
    document = bench.write_path.catalog.document(document_id, LOCAL)
    assert document.published_version == again.version == 2
    assert set(bench.versions_in_index(document_id)) == {2}


def test_deleting_a_knowledge_base_deletes_each_of_its_documents(bench: Bench) -> None:
    for n in range(3):
        bench.write(f"{n}.txt", f"Berth {n} is deep.")
    document_ids = ingest(bench)
    receipts = delete_knowledge_base(bench.stores, bench.base.id)
    assert {receipt.document_id for receipt in receipts} == set(document_ids)
    assert all(receipt.stores == GONE for receipt in receipts)
    with pytest.raises(NotFoundError):
        bench.write_path.catalog.knowledge_base(bench.base.id)


def test_a_change_of_access_reaches_the_index_rows(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.write("a.txt", "The quay is long.")
    (document_id,) = ingest(bench)
    changed = bench.write_path.catalog.update_document(document_id, access=AccessAttributes(("crew",)))
    written: list[int] = []
    update_access = bench.write_path.index.update_access

    def watched(collection: str, document: str, *, access_key: int, metadata: Any) -> None:
        written.append(access_key)
        update_access(collection, document, access_key=access_key, metadata=metadata)

    monkeypatch.setattr(bench.write_path.index, "update_access", watched)
    assert drain(bench.stores, document_id=document_id) == 1
    assert written == [changed.access_key]


def test_of_two_changes_carried_out_at_once_the_later_one_stays_in_the_index(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("a.txt", "The quay is long.")
    (document_id,) = ingest(bench)
    catalog, index = bench.write_path.catalog, bench.write_path.index
    update_access = index.update_access
    catalog.update_document(document_id, access=AccessAttributes(("crew",)))
    overtaking = [AccessAttributes(("pilots",)), AccessAttributes(("crew",), "port")]

    def overtaken(*arguments: Any, **facts: Any) -> None:
        if overtaking:  # what another drainer carries out before this one's write arrives
            catalog.update_document(document_id, access=overtaking.pop(0), metadata={"left": len(overtaking)})
            assert drain(bench.stores, document_id=document_id) == 1
        update_access(*arguments, **facts)

    monkeypatch.setattr(index, "update_access", overtaken)
    assert drain(bench.stores, document_id=document_id) == 1
    now = catalog.index_row_facts(document_id)
    (record,) = catalog.indexes()
    rows = list(index.rows(record.collection, bench.base.id, document_id=document_id))
    assert now is not None and now[2] == {"left": 0}
    assert [(row.source_id, row.access_key, dict(row.metadata)) for row in rows] == [now]


def test_an_effect_that_failed_waits_longer_each_time_and_is_never_dropped(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("a.txt", "The quay is long.")
    (document_id,) = ingest(bench)
    bench.write_path.outbox.add(OutboxKind.INDEX_DELETE, document_id, bench.base.id, {"version": 7})
    delays: list[float] = []
    retry = bench.write_path.outbox.retry

    def now(entry: Any, message: str, delay_seconds: float) -> None:
        delays.append(delay_seconds)
        retry(entry, message, 0.0)

    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(bench.write_path.index, "delete", refuse)
        patch.setattr(bench.write_path.outbox, "retry", now)
        assert [drain(bench.stores, document_id=document_id) for _ in range(12)] == [0] * 12
    assert delays == sorted(delays)
    assert len(delays) == 12
    assert (delays[0], delays[-1]) == (2.0, 300.0)
    assert bench.write_path.outbox.pending(document_id) == 1


def make_due(bench: Bench, document_id: str) -> None:
    import psycopg

    with psycopg.connect(bench.recipe.dsn, autocommit=True) as connection:
        connection.execute("UPDATE outbox SET available_at = now() WHERE document_id = %s", (document_id,))


def test_deleting_a_source_deletes_its_documents_and_leaves_the_source_empty(bench: Bench) -> None:
    bench.write("a.txt", "The quay is long.")
    (document_id,) = ingest(bench)
    source = bench.write_path.catalog.source(bench.base.id, "bulk")
    (receipt,) = delete_source(bench.stores, source)
    assert (receipt.document_id, receipt.stores, receipt.pending) == (document_id, GONE, False)
    assert traces(bench, document_id) == {"rows": 0, "objects": 0, "facts": 0}
    assert bench.write_path.catalog.source(bench.base.id, "bulk") == source
    assert delete_source(bench.stores, source) == []


def test_a_delete_waits_for_a_worker_that_carries_out_its_steps_at_the_same_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("a.txt", "The quay is long.")
    (document_id,) = ingest(bench)
    tombstone = bench.write_path.catalog.tombstone
    workers: list[threading.Thread] = []

    def taken_by_a_worker(document: str) -> Any:
        found = tombstone(document)
        (entry,) = bench.write_path.outbox.claim(1, 60, document_id=document)

        def work() -> None:
            time.sleep(0.5)
            bench.write_path.outbox.add(entry.kind, document, bench.base.id, entry.payload)
            bench.write_path.outbox.done(entry)
            drain(bench.stores, document_id=document)

        workers.append(threading.Thread(target=work))
        workers[0].start()
        return found

    monkeypatch.setattr(bench.write_path.catalog, "tombstone", taken_by_a_worker)
    receipt = delete_document(bench.stores, document_id)
    workers[0].join()
    assert (receipt.stores, receipt.pending) == (GONE, False)
