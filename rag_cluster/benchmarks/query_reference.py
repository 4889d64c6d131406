"""Ray Serve without this project: what a request costs whose body is read and that calls one other deployment.

The measure of what of a query's time over HTTP is Serve's: proxy, replica, the body fetched from the proxy, and the
hop to the embedder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import FastAPI, Request
from ray import serve
from ray.serve.handle import DeploymentHandle

from rag_cluster.benchmarks.query_measures import BARE_PREFIX, BARE_ROUTE

DIMENSION = 384
NAME = "bare"


@serve.deployment(ray_actor_options={"num_cpus": 0}, max_ongoing_requests=32)
class NoEmbedder:
    """Computes nothing."""

    async def embed(self, texts: list[str]) -> list[list[float]]:
        """As many vectors as texts."""
        return [[0.0] * DIMENSION for _ in texts]


@serve.deployment(ray_actor_options={"num_cpus": 0}, max_ongoing_requests=32)
@serve.ingress()
class NoIngress:
    """Reads the body and calls the other one."""

    def __init__(self, embedder: DeploymentHandle[Any]) -> None:
        self._embedder = embedder

    def __serve_build_asgi_app__(self) -> FastAPI:
        return bare_api(self._embedder)


def bare_api(embedder: DeploymentHandle[Any]) -> FastAPI:
    """Its one route. Here, not in the class: Serve sends that without the names that annotations need."""
    api = FastAPI()

    @api.post(BARE_ROUTE)
    async def query(request: Request) -> dict[str, int]:
        body = await request.json()
        return {"vectors": len(await embedder.embed.remote([body["query"]]))}

    return api


@contextmanager
def bare_application() -> Iterator[None]:
    """It runs beside what Serve runs already, under BARE_PREFIX."""
    # Ray types what @serve.deployment returns as the class itself.
    ingress: Any = NoIngress
    embedder: Any = NoEmbedder
    serve.run(ingress.bind(embedder.bind()), name=NAME, route_prefix=BARE_PREFIX)
    try:
        yield
    finally:
        serve.delete(NAME)
