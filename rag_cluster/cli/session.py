"""What a command works with. Imported late, so that --help and mistakes do not wait for database drivers."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from rag_cluster import telemetry

if TYPE_CHECKING:
    from rag_cluster.settings import Settings
    from rag_cluster.wiring import Services


def services(settings: Settings | None = None) -> Services:
    """The services of this process, with the embedded stores running and the schema migrated."""
    from rag_cluster.settings import get_settings
    from rag_cluster.wiring import local_services

    chosen = settings or get_settings()
    configure_logging(chosen.log_level)
    return local_services(chosen)


def configure_logging(level: str) -> None:
    """On a terminal only warnings, as plain text; otherwise structured lines on standard error."""
    if not sys.stderr.isatty():
        telemetry.configure_logging(level)
        return
    # No handler: logging's last resort writes to whatever sys.stderr is now, and a progress bar stays whole below it.
    logging.getLogger("rag_cluster").setLevel(logging.WARNING)
    logging.getLogger("rag_cluster.ingestion").addFilter(_not_a_receipt)


def _not_a_receipt(record: logging.LogRecord) -> bool:
    return not hasattr(record, "uri")  # the report names them
