"""Contract of the Catalog port."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from rag_cluster.domain import ids
from rag_cluster.domain.access import LOCAL, AccessAttributes, Principal
from rag_cluster.domain.blocks import SourceLocator
from rag_cluster.domain.chunks import MissingPart
from rag_cluster.domain.documents import DocumentAsset, DocumentStatus, SourceKind
from rag_cluster.domain.ports import Catalog, Ledger, Outbox
from rag_cluster.errors import (
    AuthenticationError,
    ClaimLostError,
    ConflictError,
    DocumentBusyError,
    IndexMismatchError,
    InvalidRequestError,
    NotFoundError,
)
from tests.contracts.ledger_steps import Ingest, listed

NOWHERE = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def ingest(catalog: Catalog, ledger: Ledger) -> Ingest:
    return Ingest(catalog, ledger)


def guest(*knowledge_bases: str, **values: object) -> Principal:
    return Principal("guest", frozenset(knowledge_bases), **values)  # type: ignore[arg-type]


# -- knowledge bases and sources -------------------------------------------------------------------------------------


def test_a_knowledge_base_is_found_by_id_and_by_name(catalog: Catalog) -> None:
    made = catalog.create_knowledge_base("合同", "contracts", ("b", "a"))
    assert (made.name, made.description, made.default_acl) == ("合同", "contracts", ("a", "b"))
    assert catalog.knowledge_base(made.id) == catalog.knowledge_base("合同") == made


@pytest.mark.parametrize("name", [NOWHERE, "nobody", "", "\x00", "\ud800", "x" * 10_000])
def test_an_unknown_knowledge_base_is_not_found(catalog: Catalog, name: str) -> None:
    with pytest.raises(NotFoundError):
        catalog.knowledge_base(name)


def test_a_name_is_taken_once(catalog: Catalog) -> None:
    catalog.create_knowledge_base("a")
    other = catalog.create_knowledge_base("b")
    with pytest.raises(ConflictError):
        catalog.create_knowledge_base("a")
    with pytest.raises(ConflictError):
        catalog.update_knowledge_base(other.id, name="a")


def test_the_name_of_a_renamed_or_deleted_knowledge_base_is_free_again(catalog: Catalog) -> None:
    first = catalog.create_knowledge_base("a")
    catalog.update_knowledge_base(first.id, name="b")
    second = catalog.create_knowledge_base("a")
    catalog.delete_knowledge_base(second.id)
    third = catalog.create_knowledge_base("a")
    assert len({first.id, second.id, third.id}) == 3, "nobody inherits the documents or grants of another life"
    assert catalog.knowledge_base("a").id == third.id


def test_an_update_leaves_alone_what_it_does_not_name(catalog: Catalog) -> None:
    made = catalog.create_knowledge_base("a", "text", ("g",))
    assert catalog.update_knowledge_base(made.id, name="b").description == "text"
    assert catalog.update_knowledge_base(made.id, description="").default_acl == ("g",)
    assert catalog.update_knowledge_base(made.id, default_acl=()).default_acl == ()
    assert catalog.update_knowledge_base(made.id, close=True).default_acl is None
    with pytest.raises(NotFoundError):
        catalog.update_knowledge_base(NOWHERE, name="c")


def test_only_granted_knowledge_bases_are_listed_page_by_page(catalog: Catalog) -> None:
    made = [catalog.create_knowledge_base(name).id for name in "abcd"]
    seen, cursor = [], None
    while True:
        page, cursor = catalog.list_knowledge_bases(guest(*made[:3]), cursor=cursor, limit=2)
        seen += [base.id for base in page]
        if cursor is None:
            break
    assert seen == made[:3]
    assert catalog.list_knowledge_bases(guest())[0] == []
    assert len(catalog.list_knowledge_bases(LOCAL)[0]) == 4


@pytest.mark.parametrize("limit", [0, -1, 100_000])
def test_a_limit_out_of_range_is_refused(catalog: Catalog, limit: int) -> None:
    with pytest.raises(InvalidRequestError):
        catalog.list_knowledge_bases(LOCAL, limit=limit)


def test_a_cursor_of_no_list_is_refused(catalog: Catalog) -> None:
    for cursor in ("", "!", "bm90IGpzb24", "WyIyMDI0IiwgInkiXQ", "WzEsMl0", "\x00"):
        with pytest.raises(InvalidRequestError):
            catalog.list_knowledge_bases(LOCAL, cursor=cursor)


def test_a_source_is_made_once(catalog: Catalog) -> None:
    base = catalog.create_knowledge_base("a").id
    source = catalog.ensure_source(base, SourceKind.BULK, "files")
    assert catalog.ensure_source(base, SourceKind.BULK, "files") == source
    assert catalog.ensure_source(base, SourceKind.UPLOAD, "files").id != source.id
    with pytest.raises(NotFoundError):
        catalog.ensure_source(NOWHERE, SourceKind.BULK, "files")


def test_deleting_a_knowledge_base_hides_all_of_it_at_once_and_owes_the_purges(ingest: Ingest, outbox: Outbox) -> None:
    made = {ingest.ready(listed(f"file:///{n}")).document_id for n in range(3)}
    gone = ingest.catalog.tombstone(next(iter(made)))
    assert set(ingest.catalog.delete_knowledge_base(ingest.knowledge_base_id)) == made - {gone.id}
    assert {(entry.kind, entry.document_id) for entry in outbox.claim(9, 9)} == {("purge_document", id) for id in made}
    for look in (
        lambda: ingest.catalog.knowledge_base("kb"),
        lambda: ingest.catalog.document(next(iter(made)), LOCAL),
        lambda: ingest.catalog.delete_knowledge_base(ingest.knowledge_base_id),
        lambda: ingest.catalog.ensure_source(ingest.knowledge_base_id, SourceKind.BULK, "x"),
    ):
        with pytest.raises(NotFoundError):
            look()
    assert ingest.catalog.list_documents(ingest.knowledge_base_id, LOCAL) == ([], None)


def test_a_knowledge_base_with_a_live_claim_is_not_deleted(ingest: Ingest) -> None:
    done = ingest.ready(listed("file:///done"))
    ingest.must_claim(listed("file:///busy"))
    with pytest.raises(DocumentBusyError):
        ingest.catalog.delete_knowledge_base(ingest.knowledge_base_id)
    assert ingest.catalog.document(done.document_id, LOCAL).visible


def test_deleting_a_source_hides_its_documents_only_and_owes_their_purges(ingest: Ingest, outbox: Outbox) -> None:
    made = {ingest.ready(listed(f"file:///{n}")).document_id for n in range(2)}
    first = ingest.source_id
    other = ingest.catalog.ensure_source(ingest.knowledge_base_id, SourceKind.BULK, "other")
    ingest.source_id = other.id
    kept = ingest.ready(listed("file:///kept"))
    assert set(ingest.catalog.delete_source(first)) == made
    assert {(entry.kind, entry.document_id) for entry in outbox.claim(9, 9)} == {("purge_document", id) for id in made}
    assert ingest.catalog.document(kept.document_id, LOCAL).visible
    assert ingest.catalog.delete_source(first) == [], "again is harmless"
    with pytest.raises(NotFoundError):
        ingest.catalog.delete_source(NOWHERE)


def test_a_source_with_a_live_claim_is_not_deleted(ingest: Ingest) -> None:
    done = ingest.ready(listed("file:///done"))
    ingest.must_claim(listed("file:///busy"))
    with pytest.raises(DocumentBusyError):
        ingest.catalog.delete_source(ingest.source_id)
    assert ingest.catalog.document(done.document_id, LOCAL).visible


def test_a_source_is_found_by_id_and_by_name(ingest: Ingest) -> None:
    found = ingest.catalog.source(ingest.knowledge_base_id, "files")
    assert found == ingest.catalog.source(ingest.knowledge_base_id, ingest.source_id)
    assert found.id == ingest.source_id
    for unknown in ("nothing", NOWHERE, "\x00"):
        with pytest.raises(NotFoundError):
            ingest.catalog.source(ingest.knowledge_base_id, unknown)


# -- documents -------------------------------------------------------------------------------------------------------


def test_a_document_shows_its_facts_and_its_newest_version(ingest: Ingest) -> None:
    access = AccessAttributes(("g",), "d", 2)
    claim = ingest.ready(listed(access=access, metadata={"年": 1}))
    ingest.must_claim(listed(etag="2", access=access, metadata={"年": 1}))
    document = ingest.catalog.document(claim.document_id, LOCAL)
    assert (document.uri, document.filename, document.source_id) == ("file:///a.md", "a.md", ingest.source_id)
    assert (document.access, document.metadata) == (access, {"年": 1})
    assert (document.version, document.status, document.published_version) == (2, "PENDING", 1)


def test_what_may_not_be_read_is_not_found(ingest: Ingest) -> None:
    claim = ingest.ready(listed(access=AccessAttributes(("g",))))
    base = ingest.knowledge_base_id
    assert ingest.catalog.document(claim.document_id, guest(base, groups=frozenset("g")))
    for principal in (guest(base), guest(NOWHERE, groups=frozenset("g")), guest(groups=frozenset("g"))):
        with pytest.raises(NotFoundError):
            ingest.catalog.document(claim.document_id, principal)
        assert ingest.catalog.list_documents(base, principal) == ([], None)


@pytest.mark.parametrize("document_id", [NOWHERE, "x", "", "\x00", "'; DROP TABLE documents; --"])
def test_ids_that_name_nothing_are_not_found(catalog: Catalog, document_id: str) -> None:
    for look in (
        lambda: catalog.document(document_id, LOCAL),
        lambda: catalog.update_document(document_id, metadata={}),
        lambda: catalog.tombstone(document_id),
        lambda: catalog.asset(document_id, LOCAL),
        lambda: catalog.delete_knowledge_base(document_id),
    ):
        with pytest.raises(NotFoundError):
            look()


def test_documents_are_listed_by_status_and_page(ingest: Ingest) -> None:
    made = [ingest.ready(listed(f"file:///{n}")).document_id for n in range(5)]
    ingest.must_claim(listed("file:///1", etag="2"))
    ready, cursor = ingest.catalog.list_documents(ingest.knowledge_base_id, LOCAL, status=DocumentStatus.READY, limit=3)
    rest, end = ingest.catalog.list_documents(
        ingest.knowledge_base_id, LOCAL, status=DocumentStatus.READY, limit=3, cursor=cursor
    )
    assert [document.id for document in ready + rest] == [made[n] for n in (0, 2, 3, 4)]
    assert end is None
    pending, _ = ingest.catalog.list_documents(ingest.knowledge_base_id, LOCAL, status=DocumentStatus.PENDING)
    assert [document.id for document in pending] == [made[1]]


def test_a_change_of_access_is_one_transaction_with_its_debt_to_the_index(ingest: Ingest, outbox: Outbox) -> None:
    claim = ingest.ready()
    before = ingest.catalog.index_row_facts(claim.document_id)
    document = ingest.catalog.update_document(claim.document_id, access=AccessAttributes(("hr",), None, 1))
    after = ingest.catalog.index_row_facts(claim.document_id)
    assert before is not None and after is not None
    assert document.access_key == after[1] != before[1]
    assert after[2] == {}
    assert [entry.kind for entry in outbox.claim(9, 9)] == ["index_access"]
    with pytest.raises(NotFoundError):
        ingest.catalog.document(claim.document_id, guest(ingest.knowledge_base_id))


def test_metadata_is_replaced_and_a_change_to_the_same_owes_nothing(ingest: Ingest, outbox: Outbox) -> None:
    claim = ingest.ready(listed(metadata={"a": 1}))
    assert ingest.catalog.update_document(claim.document_id, metadata={"b": [1, None]}).metadata == {"b": [1, None]}
    ingest.catalog.update_document(claim.document_id, metadata={"b": [1, None]}, access=listed().access)
    assert outbox.pending(claim.document_id) == 1


def test_equal_attributes_share_one_access_key_inside_a_knowledge_base(ingest: Ingest) -> None:
    access = AccessAttributes(("g", "h"), "d", 1)
    keys = {
        ingest.catalog.document(ingest.ready(listed(f"file:///{n}", access=access)).document_id, LOCAL).access_key
        for n in range(2)
    }
    other = Ingest(ingest.catalog, ingest.ledger, "other")
    elsewhere = ingest.catalog.document(other.ready(listed(access=access)).document_id, LOCAL).access_key
    assert len(keys) == 1
    assert elsewhere not in keys


# -- deletion --------------------------------------------------------------------------------------------------------


def test_a_tombstoned_document_is_invisible_at_once(ingest: Ingest, outbox: Outbox) -> None:
    claim = ingest.ready()
    for _ in range(2):
        document = ingest.catalog.tombstone(claim.document_id)
        assert document.deleted_at is not None
        assert not document.visible
    with pytest.raises(NotFoundError):
        ingest.catalog.document(claim.document_id, LOCAL)
    with pytest.raises(NotFoundError):
        ingest.catalog.update_document(claim.document_id, metadata={})
    assert ingest.catalog.index_row_facts(claim.document_id) is None
    assert [(entry.kind, entry.payload) for entry in outbox.claim(9, 9)] == [("purge_document", {"max_version": 1})]


def test_a_document_under_a_live_claim_is_busy(ingest: Ingest) -> None:
    claim = ingest.must_claim()
    with pytest.raises(DocumentBusyError):
        ingest.catalog.tombstone(claim.document_id)
    ingest.ledger.release("worker-1")
    ingest.catalog.tombstone(claim.document_id)


def test_purging_leaves_no_fact(ingest: Ingest) -> None:
    claim = ingest.ready(listed(metadata={"secret": 1}))
    ingest.catalog.add_assets([asset(claim.document_id)])
    assert all(ingest.catalog.remains(claim.document_id)[table] for table in ("chunks", "parents", "document_assets"))
    ingest.catalog.tombstone(claim.document_id)
    for _ in range(2):
        ingest.catalog.purge_facts(claim.document_id)
    assert set(ingest.catalog.remains(claim.document_id).values()) == {0}
    bare = ingest.catalog.tombstone(claim.document_id)
    assert (bare.uri, bare.filename, bare.metadata) == ("", "", {})


def test_what_is_not_tombstoned_is_not_purged(ingest: Ingest) -> None:
    claim = ingest.ready()
    ingest.catalog.purge_facts(claim.document_id)
    assert ingest.catalog.document(claim.document_id, LOCAL).visible
    ingest.catalog.purge_facts(NOWHERE)


# -- assets ----------------------------------------------------------------------------------------------------------


def asset(document_id: str, version: int = 1, name: str = "picture") -> DocumentAsset:
    return DocumentAsset(
        id=ids.asset_id(document_id, name),
        document_id=document_id,
        version=version,
        object_key="key",
        media_type="image/png",
        sha256=name,
        size=3,
        width=1,
        height=2,
        caption="图",
        locator=SourceLocator(page=2),
    )


def test_assets_are_stored_once_per_version(ingest: Ingest) -> None:
    claim = ingest.must_claim()
    made = asset(claim.document_id)
    for _ in range(2):
        ingest.catalog.add_assets([made, asset(claim.document_id, name="other")])
    assert len(ingest.catalog.assets(claim.document_id)) == 2
    assert made in ingest.catalog.assets(claim.document_id)


def test_an_asset_is_shown_under_its_documents_rule_and_only_of_the_published_version(ingest: Ingest) -> None:
    file = listed(access=AccessAttributes(("g",)))
    claim = ingest.must_claim(file)
    made = asset(claim.document_id)
    ingest.catalog.add_assets([made])
    reader = guest(ingest.knowledge_base_id, groups=frozenset("g"))
    with pytest.raises(NotFoundError):
        ingest.catalog.asset(made.id, reader)
    ingest.complete(claim, ingest.snapshot(claim)[0])
    assert ingest.catalog.asset(made.id, reader) == made
    with pytest.raises(NotFoundError):
        ingest.catalog.asset(made.id, guest(ingest.knowledge_base_id))
    ingest.ready(listed(etag="2", access=file.access), sha256="other")
    with pytest.raises(NotFoundError):
        ingest.catalog.asset(made.id, reader)


def test_an_asset_of_a_version_that_is_gone_is_refused(ingest: Ingest) -> None:
    with pytest.raises(ClaimLostError):
        ingest.catalog.add_assets([asset(ingest.ready().document_id, version=2)])


# -- indexes ---------------------------------------------------------------------------------------------------------


def test_the_first_index_is_active_and_further_ones_are_being_built(catalog: Catalog) -> None:
    assert catalog.indexes() == []
    first, second = catalog.ensure_index("aaaa", 8), catalog.ensure_index("b/b", 16)
    assert (first.state, second.state) == ("active", "building")
    assert (first.collection, second.collection) == ("chunks_aaaa", "chunks_b_b")
    assert catalog.ensure_index("aaaa", 8) == first
    assert catalog.indexes() == [first, second]


def test_one_owner_at_a_time_holds_an_index(catalog: Catalog) -> None:
    record = catalog.ensure_index("leased", 8)
    assert catalog.lease_index(record.id, "first", 60.0) is None
    held = catalog.lease_index(record.id, "second", 60.0)
    assert held is not None and held[0] == "first" and 0 < held[1] <= 60.0
    assert catalog.lease_index(record.id, "first", 120.0) is None
    longer = catalog.lease_index(record.id, "second", 60.0)
    assert longer is not None and longer[1] > held[1], "the holder goes on"
    catalog.release_index(record.id, "second")
    assert catalog.lease_index(record.id, "second", 60.0) is not None, "only one's own can be given back"
    catalog.release_index(record.id, "first")
    assert catalog.lease_index(record.id, "second", 0.0) is None
    assert catalog.lease_index(record.id, "third", 1.0) is None, "what lapsed is free"
    with pytest.raises(NotFoundError):
        catalog.lease_index(1 << 30, "first", 1.0)


def test_of_many_that_want_an_index_at_the_same_moment_one_gets_it(catalog: Catalog) -> None:
    for number in range(5):
        record = catalog.ensure_index(f"leased-{number}", 8)
        with ThreadPoolExecutor(4) as threads:
            held = list(threads.map(lambda owner: catalog.lease_index(record.id, owner, 60.0), "abcd"))  # noqa: B023
        assert held.count(None) == 1
        assert len({owner for owner, _ in filter(None, held)}) == 1, "the others all hear of the same one"


def test_an_index_of_another_dimension_is_refused(catalog: Catalog) -> None:
    catalog.ensure_index("aaaa", 8)
    with pytest.raises(IndexMismatchError):
        catalog.ensure_index("aaaa", 9)


def test_an_index_lacks_what_was_published_into_another_one(ingest: Ingest) -> None:
    catalog = ingest.catalog
    ingest.catalog.ensure_index("aaaa", 8)
    first, second = ingest.ready(listed("file:///a")), ingest.ready(listed("file:///b"))
    ingest.snapshot(ingest.must_claim(listed("file:///unfinished")))
    new = catalog.ensure_index("bbbb", 8)
    assert catalog.count_missing(catalog.indexes()[0].id) == (0, 0)
    assert catalog.count_missing(new.id) == (2, 4)
    missing = catalog.missing_parts(new.id)
    assert [item.uri for item in missing if item.part.document_id == first.document_id] == ["file:///a"]
    assert [item.part for item in catalog.missing_parts(new.id, missing[0].part)] == [missing[1].part]
    catalog.tombstone(second.document_id)
    assert [item.part.document_id for item in catalog.missing_parts(new.id)] == [first.document_id]


def test_what_an_index_is_filled_with_counts_at_the_end_and_only_for_versions_that_queries_see(ingest: Ingest) -> None:
    catalog = ingest.catalog
    catalog.ensure_index("aaaa", 8)
    claims = [ingest.ready(listed(f"file:///{name}", metadata={"n": name})) for name in "abc"]
    new = catalog.ensure_index("bbbb", 8)
    parts = [item.part for item in catalog.missing_parts(new.id)]
    ingest.ready(listed("file:///b", etag="2"))
    catalog.tombstone(claims[2].document_id)
    with catalog.filling(new.id, parts) as facts:
        assert facts == {(claims[0].document_id, 1): catalog.index_row_facts(claims[0].document_id)}
        assert catalog.held_parts(new.id, parts) == set()
    assert {part.document_id for part in catalog.held_parts(new.id, parts)} == {claims[0].document_id}
    with contextlib.suppress(ZeroDivisionError), catalog.filling(new.id, [catalog.missing_parts(new.id)[0].part]):
        raise ZeroDivisionError
    assert catalog.count_missing(new.id)[0] == 1, "the new version of b"
    catalog.forget_parts(new.collection, claims[0].document_id, 1)
    assert catalog.count_missing(new.id)[0] == 2


def test_only_an_index_that_lacks_nothing_becomes_active_and_the_other_is_retired(ingest: Ingest) -> None:
    catalog = ingest.catalog
    old = catalog.ensure_index("aaaa", 8)
    ingest.ready()
    new = catalog.ensure_index("bbbb", 8)
    assert catalog.switch_index(new.id) == 1
    assert catalog.switch_index(new.id, lambda missing: None) == 1

    def fill(missing: Sequence[MissingPart]) -> None:
        with catalog.filling(new.id, [item.part for item in missing]):
            pass

    assert catalog.switch_index(new.id, fill) == 0
    assert [(found.id, found.state) for found in catalog.indexes()] == [(new.id, "active"), (old.id, "retired")]
    assert catalog.ensure_index("aaaa", 8).state == "retired"
    assert catalog.switch_index(new.id) == catalog.switch_index(old.id) == 0
    with pytest.raises(NotFoundError):
        catalog.switch_index(0)


def test_an_index_that_is_not_active_can_be_dropped_and_made_anew(ingest: Ingest) -> None:
    catalog = ingest.catalog
    active = catalog.ensure_index("aaaa", 8)
    ingest.ready()
    other = catalog.ensure_index("bbbb", 8)
    with pytest.raises(ConflictError):
        catalog.begin_drop(active.collection)
    with pytest.raises(NotFoundError):
        catalog.begin_drop("chunks_of_nobody")
    for _ in range(2):
        catalog.begin_drop(other.collection)
    for refused in (lambda: catalog.ensure_index("bbbb", 8), lambda: catalog.switch_index(other.id)):
        with pytest.raises(ConflictError):
            refused()
    catalog.finish_drop(other.collection)
    catalog.finish_drop(active.collection)
    assert catalog.indexes() == [active]
    assert catalog.ensure_index("bbbb", 16).state == "building"


# -- API keys --------------------------------------------------------------------------------------------------------


def test_a_key_resolves_to_its_principal(catalog: Catalog) -> None:
    assert not catalog.has_api_keys()
    base = catalog.create_knowledge_base("a").id
    principal = Principal("reader", frozenset({base}), frozenset({"g", "h"}), "d", 3)
    secret = catalog.create_api_key("reader", principal)
    everything = catalog.create_api_key("admin", Principal("admin", None, unrestricted=True))
    assert secret.startswith("rag_") and len(secret) > 40
    assert catalog.resolve_api_key(secret) == principal
    assert catalog.resolve_api_key(everything) == Principal("admin", None, unrestricted=True)
    assert catalog.has_api_keys()


@pytest.mark.parametrize("secret", ["", "rag_", "rag_wrong", "rag_\x00", "rag_\ud800", "x" * 100_000])
def test_a_wrong_key_is_no_caller(catalog: Catalog, secret: str) -> None:
    with pytest.raises(AuthenticationError):
        catalog.resolve_api_key(secret)


def test_a_key_name_is_taken_once(catalog: Catalog) -> None:
    catalog.create_api_key("a", LOCAL)
    with pytest.raises(ConflictError):
        catalog.create_api_key("a", LOCAL)


def test_a_revoked_key_is_refused_at_once_and_stays_listed(catalog: Catalog) -> None:
    reader = Principal("reader", frozenset(), frozenset({"g"}), "d", 2)
    secret, other = catalog.create_api_key("reader", reader), catalog.create_api_key("other", LOCAL)
    revoked = catalog.revoke_api_key("reader")
    with pytest.raises(AuthenticationError):
        catalog.resolve_api_key(secret)
    assert catalog.resolve_api_key(other).unrestricted
    assert [(key.name, key.revoked_at is not None) for key in catalog.api_keys()] == [
        ("reader", True),
        ("other", False),
    ]
    assert catalog.api_keys()[0].principal == reader
    assert catalog.revoke_api_key("reader") == revoked
    with pytest.raises(ConflictError):
        catalog.create_api_key("reader", LOCAL)
    with pytest.raises(NotFoundError):
        catalog.revoke_api_key("nobody")


def test_revoking_the_last_key_does_not_open_the_server(catalog: Catalog) -> None:
    catalog.create_api_key("only", LOCAL)
    catalog.revoke_api_key("only")
    assert catalog.has_api_keys()
