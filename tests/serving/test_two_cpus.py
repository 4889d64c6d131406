"""On two CPUs, serving and ingesting must not starve each other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rag_cluster.cli.demo import free_port

pytestmark = pytest.mark.ray


def test_serving_and_a_bulk_ingest_share_a_ray_of_two_cpus(tmp_path: Path) -> None:
    script = Path(__file__).with_name("two_cpus.py")
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(free_port())],
        capture_output=True,
        text=True,
        timeout=240,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["ok"] and result["outcomes"]["ready"] == 40
    assert result["answered"] > 0 and result["failed"] == []
    assert "Buoy 7 lies 52 metres east" in result["found"]
