"""The chunk index on Milvus: a server by URI, or Milvus Lite on its Unix socket.

One collection per embedder. Rows hold what a filter needs and nothing else that PostgreSQL is asked for anyway.
Vectors are compared by cosine; BM25 runs on `text` with a Chinese tokenizer, lower-cased, so that both languages match.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from pymilvus import MilvusClient
from pymilvus.exceptions import MilvusException

from rag_cluster.domain.access import AccessFilter
from rag_cluster.domain.chunks import IndexRow, chunk_facts
from rag_cluster.domain.documents import IndexRecord
from rag_cluster.domain.filters import Scope
from rag_cluster.domain.inventory import StoredRow
from rag_cluster.domain.retrieval import Hit
from rag_cluster.errors import IndexMismatchError
from rag_cluster.stores.milvus_connection import MilvusConnection
from rag_cluster.stores.milvus_filters import FIELDS, asks_chunks, compile_filter, matches_nothing, one_of, string
from rag_cluster.stores.milvus_schema import ANALYZER, IndexOptions, bounded_text, collection_schema, search_parameters

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Matrix

MAX_LIMIT = 16_384
"""The most rows that Milvus returns for one search."""
_ROWS_PER_PAGE = 4096  # without texts and vectors
_FACTS = ["id", "knowledge_base_id", "document_id", "source_id", "version", "access_key", "metadata"]
_ROWS_PER_CALL = 512  # with the longest texts still below a server's message limit of 64 MiB


class MilvusChunkIndex:
    """`ChunkIndex` on Milvus. Connects at first use, so that it can be pickled; safe for threads and event loops."""

    def __init__(
        self,
        uri: str,
        token: str = "",
        *,
        timeout: float = 30.0,
        index_type: str = "auto",
        index_params: Mapping[str, int | float | str] | None = None,
        mmap: bool = False,
        replicas: int = 1,
        revive: Callable[[], str] | None = None,
    ) -> None:
        """uri: http(s)://host:port, unix:/path:port, or "" to ask revive.

        revive: starts the server again when it is gone and tells its URI (`EmbeddedStores.ensure_milvus`).
        """
        self._milvus = MilvusConnection(uri, token, timeout, revive)
        self._timeout = timeout
        self._options = IndexOptions(index_type, dict(index_params or {}), mmap, replicas)
        self._known: dict[str, _Description] = {}

    # -- writing -----------------------------------------------------------------------------------------------------

    def exists(self, collection: str) -> bool:
        """Whether the collection is there, finished or not."""
        return self._milvus.call(collection, lambda client: self._has(client, collection))

    def ensure(self, index: IndexRecord) -> None:
        """Create the collection with its indexes and load it, or check it. IndexMismatchError."""
        self._milvus.call(index.collection, lambda client: self._ensure(client, index))

    def _has(self, client: MilvusClient, collection: str) -> bool:
        return bool(client.has_collection(collection, timeout=self._timeout))

    def _ensure(self, client: MilvusClient, index: IndexRecord) -> None:
        name = index.collection
        lite = self._milvus.is_lite(client)
        if not self._has(client, name):
            self._create(client, index, lite)
        found = _describe(client.describe_collection(name, timeout=self._timeout))
        if found.dimension != index.dimension or found.fingerprint not in ("", index.embedder_fingerprint):
            raise IndexMismatchError(
                f"Collection {name} holds {found.dimension}-dimensional vectors of embedder "
                f"{found.fingerprint or 'unknown'}; "
                f"the settings name {index.dimension} dimensions of {index.embedder_fingerprint}"
            )
        self._known[name] = found
        self._create_indexes(client, name, lite)
        replicas = {} if lite else {"replica_number": self._options.replicas}
        client.load_collection(name, timeout=self._timeout, **replicas)

    def _create(self, client: MilvusClient, index: IndexRecord, lite: bool) -> None:
        schema = collection_schema(index.dimension, index.embedder_fingerprint)
        properties = {"mmap.enabled": True} if self._options.mmap and not lite else {}
        options = {"properties": properties, "consistency_level": "Strong", "timeout": self._timeout}
        try:
            client.create_collection(index.collection, schema=schema, **options)
        except MilvusException:
            if not self._has(client, index.collection):  # else another process was faster
                raise

    def _create_indexes(self, client: MilvusClient, collection: str, lite: bool) -> None:
        # Looked at every time: a process that died after creating the collection leaves it without indexes.
        present = client.list_indexes(collection)
        for parameters in self._options.index_params(lite=lite):
            if parameters.field_name in present:
                continue
            single = MilvusClient.prepare_index_params()
            single.append(parameters)
            try:
                client.create_index(collection, single, sync=False, timeout=self._timeout)  # loading waits for it
            except MilvusException:
                if parameters.field_name not in client.list_indexes(collection):
                    raise  # else another process was faster

    def upsert(self, collection: str, rows: Sequence[IndexRow], vectors: Matrix) -> None:
        """Write rows, replacing those of the same chunk id. The longest text that Milvus takes is 65,535 bytes."""
        if not rows:
            return
        known = self._description(collection)
        dimension = known.dimension
        if vectors.shape != (len(rows), dimension):
            raise IndexMismatchError(
                f"{collection} takes vectors of shape ({len(rows)}, {dimension}), not {tuple(vectors.shape)}"
            )
        with_facts = known.chunk_facts
        # A request with one id twice would leave both rows.
        records = {
            row.chunk.id: _record(row, vector, with_facts=with_facts) for row, vector in zip(rows, vectors, strict=True)
        }
        self._write(collection, list(records.values()))

    def _write(self, collection: str, records: Sequence[Mapping[str, Any]], **options: Any) -> None:
        for start in range(0, len(records), _ROWS_PER_CALL):
            batch = records[start : start + _ROWS_PER_CALL]
            self._milvus.call(collection, methodcaller("upsert", collection, batch, timeout=self._timeout, **options))

    def delete(
        self, collection: str, document_id: str, *, version: int | None = None, max_version: int | None = None
    ) -> None:
        """Delete a document's rows of one version, up to one, or all. What is not there is no error."""
        expression = f"document_id == {string(document_id)}"
        if version is not None:
            expression += f" and version == {int(version)}"
        if max_version is not None:
            expression += f" and version <= {int(max_version)}"
        self._milvus.call(
            collection,
            lambda client: client.delete(collection, filter=expression, timeout=self._timeout),
            missing_collection=None,
        )

    def update_access(self, collection: str, document_id: str, *, access_key: int, metadata: Mapping[str, Any]) -> None:
        """Rewrite access_key and metadata of a document's rows; vectors and texts stay as they are."""
        changed = {"access_key": access_key, "metadata": dict(metadata)}
        records = [{"id": chunk_id, **changed} for chunk_id in self.chunk_ids(collection, document_id)]
        self._write(collection, records, partial_update=True)

    def chunk_ids(self, collection: str, document_id: str) -> dict[str, int]:
        """chunk id -> version of every row of a document; empty without the collection."""

        def read(client: MilvusClient) -> dict[str, int]:
            found: dict[str, int] = {}
            iterator = client.query_iterator(
                collection,
                batch_size=1000,
                filter=f"document_id == {string(document_id)}",
                output_fields=["id", "version"],
                consistency_level="Strong",
                timeout=self._timeout,
            )
            try:
                while batch := iterator.next():
                    found.update((row["id"], row["version"]) for row in batch)
            finally:
                iterator.close()
            return found

        return self._milvus.call(collection, read, missing_collection={})

    def rows(
        self,
        collection: str,
        knowledge_base_id: str,
        *,
        after: str = "",
        last: str | None = None,
        document_id: str | None = None,
    ) -> Iterator[StoredRow]:
        """Rows of a knowledge base, by chunk id: of one document, or of those with ids in (after, last].

        Only the knowledge base's partition is read: a row that lies in two of them comes with each.
        """
        expression = f"knowledge_base_id == {string(knowledge_base_id)}"
        if document_id is not None:
            expression += f" and document_id == {string(document_id)}"
        else:
            expression += f" and document_id > {string(after)}"
        if last is not None:
            expression += f" and document_id <= {string(last)}"
        return self._walk(collection, expression)

    def foreign_rows(self, collection: str, knowledge_base_ids: Sequence[str]) -> Iterator[StoredRow]:
        """Rows of none of these knowledge bases, by chunk id."""
        known = ",".join(map(string, knowledge_base_ids))
        return self._walk(collection, f"knowledge_base_id not in [{known}]" if known else "")

    def _walk(self, collection: str, expression: str) -> Iterator[StoredRow]:
        # An iterator per page: it goes by primary key, so that after an outage the walk goes on behind the last row.
        cursor = ""
        while True:
            behind = f"id > {string(cursor)}"
            filter_ = f"{expression} and {behind}" if expression else behind
            page: list[dict[str, Any]] = self._milvus.call(
                collection, partial(self._page, collection, filter_), missing_collection=[]
            )
            for row in page:
                yield StoredRow(**row)
            if len(page) < _ROWS_PER_PAGE:
                return
            cursor = page[-1]["id"]

    def _page(self, collection: str, expression: str, client: MilvusClient) -> list[dict[str, Any]]:
        iterator = client.query_iterator(
            collection,
            batch_size=_ROWS_PER_PAGE,
            filter=expression,
            output_fields=_FACTS,
            consistency_level="Strong",
            timeout=self._timeout,
        )
        try:
            return [{name: row[name] for name in _FACTS} for row in iterator.next()]
        finally:
            iterator.close()

    def delete_rows(self, collection: str, knowledge_base_id: str, chunk_ids: Sequence[str]) -> None:
        """Delete these ids in this knowledge base's partition only."""
        for start in range(0, len(chunk_ids), _ROWS_PER_CALL):
            ids = one_of("id", chunk_ids[start : start + _ROWS_PER_CALL])
            expression = f"knowledge_base_id == {string(knowledge_base_id)} and {ids}"
            self._milvus.call(
                collection,
                methodcaller("delete", collection, filter=expression, timeout=self._timeout),
                missing_collection=None,
            )

    def drop(self, collection: str) -> None:
        """Delete the collection. What is not there is no error."""
        drop = methodcaller("drop_collection", collection, timeout=self._timeout)
        self._milvus.call(collection, drop, missing_collection=None)
        self._known.pop(collection, None)

    def flush(self, collection: str) -> None:
        """Seal recent rows: Milvus Lite searches unsealed ones by brute force. A server does this by itself."""

        def seal(client: MilvusClient) -> None:
            if self._milvus.is_lite(client):
                client.flush(collection, timeout=max(self._timeout, 300.0))
                client.load_collection(collection, timeout=max(self._timeout, 300.0))

        self._milvus.call(collection, seal, missing_collection=None)

    def ping(self) -> None:
        """One round trip. StoreUnavailableError."""
        self._milvus.call("", lambda client: client.list_collections(timeout=self._timeout))

    def _description(self, collection: str) -> _Description:
        if collection not in self._known:
            describe = methodcaller("describe_collection", collection, timeout=self._timeout)
            self._known[collection] = _describe(self._milvus.call(collection, describe))
        return self._known[collection]

    async def _description_async(self, collection: str) -> _Description:
        if collection not in self._known:
            describe = methodcaller("describe_collection", collection, timeout=self._timeout)
            self._known[collection] = _describe(await self._milvus.call_async(collection, describe))
        return self._known[collection]

    async def analyze(self, texts: Sequence[str]) -> list[list[str]]:
        """The `Analyzer` port: the tokens of each text, as BM25 sees them."""
        return await asyncio.to_thread(self._milvus.call, "", lambda client: self._tokens(client, texts))

    def _tokens(self, client: MilvusClient, texts: Sequence[str]) -> list[list[str]]:
        bounded = [bounded_text(text) for text in texts]
        if self._milvus.is_lite(client):
            # Milvus Lite has no such call; its analyzer is a class that runs here as well.
            from milvus_lite.analyzer.factory import create_analyzer

            analyzer = create_analyzer(ANALYZER)
            return [list(analyzer.tokenize(text)) for text in bounded]
        found = client.run_analyzer(bounded, analyzer_params=ANALYZER, timeout=self._timeout)
        return [list(one.tokens) for one in found]

    # -- searching ---------------------------------------------------------------------------------------------------

    async def search_dense(
        self, collection: str, vector: Sequence[float], access: AccessFilter, limit: int
    ) -> list[Hit]:
        """Nearest rows by cosine, best first."""
        if matches_nothing(access) or limit <= 0:
            return []
        dimension = (await self._description_async(collection)).dimension
        if len(vector) != dimension:
            raise IndexMismatchError(f"{collection} is searched with {dimension} dimensions, not {len(vector)}")
        query = [float(value) for value in vector]
        return await self._search(collection, "dense", query, access, limit)

    async def search_sparse(self, collection: str, text: str, access: AccessFilter, limit: int) -> list[Hit]:
        """Best BM25 rows, best first; the score is positive and comparable within one result only."""
        if matches_nothing(access) or limit <= 0 or not text.strip():
            return []
        return await self._search(collection, "sparse", bounded_text(text), access, limit)

    async def _search(self, collection: str, field: str, query: Any, access: AccessFilter, limit: int) -> list[Hit]:
        limit = min(limit, MAX_LIMIT)
        known = asks_chunks(access) and (await self._description_async(collection)).chunk_facts
        expression = compile_filter(access, chunk_facts=known)
        parameters = search_parameters(field, self._options.index_type, limit)
        found = await self._milvus.call_async(
            collection,
            lambda client: client.search(
                collection,
                data=[query],
                anns_field=field,
                filter=expression,
                limit=limit,
                output_fields=["document_id", "version"],
                search_params=parameters,
                consistency_level="Strong",
                timeout=self._timeout,
            ),
        )
        return [
            Hit(
                chunk_id=row["id"],
                document_id=row["entity"]["document_id"],
                version=int(row["entity"]["version"]),
                # Milvus Lite tells BM25 scores negated, a server does not.
                score=abs(row["distance"]) if field == "sparse" else float(row["distance"]),
            )
            for row in (found[0] if found else [])
        ]


@dataclass(frozen=True, slots=True)
class _Description:
    dimension: int
    fingerprint: str
    """Of the embedder; "" when unknown."""
    chunk_facts: bool
    """Whether it has that field: collections of earlier versions have not."""


def _describe(description: Mapping[str, Any]) -> _Description:
    fields = {field["name"]: field for field in description["fields"]}
    if "dense" not in fields:
        raise IndexMismatchError(f"Collection {description.get('collection_name')} was not made by this project")
    dimension, fingerprint = int(fields["dense"]["params"]["dim"]), str(description.get("description") or "")
    return _Description(dimension, fingerprint, FIELDS[Scope.CHUNK] in fields)


def _record(row: IndexRow, vector: Any, *, with_facts: bool) -> dict[str, Any]:
    chunk = row.chunk
    record = {
        "id": chunk.id,
        "knowledge_base_id": chunk.knowledge_base_id,
        "document_id": chunk.document_id,
        "source_id": row.source_id,
        "version": chunk.version,
        "access_key": row.access_key,
        "metadata": dict(row.document_metadata),
        "text": bounded_text(chunk.content),
        "dense": vector,
    }
    if with_facts:
        record[FIELDS[Scope.CHUNK]] = chunk_facts(chunk)
    return record
