"""Dry runs and samples: what a run would do, without doing it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rag_cluster.domain.access import LOCAL, AccessAttributes
from rag_cluster.ingestion.forecast import _wilson, forecast
from rag_cluster.ingestion.plan import PlanOptions
from rag_cluster.parsing.ocr import OcrMode
from tests.fixtures.write_path import Bench


def test_a_dry_run_counts_files_and_bytes_by_type_and_reads_no_byte(bench: Bench) -> None:
    bench.write("a.txt", "one")
    bench.write("b.TXT", "three")
    bench.write("c.exe", "MZ")
    found = forecast(bench.write_path, bench.base.id, [str(bench.folder)])
    assert (found.to_do, found.bytes_to_do) == (2, 8)
    assert {count.extension: dict(count.outcomes) for count in found.types} == {
        ".txt": {"to_do": 2},
        ".exe": {"skipped": 1},
    }
    assert not bench.calls


def test_a_dry_run_changes_nothing(bench: Bench) -> None:
    bench.write("a.txt", "one")
    forecast(
        bench.write_path, bench.base.id, [str(bench.folder)], PlanOptions(access=AccessAttributes(("x",))), sample=1
    )
    assert bench.write_path.catalog.list_documents(bench.base.id, LOCAL)[0] == []
    assert bench.write_path.outbox.pending() == 0


def test_a_sample_measures_real_documents_and_scales_to_all(bench: Bench) -> None:
    for number in range(10):
        bench.write(f"{number}.txt", f"Pier {number} has a depth of {number} metres. 码头水深{number}米。" * 20)
    found = forecast(bench.write_path, bench.base.id, [str(bench.folder)], sample=5)
    assert found.sample is not None and found.estimate is not None
    assert found.sample.documents == 5 and bench.calls["parsed"] == 5
    assert found.estimate.chunks == pytest.approx(2 * found.sample.chunks, rel=0.05)
    assert found.estimate.hours > 0 and found.estimate.index_bytes > 0


def test_a_sample_of_pictures_is_recognised(bench: Bench) -> None:
    bench.write("a.scan", "scan|0.2|Berth nine is closed.")
    write_path = replace(bench.recipe, ocr=OcrMode.AUTO)()
    found = forecast(write_path, bench.base.id, [str(bench.folder)], sample=3)
    assert found.sample is not None and found.estimate is not None
    assert found.estimate.chunks == 1 and found.sample.prepare_seconds > 0.2


def test_a_sample_counts_what_would_fail(bench: Bench) -> None:
    bench.write("empty.txt", "")
    bench.write("broken.docx", "no archive")
    found = forecast(bench.write_path, bench.base.id, [str(bench.folder)], sample=10)
    assert found.sample is not None and found.estimate is not None
    assert sum(found.sample.failures.values()) == 2 and "empty_document" in found.sample.failures
    assert found.estimate.failed_share[1] == 1.0


def test_a_sample_larger_than_the_corpus_takes_each_file_once(bench: Bench) -> None:
    bench.write("a.txt", "one")
    found = forecast(bench.write_path, bench.base.id, [str(bench.folder)], sample=100)
    assert found.sample is not None and found.sample.documents == 1


def test_the_interval_of_no_failure_in_few_documents_is_wide() -> None:
    low, share, high = _wilson(0, 10)
    assert (low, share) == (0.0, 0.0) and high == pytest.approx(0.278, abs=0.001)
