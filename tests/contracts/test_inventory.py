"""Contract of the Inventory port."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from rag_cluster.domain.documents import DocumentAsset, DocumentStatus, OutboxKind
from rag_cluster.domain.ports import Inventory, Outbox
from rag_cluster.stores.postgres.catalog import PostgresCatalog
from rag_cluster.stores.postgres.database import Database
from rag_cluster.stores.postgres.inventory import PostgresInventory
from rag_cluster.stores.postgres.ledger import PostgresLedger
from tests.contracts.ledger_steps import Ingest, listed, part_content


@pytest.fixture
def inventory(database: Database) -> Inventory:
    return PostgresInventory(database)


@pytest.fixture
def ingest(catalog: PostgresCatalog, ledger: PostgresLedger) -> Ingest:
    return Ingest(catalog, ledger)


def execute(database: Database, statement: str, *values: Any) -> None:
    with database.connection() as connection:
        connection.execute(statement, values)


def test_documents_come_page_by_page_with_tombstones_each_once(
    ingest: Ingest, inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag_cluster.stores.postgres.inventory.PAGE_DOCUMENTS", 3)
    made = [ingest.ready(listed(f"file:///{n}")).document_id for n in range(7)]
    ingest.catalog.tombstone(made[0])
    found, after = [], None
    while page := inventory.documents(ingest.knowledge_base_id, after):
        assert len(page) <= 3
        found += page
        after = page[-1].id
    assert [facts.id for facts in found] == sorted(made)
    assert {facts.id for facts in found if facts.deleted} == {made[0]}
    assert inventory.knowledge_base_ids() == [ingest.knowledge_base_id]


def test_a_page_ends_before_it_holds_too_many_chunks(
    ingest: Ingest, inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag_cluster.stores.postgres.inventory.PAGE_CHUNKS", 3)
    made = [ingest.ready(listed(f"file:///{n}")).document_id for n in range(3)]  # two chunks each
    page = inventory.documents(ingest.knowledge_base_id)
    assert [facts.id for facts in page] == sorted(made)[:2]
    assert len(inventory.documents(ingest.knowledge_base_id, page[-1].id)) == 1


def test_a_document_tells_its_versions_content_assets_and_debts(
    ingest: Ingest, inventory: Inventory, outbox: Outbox
) -> None:
    claim = ingest.ready(listed(metadata={"年": 1}))
    asset = DocumentAsset(str(uuid.uuid4()), claim.document_id, claim.version, "key", "image/png", "sha", 3)
    ingest.catalog.add_assets([asset])
    outbox.add(OutboxKind.INDEX_ACCESS, claim.document_id, ingest.knowledge_base_id, {})
    second = ingest.must_claim(listed(etag="2", metadata={"年": 1}))
    facts = inventory.document(claim.document_id)
    assert facts is not None
    assert (facts.metadata, facts.published_version, facts.next_version) == ({"年": 1}, 1, 3)
    assert (facts.assets, facts.parentless, facts.deleted, facts.purged) == ((asset,), 0, False, False)
    assert facts.owed == 1 and facts.live and len(facts.chunk_ids) == 2 and facts.content == {1: 3}
    ready, made = facts.versions[1], facts.versions[second.version]
    assert (ready.status, ready.parts_total, ready.parts_done, ready.live) == (DocumentStatus.READY, 1, 1, False)
    assert (made.status, made.live, made.resumable, made.parts) == (DocumentStatus.PENDING, True, True, ())
    assert inventory.document(str(uuid.uuid4())) is None
    assert inventory.document("no uuid") is None


def test_contents_are_what_was_written(ingest: Ingest, inventory: Inventory) -> None:
    claim = ingest.must_claim()
    parts = ingest.snapshot(claim, count=2)
    for part in parts:
        ingest.complete(claim, part)
    expected = [part_content(claim, ingest.knowledge_base_id, part) for part in parts]
    assert list(inventory.contents(claim.document_id, 1)) == expected


def test_restoring_writes_content_parts_and_a_lost_version_row(
    ingest: Ingest, inventory: Inventory, database: Database
) -> None:
    claim = ingest.ready()
    before = inventory.document(claim.document_id)
    contents = list(inventory.contents(claim.document_id, 1))
    execute(database, "DELETE FROM document_versions WHERE document_id = %s", claim.document_id)
    execute(database, "DELETE FROM chunks WHERE document_id = %s", claim.document_id)
    damaged = inventory.document(claim.document_id)
    assert before is not None and damaged is not None
    assert damaged.published is None and damaged.chunk_ids == frozenset()
    assert inventory.restore_content(claim.document_id, 1, contents, sha256="sha", content_fingerprint="fp-1")
    after = inventory.document(claim.document_id)
    assert after is not None and after.published is not None
    assert after.chunk_ids == before.chunk_ids
    assert (after.published.parts, after.published.parts_done) == (before.versions[1].parts, 1)


def test_nothing_is_restored_for_a_version_that_is_not_published_any_more(ingest: Ingest, inventory: Inventory) -> None:
    claim = ingest.ready()
    contents = list(inventory.contents(claim.document_id, 1))
    ingest.ready(listed(etag="2"), sha256="other")
    assert not inventory.restore_content(claim.document_id, 1, contents, sha256="sha", content_fingerprint="fp-1")


def test_content_is_dropped_of_versions_that_are_over_only(
    ingest: Ingest, inventory: Inventory, database: Database
) -> None:
    claim = ingest.ready()
    execute(
        database,
        """INSERT INTO chunks (id, knowledge_base_id, document_id, version, index, content)
           VALUES (%s, %s, %s, 9, 0, '')""",
        str(uuid.uuid4()),
        ingest.knowledge_base_id,
        claim.document_id,
    )
    assert not inventory.drop_content(claim.document_id, 1)
    assert inventory.drop_content(claim.document_id, 9)
    facts = inventory.document(claim.document_id)
    assert facts is not None and facts.content == {1: 3}
    waiting = ingest.must_claim(listed(etag="2"))
    assert not inventory.drop_content(claim.document_id, waiting.version)


def test_a_lapsed_claim_is_released_and_a_live_or_newer_one_is_not(ingest: Ingest, inventory: Inventory) -> None:
    live = ingest.must_claim(listed("file:///live"))
    assert not inventory.release_claim(live.document_id, 1, live.token)
    lapsed = ingest.must_claim(listed("file:///lapsed"), lease=-1)
    facts = inventory.document(lapsed.document_id)
    assert facts is not None and (facts.versions[1].lapsed_seconds or 0) > 0 and not facts.live
    assert not inventory.release_claim(lapsed.document_id, 1, lapsed.token - 1)
    assert inventory.release_claim(lapsed.document_id, 1, lapsed.token)


def test_an_unfinished_version_goes_back_to_before_its_snapshot_unless_it_is_taken_up(
    ingest: Ingest, inventory: Inventory
) -> None:
    claim = ingest.must_claim(lease=-1)
    parts = ingest.snapshot(claim, count=2)
    ingest.complete(claim, parts[0])
    again = ingest.must_claim(owner="other")
    assert not inventory.reset_version(claim.document_id, 1, claim.token)
    ingest.ledger.release("other")
    assert inventory.reset_version(claim.document_id, 1, again.token)
    facts = inventory.document(claim.document_id)
    assert facts is not None and facts.content == {}
    assert (facts.versions[1].status, facts.versions[1].parts_total) == (DocumentStatus.PENDING, None)
    assert not ingest.must_claim(owner="other").resumed


def test_a_loss_is_noted_once_and_goes_with_its_version(ingest: Ingest, inventory: Inventory) -> None:
    claim = ingest.ready()
    for _ in range(2):
        inventory.note_loss(claim.document_id, 1, "original_lost", "key", "why")
    inventory.note_loss(claim.document_id, 7, "original_lost", "key", "no such version")
    facts = inventory.document(claim.document_id)
    assert facts is not None and facts.losses == {(1, "original_lost", "key")}
    ingest.catalog.tombstone(claim.document_id)
    ingest.catalog.purge_facts(claim.document_id)
    facts = inventory.document(claim.document_id)
    assert facts is not None and facts.losses == frozenset() and facts.purged


def test_overdue_and_often_failed_entries_are_stuck_and_can_be_made_due(
    ingest: Ingest, inventory: Inventory, outbox: Outbox, database: Database
) -> None:
    document_id = ingest.ready().document_id
    for _ in range(3):
        outbox.add(OutboxKind.INDEX_ACCESS, document_id, ingest.knowledge_base_id, {})
    fresh, old, failing = outbox.claim(9, 60)
    execute(database, "UPDATE outbox SET available_at = now() - interval '2 hours' WHERE id = %s", old.id)
    execute(database, "UPDATE outbox SET attempts = 50, error_message = 'why' WHERE id = %s", failing.id)
    found = inventory.stuck_entries(3600, 10)
    assert [(entry.id, entry.message) for entry in found] == [(old.id, ""), (failing.id, "why")]
    inventory.make_due(failing.id)
    assert failing.id in {entry.id for entry in outbox.claim(9, 60)}
    inventory.make_due()
    assert [entry.id for entry in outbox.claim(9, 60)] == [failing.id], "only what failed before"
    assert fresh.id not in {entry.id for entry in found}


def test_a_run_is_stuck_when_it_is_silent_and_holds_no_live_claim(
    ingest: Ingest, inventory: Inventory, database: Database
) -> None:
    silent, working = (str(uuid.uuid4()) for _ in range(2))
    for run_id in (silent, working):
        ingest.ledger.start_run(ingest.knowledge_base_id, [], {}, run_id)
    assert inventory.stuck_runs(3600) == []
    execute(database, "UPDATE ingestion_runs SET updated_at = now() - interval '2 hours'")
    ingest.must_claim(owner=working)
    assert [run.id for run in inventory.stuck_runs(3600)] == [silent]


def test_an_asset_is_dropped(ingest: Ingest, inventory: Inventory) -> None:
    claim = ingest.ready()
    asset = DocumentAsset(str(uuid.uuid4()), claim.document_id, 1, "key", "image/png", "sha", 3)
    ingest.catalog.add_assets([asset])
    inventory.drop_asset(claim.document_id, 1, asset.id)
    assert ingest.catalog.assets(claim.document_id) == []
