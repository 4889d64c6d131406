"""Contract of the Evidence port."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rag_cluster.domain import ids
from rag_cluster.domain.access import LOCAL, AccessAttributes, Principal
from rag_cluster.domain.documents import Claim, DocumentAsset, SourceKind
from rag_cluster.domain.filters import parse_filter
from rag_cluster.domain.ports import Catalog, Evidence, Ledger
from rag_cluster.domain.retrieval import AssetReference, EvidenceRow, Hit, RetrievalOptions
from rag_cluster.errors import NotFoundError
from rag_cluster.stores.postgres.database import Database
from tests.contracts.ledger_steps import Ingest, chunk, listed

NOWHERE = "00000000-0000-0000-0000-000000000000"
AGENT = "aaaaaaaa-0000-0000-0000-000000000000"


@pytest.fixture
def ingest(catalog: Catalog, ledger: Ledger) -> Ingest:
    return Ingest(catalog, ledger)


def member(ingest: Ingest, *groups: str, **values: Any) -> Principal:
    return Principal("member", frozenset({ingest.knowledge_base_id}), frozenset(groups), **values)


def hits(ingest: Ingest, *claims: Claim, version: int | None = None) -> list[Hit]:
    """What an index would return for the first chunk of each."""
    found = []
    for claim in claims:
        at = dataclasses.replace(claim, version=version or claim.version)
        found.append(Hit(chunk(at, ingest.knowledge_base_id, 0).id, at.document_id, at.version, 1.0))
    return found


async def shown(
    evidence: Evidence, ingest: Ingest, *claims: Claim, principal: Principal = LOCAL, **options: Any
) -> set[str]:
    """Documents of the claims' hits that pass the second check."""
    rows = await evidence.rows(principal, ingest.knowledge_base_id, hits(ingest, *claims), RetrievalOptions(**options))
    return {row.chunk.document_id for row in rows.values()}


# Agents, their mounts and switched-off sources have no port yet: they are made as a person with psql would.


def mount(database: Database, ingest: Ingest, mounts: dict[str, int], *, hide: bool = False) -> str:
    with database.transaction() as connection:
        connection.execute(
            "INSERT INTO agents (id, knowledge_base_id, name, hide_source_filename) VALUES (%s, %s, 'agent', %s)",
            (AGENT, ingest.knowledge_base_id, hide),
        )
        for source, priority in mounts.items():
            connection.execute("INSERT INTO source_mounts VALUES (%s, %s, %s)", (AGENT, source, priority))
    return AGENT


def disable(database: Database, source_id: str) -> None:
    with database.connection() as connection:
        connection.execute("UPDATE sources SET enabled = false WHERE id = %s", (source_id,))


def ready_in(ingest: Ingest, source_id: str, uri: str) -> Claim:
    first, ingest.source_id = ingest.source_id, source_id
    try:
        return ingest.ready(listed(uri))
    finally:
        ingest.source_id = first


# -- scope -----------------------------------------------------------------------------------------------------------


async def test_the_scope_of_an_empty_knowledge_base_is_empty(evidence: Evidence, ingest: Ingest) -> None:
    scope = await evidence.scope(LOCAL, ingest.knowledge_base_id, RetrievalOptions())
    assert scope.filter.empty
    assert (scope.index, scope.visible_documents) == (None, 0)


async def test_the_scope_names_the_active_index_and_the_visible_documents(evidence: Evidence, ingest: Ingest) -> None:
    index = ingest.catalog.ensure_index("abcd", 8)
    ingest.catalog.ensure_index("efgh", 8)
    claims = [ingest.ready(listed(f"file:///{n}")) for n in range(2)]
    ingest.must_claim(listed("file:///unfinished"))
    deleted = ingest.ready(listed("file:///deleted"))
    ingest.catalog.tombstone(deleted.document_id)
    scope = await evidence.scope(LOCAL, ingest.knowledge_base_id, RetrievalOptions())
    assert scope.index == index
    assert scope.visible_documents == 2
    assert set(scope.filter.document_ids or ()) == {claim.document_id for claim in claims}
    assert (scope.filter.source_ids, scope.filter.metadata) == (None, None)
    assert len(scope.filter.access_keys) == 1
    assert (scope.mounts, scope.correction_source_ids) == ({}, ())


