"""API keys and the principals that they stand for: the part of `PostgresCatalog` about callers."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import psycopg

from rag_cluster.domain.access import LOCAL, ApiKey, Principal
from rag_cluster.errors import AuthenticationError, ConflictError, NotFoundError
from rag_cluster.stores.postgres.adapters import as_uuid
from rag_cluster.stores.postgres.database import Database

_PREFIX = "rag_"
_SECRET_BYTES = 32


class ApiKeyCatalog:
    """`Catalog`'s methods on API keys. Only a SHA-256 is stored: the secrets are random, so no slow hash is needed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create_api_key(self, name: str, principal: Principal) -> str:
        """The secret, shown once; only its hash is stored. The key's principal is called name. ConflictError."""
        if name == LOCAL.name:  # whose chat sessions would be the key's
            raise ConflictError(f"the name {name!r} is that of callers without a key")
        secret = _PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        granted = principal.knowledge_bases
        values = {
            "id": str(uuid4()),
            "name": name,
            "sha256": secret_digest(secret),
            "granted": None if granted is None else sorted(as_uuid(key, "knowledge base") for key in granted),
            "groups": sorted(principal.groups),
            "department": principal.department,
            "security_level": principal.security_level,
            "unrestricted": principal.unrestricted,
        }
        with self._database.connection() as connection:
            try:
                connection.execute(
                    """INSERT INTO api_keys (id, name, secret_sha256, knowledge_bases, groups, department,
                         security_level, unrestricted)
                       VALUES (%(id)s, %(name)s, %(sha256)s, %(granted)s::uuid[], %(groups)s, %(department)s,
                         %(security_level)s, %(unrestricted)s)""",
                    values,
                )
            except psycopg.errors.UniqueViolation:
                raise ConflictError(f"an API key named {name[:200]!r} exists already") from None
        return secret

    def resolve_api_key(self, secret: str) -> Principal:
        """AuthenticationError."""
        row = None
        if (digest := secret_digest(secret)) is not None:
            with self._database.connection() as connection:
                row = connection.execute(
                    "SELECT * FROM api_keys WHERE secret_sha256 = %s AND revoked_at IS NULL", (digest,)
                ).fetchone()
        if row is None:
            raise AuthenticationError("the API key is not valid")
        return key_principal(row)

    def has_api_keys(self) -> bool:
        """Whether a key was ever made: revoking the last one does not open the server to callers without any."""
        with self._database.connection() as connection:
            row = connection.execute("SELECT EXISTS (SELECT 1 FROM api_keys) AS found").fetchone()
        return bool(row and row["found"])

    def api_keys(self) -> list[ApiKey]:
        """All, revoked ones included, oldest first."""
        with self._database.connection() as connection:
            found = connection.execute("SELECT * FROM api_keys ORDER BY created_at, name").fetchall()
        return [_api_key(row) for row in found]

    def revoke_api_key(self, name: str) -> ApiKey:
        """Refused from the next request on; again is harmless. Its name stays taken, as its sessions keep it.
        NotFoundError."""
        with self._database.connection() as connection:
            row = connection.execute(
                "UPDATE api_keys SET revoked_at = coalesce(revoked_at, now()) WHERE name = %s RETURNING *", (name,)
            ).fetchone()
        if row is None:
            raise NotFoundError(f"no API key named {name[:200]!r}")
        return _api_key(row)


def _api_key(row: Mapping[str, Any]) -> ApiKey:
    return ApiKey(row["name"], key_principal(row), row["created_at"], row["revoked_at"])


def key_principal(row: Mapping[str, Any]) -> Principal:
    """Whom a row of api_keys stands for."""
    granted = row["knowledge_bases"]
    return Principal(
        name=row["name"],
        knowledge_bases=None if granted is None else frozenset(granted),
        groups=frozenset(row["groups"]),
        department=row["department"],
        security_level=row["security_level"],
        unrestricted=row["unrestricted"],
    )


def secret_digest(secret: str) -> str | None:
    """What is stored of a secret; None for what cannot be one."""
    if not secret.startswith(_PREFIX):
        return None
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()
