"""Facts that people manage."""

from __future__ import annotations

from rag_cluster.stores.postgres.api_keys import ApiKeyCatalog
from rag_cluster.stores.postgres.assets import AssetCatalog
from rag_cluster.stores.postgres.documents import DocumentCatalog
from rag_cluster.stores.postgres.indexes import IndexCatalog
from rag_cluster.stores.postgres.knowledge_bases import KnowledgeBaseCatalog


class PostgresCatalog(KnowledgeBaseCatalog, DocumentCatalog, AssetCatalog, IndexCatalog, ApiKeyCatalog):
    """The `Catalog` port: PostgresCatalog(database)."""
