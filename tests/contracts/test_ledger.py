"""Contract of the Ledger port."""

from __future__ import annotations

import dataclasses
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rag_cluster.domain import ids
from rag_cluster.domain.access import LOCAL, AccessAttributes
from rag_cluster.domain.documents import DocumentStatus, Receipt, RunStatus, SourceKind
from rag_cluster.domain.ports import Catalog, Ledger, Outbox
from rag_cluster.errors import ClaimLostError, ConflictError, IndexMismatchError, InvalidRequestError, NotFoundError
from tests.contracts.ledger_steps import Ingest, listed, part_content, parts


@pytest.fixture
def ingest(catalog: Catalog, ledger: Ledger) -> Ingest:
    return Ingest(catalog, ledger)


def owed(outbox: Outbox, document_id: str) -> list[tuple[str, dict[str, int]]]:
    """(kind, payload) of what is owed to a document, taken from the outbox."""
    entries = outbox.claim(100, 30, document_id=document_id)
    for entry in entries:
        outbox.done(entry)
    return [(str(entry.kind), dict(entry.payload)) for entry in entries]


# -- compare ---------------------------------------------------------------------------------------------------------


def test_an_unknown_file_is_prepared(ingest: Ingest) -> None:
    assert ingest.plan() == "prepare"


def test_a_ready_file_with_the_same_size_etag_fingerprint_and_attributes_is_unchanged(ingest: Ingest) -> None:
    file = listed(access=AccessAttributes(("b", "a"), "d", 3), metadata={"年": 2024, "tags": ["x"], "nul": "a\x00b"})
    ingest.ready(file)
    assert ingest.plan(file) == "unchanged"


@pytest.mark.parametrize("change", [{"etag": "2"}, {"size": 11}])
def test_a_changed_file_is_prepared(ingest: Ingest, change: dict) -> None:
    ingest.ready()
    assert ingest.plan(listed(**change)) == "prepare"


def test_another_pipeline_makes_a_new_version(ingest: Ingest) -> None:
    ingest.ready()
    assert ingest.plan(fingerprint="fp-2") == "prepare"


@pytest.mark.parametrize("change", [{"access": AccessAttributes(("g",))}, {"metadata": {"k": "v"}}])
def test_where_only_attributes_differ_the_content_is_left_alone(ingest: Ingest, change: dict) -> None:
    ingest.ready()
    assert ingest.plan(listed(**change)) == "attributes"


AUTO, OFF = "fp-1+auto", "fp-1+off"


def test_content_without_anything_to_recognise_serves_every_mode(ingest: Ingest) -> None:
    ingest.ready(fingerprint="fp-1")
    assert [ingest.plan(fingerprint=mode) for mode in (AUTO, OFF, "fp-2+force")] == [
        "unchanged",
        "unchanged",
        "prepare",
    ]
    claim = ingest.must_claim(listed(etag="2"), fingerprint=AUTO)
    assert ingest.ledger.settle_unchanged(claim, listed(etag="2"), "sha")


def test_content_that_recognition_changed_serves_its_mode_only(ingest: Ingest) -> None:
    ingest.ready(fingerprint=AUTO)
    assert [ingest.plan(fingerprint=mode) for mode in (AUTO, OFF)] == ["unchanged", "prepare"]
    claim = ingest.must_claim(fingerprint=OFF)
    assert not ingest.ledger.settle_unchanged(claim, listed(), "sha")


def test_a_published_text_whose_rest_awaits_recognition_is_only_recognised(ingest: Ingest) -> None:
    claim = ingest.must_claim(fingerprint=AUTO)
    (part,) = parts(claim)
    awaiting = ids.awaiting_recognition(AUTO)
    ingest.ledger.commit_snapshot(claim, sha256="sha", size=10, parts=[part], content_fingerprint=awaiting)
    assert ingest.plan(fingerprint=AUTO) == "index"
    again = ingest.must_claim(fingerprint=AUTO)
    assert (again.version, again.resumed, again.content_fingerprint) == (1, True, awaiting)
    assert ingest.complete(claim, part)
    assert [ingest.plan(fingerprint=mode) for mode in (AUTO, OFF)] == ["recognize", "prepare"]
    second = ingest.must_claim(fingerprint=AUTO)
    assert (second.version, second.resumed) == (2, False)
    assert ingest.plan(fingerprint=AUTO) == "recognize"
    ingest.ledger.fail(second, stage="parse", error_type="parse_timeout", message="slow", permanent=True)
    assert ingest.plan(fingerprint=AUTO) == "skip_failed"


