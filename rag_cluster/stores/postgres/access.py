"""The access rule in SQL, once (design section 4 "Access"); it means the same as `Principal.may_read`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rag_cluster.domain.access import AccessAttributes, Principal
from rag_cluster.stores.postgres.adapters import known_uuids
from rag_cluster.stores.postgres.database import Connection

GRANTED = """(
    b.deleted_at IS NULL
    AND (%(granted)s::uuid[] IS NULL OR b.id = ANY(%(granted)s::uuid[])))"""
"""Of a knowledge_bases row b: it is there and the principal may use it. Values: `principal_values`."""

READABLE = f"""({GRANTED} AND (%(unrestricted)s OR (
    coalesce(a.acl, b.default_acl) IS NOT NULL
    AND a.security_level <= %(security_level)s
    AND (cardinality(coalesce(a.acl, b.default_acl)) = 0 OR coalesce(a.acl, b.default_acl) && %(groups)s::text[])
    AND (a.department IS NULL OR a.department = %(department)s::text))))"""
"""Of an access_keys row a and its knowledge_bases row b: the principal may read documents of that key."""

READABLE_DOCUMENTS = f"""documents d
    JOIN access_keys a ON a.id = d.access_key
    JOIN knowledge_bases b ON b.id = d.knowledge_base_id AND d.deleted_at IS NULL AND {READABLE}"""
"""FROM clause of the documents d, tombstoned ones excepted, that the principal may read."""


SAME_ACCESS = """(
    a.knowledge_base_id = %(knowledge_base)s AND a.security_level = %(level)s
    AND a.acl IS NOT DISTINCT FROM %(acl)s::text[] AND a.department IS NOT DISTINCT FROM %(department)s::text)"""
"""Of an access_keys row a: it stands for these attributes. Values: `access_values`."""


def access_values(knowledge_base_id: str, access: AccessAttributes) -> dict[str, Any]:
    """The bound values of `SAME_ACCESS`, and of a new row."""
    return {
        "knowledge_base": knowledge_base_id,
        "level": access.security_level,
        "acl": None if access.acl is None else list(access.acl),
        "department": access.department,
    }


def principal_values(principal: Principal) -> dict[str, Any]:
    """The bound values of `GRANTED` and `READABLE`."""
    granted = principal.knowledge_bases
    return {
        "granted": known_uuids(None if granted is None else tuple(granted)),
        "unrestricted": principal.unrestricted,
        "security_level": principal.security_level,
        "groups": sorted(principal.groups),
        "department": principal.department,
    }


def attributes(row: Mapping[str, Any]) -> AccessAttributes:
    """From columns acl, department, security_level."""
    acl = row["acl"]
    return AccessAttributes(None if acl is None else tuple(acl), row["department"], row["security_level"])


def intern_access(connection: Connection, knowledge_base_id: str, access: AccessAttributes) -> int:
    """The access_key of these attributes in this knowledge base, made when it is new. Safe under concurrency."""
    values = access_values(knowledge_base_id, access)
    find = f"SELECT a.id FROM access_keys a WHERE {SAME_ACCESS}"  # noqa: S608
    row = connection.execute(find, values).fetchone()
    if row is None:
        connection.execute(
            """INSERT INTO access_keys (knowledge_base_id, security_level, acl, department)
               VALUES (%(knowledge_base)s, %(level)s, %(acl)s, %(department)s) ON CONFLICT DO NOTHING""",
            values,
        )
        row = connection.execute(find, values).fetchone()
    assert row is not None, "the row was just there, and rows never go"
    return int(row["id"])
