"""What the store contracts say in one line: listed files, chunked content, a document brought to READY."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rag_cluster.domain import ids
from rag_cluster.domain.access import AccessAttributes
from rag_cluster.domain.blocks import SourceLocator
from rag_cluster.domain.chunks import Chunk, Parent, Part, PartContent
from rag_cluster.domain.documents import Claim, SourceFile, SourceKind
from rag_cluster.domain.ports import Catalog, Ledger

FINGERPRINT = "fp-1"
OPEN = AccessAttributes(acl=())
"""Readable by everyone to whom the knowledge base is granted."""


def listed(
    uri: str = "file:///a.md",
    *,
    etag: str = "1",
    size: int = 10,
    access: AccessAttributes = OPEN,
    metadata: Mapping[str, Any] | None = None,
) -> SourceFile:
    return SourceFile(uri, uri.rsplit("/", 1)[-1], size, etag, access, metadata or {})


def chunk(
    claim: Claim, knowledge_base_id: str, index: int, text: str = "text", *, asset_ids: tuple[str, ...] = ()
) -> Chunk:
    content = f"Heading\n{text} {index}"
    return Chunk(
        id=ids.chunk_id(claim.document_id, claim.version, FINGERPRINT, index, content),
        knowledge_base_id=knowledge_base_id,
        document_id=claim.document_id,
        version=claim.version,
        index=index,
        content=content,
        prefix_length=8,
        token_count=3,
        locator=SourceLocator(heading_path=("Heading",), page=index + 1, bbox=(0.0, 1.0, 2.0, 3.5)),
        parent_id=ids.parent_id(claim.document_id, claim.version, FINGERPRINT, index // 4),
        start=0,
        end=len(text),
        block_ids=(ids.block_id(claim.document_id, claim.version, index),),
        content_types=("text",),
        asset_ids=asset_ids,
        metadata={"chunking_strategy": "structured", "filename": "a.md"},
    )


def part_content(
    claim: Claim, knowledge_base_id: str, part: Part, text: str = "text", **chunk_values: Any
) -> PartContent:
    chunks = tuple(chunk(claim, knowledge_base_id, i, text, **chunk_values) for i in range(part.start, part.end))
    parents = tuple(
        Parent(
            id=ids.parent_id(claim.document_id, claim.version, FINGERPRINT, index),
            document_id=claim.document_id,
            version=claim.version,
            index=index,
            text=f"{text} parent {index}",
            token_count=12,
            locator=SourceLocator(page=1),
        )
        for index in sorted({chunk.index // 4 for chunk in chunks})
    )
    return PartContent(part, chunks, parents)


def parts(claim: Claim, count: int = 1, chunks_each: int = 2) -> list[Part]:
    return [Part(claim.document_id, claim.version, i, i * chunks_each, (i + 1) * chunks_each) for i in range(count)]


@dataclass
class Ingest:
    """A bulk run in small: one knowledge base, one source, one owner."""

    catalog: Catalog
    ledger: Ledger
    name: str = "kb"
    owner: str = "worker-1"
    default_acl: tuple[str, ...] | None = None
    knowledge_base_id: str = field(init=False)
    source_id: str = field(init=False)

    def __post_init__(self) -> None:
        self.knowledge_base_id = self.catalog.create_knowledge_base(self.name, default_acl=self.default_acl).id
        self.source_id = self.catalog.ensure_source(self.knowledge_base_id, SourceKind.BULK, "files").id

    def claim(
        self,
        file: SourceFile | None = None,
        *,
        owner: str | None = None,
        fingerprint: str = FINGERPRINT,
        lease: float = 30,
    ) -> Claim | None:
        return self.ledger.claim(
            self.knowledge_base_id,
            self.source_id,
            file or listed(),
            fingerprint,
            owner=owner or self.owner,
            lease_seconds=lease,
        )

    def must_claim(self, file: SourceFile | None = None, **options: Any) -> Claim:
        claim = self.claim(file, **options)
        assert claim is not None
        return claim

    def snapshot(self, claim: Claim, *, count: int = 1, sha256: str = "sha", size: int = 10) -> list[Part]:
        made = parts(claim, count)
        self.ledger.commit_snapshot(claim, sha256=sha256, size=size, parts=made)
        return made

    def complete(self, claim: Claim, part: Part, text: str = "text", **chunk_values: Any) -> bool:
        return self.ledger.complete_part(claim, part_content(claim, self.knowledge_base_id, part, text, **chunk_values))

    def ready(
        self,
        file: SourceFile | None = None,
        *,
        sha256: str = "sha",
        text: str = "text",
        fingerprint: str = FINGERPRINT,
        **chunk_values: Any,
    ) -> Claim:
        """Claim to READY; the claim that did it."""
        file = file or listed()
        claim = self.must_claim(file, fingerprint=fingerprint)
        for part in self.snapshot(claim, sha256=sha256, size=file.size):
            published = self.complete(claim, part, text, **chunk_values)
        assert published
        return claim

    def plan(
        self, file: SourceFile | None = None, *, fingerprint: str = FINGERPRINT, retry_failed: bool = False
    ) -> str:
        (planned,) = self.ledger.compare(
            self.knowledge_base_id, [file or listed()], [fingerprint], retry_failed=retry_failed
        )
        return str(planned.action)
