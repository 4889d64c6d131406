"""An embedder for the real Serve that does what its texts tell: it takes its time, or breaks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from ray.serve import Application

from rag_cluster.engines.hashing import HashEmbedder
from rag_cluster.serving.models import EmbedderDeployment
from rag_cluster.settings import Settings
from rag_cluster.wiring import ServiceFactory

SECONDS_A_CALL = 0.05


class Told(HashEmbedder):
    """Each call takes SECONDS_A_CALL, or as many seconds as the text "sleep SECONDS" says. After "break" none works."""

    broken = False

    def __init__(self, threads: int = 1, batch_size: int = 1) -> None:
        super().__init__(64)

    def embed_documents(self, texts: Sequence[str]) -> np.ndarray:
        """The hash embedder's vectors."""
        Told.broken = Told.broken or "break" in texts
        if Told.broken:
            raise RuntimeError("the engine is broken")
        told = [float(text.split()[1]) for text in texts if text.startswith("sleep ")]
        time.sleep(max(told, default=SECONDS_A_CALL))
        return super().embed_documents(texts)


def embedder_only(settings: dict[str, Any]) -> Application:
    """A Serve application of nothing but the embedder deployment: `args:` are settings."""
    deployment: Any = EmbedderDeployment
    options = {"ray_actor_options": {"num_cpus": 0}, "graceful_shutdown_wait_loop_s": 0.1}
    application: Application = deployment.options(**options).bind(ServiceFactory(Settings(**settings)))
    return application
