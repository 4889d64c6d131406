"""The Serve application, built by a typed builder: `serve run serve_config.yaml` or `rag-cluster serve`."""

# No `from __future__ import annotations` here: Serve reads the builder's real annotation to validate `args:`.

import contextlib
import difflib
import logging
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator
from ray import serve
from ray.serve import Application

from rag_cluster.errors import InvalidSettingError, RagClusterError, error_types
from rag_cluster.serving.deployments import IngressDeployment, UploadWorkerDeployment
from rag_cluster.serving.generator import GeneratorDeployment
from rag_cluster.serving.models import EmbedderDeployment, RerankerDeployment
from rag_cluster.settings import Settings, get_settings
from rag_cluster.wiring import ServiceFactory

APP_NAME = "rag"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class AppConfig(BaseModel):
    """`args:` of serve_config.yaml. Deployment options (replicas, autoscaling, GPUs) stand under `deployments:`."""

    model_config = ConfigDict(extra="forbid")

    settings: dict[str, Any] = Field(
        default_factory=dict, description="Settings by their name in settings.py, over the environment's."
    )

    @field_validator("settings")
    @classmethod
    def _known(cls, settings: dict[str, Any]) -> dict[str, Any]:
        # The environment may hold what is not ours; this file may not.
        for name in settings.keys() - Settings.model_fields.keys():
            close = difflib.get_close_matches(name, Settings.model_fields, n=1)
            raise ValueError(f"there is no setting {name!r}" + (f": did you mean {close[0]!r}?" if close else ""))
        Settings(**settings)
        return settings


def build(config: AppConfig) -> Application:
    """ingress -> embedder and, where the settings name them, reranker and language model; upload worker beside them.

    Local profile: every deployment takes num_cpus 0.
    """
    settings = Settings(**config.settings) if config.settings else get_settings()
    factory = ServiceFactory(settings)
    limits: dict[str, Any] = {
        "max_ongoing_requests": settings.max_ongoing_requests,
        "max_queued_requests": settings.max_queued_requests,
        "backpressure_config": {"status_code": 429, "retry_after_s": 1},
    }
    model = _deployment(EmbedderDeployment, gpus=settings.embedder_gpus, **limits).bind(factory)
    ranks = None
    if settings.reranker != "none":
        ranks = _deployment(RerankerDeployment, gpus=settings.reranker_gpus, **limits).bind(factory)
    writes = None
    if factory().hosts_generator:
        writes = _deployment(
            GeneratorDeployment,
            gpus=settings.generator_gpus,
            health_check_period_s=5,
            # Answers that are being written are finished first.
            graceful_shutdown_timeout_s=settings.request_timeout,
            **limits,
        ).bind(factory)
    worker = _deployment(UploadWorkerDeployment, health_check_period_s=5, graceful_shutdown_timeout_s=20).bind(
        factory, model
    )
    # Every answer passes through it: those in hand reach their deadline first.
    drain = settings.request_timeout + 15
    application: Application = _deployment(IngressDeployment, graceful_shutdown_timeout_s=drain, **limits).bind(
        factory, model, worker, ranks, writes
    )
    return application


def _deployment(kind: Any, gpus: float = 0.0, **options: Any) -> Any:
    # Ray types what @serve.deployment returns as the class itself.
    # A replica that is told to stop looks for requests in hand this often; Serve's default makes every stop wait 2 s.
    resources = {"num_cpus": 0, **({"num_gpus": gpus} if gpus else {})}
    return kind.options(ray_actor_options=resources, graceful_shutdown_wait_loop_s=0.1, **options)


def require_safe_host(settings: Settings, *, has_api_keys: bool) -> None:
    """Without an API key the server is for this machine only: refuse any other address."""
    if settings.host not in _LOOPBACK and not has_api_keys:
        raise InvalidSettingError(
            f"Refusing to listen on {settings.host} without an API key: create one with "
            "'rag-cluster keys create NAME' or set RAG_HOST=127.0.0.1."
        )


def start(settings: Settings) -> str:
    """Start Serve's HTTP proxy and the application on the current Ray; the endpoint's URL.

    Waits until every deployment is ready. The caller owns the Ray it runs on.
    """
    factory = ServiceFactory(settings)
    require_safe_host(settings, has_api_keys=factory().catalog.has_api_keys())
    serve.start(
        http_options={
            "host": settings.host,
            "port": settings.port,
            # Our own deadline answers first, with a proper error.
            "request_timeout_s": settings.request_timeout + 30,
        }
    )
    application = build(AppConfig(settings=settings.model_dump(exclude_defaults=True)))
    try:
        serve.run(application, name=APP_NAME, route_prefix="/")
    except RuntimeError as error:  # "Failed to update the deployments"
        raise _deployment_failure() or error from error
    return f"http://{settings.host}:{settings.port}"


def _deployment_failure() -> RagClusterError | None:
    """The error of this program that kept a deployment from starting: the last line of the trace in its status."""
    kinds = {kind.__name__: kind for kind in error_types().values()}
    for name, deployment in serve.status().applications[APP_NAME].deployments.items():
        last = (deployment.message.strip().splitlines() or [""])[-1]
        kind, _, message = last.partition(": ")
        if known := kinds.get(kind.rpartition(".")[2]):
            return known(f"{name} did not start: {message}")
    return None


@contextlib.contextmanager
def running(settings: Settings) -> Iterator[str]:
    """`start`, and at the end the application stopped: no new requests, those in hand finished, replicas gone.

    Serve itself, which others may use, goes with the Ray that it runs on.
    """
    # What Serve tells while it deploys is in its log files.
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    endpoint = start(settings)
    try:
        yield endpoint
    finally:
        serve.delete(APP_NAME)
