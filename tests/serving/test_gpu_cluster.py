"""GPU requests on several Ray nodes, in a process of its own with a Ray of its own: the suite's Ray is one node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rag_cluster.cli.demo import free_port

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]


def test_models_run_on_gpu_workers_and_everything_else_on_cpu_workers_and_a_job_embeds_by_either(
    tmp_path: Path,
) -> None:
    root = Path(__file__).parents[2]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "RAG_"))}
    done = subprocess.run(
        [sys.executable, str(root / "tests/serving/gpu_cluster.py"), str(tmp_path), str(free_port())],
        capture_output=True,
        text=True,
        timeout=800,
        env=environment | {"PYTHONPATH": str(root)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    places = seen["places"]
    for name in ("EmbedderDeployment", "RerankerDeployment"):
        assert {kind for kind, _ in places[name]} == {"gpu"}
        assert all(visible.isdecimal() for _, visible in places[name]), "each sees one GPU"
    for name in ("IngressDeployment", "UploadWorkerDeployment"):
        assert places[name] == [["cpu", ""]], "and these see none"
    assert {kind for name in ("ServeController", "ProxyActor") for kind, _ in places[name]} == {"head"}
    assert {kind for kind, _ in places["MapWorker(MapBatches(PrepareActor))"]} == {"cpu"}
    # The job that embeds with actors of its own asked for a GPU, the one that embeds through Serve did not.
    assert sorted(kind for kind, _ in places["MapWorker(MapBatches(IndexActor))"]) == ["cpu", "gpu"]
    assert seen["own"]["ready"] == seen["served"]["ready"] == 1
    found = {result["content"].split()[1]: result["rerank_score"] for result in seen["answer"]["results"]}
    assert found.keys() == {"own", "served"} and None not in found.values()
    embedder, reranker = (model["replicas"] for model in seen["models"][:2])
    assert embedder[0]["lanes"]["bulk"]["texts"] == 1 and embedder[0]["batch_tokens"] == 16384
    assert reranker[0]["done"] >= 1
