"""What the HTTP routes need, as one frozen value: wiring builds it in the ingress, tests build it from anything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from rag_cluster.answering.answerer import Answerer
from rag_cluster.domain.documents import DeleteReceipt
from rag_cluster.domain.ports import Catalog, Conversations, Ledger, ObjectStore, UploadQueue
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.retrieval.retriever import Retriever
from rag_cluster.settings import Settings


@dataclass(frozen=True, slots=True)
class Backend:
    """The read and write services behind /v1."""

    settings: Settings
    limits: ParseLimits
    catalog: Catalog
    ledger: Ledger
    uploads: UploadQueue
    objects: ObjectStore
    conversations: Conversations
    retriever: Retriever
    answerer: Answerer
    delete_document: Callable[[str], DeleteReceipt]
    """Document id -> receipt; DocumentBusyError under a live claim."""
    delete_knowledge_base: Callable[[str], list[DeleteReceipt]]
    drain_outbox: Callable[[str], int]
    """Carry out what is owed for one document now, so that an access change is in Milvus when the call returns."""
    content_fingerprint: Callable[[str], str]
    """Filename -> fingerprint of parser, chunker and tokenizer."""
    readiness: Callable[[], Awaitable[Mapping[str, str]]]
    """Dependency -> "ok" or what is wrong; each check has a timeout."""
