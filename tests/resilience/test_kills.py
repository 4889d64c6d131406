"""A seeded fraction of the kill test; `.ci/long` runs the whole: python -m rag_cluster.benchmarks.kills."""

from __future__ import annotations

import tempfile
from pathlib import Path

import psutil
import pytest

from rag_cluster.benchmarks.kills import print_report, run_kills


@pytest.mark.timeout(900)
def test_whatever_is_killed_nothing_is_lost_doubled_or_failed_by_it() -> None:
    # A short path: Ray's and the stores' Unix sockets lie below it.
    with tempfile.TemporaryDirectory(prefix="kills-", ignore_cleanup_errors=True) as folder:
        report = run_kills(Path(folder), documents=18, kills=4, seed=7)
        left = [line for line in map(_command_line, psutil.process_iter()) if folder in line]
    print_report(report)
    assert report.clean
    assert report.kills.total() >= 4
    assert len(report.reference.failures) == 3 and report.reference.chunks.keys() == report.reference.index.keys()
    assert left == []


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
