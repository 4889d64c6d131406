"""Index rows written again from PostgreSQL's chunks: embedded, then upserted, as ingestion does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rag_cluster.domain.chunks import IndexRow
from rag_cluster.domain.documents import IndexRecord, OutboxKind
from rag_cluster.domain.inventory import DocumentFacts, Finding
from rag_cluster.domain.ports import Inventory
from rag_cluster.errors import IndexMismatchError, ModelUnavailableError
from rag_cluster.ingestion.write_path import WritePath
from rag_cluster.lifecycle.comparison import View


class Reindexer:
    """Loads the embedder at the first row that needs it."""

    def __init__(self, write_path: WritePath, inventory: Inventory, indexes: Sequence[IndexRecord]) -> None:
        self._write_path = write_path
        self._inventory = inventory
        self._records = {record.collection: record for record in indexes}
        self._opened: set[str] = set()

    def rows(self, view: View, findings: Sequence[Finding]) -> None:
        """Write these chunks' rows. Where the settings' embedder is not the index's: IndexMismatchError for the active
        one; another one is said to lack the version, so that the next re-embedding writes it."""
        by_collection: dict[str, set[str]] = defaultdict(set)
        for finding in findings:
            by_collection[finding.store].add(finding.subject)
        for collection, ids in by_collection.items():
            record = self._records[collection]
            version = view.facts.published_version
            if record.state != "active" and not self._can_write(record) and version is not None:
                self._write_path.catalog.forget_parts(collection, view.facts.id, version)
            else:
                self._write(view.facts, collection, ids)

    def fields(self, view: View, findings: Sequence[Finding]) -> None:
        """Write access_key and metadata of now; a row with a wrong source is written as a whole."""
        facts, catalog, index = view.facts, self._write_path.catalog, self._write_path.index
        now = catalog.index_row_facts(facts.id)
        if now is None:
            return  # deleted since
        source_id, access_key, metadata = now
        for collection in {finding.store for finding in findings}:
            wrong = {row.id for row in view.rows[collection] if row.source_id != source_id} & facts.chunk_ids
            record = self._records[collection]
            if wrong and record.state != "active" and not self._can_write(record) and facts.published_version:
                index.delete_rows(collection, facts.knowledge_base_id, sorted(wrong))
                catalog.forget_parts(collection, facts.id, facts.published_version)
            elif wrong:
                self._write(facts, collection, wrong)
            index.update_access(collection, facts.id, access_key=access_key, metadata=metadata)

    def close(self) -> None:
        """Make the rows that were written fast to search."""
        for collection in self._opened:
            self._write_path.retry.call(lambda name=collection: self._write_path.index.flush(name))  # type: ignore[misc]

    def _write(self, facts: DocumentFacts, collection: str, ids: set[str]) -> None:
        self._open(self._records[collection])
        write_path, version = self._write_path, facts.published_version
        if version is None:
            return
        for content in self._inventory.contents(facts.id, version):
            chunks = [chunk for chunk in content.chunks if chunk.id in ids]
            now = write_path.catalog.index_row_facts(facts.id)
            if now is None or not chunks:
                continue
            texts = [chunk.content for chunk in chunks]
            vectors = write_path.embedder().embed_documents(texts)
            if len(vectors) != len(texts):
                raise ModelUnavailableError(f"the embedder gave {len(vectors)} vectors for {len(texts)} texts")
            write_path.index.upsert(collection, [IndexRow(chunk, *now) for chunk in chunks], vectors)
        after = self._inventory.document(facts.id)
        if after is None or after.deleted or after.published_version != version:
            # Replaced or deleted while these rows were written: whoever did so may have deleted before they came.
            write_path.outbox.add(OutboxKind.INDEX_DELETE, facts.id, facts.knowledge_base_id, {"version": version})

    def _can_write(self, record: IndexRecord) -> bool:
        return self._write_path.embedder().fingerprint == record.embedder_fingerprint

    def _open(self, record: IndexRecord) -> None:
        if record.collection in self._opened:
            return
        if not self._can_write(record):
            fingerprint = self._write_path.embedder().fingerprint
            raise IndexMismatchError(
                f"{record.collection} holds vectors of embedder {record.embedder_fingerprint}, RAG_EMBEDDER names "
                f"{fingerprint}: run fsck with the index's embedder"
            )
        self._write_path.index.ensure(record)
        self._opened.add(record.collection)
