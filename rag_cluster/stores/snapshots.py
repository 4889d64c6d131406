"""Snapshots: one Parquet file per version, `snapshot.parquet` below the version's snapshot prefix.

One object, so that a snapshot is there whole or not at all. Its row groups are the units that are read:

    group i (0 <= i < parts)   part i: its chunks, and the parents that they name (a parent cut by a part boundary is in
                               both groups)
    the groups after them      parents that no chunk names, then the blocks in reading order

`kind` tells what a row is; columns that do not concern it are null. Locators and metadata are JSON columns. What
concerns the whole version (file name, hash, fingerprint, parser, parts, warnings ...) is JSON in the schema's metadata
under the key "snapshot". Every page, and that header, has a checksum.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rag_cluster.domain import keys
from rag_cluster.domain.blocks import Block, BlockType, SourceLocator
from rag_cluster.domain.chunks import Chunk, ChunkedDocument, Parent, Part, PartContent, Snapshot
from rag_cluster.domain.ports import ObjectStore
from rag_cluster.errors import CorruptSnapshotError, NotFoundError, StoreUnavailableError

_FORMAT = 1
_FILE = "snapshot.parquet"
_BLOCKS_PER_GROUP = 2000
_HEADER = b"snapshot"
_HEADER_CRC = b"snapshot_crc32"  # pages have checksums of their own
_FACTS = (
    "knowledge_base_id",
    "document_id",
    "version",
    "filename",
    "sha256",
    "content_fingerprint",
    "parser_name",
    "parser_version",
    "chunking_strategy",
)
_STRINGS = pa.list_(pa.string())
_SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),  # chunk | parent | block
        pa.field("id", pa.string(), nullable=False),
        pa.field("index", pa.int32(), nullable=False),
        pa.field("text", pa.large_string(), nullable=False),  # a chunk's content, with its heading prefix
        pa.field("type", pa.string()),
        pa.field("parent_id", pa.string()),
        pa.field("prefix_length", pa.int32()),
        pa.field("token_count", pa.int32()),
        pa.field("start", pa.int32()),
        pa.field("end", pa.int32()),
        pa.field("block_ids", _STRINGS),
        pa.field("content_types", _STRINGS),
        pa.field("asset_ids", _STRINGS),
        pa.field("locator", pa.string(), nullable=False),
        pa.field("metadata", pa.string(), nullable=False),
    ]
)
_COMPRESSION = {
    f"{field.name}.list.element" if field.type == _STRINGS else field.name: "zstd" if field.name == "text" else "lz4"
    for field in _SCHEMA
}
"""Most snapshots are small, and there a zstd context for each column cost more than everything else."""
_DAMAGE = (pa.ArrowException, OSError, ValueError, KeyError, TypeError)
"""What reading damaged bytes raises."""
Row = dict[str, Any]


class ParquetSnapshotStore:
    """`SnapshotStore` on any `ObjectStore`. Picklable when that is."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def save(self, snapshot: Snapshot) -> None:
        """Write the snapshot, replacing an earlier one of the same version."""
        chunked = snapshot.chunked
        parents = {parent.id: parent for parent in chunked.parents}
        header = _json(_header(snapshot)).encode()
        schema = _SCHEMA.with_metadata({_HEADER: header, _HEADER_CRC: str(zlib.crc32(header)).encode()})
        target = io.BytesIO()
        with pq.ParquetWriter(
            target,
            schema,
            compression=_COMPRESSION,
            use_dictionary=False,
            write_statistics=False,
            write_page_checksum=True,
        ) as writer:
            for part in snapshot.parts:
                chunks = chunked.chunks[part.start : part.end]
                named = dict.fromkeys(chunk.parent_id for chunk in chunks if chunk.parent_id)
                rows = [_chunk_row(chunk) for chunk in chunks]
                rows += [_parent_row(parents[name]) for name in named if name in parents]
                _write_group(writer, schema, rows)
            used = {chunk.parent_id for chunk in chunked.chunks}
            rest = [_parent_row(parent) for parent in chunked.parents if parent.id not in used]
            rest += [_block_row(position, block) for position, block in enumerate(snapshot.blocks)]
            for start in range(0, len(rest), _BLOCKS_PER_GROUP):
                _write_group(writer, schema, rest[start : start + _BLOCKS_PER_GROUP])
        self._objects.put(_key(snapshot.knowledge_base_id, snapshot.document_id, snapshot.version), target.getvalue())

    def read_part(self, knowledge_base_id: str, part: Part) -> PartContent:
        """Chunks [start, end) of the version and their parents. NotFoundError without such a part."""
        with self._opened(knowledge_base_id, part.document_id, part.version) as file:
            header = _read_header(file)
            if part not in _parts(header):
                raise NotFoundError(f"The snapshot of {part.document_id} version {part.version} has no part {part}")
            rows = file.read_row_group(part.index, use_threads=False).to_pylist()
        return PartContent(
            part,
            tuple(_chunk(row, header) for row in rows if row["kind"] == "chunk"),
            tuple(_parent(row, header) for row in rows if row["kind"] == "parent"),
        )

    def read_blocks(self, knowledge_base_id: str, document_id: str, version: int) -> list[Block]:
        """The parsed blocks in reading order. NotFoundError."""
        with self._opened(knowledge_base_id, document_id, version) as file:
            groups = range(len(_parts(_read_header(file))), file.num_row_groups)
            return [_block(row) for row in _rows(file, groups) if row["kind"] == "block"]

    def load(self, knowledge_base_id: str, document_id: str, version: int) -> Snapshot:
        """The whole snapshot, exactly as it was saved. NotFoundError."""
        with self._opened(knowledge_base_id, document_id, version) as file:
            header = _read_header(file)
            rows = list(_rows(file, range(file.num_row_groups)))
        parents = {row["id"]: _parent(row, header) for row in rows if row["kind"] == "parent"}
        chunks = tuple(_chunk(row, header) for row in rows if row["kind"] == "chunk")
        return Snapshot(
            **{name: header[name] for name in _FACTS},
            blocks=tuple(_block(row) for row in rows if row["kind"] == "block"),
            chunked=ChunkedDocument(chunks, tuple(sorted(parents.values(), key=lambda parent: parent.index))),
            parts=_parts(header),
            metadata=header["metadata"],
            warnings=tuple(header["warnings"]),
        )

    def verify(self, knowledge_base_id: str, document_id: str, version: int) -> list[str]:
        """Read every page against its checksum; the chunk ids in order. NotFoundError, CorruptSnapshotError."""
        key = _key(knowledge_base_id, document_id, version)
        content = self._objects.get(key)  # an outage shows here: what fails below is the snapshot's fault
        try:
            file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
            texts = file.schema_arrow.metadata or {}
            if not file.schema_arrow.equals(_SCHEMA, check_metadata=False):
                raise ValueError("its columns are damaged")
            if int(texts.get(_HEADER_CRC, b"-1")) not in (-1, zlib.crc32(texts[_HEADER])):
                raise ValueError("its header is damaged")
            header = _read_header(file)
            if (header["knowledge_base_id"], header["document_id"], header["version"]) != (
                knowledge_base_id,
                document_id,
                version,
            ):
                raise ValueError(f"it is of document {header['document_id']} version {header['version']}")
            ids = [
                row["id"]
                for group in range(file.num_row_groups)
                for row in file.read_row_group(group, use_threads=False).select(["kind", "id"]).to_pylist()
                if row["kind"] == "chunk"
            ]
            if len(ids) != max((part.end for part in _parts(header)), default=0):
                raise ValueError(f"it holds {len(ids)} chunks, its parts say otherwise")
        except (*_DAMAGE, StoreUnavailableError) as error:
            raise CorruptSnapshotError(f"Snapshot {key}: {error}") from error
        return ids

    def exists(self, knowledge_base_id: str, document_id: str, version: int) -> bool:
        """Whether the version has a snapshot."""
        return self._objects.exists(_key(knowledge_base_id, document_id, version))

    def delete(self, knowledge_base_id: str, document_id: str, version: int) -> None:
        """Delete the version's snapshot; deleting what is absent is no error."""
        self._objects.delete_prefix(keys.snapshot_prefix(knowledge_base_id, document_id, version))

    @contextmanager
    def _opened(self, knowledge_base_id: str, document_id: str, version: int) -> Iterator[pq.ParquetFile]:
        key = _key(knowledge_base_id, document_id, version)
        with self._objects.open(key) as stream:
            try:
                yield pq.ParquetFile(stream, page_checksum_verification=True)
            except _DAMAGE as error:
                self.verify(knowledge_base_id, document_id, version)  # damage is told as such: no waiting mends it
                if not isinstance(error, pa.ArrowException | OSError):
                    raise
                raise StoreUnavailableError(f"Snapshot {key} cannot be read: {error}") from error


