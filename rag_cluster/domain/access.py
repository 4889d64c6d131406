"""Who may read what (design section 4 "Access", seed 003).

readable = knowledge base granted AND security_level <= the principal's AND (acl empty or shares a group)
AND (department null or the principal's). acl None follows the knowledge base's default_acl; a default_acl of None is
closed: then only an unrestricted principal reads the document.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rag_cluster.domain.filters import Filter
from rag_cluster.domain.plain_values import check_text
from rag_cluster.errors import InvalidRequestError

MAX_NAME = 200
"""Characters of a group's or a department's name."""
MAX_ACL_BYTES = 1800
"""PostgreSQL's unique index on access attributes holds 2,704 bytes, of which a department may take 800."""


@dataclass(frozen=True, slots=True)
class AccessAttributes:
    """Access facts of a document. Distinct (security_level, acl, department) are interned as one access_key."""

    acl: tuple[str, ...] | None = None
    """Group names, sorted. None: the knowledge base's default. (): everyone to whom the knowledge base is granted."""
    department: str | None = None
    security_level: int = 0

    def __post_init__(self) -> None:
        if self.acl is not None:
            object.__setattr__(self, "acl", tuple(sorted(set(self.acl))))
        if not 0 <= self.security_level <= 9:
            raise ValueError(f"security_level must be 0-9, not {self.security_level}")


def stated_access(
    acl: Sequence[str] | None, department: str | None = None, security_level: int = 0
) -> AccessAttributes:
    """The attributes as a person states them, outside HTTP. InvalidRequestError for what no document can have, as the
    empty name of a group: whoever wrote `--acl "$GROUP"` did not mean that nobody may read."""
    groups = None if acl is None else [_name("a group", group) for group in acl]
    if sum(len(group.encode()) + 8 for group in groups or ()) > MAX_ACL_BYTES:
        raise InvalidRequestError(f"The groups together must not be longer than {MAX_ACL_BYTES:,} bytes.")
    if not 0 <= security_level <= 9:
        raise InvalidRequestError(f"security_level is 0 to 9, not {security_level}.")
    named = None if department is None else _name("a department", department)
    return AccessAttributes(None if groups is None else tuple(groups), named, security_level)


def _name(what: str, text: str) -> str:
    name = text.strip()
    if not 1 <= len(name) <= MAX_NAME:
        raise InvalidRequestError(f"The name of {what} has 1 to {MAX_NAME} characters, not {len(name)}.")
    try:
        return check_text(name)
    except ValueError as error:
        raise InvalidRequestError(f"The name of {what} {error}.") from None


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller, as resolved from an API key, or `LOCAL` when the server has none and listens on 127.0.0.1."""

    name: str
    knowledge_bases: frozenset[str] | None = frozenset()
    """Granted knowledge base ids; None grants all."""
    groups: frozenset[str] = frozenset()
    department: str | None = None
    security_level: int = 0
    unrestricted: bool = False
    """Reads every document of the granted knowledge bases and may administer them."""

    def may_use(self, knowledge_base_id: str) -> bool:
        """Whether the knowledge base is granted."""
        return self.knowledge_bases is None or knowledge_base_id in self.knowledge_bases

    def may_read(self, attributes: AccessAttributes, default_acl: tuple[str, ...] | None) -> bool:
        """The access rule for one document of a granted knowledge base. SQL and Milvus filters mean the same."""
        if self.unrestricted:
            return True
        acl = attributes.acl if attributes.acl is not None else default_acl
        return (
            acl is not None
            and attributes.security_level <= self.security_level
            and (not acl or not self.groups.isdisjoint(acl))
            and (attributes.department is None or attributes.department == self.department)
        )


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it is listed; its secret is known to its holder alone."""

    name: str
    principal: Principal
    created_at: datetime
    revoked_at: datetime | None = None


LOCAL = Principal(name="local", knowledge_bases=None, security_level=9, unrestricted=True)


@dataclass(frozen=True, slots=True)
class AccessFilter:
    """What is pushed down into every index search. There is no search without one; an empty one finds nothing."""

    knowledge_base_id: str
    access_keys: tuple[int, ...]
    source_ids: tuple[str, ...] | None = None
    """None: all enabled sources were granted without need of a filter; (): nothing."""
    document_ids: tuple[str, ...] | None = None
    """Visible documents, when a whitelist was given, or at most 1,000 and no filter; None: not pushed down."""
    metadata: Filter | None = None
    """The request's own filter."""

    @property
    def empty(self) -> bool:
        """True when nothing can match, so that no search is made."""
        return not self.access_keys or self.source_ids == () or self.document_ids == ()
