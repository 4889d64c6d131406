"""`rag-cluster ingest --address http://...` becomes a job with the same options."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rag_cluster.cli.main import app
from rag_cluster.client.jobs import Cluster
from rag_cluster.settings import get_settings


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """What would be submitted, from a folder that holds `docs`."""
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAG_DATA_DIR", str(tmp_path / "data"))
    get_settings.cache_clear()
    found: list[list[str]] = []

    def submit(self: Cluster, arguments: Sequence[str], **_: Any) -> None:
        found.append(list(arguments))
        raise KeyboardInterrupt

    monkeypatch.setattr(Cluster, "submit", submit)
    return found


def run(command: str, *arguments: str) -> None:
    CliRunner().invoke(app, [command, "--address", "http://head:8265", *arguments])
    get_settings.cache_clear()


def test_every_option_goes_along_and_only_paths_are_made_absolute(submitted: list[list[str]], tmp_path: Path) -> None:
    run(
        "ingest",
        "docs",
        "s3://bucket/docs",
        "-k",
        "docs",
        "--acl",
        "a",
        "--acl",
        "docs",
        "--sync",
        "--manifest",
        "m.csv",
    )
    assert sorted(submitted[0][1:-3]) == [
        "--acl=a",
        "--acl=docs",
        "--knowledge-base=docs",
        f"--manifest={tmp_path / 'm.csv'}",
        "--sync",
    ]
    assert submitted[0][0] == "ingest" and submitted[0][-3:] == ["--", str(tmp_path / "docs"), "s3://bucket/docs"]


def test_what_is_submitted_is_a_command_line_that_means_the_same(submitted: list[list[str]]) -> None:
    run("ingest", "docs", "-k", "a b", "--open", "--security-level", "2", "--include", "*.md", "--ocr", "off", "--json")
    run(*submitted[0])
    assert submitted[0] == submitted[1] and "--ocr=off" in submitted[0] and "--security-level=2" in submitted[0]