def test_an_unfinished_version_with_a_snapshot_enters_at_index(ingest: Ingest) -> None:
    claim = ingest.must_claim()
    assert ingest.plan() == "prepare"
    ingest.snapshot(claim)
    assert ingest.plan() == "index"
    assert ingest.plan(listed(etag="2")) == "prepare"


def test_a_permanent_failure_is_skipped_until_it_is_asked_for_or_the_file_changes(ingest: Ingest) -> None:
    claim = ingest.must_claim()
    ingest.ledger.fail(claim, stage="parse", error_type="corrupt_document", message="broken", permanent=True)
    (planned,) = ingest.ledger.compare(ingest.knowledge_base_id, [listed()], ["fp-1"])
    assert (planned.action, planned.error_type, planned.reason) == ("skip_failed", "corrupt_document", "broken")
    assert ingest.plan(retry_failed=True) == "prepare"
    assert ingest.plan(listed(etag="2")) == "prepare"
    assert ingest.plan(fingerprint="fp-2") == "prepare"


def test_a_permanent_failure_does_not_keep_a_new_access_rule_from_the_published_version(ingest: Ingest) -> None:
    ingest.ready()
    changed = listed(etag="2")
    ingest.ledger.fail(ingest.must_claim(changed), stage="parse", error_type="x", message="", permanent=True)
    assert ingest.plan(changed) == "skip_failed"
    assert ingest.plan(listed(etag="2", access=AccessAttributes(("g",)))) == "attributes"


def test_a_failure_that_may_pass_is_tried_again(ingest: Ingest) -> None:
    claim = ingest.must_claim()
    ingest.ledger.fail(claim, stage="parse", error_type="store_unavailable", message="", permanent=False)
    assert ingest.plan() == "prepare"


def test_a_file_that_went_back_to_its_published_content_is_unchanged(ingest: Ingest) -> None:
    ingest.ready()
    ingest.must_claim(listed(etag="2"))
    assert ingest.plan() == "unchanged"


def test_a_deleted_document_counts_as_new(ingest: Ingest) -> None:
    claim = ingest.ready()
    ingest.catalog.tombstone(claim.document_id)
    assert ingest.plan() == "prepare"


def test_a_batch_is_compared_in_its_order(ingest: Ingest) -> None:
    ingest.ready(listed("file:///b"))
    files = [listed(f"file:///{name}") for name in "cba"]
    planned = ingest.ledger.compare(ingest.knowledge_base_id, files, ["fp-1"] * 3)
    assert [plan.file for plan in planned] == files
    assert [str(plan.action) for plan in planned] == ["prepare", "unchanged", "prepare"]


# -- claims ----------------------------------------------------------------------------------------------------------


def test_a_claim_shuts_others_out_while_it_lives(ingest: Ingest) -> None:
    assert ingest.claim() is not None
    assert ingest.claim(owner="worker-2") is None


def test_the_owner_gets_its_live_claim_again(ingest: Ingest) -> None:
    assert ingest.claim() == ingest.claim()


def test_an_ended_lease_is_taken_over_under_a_new_token(ingest: Ingest) -> None:
    first = ingest.must_claim(lease=0.05)
    time.sleep(0.1)
    second = ingest.must_claim(owner="worker-2")
    assert (second.version, second.resumed) == (first.version, False)
    assert second.token > first.token
    (version,) = ingest.catalog.versions(first.document_id)
    assert version.attempts == 2


def test_a_taken_over_version_with_a_snapshot_is_resumed(ingest: Ingest) -> None:
    first = ingest.must_claim(lease=0.05)
    made = ingest.snapshot(first, count=2)
    ingest.complete(first, made[0])
    time.sleep(0.1)
    second = ingest.must_claim(owner="worker-2")
    assert second.resumed
    assert ingest.ledger.pending_parts(second.document_id, second.version) == made[1:]


def test_a_zombie_is_rejected_everywhere(ingest: Ingest) -> None:
    zombie = ingest.must_claim(lease=0.05)
    time.sleep(0.1)
    ingest.must_claim(owner="worker-2")
    writes = [
        lambda: ingest.ledger.set_status(zombie, DocumentStatus.CHUNKING),
        lambda: ingest.snapshot(zombie),
        lambda: ingest.complete(zombie, parts(zombie)[0]),
        lambda: ingest.ledger.fail(zombie, stage="x", error_type="x", message="", permanent=True),
    ]
    for write in writes:
        with pytest.raises(ClaimLostError):
            write()
    assert not ingest.ledger.settle_unchanged(zombie, listed(), "sha")


