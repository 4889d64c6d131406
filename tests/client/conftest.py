"""The client on real PostgreSQL and Milvus Lite: inside this process, and over HTTP."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from rag_cluster.client import RagCluster
from rag_cluster.ingestion.uploads import work_forever
from rag_cluster.serving.api import create_api
from rag_cluster.serving.backend import make_backend
from rag_cluster.settings import Settings
from rag_cluster.stores.embedded import EmbeddedStores
from rag_cluster.wiring import Services

TEXTS = [
    {"text": "The crane wind limit is 20 m/s. Work stops above it.", "uri": "https://example.com/crane.txt"},
    {"text": "# 岸桥\n\n制动器间隙的标准值是 1.2 毫米。", "filename": "岸桥.md", "metadata": {"team": "maintenance"}},
]


@pytest.fixture
def settings(tmp_path: Path, postgres_dsn: str, milvus_stores: EmbeddedStores) -> Settings:
    return Settings(
        data_dir=tmp_path / "data",
        postgres_dsn=postgres_dsn,
        milvus_uri=milvus_stores.ensure_milvus(),
        embedder="hash:64",
        ocr="off",
    )


@pytest.fixture
def rag(settings: Settings) -> Iterator[RagCluster]:
    """In this process."""
    with RagCluster(settings=settings, knowledge_base="handbook") as client:
        yield client


@contextlib.contextmanager
def served(settings: Settings) -> Iterator[str]:
    """The API on a port of this machine, with its upload worker: the URL."""
    services = Services(settings)
    server = uvicorn.Server(
        uvicorn.Config(create_api(make_backend(services, services.async_embedder)), log_level="error", lifespan="off")
    )
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        working = threading.Thread(target=work_forever, args=(services.upload_worker(services.embedder), stop))
        serving.start()
        working.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            stop.set()
            working.join()
            serving.join()
            services.parser.close()
            services.database.close()


@pytest.fixture
def remote(settings: Settings) -> Iterator[RagCluster]:
    """Over HTTP."""
    with served(settings) as url, RagCluster(url, knowledge_base="handbook") as client:
        yield client
