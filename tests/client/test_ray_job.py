"""Jobs on a real Ray with a dashboard, from a program and from the terminal. Only the cluster knows secrets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ray.job_submission import JobSubmissionClient

from rag_cluster.cli.serve import free_port
from rag_cluster.client import RagCluster
from rag_cluster.errors import AuthenticationError, InvalidRequestError, NotFoundError
from rag_cluster.settings import Settings
from tests.client.conftest import served

TOKEN = "a-token-of-the-tests-cluster-0123456789"
RAY_AUTH = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


@pytest.fixture
def dashboard(settings: Settings) -> Iterator[str]:
    """The address of a Ray whose environment names the stores. Other Rays may run on this machine."""
    own = {
        "RAG_POSTGRES_DSN": settings.postgres_dsn.get_secret_value(),
        "RAG_MILVUS_URI": settings.milvus_uri,
        "RAG_DATA_DIR": str(settings.home),
        "RAG_EMBEDDER": settings.embedder,
        "RAG_OCR": "off",
        **RAY_AUTH,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RAG_", "RAY_"))}
    head = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("ray_head.py")), str(free_port()), str(free_port())],
        env=inherited | own,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert head.stdin is not None and head.stdout is not None
    try:
        yield head.stdout.readline().strip()
    finally:
        head.stdin.close()
        head.wait(timeout=60)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "documents of the harbour"
    folder.mkdir()
    (folder / "码头.md").write_text("# 码头\n\n水深十二米。\n", encoding="utf-8")
    (folder / "crane.txt").write_text("The crane wind limit is 20 m/s.")
    return folder


def test_a_job_is_submitted_once_followed_to_its_report_and_tells_no_secret(
    settings: Settings, dashboard: str, folder: Path
) -> None:
    with (
        served(settings) as url,
        RagCluster(url, ray_address=dashboard, ray_token=TOKEN, knowledge_base="harbour") as rag,
        RagCluster(url, ray_address=dashboard, ray_token=TOKEN, knowledge_base="harbour") as another,
    ):
        with ThreadPoolExecutor(2) as threads:
            reports = list(threads.map(lambda client: client.ingest(folder, acl=[], key="first"), (rag, another)))
        assert reports[0].run_id == reports[1].run_id and all(report.ok for report in reports), reports
        assert reports[0].outcomes["ready"] == 2
        assert rag.run(reports[0].run_id).outcomes["ready"] == 2 and len(rag.runs().items) == 1
        assert rag.ask("What is the crane wind limit?").citations

        jobs = JobSubmissionClient(dashboard, headers={"Authorization": f"Bearer {TOKEN}"}).list_jobs()
        assert len([job for job in jobs if job.submission_id]) == 1
        record = json.dumps([job.dict() for job in jobs], default=str)
        assert settings.postgres_dsn.get_secret_value() not in record and "RAG_" not in record and TOKEN not in record

        again = rag.ingest(folder, acl=[], key="first")
        assert again.run_id == reports[0].run_id
        assert rag.ingest(folder, acl=[]).outcomes["unchanged"] == 2
        with pytest.raises(NotFoundError):
            rag.ingest(folder / "missing")
        with RagCluster(url, ray_address=dashboard, ray_token="wrong") as stranger, pytest.raises(AuthenticationError):
            stranger.submit("fsck")
        with pytest.raises(InvalidRequestError, match="DataFrame"):
            rag.ingest(rag.documents().to_pandas())

        stopped = rag.submit("runs", "watch", rag.runs().items[0].id, "--json")
        assert stopped.follow() == "SUCCEEDED" and stopped.result()["status"] == "SUCCEEDED"


def test_the_terminal_submits_by_the_same_way_and_a_job_can_be_stopped(
    settings: Settings, dashboard: str, folder: Path
) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAG_", "RAY_"))}
    command = [sys.executable, "-m", "rag_cluster.cli", "ingest", folder.name, "-k", folder.name, "--open", "--json"]
    done = subprocess.run(
        [*command, "--report", "run.html", "--address", dashboard],
        env=environment | RAY_AUTH | {"RAG_DATA_DIR": str(settings.home)},
        cwd=folder.parent,
        capture_output=True,
        text=True,
        timeout=300,
    )
    printed = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0 and printed["status"] == "SUCCEEDED", done.stdout + done.stderr
    assert printed["report"]["outcomes"]["ready"] == 2
    assert printed["report"]["knowledge_base"] == folder.name  # a name, although a folder is called so
    page = (folder.parent / "run.html").read_text(encoding="utf-8")
    assert "<svg" in page and "码头.md" in page, "written here, of what the job did there"

    with served(settings) as url, RagCluster(url, ray_address=dashboard, ray_token=TOKEN) as rag:
        job = rag.submit("serve", "--port", str(free_port()))
        while job.status() == "PENDING":
            time.sleep(0.2)
        assert job.stop() and job.follow() == "STOPPED" and not job.stop()