async def test_beside_a_filter_only_a_whitelist_is_pushed_down(evidence: Evidence, ingest: Ingest) -> None:
    one, two = (ingest.ready(listed(f"file:///{n}")).document_id for n in range(2))
    for whitelist, pushed in ((None, None), ((one, two), {one, two}), ((one, NOWHERE), {one})):
        options = RetrievalOptions(filters={"k": 1}, document_ids=whitelist)
        scope = await evidence.scope(LOCAL, ingest.knowledge_base_id, options)
        assert (scope.filter.metadata, len(scope.filter.access_keys)) == (parse_filter({"k": 1}), 1)
        found = scope.filter.document_ids
        assert (found if found is None else set(found)) == pushed
        assert scope.visible_documents == (2 if pushed is None else len(pushed))
    nobody = member(ingest, security_level=-1)
    assert (await evidence.scope(nobody, ingest.knowledge_base_id, RetrievalOptions(filters={"k": 1}))).filter.empty


async def test_the_scope_names_the_index_of_the_caller_s_embedder_once_it_is_retired_and_never_a_building_one(
    evidence: Evidence, ingest: Ingest
) -> None:
    first, second = ingest.catalog.ensure_index("abcd", 8), ingest.catalog.ensure_index("efgh", 8)

    async def named(embedder: str | None) -> tuple[int, str]:
        scope = await evidence.scope(LOCAL, ingest.knowledge_base_id, RetrievalOptions(), embedder_fingerprint=embedder)
        assert scope.index is not None
        return scope.index.id, scope.index.state

    assert {await named(one) for one in ("abcd", "efgh", "other", None)} == {(first.id, "active")}
    assert ingest.catalog.switch_index(second.id) == 0
    assert await named("abcd") == (first.id, "retired")
    assert {await named(one) for one in ("efgh", "other", None)} == {(second.id, "active")}
    ingest.catalog.begin_drop(first.collection)
    assert await named("abcd") == (second.id, "active")


async def test_a_principal_gets_the_keys_that_it_may_read(evidence: Evidence, ingest: Ingest) -> None:
    rules = {
        "open": AccessAttributes(()),
        "default": AccessAttributes(None),
        "group": AccessAttributes(("g", "h")),
        "level": AccessAttributes((), None, 5),
        "department": AccessAttributes((), "d"),
    }
    keys = {}
    for name, access in rules.items():
        claim = ingest.ready(listed(f"file:///{name}", access=access))
        keys[name] = ingest.catalog.document(claim.document_id, LOCAL).access_key

    async def readable(principal: Principal) -> set[str]:
        scope = await evidence.scope(principal, ingest.knowledge_base_id, RetrievalOptions())
        assert scope.visible_documents == len(scope.filter.access_keys)
        return {name for name, key in keys.items() if key in scope.filter.access_keys}

    assert await readable(member(ingest)) == {"open"}
    assert await readable(member(ingest, "h", "z")) == {"open", "group"}
    assert await readable(member(ingest, security_level=5)) == {"open", "level"}
    assert await readable(member(ingest, department="d")) == {"open", "department"}
    assert await readable(member(ingest, unrestricted=True)) == set(rules)
    ingest.catalog.update_knowledge_base(ingest.knowledge_base_id, default_acl=("x",))
    assert await readable(member(ingest, "x")) == {"open", "default"}
    ingest.catalog.update_knowledge_base(ingest.knowledge_base_id, close=True)
    assert await readable(member(ingest, "x")) == {"open"}


@pytest.mark.parametrize("knowledge_base_id", [NOWHERE, "no-uuid", "\x00"])
async def test_what_is_not_granted_is_an_empty_filter(
    evidence: Evidence, ingest: Ingest, knowledge_base_id: str
) -> None:
    ingest.ready()
    stranger = Principal("x", frozenset({knowledge_base_id}), unrestricted=True)
    for base in (ingest.knowledge_base_id, knowledge_base_id):
        scope = await evidence.scope(stranger, base, RetrievalOptions(agent_id=NOWHERE))
        assert scope.filter.empty
        assert scope.visible_documents == 0


async def test_a_deleted_knowledge_base_is_an_empty_filter(evidence: Evidence, ingest: Ingest) -> None:
    ingest.ready()
    ingest.catalog.delete_knowledge_base(ingest.knowledge_base_id)
    scope = await evidence.scope(LOCAL, ingest.knowledge_base_id, RetrievalOptions())
    assert scope.filter.empty


