"""Contract of the Outbox port."""

from __future__ import annotations

import time

from rag_cluster.domain.documents import OutboxKind
from rag_cluster.domain.ports import Outbox

BASE = "00000000-0000-0000-0000-00000000000b"
ONE = "00000000-0000-0000-0000-000000000001"
TWO = "00000000-0000-0000-0000-000000000002"


def test_what_is_owed_is_claimed_oldest_first_and_by_one_only(outbox: Outbox) -> None:
    for number in range(3):
        outbox.add(OutboxKind.PURGE_VERSION, ONE, BASE, {"version": number})
    first = outbox.claim(2, 30)
    assert [(entry.kind, entry.payload, entry.attempts) for entry in first] == [
        ("purge_version", {"version": 0}, 1),
        ("purge_version", {"version": 1}, 1),
    ]
    assert [entry.payload["version"] for entry in outbox.claim(9, 30)] == [2]
    assert outbox.claim(9, 30) == []


def test_what_is_done_is_gone(outbox: Outbox) -> None:
    outbox.add(OutboxKind.INDEX_ACCESS, ONE, BASE, {})
    (entry,) = outbox.claim(1, 30)
    assert outbox.pending() == 1
    for _ in range(2):
        outbox.done(entry)
    assert outbox.pending() == 0


def test_a_lost_claim_is_due_again_when_its_lease_ends(outbox: Outbox) -> None:
    outbox.add(OutboxKind.INDEX_ACCESS, ONE, BASE, {})
    outbox.claim(1, 0.05)
    time.sleep(0.1)
    (entry,) = outbox.claim(1, 30)
    assert entry.attempts == 2


def test_a_failed_effect_waits_for_its_delay(outbox: Outbox) -> None:
    outbox.add(OutboxKind.INDEX_ACCESS, ONE, BASE, {})
    (entry,) = outbox.claim(1, 30)
    outbox.retry(entry, "milvus: \x00", 1)
    assert outbox.claim(1, 30) == []
    time.sleep(1.1)
    assert len(outbox.claim(1, 30)) == 1


def test_one_documents_effects_are_claimed_alone(outbox: Outbox) -> None:
    outbox.add(OutboxKind.INDEX_ACCESS, ONE, BASE, {})
    outbox.add(OutboxKind.INDEX_ACCESS, TWO, BASE, {})
    (entry,) = outbox.claim(9, 30, document_id=TWO)
    assert (entry.document_id, entry.knowledge_base_id) == (TWO, BASE)
    assert (outbox.pending(ONE), outbox.pending()) == (1, 2)
