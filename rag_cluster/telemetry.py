"""Structured logs and metric names (design section 8, seed 003). No Ray here.

A log line is JSON with ts, level, trace_id, module, msg, extra. `trace_id` is a context variable: the HTTP layer sets
it to the request id, the pipeline to the run id, and everything below inherits it. `bound` adds what the work is about
(run_id, document_id, job_id) to the extra of every line that is logged inside.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import logging
import sys
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

trace_id: contextvars.ContextVar[str] = contextvars.ContextVar("trace_id", default="")
_about: contextvars.ContextVar[Mapping[str, str]] = contextvars.ContextVar("about", default={})  # noqa: B039 - read only

# Metric names carry their unit.
DOCUMENTS_TOTAL = "rag_documents_total"
DOCUMENT_SECONDS = "rag_document_seconds"
PAGES_TOTAL = "rag_pages_total"
CHUNKS_TOTAL = "rag_chunks_total"
TOKENS_TOTAL = "rag_tokens_total"
BYTES_TOTAL = "rag_bytes_total"
STAGE_SECONDS = "rag_stage_seconds"
ERRORS_TOTAL = "rag_errors_total"
DEGRADATIONS_TOTAL = "rag_degradations_total"
GENERATIONS_TOTAL = "rag_generations_total"
GENERATOR_TOKENS_TOTAL = "rag_generator_tokens_total"
FIRST_TOKEN_SECONDS = "rag_first_token_seconds"  # noqa: S105
EMBED_REQUESTS_TOTAL = "rag_embed_requests_total"
EMBED_BATCHES_TOTAL = "rag_embed_batches_total"
EMBED_TEXTS_TOTAL = "rag_embed_texts_total"
EMBED_TOKENS_TOTAL = "rag_embed_tokens_total"
EMBED_SECONDS = "rag_embed_seconds"
RERANK_PAIRS_TOTAL = "rag_rerank_pairs_total"
RERANK_SECONDS = "rag_rerank_seconds"

HELP: Mapping[str, str] = {
    DOCUMENTS_TOTAL: "Documents that came to an end, by outcome.",
    DOCUMENT_SECONDS: "Seconds from the claim of a document to its publication.",
    PAGES_TOTAL: "Pages, slides and sheets that were parsed.",
    CHUNKS_TOTAL: "Chunks that were written to an index.",
    TOKENS_TOTAL: "Tokens of these chunks, as the embedder counts.",
    BYTES_TOTAL: "Bytes of originals that were read.",
    STAGE_SECONDS: "Seconds of one stage of the work, by stage.",
    ERRORS_TOTAL: "Failures, by stage and stable type.",
    DEGRADATIONS_TOTAL: "Steps of queries that were left out after a failure, by stage.",
    GENERATIONS_TOTAL: "Answers of a generator, by outcome.",
    GENERATOR_TOKENS_TOTAL: "Tokens of a generator, by kind.",
    FIRST_TOKEN_SECONDS: "Seconds until a generator's first token.",
    EMBED_REQUESTS_TOTAL: "Requests to a serving embedder, by lane: queries, documents of answers, bulk.",
    EMBED_BATCHES_TOTAL: "Calls of its engine, into which these requests went, by lane.",
    EMBED_TEXTS_TOTAL: "Texts of these calls, by lane.",
    EMBED_TOKENS_TOTAL: "Tokens of these calls, estimated, by lane; by batches: the mean of a batch.",
    EMBED_SECONDS: "Seconds from a request to its vectors in the serving replica, waiting included, by lane.",
    RERANK_PAIRS_TOTAL: "Pairs of question and text that a serving reranker scored.",
    RERANK_SECONDS: "Seconds from a request to its scores in the serving replica, waiting included.",
}
"""What each metric counts, in a line."""
SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
"""Bounds of the histograms of seconds."""

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
        own = {key: value for key, value in vars(record).items() if key not in _STANDARD and key[0] != "_"}
        extra = {**_about.get(), **own}
        if extra:
            line["extra"] = extra
        if record.exc_info:
            line["exc"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


@contextlib.contextmanager
def bound(**ids: str) -> Iterator[None]:
    """Every line that is logged inside, in this thread or task, says what it is about."""
    token = _about.set({**_about.get(), **{name: value for name, value in ids.items() if value}})
    try:
        yield
    finally:
        _about.reset(token)


def configure_logging(level: str = "INFO") -> None:
    """Send the package's log lines to standard error. Safe to call twice."""
    logger = logging.getLogger("rag_cluster")
    logger.setLevel(level)
    if not any(isinstance(handler.formatter, JsonFormatter) for handler in logger.handlers):
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonFormatter())
        logger.addHandler(handler)
    logger.propagate = False


def log_level() -> str:
    """The level of the package's lines in this process; INFO where nobody chose one."""
    return logging.getLevelName(logging.getLogger("rag_cluster").level or logging.INFO)


def new_trace_id() -> str:
    """A random 32-hex-digit id."""
    return uuid.uuid4().hex


class NullMetrics:
    """A MetricSink that drops everything."""

    def count(self, name: str, value: float = 1.0, **labels: str) -> None:
        """Drop."""

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Drop."""
