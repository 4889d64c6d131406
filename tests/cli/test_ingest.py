"""`rag-cluster ingest`: what it says before a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine, ingest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "码头.md").write_text("# 码头\n\n水深十二米。\n", encoding="utf-8")
    (folder / "draft.txt").write_text("A draft.", encoding="utf-8")
    return folder


def test_a_dry_run_counts_without_creating_the_knowledge_base(cli: CommandLine, folder: Path) -> None:
    found = cli("ingest", str(folder), "-k", "new", "--dry-run", "--json").json
    assert found["to_do"] == 2
    assert cli("kb", "show", "new").code == 1


def test_a_dry_run_knows_what_is_unchanged(cli: CommandLine, folder: Path) -> None:
    cli("kb", "create", "harbour", "--open")
    ingest("harbour", folder / "draft.txt")
    found = cli("ingest", str(folder), "-k", "harbour", "--dry-run", "--json").json
    counts = {row["extension"]: row.get("unchanged", 0) for row in found["types"]}
    assert counts == {".txt": 1, ".md": 0}


def test_a_dry_run_with_sync_says_what_would_go(cli: CommandLine, folder: Path) -> None:
    cli("kb", "create", "harbour", "--open")
    ingest("harbour", folder / "draft.txt", folder / "码头.md")
    (folder / "draft.txt").unlink()
    shown = cli("ingest", str(folder), "-k", "harbour", "--sync", "--dry-run").stdout
    assert "1 documents to remove" in shown
    assert len(cli("docs", "list", "-k", "harbour").rows) == 2


def test_a_dry_run_counts_what_the_sources_own_chunking_would_redo(cli: CommandLine, folder: Path) -> None:
    cli("kb", "create", "harbour", "--open")
    ingest("harbour", folder / "draft.txt")
    cli("sources", "update", "bulk", "-k", "harbour", "--chunking", "sentence")
    assert cli("ingest", str(folder / "draft.txt"), "-k", "harbour", "--dry-run", "--json").json["to_do"] == 1


def test_an_unknown_strategy_is_an_error_before_anything_is_listed(cli: CommandLine, folder: Path) -> None:
    result = cli("ingest", str(folder), "-k", "new", "--chunking", "clever", "--dry-run", "--json")
    assert (result.code, result.json["error"]["type"]) == (1, "invalid_setting")


def test_patterns_and_manifests_decide_what_is_listed(cli: CommandLine, folder: Path) -> None:
    only = cli("ingest", str(folder), "-k", "new", "--dry-run", "--include", "*.md", "--json").json
    assert only["to_do"] == 1
    (folder / "list.csv").write_text("uri,acl\ndraft.txt,staff\n", encoding="utf-8")
    listed = cli("ingest", "--manifest", str(folder / "list.csv"), "-k", "new", "--dry-run", "--json").json
    assert listed["to_do"] == 1


def test_a_sample_tells_hours_chunks_and_failures_as_a_table(cli: CommandLine, folder: Path) -> None:
    shown = cli("ingest", str(folder), "-k", "new", "--sample", "2").stdout
    assert "forecast from 2 documents" in shown and "documents that fail" in shown


def test_without_inputs_and_manifest_it_says_what_to_give(cli: CommandLine) -> None:
    result = cli("ingest", "-k", "new", "--json")
    assert (result.code, result.json["error"]["type"]) == (1, "invalid_request")


def test_a_report_of_another_format_is_refused_before_the_run(cli: CommandLine, folder: Path) -> None:
    result = cli("ingest", str(folder), "-k", "new", "--report", "run.txt", "--json")
    assert (result.code, result.json["error"]["type"]) == (1, "invalid_request")
    assert cli("kb", "show", "new").code == 1