def _key(knowledge_base_id: str, document_id: str, version: int) -> str:
    return keys.snapshot_prefix(knowledge_base_id, document_id, version) + _FILE


# Parsers state dates and the like: they are kept as text rather than failing a document for them.
# One encoder: `json.dumps` with arguments makes one for each value, a third of the cost of a snapshot.
_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode


def _header(snapshot: Snapshot) -> Row:
    return {
        "format": _FORMAT,
        **{name: getattr(snapshot, name) for name in _FACTS},
        "parts": [[part.start, part.end] for part in snapshot.parts],
        "metadata": snapshot.metadata,
        "warnings": snapshot.warnings,
    }


def _parts(header: Row) -> tuple[Part, ...]:
    document, version = header["document_id"], header["version"]
    return tuple(Part(document, version, index, start, end) for index, (start, end) in enumerate(header["parts"]))


def _read_header(file: pq.ParquetFile) -> Row:
    header: Row = json.loads(file.schema_arrow.metadata[_HEADER])
    if header["format"] != _FORMAT:
        raise StoreUnavailableError(f"A snapshot has format {header['format']}; this version reads {_FORMAT}")
    return header


def _rows(file: pq.ParquetFile, groups: Iterable[int]) -> Iterator[Row]:
    for group in groups:
        yield from file.read_row_group(group, use_threads=False).to_pylist()


