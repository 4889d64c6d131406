"""Settings -> objects: the only importer of concrete engines and stores.

`Services` builds each object once, when it is first asked for. `ServiceFactory` is what travels to actors and
deployments: picklable, and giving one `Services` per process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rag_cluster.answering.answerer import Answerer
from rag_cluster.chunking.boundaries import sentences
from rag_cluster.chunking.registry import create_chunker
from rag_cluster.domain import ids
from rag_cluster.domain.documents import DeleteReceipt, KnowledgeBase
from rag_cluster.domain.ports import AsyncEmbedder, Chunker, Embedder, Generator, MetricSink
from rag_cluster.engines.registry import create_embedder
from rag_cluster.engines.threaded import ThreadedEmbedder
from rag_cluster.errors import ConflictError, NotFoundError
from rag_cluster.ingestion import steps, uploads
from rag_cluster.lifecycle import delete, outbox
from rag_cluster.parsing.isolation import IsolatedParser
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.parsing.registry import ParserRegistry
from rag_cluster.retrieval.retriever import Retriever
from rag_cluster.settings import Settings, get_settings
from rag_cluster.stores.embedded import EmbeddedStores
from rag_cluster.stores.inputs import FsspecInputFiles
from rag_cluster.stores.milvus import MilvusChunkIndex
from rag_cluster.stores.objects import FsspecObjectStore
from rag_cluster.stores.postgres.catalog import PostgresCatalog
from rag_cluster.stores.postgres.conversations import PostgresConversations
from rag_cluster.stores.postgres.database import Database, migrate
from rag_cluster.stores.postgres.evidence import PostgresEvidence
from rag_cluster.stores.postgres.ledger import PostgresLedger
from rag_cluster.stores.postgres.outbox import PostgresOutbox
from rag_cluster.stores.postgres.uploads import PostgresUploadQueue
from rag_cluster.stores.snapshots import ParquetSnapshotStore
from rag_cluster.telemetry import NullMetrics
