"""Contract of the Admissions port."""

from __future__ import annotations

import pytest

from rag_cluster.domain.access import Principal
from rag_cluster.domain.ports import Admission, Admissions, Catalog
from rag_cluster.stores.postgres.admissions import PostgresAdmissions
from rag_cluster.stores.postgres.database import Database


@pytest.fixture
def admissions(async_database: Database) -> Admissions:
    return PostgresAdmissions(async_database)


async def test_nobody_and_nothing_are_known_at_first(admissions: Admissions) -> None:
    assert await admissions.admission(None, None) == Admission(None, False, None)
    assert await admissions.admission("rag_none", "no such base") == Admission(None, False, None)


async def test_the_keys_principal_and_the_named_base_are_as_they_are_now(
    admissions: Admissions, catalog: Catalog
) -> None:
    base = catalog.create_knowledge_base("handbook", default_acl=("staff",))
    looks_alike = catalog.create_knowledge_base(base.id, default_acl=())
    principal = Principal("reader", frozenset({base.id}), frozenset({"staff", "nurses"}), "care", 2)
    secret = catalog.create_api_key("reader", principal)
    assert await admissions.admission(secret, "handbook") == Admission(principal, True, base)
    assert (await admissions.admission(secret, base.id.upper())).knowledge_base == base
    assert (await admissions.admission(None, base.id)).knowledge_base == base, "an id wins over a name that looks alike"
    assert (await admissions.admission(None, looks_alike.id)).knowledge_base == looks_alike
    assert (await admissions.admission(secret.removeprefix("rag_"), None)).principal is None
    catalog.revoke_api_key("reader")
    catalog.delete_knowledge_base(base.id)
    assert await admissions.admission(secret, "handbook") == Admission(None, True, None)
