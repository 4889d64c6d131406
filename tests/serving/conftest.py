"""The HTTP application on real PostgreSQL and Milvus Lite, called in this process; the upload worker is run by hand."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from rag_cluster.ingestion.uploads import work_once
from rag_cluster.serving.api import create_api
from rag_cluster.serving.backend import make_backend
from rag_cluster.settings import Settings
from rag_cluster.stores.embedded import EmbeddedStores
from rag_cluster.wiring import Services


@pytest.fixture
def settings(tmp_path: Path, postgres_dsn: str, milvus_stores: EmbeddedStores) -> Settings:
    return Settings(
        data_dir=tmp_path,
        postgres_dsn=postgres_dsn,
        milvus_uri=milvus_stores.ensure_milvus(),
        embedder="hash:64",
        max_file_bytes=2_000_000,
        ocr="off",
    )


@pytest.fixture
def services(settings: Settings) -> Services:
    return Services(settings)


@pytest.fixture
async def api(services: Services) -> AsyncIterator[httpx.AsyncClient]:
    app = create_api(make_backend(services, services.async_embedder))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
        yield client
    await services.database.aclose()
    services.database.close()
    services.parser.close()


@pytest.fixture
def work(services: Services) -> Callable[[], int]:
    """Run the upload worker until nothing is due; how many jobs it took."""

    def run() -> int:
        worker = services.upload_worker(services.embedder)
        done = 0
        while work_once(worker, threading.Event()):
            done += 1
        return done

    return run


@pytest.fixture
async def base(api: httpx.AsyncClient) -> dict[str, Any]:
    response = await api.post("/v1/knowledge-bases", json={"name": "handbook", "default_acl": []})
    assert response.status_code == 201, response.text
    body: dict[str, Any] = response.json()
    return body


Upload = Callable[..., Any]


@pytest.fixture
def upload(api: httpx.AsyncClient, base: dict[str, Any]) -> Upload:
    """POST one file to the knowledge base."""

    async def post(name: str, content: bytes, headers: dict[str, str] | None = None, **fields: str) -> httpx.Response:
        return await api.post(
            f"/v1/knowledge-bases/{base['id']}/documents",
            files={"file": (name, content)},
            data=fields,
            headers=headers,
        )

    return post