def test_an_owner_whose_lease_ended_goes_on_as_long_as_nobody_took_over(ingest: Ingest) -> None:
    claim = ingest.must_claim(lease=0.05)
    time.sleep(0.1)
    assert ingest.ledger.extend("worker-1", 30) == 1
    assert ingest.claim(owner="worker-2") is None
    ingest.snapshot(claim)


def test_a_heartbeat_extends_all_claims_of_its_owner_only(ingest: Ingest) -> None:
    ingest.must_claim(listed("file:///a"))
    ingest.must_claim(listed("file:///b"))
    ingest.must_claim(listed("file:///c"), owner="worker-2")
    assert ingest.ledger.extend("worker-1", 30) == 2
    assert ingest.ledger.extend("nobody", 30) == 0


def test_released_claims_are_free_at_once_and_dead_for_their_owner(ingest: Ingest) -> None:
    claim = ingest.must_claim()
    ingest.ledger.release("worker-1")
    with pytest.raises(ClaimLostError):
        ingest.ledger.set_status(claim, DocumentStatus.PARSING)
    assert ingest.must_claim(owner="worker-2").version == claim.version


def test_a_claim_given_back_is_free_at_once_for_the_same_version(ingest: Ingest) -> None:
    claim = ingest.must_claim()
    ingest.ledger.set_status(claim, DocumentStatus.PARSING)
    ingest.ledger.give_back(claim)
    assert [version.status for version in ingest.catalog.versions(claim.document_id)] == ["PENDING"]
    with pytest.raises(ClaimLostError):
        ingest.ledger.set_status(claim, DocumentStatus.PARSING)
    taken = ingest.must_claim(owner="worker-2")
    assert (taken.version, taken.token == claim.token) == (claim.version, False)
    ingest.ledger.give_back(claim)  # a zombie's: the version belongs to another owner now
    ingest.ledger.set_status(taken, DocumentStatus.PARSING)


def test_a_file_that_changed_before_it_was_finished_gets_a_new_version(ingest: Ingest, outbox: Outbox) -> None:
    first = ingest.must_claim()
    ingest.snapshot(first)
    ingest.ledger.release("worker-1")
    second = ingest.must_claim(listed(etag="2"))
    assert (second.version, second.resumed) == (2, False)
    superseded, _ = ingest.catalog.versions(first.document_id)
    assert (superseded.status, superseded.error_type) == ("FAILED", "superseded")
    assert owed(outbox, first.document_id) == [("index_delete", {"version": 1})]


def test_a_claim_applies_the_listed_attributes_at_once(ingest: Ingest, outbox: Outbox) -> None:
    ingest.ready()
    access = AccessAttributes(("hr",), "finance", 2)
    claim = ingest.must_claim(listed(etag="2", access=access, metadata={"a": 1}))
    document = ingest.catalog.document(claim.document_id, LOCAL)
    assert (document.access, document.metadata, document.published_version) == (access, {"a": 1}, 1)
    assert ("index_access", {}) in owed(outbox, claim.document_id)


def test_a_listing_that_states_no_attributes_keeps_the_documents_own(ingest: Ingest) -> None:
    document_id = ingest.ready().document_id
    ingest.catalog.update_document(document_id, access=AccessAttributes(("hr",)), metadata={"k": 1})

    def attributes() -> tuple[AccessAttributes, object]:
        document = ingest.catalog.document(document_id, LOCAL)
        return document.access, document.metadata

    silent = dataclasses.replace(listed(access=AccessAttributes()), keeps_access=True, keeps_metadata=True)
    assert ingest.plan(silent) == "unchanged"
    ingest.ready(dataclasses.replace(silent, etag="2"), sha256="other")
    assert attributes() == (AccessAttributes(("hr",)), {"k": 1})
    ingest.catalog.tombstone(document_id)
    ingest.ready(silent)
    assert attributes() == (AccessAttributes(), {}), "a second life begins anew"


def test_claiming_in_a_missing_or_deleted_knowledge_base_or_source_is_not_found(ingest: Ingest) -> None:
    nowhere = "00000000-0000-0000-0000-000000000000"
    for knowledge_base, source in [(nowhere, ingest.source_id), (ingest.knowledge_base_id, nowhere), ("x", "y")]:
        with pytest.raises(NotFoundError):
            ingest.ledger.claim(knowledge_base, source, listed(), "fp-1", owner="w", lease_seconds=9)
    ingest.catalog.delete_knowledge_base(ingest.knowledge_base_id)
    with pytest.raises(NotFoundError):
        ingest.claim()


