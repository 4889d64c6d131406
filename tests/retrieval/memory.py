"""Evidence, conversations and a small knowledge base in memory, for what real stores cannot be made to do on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rag_cluster.domain import ids
from rag_cluster.domain.access import AccessFilter, Principal
from rag_cluster.domain.answers import ChatEvidence, ChatMessage, RetrievalRecord
from rag_cluster.domain.blocks import SourceLocator
from rag_cluster.domain.chunks import Chunk, IndexRow, Parent
from rag_cluster.domain.documents import IndexRecord, SourceKind
from rag_cluster.domain.ports import Embedder
from rag_cluster.domain.retrieval import AssetReference, EvidenceRow, Hit, Located, ReadScope, RetrievalOptions
from rag_cluster.engines.hashing import HashEmbedder
from rag_cluster.engines.threaded import ThreadedEmbedder
from rag_cluster.errors import NotFoundError
from rag_cluster.stores.fakes import MemoryChunkIndex, MemoryChunkSearch

KB = "kb"


@dataclass
class MemoryEvidence:
    """The Evidence port over dictionaries; counts its statements."""

    index: IndexRecord | None
    rows_by_id: dict[str, EvidenceRow] = field(default_factory=dict)
    hidden_documents: set[str] = field(default_factory=set)
    mounts: Mapping[str, int] = field(default_factory=dict)
    corrections: tuple[str, ...] = ()
    access_keys: tuple[int, ...] = (1,)
    document_ids: tuple[str, ...] | None = None
    visible_documents: int | None = None
    """Other than the rows that there are."""
    hide_source_filename: bool = False
    scopes: int = 0
    checks: list[int] = field(default_factory=list)
    changed: list[str | None] = field(default_factory=list)
    """What the next questions of `changed_since` hear."""

    async def scope(
        self,
        principal: Principal,
        knowledge_base_id: str,
        options: RetrievalOptions,
        *,
        embedder_fingerprint: str | None = None,
    ) -> ReadScope:
        self.scopes += 1
        keys = self.access_keys if principal.may_use(knowledge_base_id) else ()
        documents = options.document_ids if options.document_ids is not None else self.document_ids
        access = AccessFilter(knowledge_base_id, keys, options.source_ids, documents, options.filter)
        visible = len(self.rows_by_id) if self.visible_documents is None else self.visible_documents
        return ReadScope(access, self.index, visible, self.mounts, self.corrections, self.hide_source_filename)

    async def rows(
        self, principal: Principal, knowledge_base_id: str, hits: Sequence[Hit], options: RetrievalOptions
    ) -> dict[str, EvidenceRow]:
        self.checks.append(len(hits))
        await asyncio.sleep(0)
        found = {hit.chunk_id: self.rows_by_id.get(hit.chunk_id) for hit in hits}
        return {
            key: row
            for key, row in found.items()
            if row is not None and row.chunk.document_id not in self.hidden_documents
        }

    async def changed_since(self, taken: str, document_ids: Sequence[str]) -> str | None:
        return self.changed.pop(0) if self.changed else None


@dataclass
class MemoryConversations:
    """The Conversations port over lists; `broken` makes every write fail."""

    stored: list[ChatMessage] = field(default_factory=list)
    records: list[RetrievalRecord] = field(default_factory=list)
    broken: Exception | None = None
    delay: float = 0.0

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
        if self.broken:
            raise self.broken
        message = ChatMessage(f"m{len(self.stored)}", session_id or "session", role, content, evidence)
        self.stored.append(message)
        return message

    async def require_session(self, session_id: str, principal: Principal, knowledge_base_id: str) -> None:
        if not session_id.startswith("s"):
            raise NotFoundError(f"no session {session_id!r}")

    async def messages(self, session_id: str, principal: Principal) -> list[ChatMessage]:
        return [message for message in self.stored if message.session_id == session_id]

    async def record(self, record: RetrievalRecord) -> None:
        await asyncio.sleep(self.delay)
        if self.broken:
            raise self.broken
        self.records.append(record)


class Library:
    """A knowledge base in memory: `add` a document's chunks, then search it."""

    def __init__(self, embedder: Embedder | None = None) -> None:
        self.engine: Any = embedder or HashEmbedder(512)
        self.embedder = ThreadedEmbedder(self.engine)
        self.record = IndexRecord(1, "chunks_test", self.engine.fingerprint, self.engine.dimension, "active")
        self.index = MemoryChunkIndex()
        self.index.ensure(self.record)
        self.evidence = MemoryEvidence(self.record)

    def add(
        self,
        document: str,
        *texts: str,
        version: int = 1,
        parent: str | None = None,
        locators: Sequence[SourceLocator] = (),
        source: str = "s1",
        kind: SourceKind = SourceKind.BULK,
        access_key: int = 1,
        heading: str = "",
        assets: tuple[AssetReference, ...] = (),
    ) -> list[str]:
        """Index one document. With `parent` all its chunks are children of that text. Chunk ids in order."""
        prefix = f"{heading}\n" if heading else ""
        chunks, parent_text = [], parent
        for at, text in enumerate(texts):
            locator = locators[at] if locators else SourceLocator(heading_path=(heading,) if heading else ())
            chunk = Chunk(
                id=ids.chunk_id(document, version, "test", at, prefix + text),
                knowledge_base_id=KB,
                document_id=document,
                version=version,
                index=at,
                content=prefix + text,
                prefix_length=len(prefix),
                locator=locator,
                parent_id=f"{document}/parent" if parent_text is not None else None,
            )
            chunks.append(chunk)
        whole = Parent(f"{document}/parent", document, version, 0, parent_text) if parent_text is not None else None
        vectors = self.engine.embed_documents([chunk.content for chunk in chunks])
        self.index.upsert("chunks_test", [IndexRow(chunk, source, access_key) for chunk in chunks], vectors)
        for chunk in chunks:
            self.evidence.rows_by_id[chunk.id] = EvidenceRow(
                chunk, whole, f"{document}.md", f"file:///{document}.md", source, kind, source, 0, assets
            )
        return [chunk.id for chunk in chunks]

    def forget_in_facts(self, *chunk_ids: str) -> None:
        """Make the facts disown chunks that the index still holds."""
        for chunk_id in chunk_ids:
            del self.evidence.rows_by_id[chunk_id]

    def republish(self, chunk_id: str, version: int) -> None:
        """Make the facts say that a chunk belongs to another version."""
        row = self.evidence.rows_by_id[chunk_id]
        self.evidence.rows_by_id[chunk_id] = replace(row, chunk=replace(row.chunk, version=version))


@dataclass
class LibrarySearch:
    """The keyword half of the ChunkSearch port over a library, as slow or broken as a test wants it."""

    library: Library
    error: Exception | None = None
    delay: float = 0.0
    calls: int = 0
    most: int = 10**9
    among: list[Sequence[str] | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.search = MemoryChunkSearch(self.library.index, self.library.record.collection)

    async def keyword_hits(
        self, access: AccessFilter, keywords: Sequence[str], *, among: Sequence[str] | None = None, **limits: int
    ) -> list[Hit]:
        self.calls += 1
        self.among.append(among)
        await asyncio.sleep(self.delay)
        if self.error:
            raise self.error
        return await self.search.keyword_hits(access, keywords, among=among, **limits)

    async def exceeds(self, access: AccessFilter, chunks: int) -> bool:
        return await self.search.exceeds(access, min(chunks, self.most))

    async def located(self, *_: object, **__: object) -> list[Located]:
        raise NotImplementedError