async def test_a_whitelist_is_cut_to_what_is_visible(evidence: Evidence, ingest: Ingest) -> None:
    open_claim = ingest.ready(listed("file:///open"))
    hidden = ingest.ready(listed("file:///hidden", access=AccessAttributes(("g",))))
    wanted = (open_claim.document_id.upper(), hidden.document_id, NOWHERE, "no-uuid")
    scope = await evidence.scope(member(ingest), ingest.knowledge_base_id, RetrievalOptions(document_ids=wanted))
    assert scope.filter.document_ids == (open_claim.document_id,)
    nothing = await evidence.scope(LOCAL, ingest.knowledge_base_id, RetrievalOptions(document_ids=()))
    assert nothing.filter.document_ids == ()
    assert nothing.filter.empty


async def test_disabled_and_unwanted_sources_are_left_out(
    evidence: Evidence, ingest: Ingest, database: Database
) -> None:
    other = ingest.catalog.ensure_source(ingest.knowledge_base_id, SourceKind.BULK, "other").id
    ingest.ready()
    ready_in(ingest, other, "file:///other")
    scope = await evidence.scope(LOCAL, ingest.knowledge_base_id, RetrievalOptions(source_ids=(other, "x")))
    assert (scope.filter.source_ids, scope.visible_documents) == ((other,), 1)
    disable(database, other)
    scope = await evidence.scope(LOCAL, ingest.knowledge_base_id, RetrievalOptions())
    assert (scope.filter.source_ids, scope.visible_documents) == ((ingest.source_id,), 1)
    scope = await evidence.scope(LOCAL, ingest.knowledge_base_id, RetrievalOptions(source_ids=(other,)))
    assert scope.filter.empty


async def test_an_agent_searches_its_mounts_only(evidence: Evidence, ingest: Ingest, database: Database) -> None:
    correction = ingest.catalog.ensure_source(ingest.knowledge_base_id, SourceKind.MANAGED_CORRECTION, "fix").id
    unmounted = ingest.catalog.ensure_source(ingest.knowledge_base_id, SourceKind.MANAGED_CORRECTION, "no").id
    ready_in(ingest, unmounted, "file:///unmounted")
    agent = mount(database, ingest, {ingest.source_id: 7, correction: 1}, hide=True)
    scope = await evidence.scope(LOCAL, ingest.knowledge_base_id, RetrievalOptions(agent_id=agent))
    assert scope.mounts == {ingest.source_id: 7, correction: 1}
    assert set(scope.filter.source_ids or ()) == set(scope.mounts)
    assert scope.correction_source_ids == (correction,)
    assert scope.hide_source_filename
    assert scope.visible_documents == 0
    scope = await evidence.scope(
        LOCAL, ingest.knowledge_base_id, RetrievalOptions(agent_id=agent, source_ids=(correction, unmounted))
    )
    assert scope.filter.source_ids == (correction,)


async def test_an_agent_without_mounts_finds_nothing(evidence: Evidence, ingest: Ingest, database: Database) -> None:
    claim = ingest.ready()
    agent = mount(database, ingest, {})
    scope = await evidence.scope(LOCAL, ingest.knowledge_base_id, RetrievalOptions(agent_id=agent))
    assert scope.filter.source_ids == ()
    assert await shown(evidence, ingest, claim, agent_id=agent) == set()


async def test_an_unknown_agent_is_not_found(evidence: Evidence, ingest: Ingest) -> None:
    for agent in (NOWHERE, "no-uuid"):
        with pytest.raises(NotFoundError):
            await evidence.scope(LOCAL, ingest.knowledge_base_id, RetrievalOptions(agent_id=agent))


async def test_more_than_a_thousand_documents_are_not_pushed_down(
    evidence: Evidence, ingest: Ingest, database: Database
) -> None:
    document = ingest.catalog.document(ingest.ready().document_id, LOCAL)
    copies = """INSERT INTO documents (id, knowledge_base_id, source_id, uri, filename, access_key, published_version)
                SELECT gen_random_uuid(), knowledge_base_id, source_id, uri, filename, access_key, 1
                FROM documents, generate_series(1, %s) WHERE id = %s"""
    with database.connection() as connection:
        connection.execute(copies, (999, document.id))
    scope = await evidence.scope(LOCAL, ingest.knowledge_base_id, RetrievalOptions())
    assert (len(scope.filter.document_ids or ()), scope.visible_documents) == (1000, 1000)
    with database.connection() as connection:
        connection.execute(copies, (500, document.id))
    scope = await evidence.scope(LOCAL, ingest.knowledge_base_id, RetrievalOptions())
    assert (scope.filter.document_ids, scope.visible_documents) == (None, 1001)
    assert not scope.filter.empty