def test_a_known_version_is_claimed_by_number(ingest: Ingest) -> None:
    claim = ingest.must_claim()

    def by_number(owner: str, version: int = 1) -> object:
        return ingest.ledger.claim_version(claim.document_id, version, owner=owner, lease_seconds=30)

    assert by_number("worker-2") is None
    assert by_number("worker-1") == claim
    with pytest.raises(NotFoundError):
        by_number("worker-1", 2)
    ingest.complete(claim, ingest.snapshot(claim)[0])
    with pytest.raises(ClaimLostError):
        by_number("worker-1")


# -- parts, publishing, failing --------------------------------------------------------------------------------------


def test_the_status_is_written_before_the_action(ingest: Ingest) -> None:
    claim = ingest.must_claim()
    assert ingest.catalog.document(claim.document_id, LOCAL).status == "PENDING"
    ingest.ledger.set_status(claim, DocumentStatus.PARSING)
    assert ingest.catalog.document(claim.document_id, LOCAL).status == "PARSING"
    ingest.snapshot(claim)
    assert ingest.catalog.document(claim.document_id, LOCAL).status == "EMBEDDING"
    with pytest.raises(ValueError, match="READY"):
        ingest.ledger.set_status(claim, DocumentStatus.READY)


def test_whoever_completes_the_last_part_publishes(ingest: Ingest) -> None:
    claim = ingest.must_claim()
    first, second = ingest.snapshot(claim, count=2)
    assert not ingest.complete(claim, second)
    assert not ingest.catalog.document(claim.document_id, LOCAL).visible
    assert ingest.complete(claim, first)
    document = ingest.catalog.document(claim.document_id, LOCAL)
    assert (document.visible, document.published_version, document.status) == (True, 1, "READY")


def test_completing_a_part_again_says_what_it_said_before(ingest: Ingest) -> None:
    claim = ingest.must_claim()
    first, second = ingest.snapshot(claim, count=2)
    assert [ingest.complete(claim, first) for _ in range(2)] == [False, False]
    assert [ingest.complete(claim, second) for _ in range(2)] == [True, True]
    assert ingest.complete(claim, first) is False
    assert ingest.catalog.remains(claim.document_id)["chunks"] == 4


def test_parts_of_several_documents_are_completed_together_and_what_is_lost_keeps_nobody(ingest: Ingest) -> None:
    lost, twice, one = (ingest.must_claim(listed(f"file:///{name}")) for name in ("lost", "twice", "one"))
    items = [
        (claim, part)
        for claim, count in ((one, 1), (lost, 1), (twice, 2))
        for part in ingest.snapshot(claim, count=count)
    ]
    stranger = dataclasses.replace(lost, token=lost.token + 1000)
    batch = [
        (stranger if claim is lost else claim, part_content(claim, ingest.knowledge_base_id, part))
        for claim, part in items
    ]
    for _ in range(2):  # the second time is a retry: it hears the same
        assert ingest.ledger.complete_parts(batch) == ["published", "lost", "written", "published"]
    ready = [ingest.catalog.document(claim.document_id, LOCAL).visible for claim in (one, lost, twice)]
    assert ready == [True, False, True]
    assert [ingest.catalog.remains(claim.document_id)["chunks"] for claim in (one, lost, twice)] == [2, 0, 4]


def test_a_later_version_in_a_batch_replaces_the_earlier_one_and_owes_its_removal(
    ingest: Ingest, outbox: Outbox
) -> None:
    first = ingest.ready(listed("file:///a"))
    again = ingest.must_claim(listed("file:///a", etag="2"))
    other = ingest.must_claim(listed("file:///b"))
    batch = [
        (claim, part_content(claim, ingest.knowledge_base_id, part))
        for claim in (other, again)
        for part in ingest.snapshot(claim)
    ]
    assert ingest.ledger.complete_parts(batch) == ["published", "published"]
    assert ingest.catalog.document(first.document_id, LOCAL).published_version == 2
    assert ("index_delete", {"max_version": 1}) in owed(outbox, first.document_id)
    assert owed(outbox, other.document_id) == []


