"""fsck and delete on real stores: tables, JSON, exit codes, and the same as jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rag_cluster.errors import StoreUnavailableError
from rag_cluster.settings import get_settings
from rag_cluster.wiring import ServiceFactory
from tests.cli.conftest import CommandLine, ingest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def manual(cli: CommandLine, tmp_path: Path) -> str:
    """The id of the only document of the knowledge base harbour; the shared index holds no rows but its own."""
    assert cli("kb", "create", "harbour", "--open").code == 0
    file = tmp_path / "岸桥 [red]说明.md"
    file.write_text("# 岸桥\n\n制动器间隙的标准值是 1.2 毫米。\n", encoding="utf-8")
    (document,) = ingest("harbour", file)
    cli("fsck", "--repair", "--grace-minutes", "0")
    return document


def lose_rows(document_id: str) -> None:
    services = ServiceFactory(get_settings())()
    for record in services.catalog.indexes():
        services.index.delete(record.collection, document_id)


def test_a_clean_system_exits_0_and_says_what_was_looked_at(cli: CommandLine, manual: str) -> None:
    result = cli("fsck", "--grace-minutes", "0")
    assert (result.code, result.stdout.startswith("clean: 1 documents, 1 index rows, 2 objects in ")) == (0, True)
    report = cli("fsck", "--deep", "--json", "-k", "harbour").json
    assert (report["clean"], report["findings"], report["scanned"]["documents"]) == (True, 0, 1)


def test_findings_exit_1_are_listed_repaired_and_gone(cli: CommandLine, manual: str, tmp_path: Path) -> None:
    lose_rows(manual)
    found = cli("fsck")
    assert found.code == 1
    assert "missing_row\t1\t0\t0\t0" in found.stdout
    assert f"missing_row\tfound\t{manual}\t1\t" in found.stdout
    log = tmp_path / "findings.jsonl"
    repaired = cli("fsck", "--repair", "--json", "--findings", str(log))
    assert (repaired.code, repaired.json["repaired"], repaired.json["faults"]["missing_row"]["repaired"]) == (1, 1, 1)
    (line,) = log.read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["document_id"] == manual
    assert cli("fsck").code == 0
    assert "1.2" in cli("search", "制动器", "-k", "harbour").stdout or cli("search", "制动器", "-k", "harbour").rows


def test_an_unknown_knowledge_base_is_an_error_and_no_finding(cli: CommandLine) -> None:
    result = cli("fsck", "-k", "nothing", "--json")
    assert (result.code, result.json["error"]["type"]) == (1, "not_found")


@pytest.mark.parametrize("command", ["docs", "kb", "job"])
def test_a_delete_with_steps_still_owed_says_so_and_exits_3(
    cli: CommandLine, manual: str, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    from rag_cluster.stores.milvus import MilvusChunkIndex

    def refuse(*_: Any, **__: Any) -> None:
        raise StoreUnavailableError("Milvus: down")

    arguments = {
        "docs": ("docs", "delete", manual),
        "kb": ("kb", "delete", "harbour"),
        "job": ("delete", "-k", "harbour", "--source", "bulk"),
    }[command]
    with monkeypatch.context() as patch:
        patch.setattr(MilvusChunkIndex, "delete", refuse)
        result = cli(*arguments, "--yes", "--json")
    assert result.code == 3
    assert result.json["pending"] in (True, 1)
    assert "fsck --repair" in result.stderr
    assert cli("docs", "show", manual).code == 1, "invisible all the same"
    assert "1 documents were not judged" in cli("fsck").stdout
    assert "not judged" not in cli("fsck", "--repair").stdout
    services = ServiceFactory(get_settings())()
    assert services.outbox.pending() == 0
    assert services.catalog.remains(manual)["chunks"] == 0


def test_a_source_is_deleted_and_its_knowledge_base_stays(cli: CommandLine, manual: str) -> None:
    deleted = cli("delete", "-k", "harbour", "--source", "bulk", "--yes", "--json")
    assert (deleted.code, deleted.json["documents"], deleted.json["pending"]) == (0, 1, 0)
    assert cli("docs", "list", "-k", "harbour").rows == []
    assert cli("kb", "show", "harbour").code == 0


def test_documents_are_deleted_by_id_and_none_when_one_is_unknown(cli: CommandLine, manual: str) -> None:
    unknown = "00000000-0000-0000-0000-000000000000"
    assert cli("delete", manual, unknown, "--yes", "--json").json["error"]["type"] == "not_found"
    assert cli("docs", "show", manual).code == 0
    assert cli("delete", manual, "--yes").stdout.startswith("deleted 1 documents: 1 documents, 0 with steps")


@pytest.mark.parametrize("arguments", [(), ("x", "-k", "harbour"), ("--source", "bulk")])
def test_what_to_delete_must_be_said_clearly(cli: CommandLine, arguments: tuple[str, ...]) -> None:
    result = cli("delete", *arguments, "--yes", "--json")
    assert (result.code, result.json["error"]["type"]) == (2, "invalid_request")


def test_fsck_and_delete_run_as_jobs(cli: CommandLine, manual: str) -> None:
    def job(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(REPOSITORY / "jobs" / name), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, env=dict(os.environ), check=False)

    checked = job("fsck.py", "--json")
    assert (checked.returncode, json.loads(checked.stdout)["clean"]) == (0, True), checked.stderr
    deleted = job("delete.py", "--knowledge-base", "harbour", "--json")
    assert (deleted.returncode, json.loads(deleted.stdout)["documents"]) == (0, 1), deleted.stderr
