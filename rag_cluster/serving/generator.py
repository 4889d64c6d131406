"""The language model's deployment, and a generator over its handle."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from ray import serve
from ray.serve.handle import DeploymentHandle

from rag_cluster.domain.answers import GenerationRequest
from rag_cluster.serving.handles import model_error
from rag_cluster.serving.replica import replica_services
from rag_cluster.wiring import ServiceFactory


@serve.deployment
class GeneratorDeployment:
    """Owns the language model; it is loaded, and has said a word, before the replica counts as ready."""

    async def __init__(self, factory: ServiceFactory) -> None:  # type: ignore[misc]  # Serve awaits it
        self._generator = replica_services(factory).hosted_generator()
        await self._generator.start()

    async def stream(self, request: GenerationRequest) -> AsyncGenerator[str]:
        """Text as it comes. Who stops reading ends the work: Serve cancels this."""
        async with aclosing(self._generator.stream(request)) as deltas:  # type: ignore[type-var]
            async for delta in deltas:
                yield delta

    async def statistics(self) -> dict[str, float]:
        """Of this replica: see `HostedGenerator.statistics`."""
        return dict(self._generator.statistics())

    async def check_health(self) -> None:
        """Raises for a dead engine: Serve then replaces the replica."""
        await self._generator.check_health()

    async def __del__(self) -> None:
        # The engine's process is not left behind with the GPU's memory.
        self._generator.close()


class HandleGenerator:
    """Generator over the generator deployment. name: the model's."""

    def __init__(self, handle: DeploymentHandle[Any], name: str) -> None:
        self._handle = handle.options(stream=True)
        self.name = name

    async def stream(self, request: GenerationRequest) -> AsyncGenerator[str]:
        """`Generator.stream`: closing it, and cancelling who reads it, cancels the request in its replica."""
        response: Any = self._handle.stream.remote(request)
        try:
            async for delta in response:
                yield delta
        except (asyncio.CancelledError, GeneratorExit):
            with contextlib.suppress(Exception):  # of a request that found no replica: it is over, as is wanted
                response.cancel()
            raise
        except Exception as error:
            raise model_error(error, "generator") from error
