"""Facts that people manage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rag_cluster.domain.access import AccessAttributes, ApiKey, Principal
from rag_cluster.domain.documents import (
    Document,
    DocumentAsset,
    DocumentStatus,
    DocumentVersion,
    KnowledgeBase,
    Source,
    SourceKind,
)
from rag_cluster.domain.ports.indexes import IndexRecords


class KnowledgeBases(Protocol):
    """Knowledge bases and their sources. Lists are paged: (items, next cursor or None)."""

    def create_knowledge_base(
        self, name: str, description: str = "", default_acl: tuple[str, ...] | None = None
    ) -> KnowledgeBase:
        """ConflictError when the name is taken."""
        ...

    def knowledge_base(self, id_or_name: str) -> KnowledgeBase:
        """NotFoundError."""
        ...

    def list_knowledge_bases(
        self, principal: Principal, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[KnowledgeBase], str | None]: ...

    def update_knowledge_base(
        self,
        knowledge_base_id: str,
        *,
        name: str | None = None,
        description: str | None = None,
        default_acl: tuple[str, ...] | None = None,
        close: bool = False,
    ) -> KnowledgeBase:
        """None leaves a field alone; close=True sets default_acl to None."""
        ...

    def delete_knowledge_base(self, knowledge_base_id: str) -> list[str]:
        """Tombstone every document and the knowledge base; their ids. DocumentBusyError under a live claim."""
        ...

    def ensure_source(self, knowledge_base_id: str, kind: SourceKind, name: str) -> Source: ...

    def source(self, knowledge_base_id: str, id_or_name: str) -> Source:
        """NotFoundError."""
        ...

    def delete_source(self, source_id: str) -> list[str]:
        """Tombstone every document of a source; their ids. DocumentBusyError under a live claim: nothing is done."""
        ...


class Documents(Protocol):
    """Documents, their versions and their assets."""

    def document(self, document_id: str, principal: Principal) -> Document:
        """A document that the principal may read, tombstoned ones excepted: NotFoundError otherwise."""
        ...

    def list_documents(
        self,
        knowledge_base_id: str,
        principal: Principal,
        *,
        status: DocumentStatus | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> tuple[list[Document], str | None]: ...

    def versions(self, document_id: str) -> list[DocumentVersion]: ...

    def update_document(
        self,
        document_id: str,
        *,
        access: AccessAttributes | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Document:
        """In one transaction: facts, access key, and an INDEX_ACCESS outbox row."""
        ...

    def tombstone(self, document_id: str) -> Document:
        """Invisible at once, with a PURGE_DOCUMENT outbox row. DocumentBusyError under a live claim."""
        ...

    def purge_facts(self, document_id: str) -> None:
        """Last step of a delete: versions, chunks, parents, assets, jobs go; the tombstone keeps next_version."""
        ...

    def remains(self, document_id: str) -> dict[str, int]:
        """Rows that still stand per table, for the delete receipt."""
        ...

    def add_assets(self, assets: Sequence[DocumentAsset]) -> None: ...

    def assets(self, document_id: str) -> list[DocumentAsset]: ...

    def asset(self, asset_id: str, principal: Principal) -> DocumentAsset:
        """An asset of a visible document that the principal may read: NotFoundError otherwise."""
        ...

    def index_row_facts(self, document_id: str) -> tuple[str, int, Mapping[str, Any]] | None:
        """(source_id, access_key, metadata) as they are now; None when gone or tombstoned."""
        ...


class ApiKeys(Protocol):
    """The keys by which callers are known."""

    def create_api_key(self, name: str, principal: Principal) -> str:
        """The secret, shown once; only its hash is stored."""
        ...

    def resolve_api_key(self, secret: str) -> Principal:
        """AuthenticationError."""
        ...

    def has_api_keys(self) -> bool:
        """Whether a key was ever made: revoking the last one does not open the server to callers without any."""
        ...

    def api_keys(self) -> list[ApiKey]:
        """All, revoked ones included, oldest first."""
        ...

    def revoke_api_key(self, name: str) -> ApiKey:
        """Refused from the next request on; again is harmless. Its name stays taken, as its sessions keep it.
        NotFoundError."""
        ...


@dataclass(frozen=True, slots=True)
class Admission:
    """Who asks, and for what, as it is at one moment."""

    principal: Principal | None
    """Whom the key stands for; None without a key, or with one that is not valid."""
    has_api_keys: bool
    knowledge_base: KnowledgeBase | None
    """The one that was named, whoever may use it; None when there is none."""


class Admissions(Protocol):
    """What every query begins with, in one statement."""

    async def admission(self, secret: str | None, knowledge_base: str | None) -> Admission:
        """An API key's secret and a knowledge base's id or name, as far as given."""
        ...


class Catalog(KnowledgeBases, Documents, IndexRecords, ApiKeys, Protocol):
    """Everything that people manage, in one store."""
