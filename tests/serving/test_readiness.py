"""/readyz: which dependency does not answer, and that it recovers."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from rag_cluster.errors import StoreUnavailableError
from rag_cluster.serving.api import create_api
from rag_cluster.serving.backend import make_backend
from rag_cluster.serving.readiness import Readiness
from rag_cluster.settings import Settings
from rag_cluster.stores.embedded import EmbeddedStores
from rag_cluster.wiring import Services


async def test_what_does_not_answer_is_named_without_its_address() -> None:
    def away() -> None:
        raise StoreUnavailableError("PostgreSQL at 10.1.2.3 is away")

    def broken() -> None:
        raise RuntimeError("secret")

    checks = {"postgres": away, "milvus": lambda: None, "objects": broken}
    assert await Readiness(checks)() == {"postgres": "store_unavailable", "milvus": "ok", "objects": "failed"}


async def test_a_check_that_hangs_is_started_once_however_often_it_is_asked() -> None:
    started, release = 0, threading.Event()

    def hangs() -> None:
        nonlocal started
        started += 1
        release.wait(10)

    readiness = Readiness({"milvus": hangs, "postgres": lambda: None}, seconds=0.05)
    for _ in range(30):
        assert await readiness() == {"milvus": "no answer", "postgres": "ok"}
    assert started == 1
    release.set()
    await asyncio.sleep(0.2)
    assert await readiness() == {"milvus": "ok", "postgres": "ok"}


async def until(api: httpx.AsyncClient, status: int) -> httpx.Response:
    async with asyncio.timeout(60):
        while (response := await api.get("/readyz")).status_code != status:
            await asyncio.sleep(0.1)
        return response


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rag-ready-") as folder:
        yield Path(folder)
        EmbeddedStores(Path(folder)).down()


async def test_readiness_tells_which_store_was_killed_and_recovers_when_it_is_back(home: Path) -> None:
    stores = EmbeddedStores(home)
    # Stores that are named by settings are somebody else's: nothing here starts them again.
    settings = Settings(
        data_dir=home,
        postgres_dsn=stores.ensure_postgres(),
        milvus_uri=stores.ensure_milvus(),
        postgres_timeout=2,
        milvus_timeout=2,
        embedder="hash:64",
    )
    services = Services(settings)
    app = create_api(make_backend(services, services.async_embedder))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as api:
        assert (await api.get("/readyz")).status_code == 200
        for name, ensure in (("milvus", stores.ensure_milvus), ("postgres", stores.ensure_postgres)):
            server = next(one for one in stores.status().servers if one.name == name)
            assert server.pid is not None
            os.kill(server.pid, signal.SIGKILL)
            response = await until(api, 503)  # PostgreSQL's backends outlive its postmaster by a moment
            assert response.json()["status"] == "not ready"
            wrong = {key for key, value in response.json()["checks"].items() if value != "ok"}
            assert name in wrong and wrong <= {name, "index"}  # which index is queried stands in PostgreSQL
            assert (await api.get("/healthz")).status_code == 200
            ensure()
            await until(api, 200)
    await services.database.aclose()
    services.database.close()