def test_a_batch_begins_to_be_indexed_with_the_facts_of_what_is_still_held(ingest: Ingest) -> None:
    held, lost, deleted = (ingest.must_claim(listed(f"file:///{name}", metadata={"n": name})) for name in "abc")
    ingest.ledger.fail(deleted, stage="parse", error_type="corrupt_document", message="", permanent=True)
    ingest.catalog.tombstone(deleted.document_id)
    stranger = dataclasses.replace(lost, owner="worker-2")
    facts = ingest.ledger.begin_index([held, stranger, deleted])
    assert facts == {held.document_id: ingest.catalog.index_row_facts(held.document_id)}
    assert ingest.catalog.document(held.document_id, LOCAL).status == "INDEXING"
    assert ingest.catalog.document(lost.document_id, LOCAL).status == "PENDING"


def test_pending_parts_of_several_versions_are_asked_for_at_once(ingest: Ingest) -> None:
    one, two, done = (ingest.must_claim(listed(f"file:///{name}")) for name in "abd")
    ingest.snapshot(one, count=2)
    ingest.complete(two, ingest.snapshot(two, count=2)[0])
    ingest.complete(done, ingest.snapshot(done)[0])
    versions = [(claim.document_id, claim.version) for claim in (one, two, done)]
    assert ingest.ledger.pending_by_version(versions) == dict(zip(versions, [{0, 1}, {1}, set()], strict=True))


def test_a_part_is_done_when_the_active_index_holds_it(ingest: Ingest) -> None:
    old = ingest.catalog.ensure_index("aaaa", 8)
    claim = ingest.must_claim()
    first, second = ingest.snapshot(claim, count=2)
    content = {part: part_content(claim, ingest.knowledge_base_id, part) for part in (first, second)}
    assert not ingest.ledger.complete_part(claim, content[first], index_id=old.id)
    new = ingest.catalog.ensure_index("bbbb", 8)
    assert ingest.catalog.switch_index(new.id) == 0, "nothing is published yet"
    with pytest.raises(IndexMismatchError):
        ingest.ledger.complete_part(claim, content[second], index_id=old.id)
    assert ingest.ledger.pending_parts(claim.document_id, claim.version) == [first, second]
    assert not ingest.ledger.complete_part(claim, content[second], index_id=new.id)
    assert ingest.ledger.complete_part(claim, content[first], index_id=new.id)
    assert ingest.ledger.complete_part(claim, content[first], index_id=new.id), "whoever published hears it again"
    assert ingest.catalog.count_missing(new.id) == (0, 0)
    assert ingest.catalog.count_missing(old.id) == (1, 2)


def test_two_batches_that_meet_on_the_same_documents_do_not_block_each_other(ingest: Ingest) -> None:
    claims = [ingest.must_claim(listed(f"file:///{number}")) for number in range(6)]
    made = {claim.document_id: ingest.snapshot(claim, count=2) for claim in claims}

    def complete(number: int) -> list[str]:
        order = claims if number == 0 else claims[::-1]
        batch = [
            (claim, part_content(claim, ingest.knowledge_base_id, made[claim.document_id][number])) for claim in order
        ]
        ingest.ledger.begin_index(order)
        return [str(outcome) for outcome in ingest.ledger.complete_parts(batch)]

    with ThreadPoolExecutor(2) as threads:
        outcomes = [outcome for batch in threads.map(complete, range(2)) for outcome in batch]
    assert sorted(outcomes) == ["published"] * 6 + ["written"] * 6


def test_a_parent_that_spans_parts_is_written_once(ingest: Ingest) -> None:
    claim = ingest.must_claim()
    for part in ingest.snapshot(claim, count=2):  # chunks 0-1 and 2-3 share parent 0
        ingest.complete(claim, part)
    assert ingest.catalog.remains(claim.document_id)["parents"] == 1


def test_text_that_postgresql_cannot_hold_is_written_with_replacements(ingest: Ingest) -> None:
    file = listed("file:///\x00\ud800.md", metadata={"k\x00": ["\ud800", float("nan"), {"\\u0000": "x"}]})
    claim = ingest.ready(file, text="nul \x00 surrogate \udfff 正文")
    document = ingest.catalog.document(claim.document_id, LOCAL)
    assert document.uri == "file:///\ufffd\ufffd.md"
    assert document.metadata == {"k\ufffd": ["\ufffd", None, {"\\u0000": "x"}]}


