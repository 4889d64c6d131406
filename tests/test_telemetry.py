"""Log lines: JSON, one each, with the ids of what the work is about."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rag_cluster import telemetry
from rag_cluster.ingestion.run import RunContext
from rag_cluster.telemetry import JsonFormatter, bound, trace_id


@pytest.fixture
def log() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.Logger("rag_cluster.test")
    logger.addHandler(handler)
    yield logger, stream


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_has_the_trace_and_the_ids_that_are_bound_around_it(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = log
    token = trace_id.set("trace")
    with bound(run_id="run", document_id=""), bound(document_id="doc"):
        logger.warning("读取 %s", "码头.txt", extra={"uri": "file:///码头.txt"})
    logger.warning("outside")
    trace_id.reset(token)
    inside, outside = lines(stream)
    assert (inside["trace_id"], inside["msg"]) == ("trace", "读取 码头.txt")
    assert inside["extra"] == {"run_id": "run", "document_id": "doc", "uri": "file:///码头.txt"}
    assert "extra" not in outside


def test_what_a_line_says_itself_comes_first(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = log
    with bound(document_id="around"):
        logger.error("x", extra={"document_id": "own"})
    assert lines(stream)[0]["extra"] == {"document_id": "own"}


def test_threads_do_not_share_what_is_bound(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = log
    with bound(document_id="of the main thread"):
        thread = threading.Thread(target=logger.warning, args=("from another",))
        thread.start()
        thread.join()
    assert "extra" not in lines(stream)[0]


def test_the_level_that_somebody_chose_is_handed_on_to_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("rag_cluster")
    monkeypatch.setattr(logger, "level", logging.NOTSET)
    assert RunContext("run", "base", "source", None).log_level == "INFO"
    monkeypatch.setattr(logger, "level", logging.DEBUG)
    assert RunContext("run", "base", "source", None).log_level == "DEBUG"


def test_every_metric_says_what_it_counts() -> None:
    names = {value for name, value in vars(telemetry).items() if name.endswith(("_TOTAL", "_SECONDS"))}
    assert names == set(telemetry.HELP)
