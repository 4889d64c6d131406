"""Fields, indexes and search parameters of a chunk collection (design section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pymilvus import CollectionSchema, DataType, Function, FunctionType, MilvusClient
from pymilvus.milvus_client.index import IndexParam

MAX_TEXT_BYTES = 65_535
_PUNCTUATION = list("，。、；：？！“”‘’（）《》〈〉【】「」『』…—～·,.;:?!\"'()[]{}<>|/\\-_*#`+=&^%$@~")
ANALYZER = {
    # jieba's search mode cuts long words again into their parts; English words and numbers pass whole.
    "tokenizer": "jieba",
    "filter": ["lowercase", {"type": "stop", "stop_words": _PUNCTUATION}],
}
_DENSE_DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "FLAT": {},
    "HNSW": {"M": 16, "efConstruction": 200},
    "IVF_FLAT": {"nlist": 1024},
    "DISKANN": {},
}


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """The settings of the dense index. index_type "auto": FLAT on Milvus Lite, HNSW on a server."""

    index_type: str
    parameters: Mapping[str, int | float | str]
    mmap: bool
    replicas: int

    def index_params(self, *, lite: bool) -> list[IndexParam]:
        """Both indexes."""
        kind = self.index_type
        if kind == "auto":
            # Filtered HNSW in Milvus Lite returned 22 of 30 rows; FLAT is exact, and fast enough for what Lite holds.
            kind = "FLAT" if lite else "HNSW"
        dense = {**_DENSE_DEFAULTS[kind], **self.parameters}
        return [
            IndexParam("dense", kind, "dense", metric_type="COSINE", params=dense),
            IndexParam("sparse", "SPARSE_INVERTED_INDEX", "sparse", metric_type="BM25", params={}),
        ]


def collection_schema(dimension: int, embedder_fingerprint: str) -> CollectionSchema:
    """The schema; the fingerprint stands in its description, so that a collection tells whose vectors it holds."""
    schema = MilvusClient.create_schema(enable_dynamic_field=False, description=embedder_fingerprint)
    schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=64)
    schema.add_field("knowledge_base_id", DataType.VARCHAR, max_length=64, is_partition_key=True)
    schema.add_field("document_id", DataType.VARCHAR, max_length=64)
    schema.add_field("source_id", DataType.VARCHAR, max_length=64)
    schema.add_field("version", DataType.INT64)
    schema.add_field("access_key", DataType.INT64)
    schema.add_field("metadata", DataType.JSON)
    schema.add_field("chunk_facts", DataType.JSON)
    schema.add_field(
        "text", DataType.VARCHAR, max_length=MAX_TEXT_BYTES, enable_analyzer=True, analyzer_params=ANALYZER
    )
    schema.add_field("dense", DataType.FLOAT_VECTOR, dim=dimension)
    schema.add_field("sparse", DataType.SPARSE_FLOAT_VECTOR)
    schema.add_function(Function("bm25", FunctionType.BM25, input_field_names=["text"], output_field_names=["sparse"]))
    return schema


def search_parameters(field: str, index_type: str, limit: int) -> dict[str, Any]:
    """Search as widely as the limit asks for; parameters that an index does not know are ignored."""
    if field == "sparse":
        return {"metric_type": "BM25"}
    params: dict[str, int] = {}
    if index_type in ("auto", "HNSW"):
        params["ef"] = min(max(2 * limit, 128), 32_768)
    elif index_type == "IVF_FLAT":
        params["nprobe"] = 64
    elif index_type == "DISKANN":
        params["search_list"] = max(limit, 100)
    return {"metric_type": "COSINE", "params": params}


def bounded_text(text: str) -> str:
    """The text, cut between characters at the longest that a VARCHAR takes, as UTF-8. The chunk itself is not cut."""
    return text.encode("utf-8", "replace")[:MAX_TEXT_BYTES].decode("utf-8", "ignore")
