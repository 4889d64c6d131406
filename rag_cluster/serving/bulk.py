"""Bulk embedding through the running Serve application: uploads, and ingestion jobs that load no model of their own.

Texts travel in slices, a few at a time, so that several replicas share them, autoscaling sees the load, and no request
is long. A replica takes a limited number (`EmbedderLimits.bulk_requests`) and lets queries go first; who is sent away
comes again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import ray
from ray import serve
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from rag_cluster.domain.ports import Embedder
from rag_cluster.engines.batching import estimated_tokens
from rag_cluster.errors import IndexMismatchError, ModelUnavailableError, OverloadedError
from rag_cluster.ingestion.write_path import WritePath
from rag_cluster.serving.handles import BlockingHandleEmbedder, model_error
from rag_cluster.settings import Settings
from rag_cluster.wiring import ServiceFactory, Services

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Matrix

EMBEDDER = "EmbedderDeployment"
SLICE_BATCHES = 4
"""Calls of the engine that a slice is enough for."""
MOST_TOKENS = 65_536
IN_FLIGHT = 4
"""Slices on their way at once."""


class BulkHandleEmbedder(BlockingHandleEmbedder):
    """Embedder that waits: for queries, and for capacity. timeout: seconds of one slice; slice_tokens: estimated.

    ModelUnavailableError when a slice got no vectors in that time.
    """

    def __init__(
        self, handle: DeploymentHandle[Any], described: Embedder, timeout: float, *, slice_tokens: int = MOST_TOKENS
    ) -> None:
        super().__init__(handle, described, timeout)
        self._slice_tokens = slice_tokens

    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """float32 (len(texts), dimension), unit norm."""
        pieces = list(slices(texts, self._slice_tokens))
        if len(pieces) < 2:
            return self._embed(texts)
        threads = ThreadPoolExecutor(min(IN_FLIGHT, len(pieces)), thread_name_prefix="bulk-embedding")
        try:
            return np.concatenate(list(threads.map(self._embed, pieces)))
        finally:
            threads.shutdown(cancel_futures=True)

    def check(self) -> None:
        """IndexMismatchError unless the deployment computes the vectors that these settings expect."""
        try:
            served = self._handle.fingerprint.remote().result(timeout_s=self._timeout)
        except Exception as error:
            raise model_error(error, "embedder") from error
        if served != self.fingerprint:
            raise IndexMismatchError(
                f"The Serve application embeds with {served}, RAG_EMBEDDER is {self.fingerprint}: set it to the same."
            )

    def _embed(self, texts: Sequence[str]) -> Matrix:
        attempts = Retrying(
            retry=retry_if_exception_type(OverloadedError),
            stop=stop_after_delay(self._timeout),
            wait=wait_random_exponential(multiplier=0.5, max=8),
            reraise=True,
        )
        try:
            return attempts(self._call, "embed_bulk", texts)
        except OverloadedError as error:
            raise ModelUnavailableError(f"The embedder had no capacity for {self._timeout:g} s.") from error


def slices(texts: Sequence[str], tokens: int) -> Iterator[Sequence[str]]:
    """Runs of texts of that many estimated tokens at most, or of one text."""
    start, held = 0, 0
    for position, text in enumerate(texts):
        size = estimated_tokens(text)
        if position > start and held + size > tokens:
            yield texts[start:position]
            start, held = position, 0
        held += size
    if start < len(texts):
        yield texts[start:]


def slice_tokens(settings: Settings) -> int:
    """Of one request, as the engine's batches are large."""
    return min(SLICE_BATCHES * settings.embedder_batch_tokens, MOST_TOKENS)


def bulk_embedder(services: Services, handle: DeploymentHandle[Any], timeout: float) -> BulkHandleEmbedder:
    """Over a deployment that has the services' engine."""
    return BulkHandleEmbedder(handle, services.embedder, timeout, slice_tokens=slice_tokens(services.settings))


@dataclass(frozen=True)
class ServedWritePathFactory:
    """Picklable; a write path that embeds through the Serve application of this Ray. Only in an actor: the driver
    embeds nothing, and Serve's threads behind a handle would outlive its Ray and end its process."""

    settings: Settings

    def __call__(self) -> WritePath:
        """ModelUnavailableError without such an application, IndexMismatchError when it has another embedder."""
        services = ServiceFactory(self.settings)()
        if not (ray.is_initialized() and ray.get_runtime_context().get_actor_id()):
            return services.write_path()
        embedder = bulk_embedder(services, served_embedder(self.settings.serve_app), self.settings.serve_embed_timeout)
        embedder.check()
        return services.write_path(embedder)


def served_embedder(app: str) -> DeploymentHandle[Any]:
    """The embedder deployment of an application. ModelUnavailableError when there is none."""
    try:
        return serve.get_deployment_handle(EMBEDDER, app_name=app)
    except (RayServeException, KeyError) as error:
        raise ModelUnavailableError(
            f"No Serve application {app!r} embeds on this Ray (RAG_SERVE_APP, RAG_INGEST_EMBEDDER=serve): {error}"
        ) from error