def test_a_new_version_takes_the_place_of_the_old_one(ingest: Ingest, outbox: Outbox) -> None:
    ingest.ready()
    claim = ingest.ready(listed(etag="2"), sha256="other")
    assert claim.version == 2
    remains = ingest.catalog.remains(claim.document_id)
    assert (remains["chunks"], remains["parents"], remains["document_versions"]) == (2, 1, 2)
    assert owed(outbox, claim.document_id) == [
        ("index_delete", {"max_version": 1}),
        ("purge_version", {"version": 1}),
    ]


def test_only_what_is_younger_than_the_last_published_version_is_purged_again(ingest: Ingest, outbox: Outbox) -> None:
    for etag in "12":
        ingest.ready(listed(etag=etag), sha256=etag)
    failing = ingest.must_claim(listed(etag="3"))
    ingest.ledger.fail(failing, stage="parse", error_type="x", message="", permanent=True)
    owed(outbox, failing.document_id)
    ingest.ready(listed(etag="4"), sha256="4")
    assert owed(outbox, failing.document_id) == [
        ("index_delete", {"max_version": 3}),
        ("purge_version", {"version": 2}),
        ("purge_version", {"version": 3}),
    ]


def test_a_failed_new_version_leaves_the_old_one_visible(ingest: Ingest, outbox: Outbox) -> None:
    ingest.ready()
    claim = ingest.must_claim(listed(etag="2"))
    first, _ = ingest.snapshot(claim, count=2, sha256="other")
    ingest.complete(claim, first)
    for _ in range(2):
        ingest.ledger.fail(claim, stage="embed", error_type="model", message="m" * 9999, permanent=True)
    document = ingest.catalog.document(claim.document_id, LOCAL)
    assert (document.visible, document.published_version) == (True, 1)
    assert (document.status, document.error_type) == ("FAILED", "model")
    assert ingest.catalog.remains(claim.document_id)["chunks"] == 2
    assert owed(outbox, claim.document_id) == [("index_delete", {"version": 2})]
    assert ingest.must_claim(listed(etag="2")).version == 3


def test_after_a_failure_that_may_pass_the_work_goes_on_where_it_stopped(ingest: Ingest, outbox: Outbox) -> None:
    claim = ingest.must_claim()
    first, second = ingest.snapshot(claim, count=2)
    ingest.complete(claim, first)
    ingest.ledger.fail(claim, stage="embed", error_type="model_unavailable", message="gone", permanent=False)
    document = ingest.catalog.document(claim.document_id, LOCAL)
    assert (document.status, document.error_type, document.visible) == ("FAILED", "model_unavailable", False)
    assert ingest.plan() == "index"
    again = ingest.must_claim(owner="worker-2")
    assert (again.version, again.resumed) == (claim.version, True)
    assert ingest.ledger.pending_parts(again.document_id, again.version) == [second]
    assert ingest.complete(again, second)
    assert ingest.catalog.document(claim.document_id, LOCAL).error_type is None
    assert owed(outbox, claim.document_id) == []


def test_same_bytes_under_a_new_etag_settle_without_a_new_version(ingest: Ingest) -> None:
    ingest.ready()
    touched = listed(etag="2")
    claim = ingest.must_claim(touched)
    assert not ingest.ledger.settle_unchanged(claim, touched, "other bytes")
    assert ingest.ledger.settle_unchanged(claim, touched, "sha")
    assert ingest.plan(touched) == "unchanged"
    assert [version.version for version in ingest.catalog.versions(claim.document_id)] == [1]
    assert ingest.must_claim(listed(etag="3")).version == 3, "a version number is never used twice"


def test_the_same_bytes_in_another_pipeline_do_not_settle(ingest: Ingest) -> None:
    ingest.ready()
    claim = ingest.must_claim(fingerprint="fp-2")
    assert not ingest.ledger.settle_unchanged(claim, listed(), "sha")


def test_a_duplicate_is_another_live_document_of_the_same_knowledge_base(ingest: Ingest) -> None:
    claim = ingest.must_claim(listed("file:///copy"))
    assert ingest.ledger.duplicate_of(claim, "sha") is None
    original = ingest.ready(listed("file:///original"))
    assert ingest.ledger.duplicate_of(claim, "sha") == "file:///original"
    other = Ingest(ingest.catalog, ingest.ledger, name="other")
    assert ingest.ledger.duplicate_of(other.must_claim(), "sha") is None
    ingest.catalog.tombstone(original.document_id)
    assert ingest.ledger.duplicate_of(claim, "sha") is None


