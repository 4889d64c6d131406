"""The cluster inside this process: the API's own routes, an upload worker and a local Ray, without a port or a server.

The routes run on an event loop in a thread of its own, so that calls work where a loop runs already, as in Jupyter.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Sequence
from functools import cached_property
from typing import Any, TypeVar

import httpx

from rag_cluster.client.http import READ_SECONDS, Api
from rag_cluster.domain.access import LOCAL
from rag_cluster.ingestion.listing import require_some
from rag_cluster.ingestion.report import IngestionReport
from rag_cluster.ingestion.run import IngestionOptions
from rag_cluster.ingestion.uploads import UploadWorker, work_once
from rag_cluster.serving.api import create_api
from rag_cluster.serving.backend import make_backend
from rag_cluster.settings import Settings
from rag_cluster.wiring import ServiceFactory, Services, WritePathFactory, local_services

URL = "http://localhost"
Result = TypeVar("Result")


class Embedded:
    """Services of these settings, opened at once; `close` ends what was started here and nothing else."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        with contextlib.ExitStack() as opening:
            self.services = _open_services(settings, opening)
            loop = _Loop()
            opening.callback(loop.close)
            opening.callback(lambda: loop.run(self.services.database.aclose()))
            # Whoever can open the stores owns them, as on the command line.
            app = create_api(make_backend(self.services, self.services.async_embedder, caller=LOCAL))
            transport = _InProcess(httpx.ASGITransport(app, raise_app_exceptions=False), loop)
            self.api = Api(httpx.Client(transport=transport, base_url=URL, timeout=READ_SECONDS), "the embedded server")
            opening.callback(self.api.close)
            self._closing = opening.pop_all()

    def close(self) -> None:
        """End it; a second time does nothing."""
        self._closing.close()

    def ingest(
        self, knowledge_base: str, inputs: Sequence[str], options: IngestionOptions, *, ocr: str | None, run_id: str
    ) -> IngestionReport:
        """A bulk run on a local Ray, started at the first and stopped by `close`, or on the Ray of the settings."""
        import ray

        from rag_cluster.ingestion.pipeline import run_ingestion

        if not ray.is_initialized():
            self._closing.callback(_stop_ray)
        settings = self.settings
        if ocr is not None and ocr != settings.ocr:
            settings = settings.model_copy(update={"ocr": ocr})
            self._closing.callback(_close_services, ServiceFactory(settings)())
        require_some(self.services.inputs, inputs, options.manifests)
        self.services.ensure_knowledge_base(knowledge_base)
        address = settings.ray_address or None
        return run_ingestion(
            WritePathFactory(settings), knowledge_base, inputs, options, run_id=run_id, address=address
        )

    def work(self) -> bool:
        """Work on one upload that is due. False: none was."""
        return work_once(self._worker)

    @cached_property
    def _worker(self) -> UploadWorker:
        return self.services.upload_worker(self.services.embedder)


def _open_services(settings: Settings, closing: contextlib.ExitStack) -> Services:
    """`local_services`; `closing` leaves running what of the embedded servers ran before."""
    servers = Services(settings).embedded
    if settings.embedded_postgres or settings.embedded_milvus:
        closing.callback(servers.down, keep=servers.running())
    services = local_services(settings)
    closing.callback(_close_services, services)
    return services


def _close_services(services: Services) -> None:
    for name in ("parser", "text_parser"):
        if name in vars(services):
            vars(services)[name].close()
    services.database.close()


def _stop_ray() -> None:
    import ray

    if ray.is_initialized():
        ray.shutdown(wait_for_processes=True)


class _Loop:
    """An event loop in a thread, which does not keep the interpreter from ending when nobody closed the client."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rag-cluster-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The coroutine's result. What an interrupt ends is cancelled: nobody waits for it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop and its threads."""
        self.run(self._loop.shutdown_asyncgens())
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _InProcess(httpx.BaseTransport):
    """Hands a request to the application on the loop and waits for the whole response."""

    def __init__(self, application: httpx.ASGITransport, loop: _Loop) -> None:
        self._application = application
        self._loop = loop

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """As httpx asks a transport."""
        return self._loop.run(self._answer(request))

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        response = await self._application.handle_async_request(request)
        content = await response.aread()
        return httpx.Response(response.status_code, headers=response.headers, content=content)
