"""The seams: what each capability needs from the outside, and promises to it.

Write ports are synchronous (Ray actors and worker loops call them), read ports are asynchronous so that cancelling a
request cancels its calls. Every implementation, fakes included, passes the port's contract suite in tests/contracts.
Each call has a timeout; an outage raises StoreUnavailableError or ModelUnavailableError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag_cluster.domain.ports.agents import Agents
from rag_cluster.domain.ports.catalog import (
    Admission,
    Admissions,
    ApiKeys,
    Catalog,
    Documents,
    KnowledgeBases,
)
from rag_cluster.domain.ports.content import (
    Chunker,
    DocumentParser,
    RecognizedLine,
    TextRecognizer,
    Tokenizer,
    VisionDescriber,
)
from rag_cluster.domain.ports.engines import (
    AsyncEmbedder,
    AsyncReranker,
    Embedder,
    Generator,
    HostedGenerator,
    QueryRewriter,
    Reranker,
)
from rag_cluster.domain.ports.evidence import ChunkSearch, Conversations, Evidence
from rag_cluster.domain.ports.index import Analyzer, ChunkIndex
from rag_cluster.domain.ports.indexes import IndexRecords
from rag_cluster.domain.ports.inventory import Inventory
from rag_cluster.domain.ports.jobs import Outbox, UploadQueue, UploadRequest
from rag_cluster.domain.ports.ledger import Ledger
from rag_cluster.domain.ports.metrics import MetricSink
from rag_cluster.domain.ports.objects import InputFiles, InputProblem, ObjectStore, SnapshotStore
from rag_cluster.domain.ports.runs import Runs

if TYPE_CHECKING:
    from rag_cluster.domain.ports.engines import Matrix as Matrix

__all__ = [
    "Admission",
    "Admissions",
    "Agents",
    "Analyzer",
    "ApiKeys",
    "AsyncEmbedder",
    "AsyncReranker",
    "Catalog",
    "ChunkIndex",
    "ChunkSearch",
    "Chunker",
    "Conversations",
    "DocumentParser",
    "Documents",
    "Embedder",
    "Evidence",
    "Generator",
    "HostedGenerator",
    "IndexRecords",
    "InputFiles",
    "InputProblem",
    "Inventory",
    "KnowledgeBases",
    "Ledger",
    "MetricSink",
    "ObjectStore",
    "Outbox",
    "QueryRewriter",
    "RecognizedLine",
    "Reranker",
    "Runs",
    "SnapshotStore",
    "TextRecognizer",
    "Tokenizer",
    "UploadQueue",
    "UploadRequest",
    "VisionDescriber",
]
