"""The deployments: ingress (HTTP), embedder (model), upload worker (background jobs). Each is a thin shell.

They get a picklable factory from `wiring` and build their objects in their own process. Reranker and generator
deployments stand beside the embedder when the settings name engines that need one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from ray import serve
from ray.serve.handle import DeploymentHandle

from rag_cluster.errors import InternalError
from rag_cluster.ingestion import uploads
from rag_cluster.serving.api import create_api
from rag_cluster.serving.backend import make_backend
from rag_cluster.serving.handles import BlockingHandleEmbedder, HandleEmbedder
from rag_cluster.telemetry import configure_logging
from rag_cluster.wiring import ServiceFactory

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Matrix


@serve.deployment
class EmbedderDeployment:
    """Owns the embedding model; loaded and warmed before the replica counts as ready."""

    def __init__(self, factory: ServiceFactory) -> None:
        services = factory()
        configure_logging(services.settings.log_level)
        self._embedder = services.async_embedder
        services.embedder.embed_queries(["warm up"])

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """float32 (len(texts), dimension)."""
        return await self._embedder.embed_documents(texts)

    async def embed_queries(self, texts: Sequence[str]) -> Matrix:
        """float32 (len(texts), dimension)."""
        return await self._embedder.embed_queries(texts)


@serve.deployment
class UploadWorkerDeployment:
    """Works on the upload queue in a thread, embedding through the embedder deployment."""

    def __init__(self, factory: ServiceFactory, embedder: DeploymentHandle[Any]) -> None:
        services = factory()
        configure_logging(services.settings.log_level)
        blocking = BlockingHandleEmbedder(embedder, services.embedder, services.settings.upload_job_timeout)
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=uploads.work_forever,
            args=(services.upload_worker(blocking), self._stop),
            name="upload-worker",
            daemon=True,
        )
        self._thread.start()

    async def check_health(self) -> None:
        """Serve replaces a replica whose loop has died."""
        if not self._thread.is_alive():
            raise InternalError("the upload worker's loop has ended")

    async def __del__(self) -> None:
        self._stop.set()
        # A job in hand is given back or finished; the lease covers the case that this process is killed instead.
        await asyncio.to_thread(self._thread.join, 15)


@serve.deployment
@serve.ingress()
class IngressDeployment:
    """HTTP. Composes retrieval and answering in its own process and calls models through handles."""

    def __init__(self, factory: ServiceFactory, embedder: DeploymentHandle[Any], worker: DeploymentHandle[Any]) -> None:
        services = factory()
        configure_logging(services.settings.log_level)
        remote = HandleEmbedder(embedder, services.embedder, services.settings.embed_timeout)
        blocking = BlockingHandleEmbedder(embedder, services.embedder, services.settings.request_timeout)
        self._backend = make_backend(services, remote, blocking_embedder=blocking)
        self._worker = worker

    def __serve_build_asgi_app__(self) -> FastAPI:
        return create_api(self._backend, answers_with_id=False)
