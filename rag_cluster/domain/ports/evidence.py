"""The read path: facts for the second check, words, conversations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rag_cluster.domain.access import AccessFilter, Principal
from rag_cluster.domain.answers import ChatEvidence, ChatMessage, RetrievalRecord
from rag_cluster.domain.retrieval import EvidenceRow, Hit, Located, ReadScope, RetrievalOptions


class Evidence(Protocol):
    """The read path's facts. Two statements a query: scope before the search, rows after it."""

    async def scope(
        self,
        principal: Principal,
        knowledge_base_id: str,
        options: RetrievalOptions,
        *,
        embedder_fingerprint: str | None = None,
    ) -> ReadScope:
        """Access keys, sources, mounts, visible documents and the index in one statement: the active one, or that of
        the caller's embedder if it was retired and is still there.
        ForbiddenError-free: what is not granted is simply an empty filter. NotFoundError for an unknown agent."""
        ...

    async def rows(
        self, principal: Principal, knowledge_base_id: str, hits: Sequence[Hit], options: RetrievalOptions
    ) -> dict[str, EvidenceRow]:
        """Second check, one statement: of the hits' chunk ids, those of a published version of a visible, readable
        document of an enabled source, with chunk, parent and assets."""
        ...

    async def changed_since(self, taken: str, document_ids: Sequence[str]) -> str | None:
        """Where one of these documents was published or deleted after that moment: the moment of this look."""
        ...


class ChunkSearch(Protocol):
    """Chunks by their words, in PostgreSQL: what no index has to find."""

    async def keyword_hits(
        self,
        access: AccessFilter,
        keywords: Sequence[str],
        *,
        least: int,
        limit: int,
        among: Sequence[str] | None = None,
    ) -> list[Hit]:
        """Published chunks of the scope that hold at least so many of the keywords, most first; score: how many.

        A Latin keyword or number must stand as a word of its own, a Chinese one as it is; case and width do not matter
        (`domain.patterns`).
        among: chunk ids; None reads every chunk of the scope, which is slow where it `exceeds` some hundreds.
        """
        ...

    async def exceeds(self, access: AccessFilter, chunks: int) -> bool:
        """Whether the scope's published chunks are more than so many. Counts no further."""
        ...

    async def located(
        self,
        principal: Principal,
        knowledge_base_id: str,
        *,
        chunk_id: str | None = None,
        document_id: str | None = None,
        text: str | None = None,
        limit: int = 20,
    ) -> list[Located]:
        """What exactly one of the three names, as far as the principal may read it, whether queries see it or not.

        A document without chunks is there once, without a chunk. A text is sought in published versions, white space
        and case apart.
        """
        ...


class Conversations(Protocol):
    """Chat sessions and the audit trail."""

    async def add_message(
        self,
        session_id: str | None,
        role: str,
        content: str,
        *,
        principal: Principal,
        knowledge_base_id: str,
        evidence: ChatEvidence | None = None,
    ) -> ChatMessage:
        """session_id None starts a session; the message carries its id."""
        ...

    async def require_session(self, session_id: str, principal: Principal, knowledge_base_id: str) -> None:
        """NotFoundError unless the session is the principal's, in this knowledge base."""
        ...

    async def messages(self, session_id: str, principal: Principal) -> list[ChatMessage]: ...

    async def record(self, record: RetrievalRecord) -> None: ...