def test_attributes_changed_during_the_work_are_owed_to_the_rows_that_it_wrote(ingest: Ingest, outbox: Outbox) -> None:
    claim = ingest.must_claim()
    ingest.catalog.update_document(claim.document_id, metadata={"late": True})
    assert owed(outbox, claim.document_id) == [("index_access", {})]
    ingest.complete(claim, ingest.snapshot(claim)[0])
    assert owed(outbox, claim.document_id) == [("index_access", {})]


def test_nothing_is_written_to_a_deleted_document(ingest: Ingest) -> None:
    claim = ingest.must_claim(lease=0.05)
    part = ingest.snapshot(claim)[0]
    time.sleep(0.1)
    ingest.catalog.tombstone(claim.document_id)
    with pytest.raises(ClaimLostError):
        ingest.complete(claim, part)
    with pytest.raises(ClaimLostError):
        ingest.ledger.set_status(claim, DocumentStatus.INDEXING)


def test_a_version_without_parts_is_refused(ingest: Ingest) -> None:
    with pytest.raises(ValueError, match="empty_document"):
        ingest.ledger.commit_snapshot(ingest.must_claim(), sha256="s", size=0, parts=[])


# -- deletion and a second life --------------------------------------------------------------------------------------


def test_a_purged_document_is_ingested_again_under_a_higher_version(ingest: Ingest) -> None:
    claim = ingest.ready()
    ingest.catalog.tombstone(claim.document_id)
    ingest.catalog.purge_facts(claim.document_id)
    again = ingest.ready()
    assert (again.document_id, again.version) == (claim.document_id, 2)
    assert ingest.catalog.document(claim.document_id, LOCAL).uri == "file:///a.md"


def test_an_ingest_before_the_purge_is_through_leaves_only_debts_on_old_versions(
    ingest: Ingest, outbox: Outbox
) -> None:
    claim = ingest.ready()
    ingest.catalog.tombstone(claim.document_id)
    again = ingest.must_claim()
    assert again.version == 2
    assert not ingest.catalog.document(claim.document_id, LOCAL).visible, "the deleted version must not come back"
    assert owed(outbox, claim.document_id) == [
        ("index_delete", {"max_version": 1}),
        ("purge_version", {"version": 1}),
    ]
    ingest.catalog.purge_facts(claim.document_id)  # by a drainer that began before
    assert ingest.catalog.remains(claim.document_id)["document_versions"] == 1
    assert ingest.complete(again, ingest.snapshot(again)[0])


def test_a_run_does_not_bring_back_what_was_deleted_since_it_began(ingest: Ingest, ledger: Ledger) -> None:
    claim = ingest.ready()
    ledger.start_run(ingest.knowledge_base_id, [], {}, RUN)
    ingest.catalog.tombstone(claim.document_id)
    assert ingest.claim(owner=RUN) is None
    ingest.catalog.purge_facts(claim.document_id)
    assert ingest.claim(owner=RUN) is None, "nor once the delete is through"
    ledger.start_run(ingest.knowledge_base_id, [], {}, LATER)
    assert ingest.must_claim(owner=LATER).version == 2


def test_an_ingest_after_a_delete_belongs_to_its_own_source(ingest: Ingest) -> None:
    claim = ingest.ready()
    ingest.catalog.tombstone(claim.document_id)
    ingest.source_id = ids.upload_document_id()
    with pytest.raises(NotFoundError):
        ingest.claim()
    ingest.source_id = ingest.catalog.ensure_source(ingest.knowledge_base_id, SourceKind.BULK, "other").id
    ingest.must_claim()
    assert ingest.catalog.document(claim.document_id, LOCAL).source_id == ingest.source_id


# -- runs ------------------------------------------------------------------------------------------------------------

RUN, LATER = (f"{n}1111111-1111-1111-1111-111111111111" for n in "12")


def test_a_run_is_watched_from_start_to_end(ingest: Ingest, ledger: Ledger) -> None:
    ledger.start_run(ingest.knowledge_base_id, ["/data"], {"ocr": "auto"}, RUN)
    ledger.update_run(RUN, {"ready": 1})
    assert (ledger.run(RUN).status, ledger.run(RUN).counts) == (RunStatus.RUNNING, {"ready": 1})
    ledger.finish_run(RUN, RunStatus.FAILED, {"ready": 2}, "stopped")
    run = ledger.run(RUN)
    assert (run.status, run.counts, run.error_message) == (RunStatus.FAILED, {"ready": 2}, "stopped")
    assert run.inputs == ("/data",)
    assert run.finished_at is not None
    assert ledger.run_report(RUN) is None
    ledger.finish_run(RUN, RunStatus.FAILED, {"ready": 2}, "stopped", {"slowest": [{"uri": "码头\x00.pdf"}]})
    report = ledger.run_report(RUN)
    assert report is not None and report["slowest"][0]["uri"].startswith("码头")


