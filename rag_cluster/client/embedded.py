"""The cluster inside this process: the API's own routes, an upload worker and a local Ray, without a port or a server.

The routes run on an event loop in a thread of its own, so that calls work where a loop runs already, as in Jupyter.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import cached_property

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal

from rag_cluster.client.http import READ_SECONDS, Api
from rag_cluster.domain.access import LOCAL
from rag_cluster.ingestion.report import IngestionReport
from rag_cluster.ingestion.run import IngestionOptions
from rag_cluster.ingestion.uploads import UploadWorker, work_once
from rag_cluster.serving.api import create_api
from rag_cluster.serving.backend import make_backend
from rag_cluster.settings import Settings
from rag_cluster.wiring import ServiceFactory, Services, WritePathFactory, local_services

URL = "http://localhost"


class Embedded:
    """Services of these settings, opened at once; `close` ends what was started here and nothing else."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        with contextlib.ExitStack() as opening:
            self.services = _open_services(settings, opening)
            portal = opening.enter_context(start_blocking_portal())
            opening.callback(portal.call, self.services.database.aclose)
            # Whoever can open the stores owns them, as on the command line.
            app = create_api(make_backend(self.services, self.services.async_embedder, caller=LOCAL))
            transport = _InProcess(httpx.ASGITransport(app, raise_app_exceptions=False), portal)
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


class _InProcess(httpx.BaseTransport):
    """Hands a request to the application on the portal's loop and waits for the whole response."""

    def __init__(self, application: httpx.ASGITransport, portal: BlockingPortal) -> None:
        self._application = application
        self._portal = portal

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """As httpx asks a transport."""
        future = self._portal.start_task_soon(self._answer, request)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # an interrupted cell: the search that nobody waits for ends
            raise

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        response = await self._application.handle_async_request(request)
        content = await response.aread()
        return httpx.Response(response.status_code, headers=response.headers, content=content)
