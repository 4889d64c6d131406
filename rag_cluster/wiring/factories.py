"""What travels to deployments and actors: picklable, and giving one `Services` per process."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from rag_cluster.settings import Settings, get_settings
from rag_cluster.wiring.services import Services

if TYPE_CHECKING:
    from rag_cluster.ingestion.write_path import WritePath


_services: dict[str, Services] = {}
_lock = Lock()


@dataclass(frozen=True)
class ServiceFactory:
    """Picklable; gives the one `Services` of a process for these settings."""

    settings: Settings

    def __call__(self) -> Services:
        """The process's services."""
        # Secrets must count too, so the key is built from the raw values and kept in this process only.
        key = repr(sorted((name, _raw(value)) for name, value in self.settings))
        with _lock:
            return _services.setdefault(key, Services(self.settings))


def _raw(value: object) -> str:
    reveal = getattr(value, "get_secret_value", None)
    return repr(reveal() if reveal else value)


@dataclass(frozen=True)
class WritePathFactory:
    """Picklable; gives an ingestion actor its write path."""

    settings: Settings

    def __call__(self) -> WritePath:
        """A write path on the process's services."""
        return ServiceFactory(self.settings)().write_path()


def local_services(settings: Settings | None = None) -> Services:
    """The services of a command, with the embedded stores running and the schema migrated."""
    services = ServiceFactory(settings or get_settings())()
    services.catalog.has_api_keys()  # Fails here, with a clear error, when PostgreSQL cannot be had.
    return services
