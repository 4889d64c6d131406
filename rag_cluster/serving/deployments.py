"""The deployments without a model: ingress (HTTP) and upload worker (background jobs). Each is a thin shell.

They get a picklable factory from `wiring` and build their objects in their own process. Embedder and reranker, which
own models, are in `models`.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.serve.handle import DeploymentHandle

from rag_cluster.errors import InternalError
from rag_cluster.ingestion import uploads
from rag_cluster.serving.api import create_api
from rag_cluster.serving.backend import make_backend
from rag_cluster.serving.bulk import bulk_embedder
from rag_cluster.serving.generator import HandleGenerator
from rag_cluster.serving.handles import BlockingHandleEmbedder, HandleEmbedder, HandleReranker
from rag_cluster.serving.model_status import deployed
from rag_cluster.serving.replica import replica_services
from rag_cluster.wiring import ServiceFactory


@serve.deployment
class UploadWorkerDeployment:
    """Works on the upload queue in a thread, embedding through the embedder deployment."""

    def __init__(self, factory: ServiceFactory, embedder: DeploymentHandle[Any]) -> None:
        services = replica_services(factory)
        blocking = bulk_embedder(services, embedder, services.settings.serve_embed_timeout)
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

    def __init__(
        self,
        factory: ServiceFactory,
        embedder: DeploymentHandle[Any],
        worker: DeploymentHandle[Any],
        reranker: DeploymentHandle[Any] | None = None,
        generator: DeploymentHandle[Any] | None = None,
    ) -> None:
        services = replica_services(factory)
        settings = services.settings
        remote = HandleEmbedder(embedder, services.embedder, settings.embed_timeout)
        blocking = BlockingHandleEmbedder(embedder, services.embedder, settings.request_timeout)
        ranks = HandleReranker(reranker, settings.reranker, settings.rerank_timeout) if reranker is not None else None
        writes = HandleGenerator(generator, settings.generator) if generator is not None else None
        self._backend = make_backend(
            services,
            remote,
            reranker=ranks,
            generator=writes,
            blocking_embedder=blocking,
            models=deployed(settings, embedder=embedder, reranker=reranker, generator=generator),
        )
        self._worker = worker

    def __serve_build_asgi_app__(self) -> FastAPI:
        return create_api(self._backend, answers_with_id=False)
