"""The embedded default as a notebook has it: servers and Ray started by the client, and stopped by it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import ray

from rag_cluster.client import RagCluster
from rag_cluster.settings import Settings
from rag_cluster.stores.embedded import EmbeddedStores

pytestmark = pytest.mark.ray


@pytest.fixture
def home() -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="rag-nb-"))
    yield home
    EmbeddedStores(home).down()
    shutil.rmtree(home, ignore_errors=True)


def test_a_client_stops_the_servers_and_the_ray_that_it_started_and_no_others(home: Path) -> None:
    servers, had_ray = EmbeddedStores(home), ray.is_initialized()
    settings = Settings(data_dir=home, embedder="hash:64", ocr="off")
    (home / "码头.md").write_text("# 码头\n\n水深十二米。\n", encoding="utf-8")
    with RagCluster(settings=settings, knowledge_base="harbour") as rag:
        report = rag.ingest(home / "码头.md", acl=[], progress=False)
        assert report.ok and report.outcomes["ready"] == 1
        assert servers.running() == {"postgres", "milvus"} and ray.is_initialized()

        with RagCluster(settings=settings, knowledge_base="harbour") as another:
            assert another.ask("码头水深是多少？").citations
        assert servers.running() == {"postgres", "milvus"}

        assert rag.run(report.run_id).outcomes == report.outcomes
        assert rag.runs().to_pandas()["status"].tolist() == ["SUCCEEDED"]
    assert servers.running() == frozenset() and ray.is_initialized() == had_ray


def test_a_program_that_forgets_to_close_ends_nevertheless_and_its_servers_go_on(home: Path) -> None:
    program = f"from rag_cluster.client import RagCluster; print(RagCluster(data_dir={str(home)!r}).runs())"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAG_", "RAY_"))}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment | {"RAG_EMBEDDER": "hash:64"}, capture_output=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, b"0 runs\n"), done.stderr
    assert "postgres" in EmbeddedStores(home).running()


@pytest.mark.usefixtures("ray_cluster")
def test_a_dataframe_is_a_manifest_and_failed_files_are_rows(
    rag: RagCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "good.txt").write_text("The pier is 300 metres long.")
    (tmp_path / "bad.pdf").write_bytes(b"%PDF-1.7 broken")
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(
        {"uri": ["good.txt", str(tmp_path / "bad.pdf")], "acl": [["staff"], None], "metadata": [{"year": 2025}, None]}
    )
    report = rag.ingest(frame, progress=False)
    assert not report.ok and ray.is_initialized()
    assert report.outcomes["ready"] == 1 and report.to_pandas()["outcome"].tolist() == ["failed"]
    good = next(item for item in rag.documents(status="READY").items)
    assert good.access.acl == ["staff"] and good.metadata == {"year": 2025}
    assert rag.search("pier", filters={"year": 2025}).to_pandas().loc[0, "filename"] == "good.txt"