def _write_group(writer: pq.ParquetWriter, schema: pa.Schema, rows: Sequence[Row]) -> None:
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=max(len(rows), 1))


def _locator(locator: SourceLocator) -> str:
    # to_dict rounds boxes for people; here they stay as they were parsed.
    found = locator.to_dict()
    if "bbox" in found:
        found["bbox"] = locator.bbox
    if "spans" in found:
        found["spans"] = locator.spans
    return _json(found)


def _read_locator(row: Row) -> SourceLocator:
    return SourceLocator.from_dict(json.loads(row["locator"]))


def _chunk_row(chunk: Chunk) -> Row:
    return {
        "kind": "chunk",
        "id": chunk.id,
        "index": chunk.index,
        "text": chunk.content,
        "parent_id": chunk.parent_id,
        "prefix_length": chunk.prefix_length,
        "token_count": chunk.token_count,
        "start": chunk.start,
        "end": chunk.end,
        "block_ids": chunk.block_ids,
        "content_types": chunk.content_types,
        "asset_ids": chunk.asset_ids,
        "locator": _locator(chunk.locator),
        "metadata": _json(chunk.metadata),
    }


def _chunk(row: Row, header: Mapping[str, Any]) -> Chunk:
    return Chunk(
        id=row["id"],
        knowledge_base_id=header["knowledge_base_id"],
        document_id=header["document_id"],
        version=header["version"],
        index=row["index"],
        content=row["text"],
        prefix_length=row["prefix_length"],
        token_count=row["token_count"],
        locator=_read_locator(row),
        parent_id=row["parent_id"],
        start=row["start"],
        end=row["end"],
        block_ids=tuple(row["block_ids"]),
        content_types=tuple(row["content_types"]),
        asset_ids=tuple(row["asset_ids"]),
        metadata=json.loads(row["metadata"]),
    )


def _parent_row(parent: Parent) -> Row:
    return {
        "kind": "parent",
        "id": parent.id,
        "index": parent.index,
        "text": parent.text,
        "token_count": parent.token_count,
        "locator": _locator(parent.locator),
        "metadata": _json(parent.metadata),
    }


def _parent(row: Row, header: Mapping[str, Any]) -> Parent:
    return Parent(
        id=row["id"],
        document_id=header["document_id"],
        version=header["version"],
        index=row["index"],
        text=row["text"],
        token_count=row["token_count"],
        locator=_read_locator(row),
        metadata=json.loads(row["metadata"]),
    )


def _block_row(position: int, block: Block) -> Row:
    return {
        "kind": "block",
        "id": block.id,
        "index": position,
        "text": block.content,
        "type": block.type.value,
        "locator": _locator(block.locator),
        "metadata": _json(block.metadata),
    }


def _block(row: Row) -> Block:
    return Block(row["id"], BlockType(row["type"]), row["text"], _read_locator(row), json.loads(row["metadata"]))
