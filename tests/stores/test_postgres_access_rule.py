"""The access rule in SQL means what `Principal.may_read` means."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from rag_cluster.domain.access import AccessAttributes, Principal
from rag_cluster.stores.postgres.access import READABLE, principal_values
from rag_cluster.stores.postgres.database import Database

BASES = ("00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002")
# Few values, so that they meet; some that SQL could take for something else.
names = st.sampled_from(["a", "b", "人事", "", "NULL", "{a}", 'q"\\,'])
acls = st.none() | st.lists(names, max_size=3).map(tuple)
levels = st.integers(0, 9)
attributes = st.builds(AccessAttributes, acl=acls, department=st.none() | names, security_level=levels)
principals = st.builds(
    Principal,
    name=st.just("p"),
    knowledge_bases=st.none() | st.frozensets(st.sampled_from(BASES)),
    groups=st.frozensets(names, max_size=3),
    department=st.none() | names,
    security_level=levels,
    unrestricted=st.booleans(),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    principal=principals, default_acl=acls, rules=st.lists(attributes, min_size=1, max_size=8), deleted=st.booleans()
)
def test_sql_and_the_domain_agree(
    database: Database,
    principal: Principal,
    default_acl: tuple[str, ...] | None,
    rules: list[AccessAttributes],
    deleted: bool,
) -> None:
    rows = [
        {"n": n, "acl": rule.acl, "department": rule.department, "security_level": rule.security_level}
        for n, rule in enumerate(rules)
    ]
    base = {"id": BASES[0], "default_acl": default_acl, "deleted_at": "2024-01-01" if deleted else None}
    with database.connection() as connection:
        found = connection.execute(
            f"""SELECT a.n
                FROM jsonb_to_recordset(%(rows)s) AS a (n int, acl text[], department text, security_level smallint),
                  jsonb_to_record(%(base)s) AS b (id uuid, default_acl text[], deleted_at timestamptz)
                WHERE {READABLE}""",
            principal_values(principal) | {"rows": Jsonb(json.loads(json.dumps(rows))), "base": Jsonb(base)},
        ).fetchall()
    usable = principal.may_use(BASES[0]) and not deleted
    expected = {n for n, rule in enumerate(rules) if usable and principal.may_read(rule, default_acl)}
    assert {row["n"] for row in found} == expected
