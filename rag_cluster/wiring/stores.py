"""PostgreSQL, Milvus, objects: the user's own servers, or those below the data directory."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from rag_cluster.stores.embedded import EmbeddedStores
from rag_cluster.stores.postgres.admissions import PostgresAdmissions
from rag_cluster.stores.postgres.agents import PostgresAgents
from rag_cluster.stores.postgres.catalog import PostgresCatalog
from rag_cluster.stores.postgres.chunk_search import PostgresChunkSearch
from rag_cluster.stores.postgres.conversations import PostgresConversations
from rag_cluster.stores.postgres.database import Database
from rag_cluster.stores.postgres.evidence import PostgresEvidence
from rag_cluster.stores.postgres.inventory import PostgresInventory
from rag_cluster.stores.postgres.ledger import PostgresLedger
from rag_cluster.stores.postgres.migration import migrate
from rag_cluster.stores.postgres.outbox import PostgresOutbox
from rag_cluster.stores.postgres.uploads import PostgresUploadQueue
from rag_cluster.wiring.base import Wired

if TYPE_CHECKING:
    from rag_cluster.stores.inputs import FsspecInputFiles
    from rag_cluster.stores.milvus import MilvusChunkIndex
    from rag_cluster.stores.objects import FsspecObjectStore
    from rag_cluster.stores.s3 import S3Options
    from rag_cluster.stores.snapshots import ParquetSnapshotStore


class StoreServices(Wired):
    """The stores of one process."""

    @cached_property
    def embedded(self) -> EmbeddedStores:
        """The servers below the data directory."""
        return EmbeddedStores(self.settings.home)

    @cached_property
    def database(self) -> Database:
        """PostgreSQL, migrated. The embedded server is started if it is ours and gone, now and whenever it is lost."""
        settings = self.settings
        if settings.embedded_postgres:
            dsn, revive = self.embedded.ensure_postgres(), self._revive_postgres
        else:
            dsn, revive = settings.postgres_dsn.get_secret_value(), None
        migrate(dsn)
        return Database(dsn, pool_size=settings.postgres_pool_size, timeout=settings.postgres_timeout, revive=revive)

    @cached_property
    def index(self) -> MilvusChunkIndex:
        """Milvus."""
        from rag_cluster.stores.milvus import MilvusChunkIndex

        settings = self.settings
        return MilvusChunkIndex(
            settings.milvus_uri,
            settings.milvus_token.get_secret_value(),
            timeout=settings.milvus_timeout,
            index_type=settings.milvus_index_type,
            index_params=settings.milvus_index_params,
            mmap=settings.milvus_mmap,
            replicas=settings.milvus_replicas,
            revive=self.embedded.ensure_milvus if settings.embedded_milvus else None,
        )

    @property
    def _s3(self) -> S3Options:
        from rag_cluster.stores.s3 import S3Options

        settings = self.settings
        return S3Options(
            settings.s3_endpoint_url,
            settings.s3_access_key.get_secret_value(),
            settings.s3_secret_key.get_secret_value(),
            settings.s3_region,
            settings.object_timeout,
        )

    @cached_property
    def objects(self) -> FsspecObjectStore:
        """Our objects."""
        from rag_cluster.stores.objects import FsspecObjectStore

        return FsspecObjectStore(self.settings.objects, self._s3)

    @cached_property
    def inputs(self) -> FsspecInputFiles:
        """The user's files."""
        from rag_cluster.stores.inputs import FsspecInputFiles

        return FsspecInputFiles(self._s3)

    @cached_property
    def snapshots(self) -> ParquetSnapshotStore:
        """Snapshots in the object store."""
        from rag_cluster.stores.snapshots import ParquetSnapshotStore

        return ParquetSnapshotStore(self.objects)

    @cached_property
    def catalog(self) -> PostgresCatalog:
        """Knowledge bases, documents, assets, indexes, keys."""
        return PostgresCatalog(self.database)

    @cached_property
    def ledger(self) -> PostgresLedger:
        """Versions, claims, parts, runs."""
        return PostgresLedger(self.database)

    @cached_property
    def inventory(self) -> PostgresInventory:
        """Everything that PostgreSQL holds, page by page."""
        return PostgresInventory(self.database)

    @cached_property
    def uploads(self) -> PostgresUploadQueue:
        """Upload jobs."""
        return PostgresUploadQueue(self.database, max_attempts=self.settings.upload_max_attempts)

    @cached_property
    def outbox(self) -> PostgresOutbox:
        """Effects owed to other stores."""
        return PostgresOutbox(self.database)

    @cached_property
    def admissions(self) -> PostgresAdmissions:
        """Callers and the knowledge bases that they name."""
        return PostgresAdmissions(self.database)

    @cached_property
    def evidence(self) -> PostgresEvidence:
        """Facts of the read path."""
        return PostgresEvidence(self.database)

    @cached_property
    def agents(self) -> PostgresAgents:
        """Sources, agents and mounts."""
        return PostgresAgents(self.database)

    @cached_property
    def chunk_search(self) -> PostgresChunkSearch:
        """Chunks by their words."""
        return PostgresChunkSearch(self.database)

    @cached_property
    def conversations(self) -> PostgresConversations:
        """Messages and records."""
        return PostgresConversations(self.database)

    def stop_embedded_stores(self) -> None:
        """Close connections and stop the embedded servers."""
        if "database" in self.__dict__:
            self.database.close()
        self.embedded.down()

    def _revive_postgres(self) -> None:
        self.embedded.ensure_postgres()
