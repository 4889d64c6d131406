"""agents, sources and corrections on real stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine, ingest

QUESTION = "What is the brake gap?"


@pytest.fixture
def harbour(cli: CommandLine, tmp_path: Path) -> CommandLine:
    """An open knowledge base with one document and an agent that mounts its source."""
    assert cli("kb", "create", "port of agents", "--open").code == 0
    file = tmp_path / "manual.md"
    file.write_text("# Brake\n\nThe brake gap is 1.2 mm. The gap of a brake is checked daily.\n", encoding="utf-8")
    ingest("port of agents", file)
    assert cli("agents", "create", "desk", "-k", "port of agents", "--mount", "bulk").code == 0
    return cli


def test_a_correction_is_written_listed_and_taken_back(harbour: CommandLine) -> None:
    added = harbour(
        "corrections", "add", QUESTION, "Since May: 1.4 mm.", "-k", "port of agents", "--agent", "desk", "--json"
    )
    assert added.code == 0, added.stderr
    document = added.json["document_id"]
    assert harbour("corrections", "list", "-k", "port of agents").rows == [[QUESTION, "1", "READY", document]]
    again = harbour("corrections", "add", QUESTION, "Since May: 1.4 mm.", "-k", "port of agents", "--json")
    assert again.json["outcome"] == "unchanged"
    mounts = harbour("agents", "show", "desk", "-k", "port of agents").rows
    assert [row[:4] for row in mounts] == [
        ["0", "bulk", "bulk", "True"],
        ["0", "corrections", "managed_correction", "True"],
    ]
    assert harbour("corrections", "delete", document).code == 1
    assert harbour("corrections", "delete", document, "--yes", "--json").json["stores"]["postgres"] == "gone"
    assert harbour("corrections", "list", "-k", "port of agents").rows == []


def test_a_new_answer_alone_leaves_who_may_read_it(harbour: CommandLine) -> None:
    base = ("-k", "port of agents")
    assert (
        harbour("corrections", "add", QUESTION, "1.4 mm.", *base, "--acl", "staff", "--security-level", "3").code == 0
    )
    assert harbour("corrections", "add", QUESTION, "1.5 mm.", *base).code == 0
    (item,) = harbour("corrections", "list", *base, "--json").json["items"]
    assert (item["version"], item["access"]["acl"], item["access"]["security_level"]) == (2, ["staff"], 3)
    assert harbour("corrections", "add", QUESTION, "1.5 mm.", *base, "--open").code == 0
    (item,) = harbour("corrections", "list", *base, "--json").json["items"]
    assert (item["access"]["acl"], item["access"]["security_level"]) == ([], 0)


def test_only_a_correction_is_deleted_as_one(harbour: CommandLine) -> None:
    document = harbour("docs", "list", "-k", "port of agents", "--json").json["items"][0]["id"]
    assert harbour("corrections", "delete", document, "--yes", "--json").json["error"]["type"] == "not_found"


def test_agents_mount_rank_and_unmount_sources(harbour: CommandLine) -> None:
    mounted = harbour("agents", "mount", "desk", "bulk", "-k", "port of agents", "--priority", "7", "--json").json
    assert mounted["priority"] == 7
    assert harbour("agents", "show", "desk", "-k", "port of agents", "--json").json["mounts"][0]["priority"] == 7
    assert harbour("agents", "unmount", "desk", "bulk", "-k", "port of agents").code == 0
    assert (
        harbour("agents", "unmount", "desk", "bulk", "-k", "port of agents", "--json").json["error"]["type"]
        == "not_found"
    )
    updated = harbour("agents", "update", "desk", "-k", "port of agents", "--name", "front", "--hide-source-filename")
    assert "front: file names hidden" in updated.stdout
    (row,) = harbour("agents", "list", "-k", "port of agents").rows
    assert row[:2] == ["front", "hidden"]
    assert harbour("agents", "delete", "front", "-k", "port of agents").code == 0
    assert harbour("agents", "list", "-k", "port of agents").rows == []


def test_sources_are_made_ranked_and_switched_off(harbour: CommandLine) -> None:
    made = harbour("sources", "create", "fixes", "-k", "port of agents", "--kind", "managed_correction", "--json").json
    assert made["kind"] == "managed_correction"
    changed = harbour(
        "sources", "update", "bulk", "-k", "port of agents", "--disable", "--priority", "3", "--json"
    ).json
    assert (changed["enabled"], changed["priority"]) == (False, 3)
    assert harbour("search", QUESTION, "-k", "port of agents", "--json").json["results"] == []
    listed = harbour("sources", "list", "-k", "port of agents").rows
    assert [row[0] for row in listed] == ["bulk", "fixes"]
    refused = harbour("sources", "update", "bulk", "-k", "port of agents", "--chunking", "nonsense", "--json")
    assert refused.json["error"]["type"] == "invalid_setting"


def test_search_and_explain_as_an_agent_by_its_name(harbour: CommandLine) -> None:
    base = ("-k", "port of agents")
    found = harbour("search", QUESTION, *base, "--agent", "desk", "--keyword-fallback", "--json").json
    assert found["results"]
    assert harbour("agents", "unmount", "desk", "bulk", *base).code == 0
    assert harbour("search", QUESTION, *base, "--agent", "desk", "--json").json["results"] == []
    told = harbour("explain", QUESTION, *base, "--text", "gap is 1.2 mm", "--agent", "desk", "--json").json
    assert told["lost_at"] == "source"
    assert harbour("search", QUESTION, *base, "--agent", "nobody", "--json").json["error"]["type"] == "not_found"


def test_explain_shows_the_way_of_a_chunk(harbour: CommandLine) -> None:
    base = ("-k", "port of agents")
    shown = harbour("explain", QUESTION, *base, "--text", "gap is 1.2 mm")
    assert shown.code == 0, shown.stderr
    assert "shown as result 1" in shown.stdout and "manual.md" in shown.stdout
    assert any(line.startswith("dense\tpassed\t1\t") for line in shown.stdout.splitlines())
    assert harbour("explain", QUESTION, *base, "--text", "no such words", "--json").json["error"]["type"] == "not_found"
    assert harbour("explain", QUESTION, *base, "--json").json["error"]["type"] == "invalid_request"


def test_explain_as_another_reader(harbour: CommandLine) -> None:
    base = ("-k", "port of agents")
    document = harbour("docs", "list", *base, "--json").json["items"][0]["id"]
    assert harbour("docs", "access", document, "--acl", "staff", "--security-level", "2").code == 0

    def lost_at(*reader: str) -> str:
        told = harbour("explain", QUESTION, *base, "--document", document, *reader, "--json").json
        return str(told["lost_at"])

    assert lost_at() == lost_at("--group", "staff", "--security-level", "2") == ""
    assert lost_at("--as-reader") == lost_at("--group", "staff") == "access"


def test_search_shows_the_stages_it_went_through(harbour: CommandLine) -> None:
    base = ("-k", "port of agents")
    lines = harbour("search", QUESTION, *base, "--trace").stdout.splitlines()
    stages = [line.split("\t")[0] for line in lines[lines.index("stage\tms\tcounts") + 1 :]]
    assert [stage for stage in stages if not stage.startswith("degraded")] == ["scope", "recall", "fusion", "expand"]
    assert "degraded rerank: no reranker configured" in lines
    assert "stage\tms\tcounts" not in harbour("search", QUESTION, *base).stdout