# -- rows ------------------------------------------------------------------------------------------------------------


async def test_a_hit_comes_back_with_everything_that_a_result_needs(evidence: Evidence, ingest: Ingest) -> None:
    file = listed(metadata={"年": 2024})
    document_id = ids.bulk_document_id(ingest.knowledge_base_id, file.uri)
    pictures = [ids.asset_id(document_id, name) for name in ("two", "one")]
    claim = ingest.must_claim(file)
    ingest.catalog.add_assets(
        [DocumentAsset(picture, document_id, 1, "key", "image/png", "sha", 1, caption="图") for picture in pictures]
    )
    (part,) = ingest.snapshot(claim)
    ingest.complete(claim, part, "正文", asset_ids=tuple(pictures))
    rows = await evidence.rows(LOCAL, ingest.knowledge_base_id, written(ingest, claim, "正文"), RetrievalOptions())
    (row,) = rows.values()
    expected = chunk(claim, ingest.knowledge_base_id, 0, "正文", asset_ids=tuple(pictures))
    assert rows == {expected.id: row}
    assert row.chunk == expected
    assert row.parent is not None and row.parent.text == "正文 parent 0" and row.parent.id == expected.parent_id
    assert dataclasses.replace(row, chunk=expected, parent=None) == EvidenceRow(
        chunk=expected,
        parent=None,
        filename="a.md",
        uri="file:///a.md",
        source_id=ingest.source_id,
        source_kind=SourceKind.BULK,
        source_name="files",
        source_priority=0,
        assets=tuple(AssetReference(picture, "image/png", "图") for picture in pictures),
        document_metadata={"年": 2024},
    )


def written(ingest: Ingest, claim: Claim, text: str) -> list[Hit]:
    made = chunk(claim, ingest.knowledge_base_id, 0, text)
    return [Hit(made.id, made.document_id, made.version, 1.0)]


async def test_only_the_published_version_of_a_visible_document_passes(evidence: Evidence, ingest: Ingest) -> None:
    published = ingest.ready(listed("file:///published"))
    newer = ingest.must_claim(listed("file:///published", etag="2"))
    first, _ = ingest.snapshot(newer, count=2)
    ingest.complete(newer, first)
    deleted = ingest.ready(listed("file:///deleted"))
    ingest.catalog.tombstone(deleted.document_id)
    unfinished = ingest.must_claim(listed("file:///unfinished"))
    ingest.complete(unfinished, ingest.snapshot(unfinished, count=2)[0])
    found = await evidence.rows(
        LOCAL,
        ingest.knowledge_base_id,
        hits(ingest, published, newer, deleted, unfinished),
        RetrievalOptions(),
    )
    assert [(row.chunk.document_id, row.chunk.version) for row in found.values()] == [(published.document_id, 1)]


async def test_what_was_published_or_deleted_after_a_look_is_told(
    evidence: Evidence, ingest: Ingest, database: Database
) -> None:
    still, changing, doomed = (ingest.ready(listed(f"file:///{name}")) for name in ("still", "changing", "doomed"))
    everything = [claim.document_id for claim in (still, changing, doomed)]

    async def taken() -> str:
        return (await evidence.scope(LOCAL, ingest.knowledge_base_id, RetrievalOptions())).taken

    first = await taken()
    assert await evidence.changed_since(first, everything) is None
    ingest.ready(listed("file:///changing", etag="2"), sha256="other")
    second = await evidence.changed_since(first, everything)
    assert second is not None
    assert await evidence.changed_since(first, [still.document_id]) is None
    assert await evidence.changed_since(second, everything) is None
    ingest.catalog.tombstone(doomed.document_id)
    assert await evidence.changed_since(second, everything) is not None
    assert await evidence.changed_since(second, ["no-uuid"]) is None


