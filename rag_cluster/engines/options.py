"""What an engine may need to know besides its name."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rag_cluster.errors import MissingDependencyError

if TYPE_CHECKING:
    from pydantic import SecretStr

    from rag_cluster.settings import Settings


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible endpoint. url: up to and with the version, e.g. http://localhost:8000/v1.

    timeout: seconds of one attempt's silence. retries: further attempts after an outage, with exponential waits.
    """

    url: str = ""
    api_key: str = field(default="", repr=False)
    timeout: float = 60.0
    retries: int = 3
    min_wait: float = 1.0
    max_wait: float = 10.0

    @classmethod
    def of(cls, settings: Settings, url: str, api_key: SecretStr, timeout: float) -> Endpoint:
        """With the settings' retries."""
        return cls(
            url,
            api_key.get_secret_value(),
            timeout,
            settings.retries,
            settings.retry_min_wait,
            settings.retry_max_wait,
        )


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Shared by all engines; each takes what concerns it."""

    threads: int = 2
    """CPU threads of one call."""
    batch_size: int = 64
    """Texts of one call, or of one request to an endpoint, at most."""
    device: str = "auto"
    """auto (CUDA where there is one) | cpu | cuda | cuda:N."""
    dtype: str = "auto"
    """auto | float32 | bfloat16 | float16 | float8. auto: bfloat16 on a GPU, float32 on a CPU."""
    load_timeout: float = 300.0
    """Seconds for loading a model."""
    max_tokens: int = 0
    """Longer texts are cut there; 0: the model's own limit."""
    dimension: int = 0
    """Of an endpoint's vectors; 0: asked for at the first use."""
    query_prefix: str | None = None
    """None: the model's own."""
    document_prefix: str | None = None
    endpoint: Endpoint = Endpoint()


def require(engine: str, *packages: str, extra: str = "models") -> None:
    """MissingDependencyError, naming the extra, unless all packages are installed. Imports none of them."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise MissingDependencyError(
            f"The engine {engine} needs {', '.join(missing)}: pip install 'rag-cluster[{extra}]'"
        )
