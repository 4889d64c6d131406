"""What computes, and what it did so far: one entry a model, with the counters of each of its replicas."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ray.serve.handle import DeploymentHandle

from rag_cluster.settings import Settings
from rag_cluster.wiring import Services

log = logging.getLogger(__name__)

SECONDS = 5.0
"""For all replicas of a model to answer."""


@dataclass(frozen=True, slots=True)
class Model:
    """One role's model. replicas: the counters of each; None: they did not answer."""

    role: str
    engine: str
    """As the settings name it."""
    replicas: Sequence[Mapping[str, Any]] | None = ()


def in_process(services: Services) -> Callable[[], Awaitable[list[Model]]]:
    """Of a process that computes by itself."""

    async def models() -> list[Model]:
        settings = services.settings
        found = [Model("embedder", settings.embedder, [services.async_embedder.statistics()])]
        return [*found, *_others(settings, {"embedder"})]

    return models


def deployed(settings: Settings, **handles: DeploymentHandle[Any] | None) -> Callable[[], Awaitable[list[Model]]]:
    """Of a Serve application. handles: role -> a deployment with `statistics`."""
    present = {role: handle for role, handle in handles.items() if handle is not None}

    async def model(role: str, handle: DeploymentHandle[Any]) -> Model:
        try:
            answers: Any = await handle.broadcast("statistics").results_async(timeout_s=SECONDS)
        except Exception:  # becomes the answer: one model that is away must not hide the others
            log.warning("the %s tells nothing of itself", role, exc_info=True)
            answers = None
        return Model(role, getattr(settings, role), answers)

    async def models() -> list[Model]:
        found = await asyncio.gather(*(model(role, handle) for role, handle in present.items()))
        return [*found, *_others(settings, present.keys())]

    return models


def _others(settings: Settings, known: Container[str]) -> list[Model]:
    """Roles that are no deployment: they run where they are needed, or not at all."""
    names = {"embedder": settings.embedder, "reranker": settings.reranker, "generator": settings.generator}
    return [Model(role, name) for role, name in names.items() if role not in known and name != "none"]