def test_a_run_whose_driver_gives_no_sign_of_life_is_ended_and_one_that_does_is_not(
    ingest: Ingest, ledger: Ledger
) -> None:
    living, holding, lost = (f"{n}1111111-1111-1111-1111-111111111111" for n in "123")
    for run_id in (living, holding, lost):
        ledger.start_run(ingest.knowledge_base_id, [], {}, run_id)
    ingest.must_claim(owner=holding)
    time.sleep(2.1)
    assert ledger.extend(living, 30) == 0
    assert ledger.end_lost_runs(ingest.knowledge_base_id, 60) == []
    assert ledger.end_lost_runs(ingest.knowledge_base_id, 2) == [lost]
    assert [ledger.run(run_id).status for run_id in (living, holding, lost)] == ["RUNNING", "RUNNING", "FAILED"]
    assert ledger.run(lost).finished_at is not None
    assert ledger.extend(lost, 30) == 0
    assert ledger.run(lost).status is RunStatus.FAILED, "a late heartbeat does not wake it"


def test_runs_are_listed_newest_first(ingest: Ingest, ledger: Ledger) -> None:
    names = [f"{n}1111111-1111-1111-1111-111111111111" for n in "123"]
    for name in names:
        ledger.start_run(ingest.knowledge_base_id, [], {}, name)
    page, cursor = ledger.runs(limit=2)
    rest, end = ledger.runs(cursor=cursor, limit=2)
    assert [run.id for run in [*page, *rest]] == names[::-1]
    assert end is None


def test_receipts_say_why(ingest: Ingest, ledger: Ledger) -> None:
    ledger.start_run(ingest.knowledge_base_id, [], {}, RUN)
    claim = ingest.must_claim()
    ledger.record_receipts(
        RUN,
        [
            Receipt("file:///b", claim.document_id, "failed", stage="parse", error_type="x", message="why\x00"),
            Receipt("file:///a", "", "skipped"),
        ],
    )
    ledger.record_receipts(RUN, [Receipt("file:///a", "", "busy")])
    assert [(r.uri, r.outcome, r.stage, r.error_type, r.message) for r in ledger.run_receipts(RUN)] == [
        ("file:///a", "busy", "", None, ""),
        ("file:///b", "failed", "parse", "x", "why\ufffd"),
    ]


def test_unknown_runs_and_bad_cursors_are_client_errors(ledger: Ledger) -> None:
    for run_id in (RUN, "no-uuid"):
        with pytest.raises(NotFoundError):
            ledger.run(run_id)
    for cursor in ("x", "é", "W10", "bnVsbA", "\ud800"):
        with pytest.raises(InvalidRequestError):
            ledger.runs(cursor=cursor)


def test_chunks_of_another_part_survive_a_retry(ingest: Ingest) -> None:
    claim = ingest.must_claim()
    first, second = ingest.snapshot(claim, count=2)
    ingest.complete(claim, first)
    ingest.ledger.complete_part(claim, part_content(claim, ingest.knowledge_base_id, second))
    assert ingest.catalog.remains(claim.document_id)["chunks"] == 4


def test_a_running_run_can_be_asked_to_end_and_an_ended_one_cannot(ingest: Ingest) -> None:
    run_id = ids.upload_document_id()
    ingest.ledger.start_run(ingest.knowledge_base_id, ["x"], {}, run_id)
    assert not ingest.ledger.cancel_requested(run_id)
    assert ingest.ledger.request_cancel(run_id).id == run_id
    assert ingest.ledger.cancel_requested(run_id)
    ingest.ledger.finish_run(run_id, RunStatus.CANCELLED, {})
    with pytest.raises(ConflictError):
        ingest.ledger.request_cancel(run_id)
    with pytest.raises(NotFoundError):
        ingest.ledger.request_cancel(ids.upload_document_id())


def test_a_run_that_starts_again_under_its_id_is_no_longer_asked_to_end(ingest: Ingest) -> None:
    run_id = ids.upload_document_id()
    ingest.ledger.start_run(ingest.knowledge_base_id, ["x"], {}, run_id)
    ingest.ledger.request_cancel(run_id)
    ingest.ledger.start_run(ingest.knowledge_base_id, ["x"], {}, run_id)
    assert not ingest.ledger.cancel_requested(run_id)
