"""Structured logs and metric names (design section 8, seed 003). No Ray here.

A log line is JSON with ts, level, trace_id, module, msg, extra. `trace_id` is a context variable: the HTTP layer sets
it to the request id, the pipeline to the run id, and everything below inherits it.
"""

from __future__ import annotations

import contextvars
import json
import logging
import sys
import uuid
from datetime import UTC, datetime
from typing import Any

trace_id: contextvars.ContextVar[str] = contextvars.ContextVar("trace_id", default="")

# Metric names carry their unit.
DOCUMENTS_TOTAL = "rag_documents_total"
CHUNKS_TOTAL = "rag_chunks_total"
TOKENS_TOTAL = "rag_tokens_total"
BYTES_TOTAL = "rag_bytes_total"
STAGE_SECONDS = "rag_stage_seconds"
ERRORS_TOTAL = "rag_errors_total"
DEGRADATIONS_TOTAL = "rag_degradations_total"
GENERATIONS_TOTAL = "rag_generations_total"
GENERATOR_TOKENS_TOTAL = "rag_generator_tokens_total"
FIRST_TOKEN_SECONDS = "rag_first_token_seconds"

_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """One JSON object a line. Fields given by `extra=` land under "extra"."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without a line break inside."""
        line: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "trace_id": trace_id.get(),
            "module": record.name,
            "msg": record.getMessage(),
        }
        # Ray adds a field of its own to every record.
        extra = {key: value for key, value in vars(record).items() if key not in _STANDARD and key[0] != "_"}
        if extra:
            line["extra"] = extra
        if record.exc_info:
            line["exc"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def configure_logging(level: str = "INFO") -> None:
    """Send the package's log lines to standard error. Safe to call twice."""
    logger = logging.getLogger("rag_cluster")
    logger.setLevel(level)
    if not any(isinstance(handler.formatter, JsonFormatter) for handler in logger.handlers):
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonFormatter())
        logger.addHandler(handler)
    logger.propagate = False


def new_trace_id() -> str:
    """A random 32-hex-digit id."""
    return uuid.uuid4().hex


class NullMetrics:
    """A MetricSink that drops everything."""

    def count(self, name: str, value: float = 1.0, **labels: str) -> None:
        """Drop."""

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Drop."""