async def test_what_was_not_yet_committed_at_a_look_is_told_once_it_is(
    evidence: Evidence, ingest: Ingest, database: Database
) -> None:
    claim = ingest.ready()
    with database.transaction() as connection:
        connection.execute("UPDATE documents SET updated_at = now() WHERE id = %s", (claim.document_id,))
        ingest.ready(listed("file:///later"))  # a newer transaction has ended already
        look = (await evidence.scope(LOCAL, ingest.knowledge_base_id, RetrievalOptions())).taken
        assert await evidence.changed_since(look, [claim.document_id]) is None
    assert await evidence.changed_since(look, [claim.document_id]) is not None


async def test_an_access_change_takes_effect_in_the_next_statement(evidence: Evidence, ingest: Ingest) -> None:
    claim = ingest.ready()
    reader = member(ingest)
    assert await shown(evidence, ingest, claim, principal=reader)
    ingest.catalog.update_document(claim.document_id, access=AccessAttributes(("hr",)))
    assert not await shown(evidence, ingest, claim, principal=reader)
    assert await shown(evidence, ingest, claim, principal=member(ingest, "hr"))


async def test_hits_of_another_knowledge_base_do_not_pass(evidence: Evidence, ingest: Ingest) -> None:
    claim = ingest.ready()
    other = Ingest(ingest.catalog, ingest.ledger, "other")
    rows = await evidence.rows(LOCAL, other.knowledge_base_id, hits(ingest, claim), RetrievalOptions())
    assert rows == {}


async def test_the_options_are_enforced_again(evidence: Evidence, ingest: Ingest, database: Database) -> None:
    claim = ingest.ready()
    other = ingest.catalog.ensure_source(ingest.knowledge_base_id, SourceKind.BULK, "other").id
    elsewhere = ready_in(ingest, other, "file:///other")
    both = {claim.document_id, elsewhere.document_id}
    assert await shown(evidence, ingest, claim, elsewhere) == both
    assert await shown(evidence, ingest, claim, elsewhere, source_ids=(other,)) == {elsewhere.document_id}
    assert await shown(evidence, ingest, claim, elsewhere, document_ids=(claim.document_id,)) == {claim.document_id}
    agent = mount(database, ingest, {ingest.source_id: 5})
    assert await shown(evidence, ingest, claim, elsewhere, agent_id=agent) == {claim.document_id}
    rows = await evidence.rows(LOCAL, ingest.knowledge_base_id, hits(ingest, claim), RetrievalOptions(agent_id=agent))
    assert [row.source_priority for row in rows.values()] == [5]
    disable(database, other)
    assert await shown(evidence, ingest, claim, elsewhere) == {claim.document_id}


@pytest.mark.parametrize(
    ("filters", "passes"),
    [
        ({}, True),
        ({"year": 2024}, True),
        ({"year": 2024, "lang": "中文"}, True),
        ({"year": 2024.0}, True),
        ({"flag": True}, True),
        ({"year": [2023, 2024]}, True),
        ({"field": "tags", "operator": "contains", "value": "b"}, True),
        ({"field": "nothing", "operator": "exists", "value": False}, True),
        ({"not": {"field": "year", "operator": "lt", "value": 2000}}, True),
        ({"field": "content_types", "operator": "exists", "scope": "chunk"}, True),
        ({"not": {"absent": 1}}, False),
        ({"not": {"year": "2024"}}, False),
        ({"not": {"nothing": 1}}, False),
        ({"year": 2025}, False),
        ({"year": "2024"}, False),
        ({"flag": "true"}, False),
        ({"flag": 1}, False),
        ({"absent": ""}, False),
        ({"tags": ["a", "b"]}, False),
        ({"year": 2024, "absent": 1}, False),
        ({"it's \"quoted\\": "x"}, False),
    ],
)
async def test_a_filter_is_false_on_an_absent_field_and_on_another_type_also_under_not(
    evidence: Evidence, ingest: Ingest, filters: dict, passes: bool
) -> None:
    metadata = {"year": 2024, "lang": "中文", "flag": True, "nothing": None, "tags": ["a", "b"]}
    claim = ingest.ready(listed(metadata=metadata))
    assert bool(await shown(evidence, ingest, claim, filters=filters)) is passes


async def test_hits_that_name_nothing_are_dropped(evidence: Evidence, ingest: Ingest) -> None:
    for hit_list in ([], [Hit("no-uuid", "x", 1, 0.0)], [Hit(NOWHERE, NOWHERE, 1, 0.0)]):
        assert await evidence.rows(LOCAL, ingest.knowledge_base_id, hit_list, RetrievalOptions()) == {}
