"""Ray's metrics port shows what an ingestion did; its log lines say of which run and document."""

from __future__ import annotations

import re
import time
import urllib.request
from collections import defaultdict
from typing import Any

import pytest
import ray

from rag_cluster.ingestion.pipeline import IngestionOptions, run_ingestion
from rag_cluster.ingestion.ray_metrics import RayMetrics
from tests.fixtures.write_path import Bench

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]
PATIENCE = 60.0
_SAMPLE = re.compile(r"ray_(rag_\w+)\{(.*)\} (\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_OURS = ("stage", "type", "outcome")

Samples = dict[tuple[str, ...], float]


def scrape() -> Samples:
    """(name, labels ...) -> value over all workers, as Prometheus would find it on this node."""
    found: Samples = defaultdict(float)
    for name, labels, value in _SAMPLE.findall(_page()):
        given = dict(_LABEL.findall(labels))
        if "_bucket" not in name:
            found[name, *(given[label] for label in _OURS if label in given)] += float(value)
    return found


def _page() -> str:
    """The node's metrics; its agent starts a little after Ray."""
    port = ray.nodes()[0]["MetricsExportPort"]
    ends = time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                text: str = answer.read().decode()
                return text
        except OSError:
            if time.monotonic() > ends:
                raise
            time.sleep(0.5)


def scraped_growth(before: Samples, wanted: dict[tuple[str, ...], float]) -> Samples:
    """What the port shows more than before, once it has all of `wanted`: Ray sends it with a delay."""
    ends = time.monotonic() + PATIENCE
    while True:
        now = scrape()
        grown = defaultdict(float, {key: value - before.get(key, 0.0) for key, value in now.items()})
        if all(grown[key] >= value for key, value in wanted.items()) or time.monotonic() > ends:
            return grown
        time.sleep(0.5)


def test_counters_and_histograms_of_a_run_are_on_rays_metrics_port(bench: Bench) -> None:
    for number in range(3):
        bench.write(f"泊位 {number}.txt", f"Berth {number} is {number + 5} metres deep. 泊位{number}。")
    bench.write("refused.txt", "POISON")
    bench.write("empty.txt", "")
    before = scrape()
    report = run_ingestion(bench.recipe, bench.base.name, [str(bench.folder)], IngestionOptions(progress=False))
    assert report.outcomes["ready"] == 3
    wanted: dict[tuple[str, ...], float] = {
        ("rag_documents_total", "ready"): 3,
        ("rag_documents_total", "failed"): 2,
        ("rag_document_seconds_count",): 3,
        ("rag_chunks_total",): report.embedded_chunks,
        ("rag_bytes_total",): sum(path.stat().st_size for path in bench.folder.iterdir()),
        ("rag_errors_total", "parse", "empty_document"): 1,
        ("rag_errors_total", "embed", "model_unavailable"): 1,
    }
    grown = scraped_growth(before, wanted | {("rag_stage_seconds_count", stage): 1 for stage in ("parse", "publish")})
    assert {key: grown[key] for key in wanted} == wanted
    assert grown["rag_tokens_total",] > 0 and grown["rag_stage_seconds_sum", "parse"] > 0
    assert {"plan", "claim", "fetch", "parse", "chunk", "embed", "publish"} <= {
        use.stage for use in report.timeline.stages
    }


def test_what_adds_nothing_is_not_counted_and_no_error() -> None:
    metrics: Any = RayMetrics()
    metrics.count("rag_test_total", 0)
    metrics.count("rag_test_total", 2.5, stage="parse")
