"""reembed and indexes on real stores, and the question file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rag_cluster.errors import IndexMismatchError, InvalidRequestError
from rag_cluster.lifecycle.recall import load_questions
from rag_cluster.settings import get_settings
from rag_cluster.wiring import ServiceFactory
from tests.cli.conftest import CommandLine, ingest


@pytest.fixture
def handbook(cli: CommandLine, tmp_path: Path) -> CommandLine:
    """Three documents in the index of hash:64."""
    files = []
    for name, text in (
        ("crane", "The crane lifts 65 tonnes."),
        ("quay", "码头长四百米。"),
        ("tide", "The tide is high."),
    ):
        files.append(tmp_path / f"{name}.txt")
        files[-1].write_text(text, encoding="utf-8")
    cli("kb", "create", "handbook")
    ingest("handbook", *files)
    return cli


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    asked = [("How much does the crane lift?", "crane.txt"), ("码头多长？", "quay.txt")]
    path.write_text("".join(json.dumps({"query": query, "document": name}) + "\n" for query, name in asked))
    return path


def states(cli: CommandLine) -> dict[int, str]:
    return {found["dimension"]: found["state"] for found in cli("indexes", "list", "--json").json["indexes"]}


def test_an_index_is_built_compared_switched_to_switched_back_and_dropped(
    handbook: CommandLine, questions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = handbook("reembed", "--model", "hash:128", "--questions", str(questions), "-k", "handbook", "--json")
    assert done.code == 0, done
    report = done.json
    assert (report["outcome"], report["chunks"], report["missing"]) == ("switched", 3, 0)
    assert report["comparison"]["old"]["hybrid"] == report["comparison"]["new"]["hybrid"] == {"recall": 1.0, "mrr": 1.0}
    assert states(handbook) == {128: "active", 64: "retired"}
    assert "crane.txt" in handbook("search", "crane", "-k", "handbook").stdout, "hash:64 still has its index"
    old, new = (found["collection"] for found in sorted(_indexes(handbook), key=lambda found: found["dimension"]))
    assert "active" in handbook("indexes", "switch", old).stdout
    assert states(handbook) == {64: "active", 128: "retired"}
    handbook("indexes", "switch", new)
    assert handbook("indexes", "drop", new, "--yes", "--json").json["error"]["type"] == "conflict"
    assert handbook("indexes", "drop", old, "--yes", "--json").json == {"dropped": old}
    refused = handbook("search", "crane", "-k", "handbook", "--json")
    assert (refused.code, refused.json["error"]["type"]) == (1, "index_mismatch")
    with pytest.raises(IndexMismatchError):
        ServiceFactory(get_settings())().readiness_checks()["index"]()
    monkeypatch.setenv("RAG_EMBEDDER", "hash:128")
    get_settings.cache_clear()
    ServiceFactory(get_settings())().readiness_checks()["index"]()
    assert "crane.txt" in handbook("search", "crane", "-k", "handbook").stdout


def _indexes(cli: CommandLine) -> list[dict[str, str]]:
    return list(cli("indexes", "list", "--json").json["indexes"])


def test_people_see_old_and_new_side_by_side(handbook: CommandLine, questions: Path) -> None:
    done = handbook("reembed", "--model", "hash:128", "--questions", str(questions), "-k", "handbook", "--no-switch")
    assert done.code == 0
    lines = done.stdout.splitlines()
    assert lines[0].split("\t") == ["mode", "Recall@5 old", "Recall@5 new", "MRR@5 old", "MRR@5 new"]
    assert lines[2].split("\t") == ["hybrid", "1.0000", "1.0000", "1.0000", "1.0000"]
    assert "not switched to" in lines[-1]
    assert states(handbook) == {64: "active", 128: "building"}


def test_a_worse_index_is_refused_with_exit_code_1(handbook: CommandLine, questions: Path) -> None:
    arguments = (
        "reembed",
        "--model",
        "hash:128",
        "--questions",
        str(questions),
        "-k",
        "handbook",
        "--max-loss",
        "-0.5",
    )
    done = handbook(*arguments)
    assert done.code == 1
    assert "worse by" in done.stdout
    assert states(handbook) == {64: "active", 128: "building"}
    assert handbook(*arguments, "--force").code == 0
    assert states(handbook) == {64: "retired", 128: "active"}


def test_questions_need_the_active_index_s_own_embedder(
    handbook: CommandLine, questions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAG_EMBEDDER", "hash:128")
    get_settings.cache_clear()
    arguments = ("reembed", "--questions", str(questions), "-k", "handbook", "--json")
    refused = handbook(*arguments)
    assert (refused.code, refused.json["error"]["type"]) == (1, "index_mismatch")
    assert "--old-model" in refused.json["error"]["message"]
    assert handbook(*arguments, "--old-model", "hash:64").json["outcome"] == "switched"


def test_an_unknown_embedder_or_index_is_named(handbook: CommandLine) -> None:
    assert "nobody" in handbook("reembed", "--model", "nobody", "--json").json["error"]["message"]
    assert handbook("indexes", "switch", "nobody", "--json").json["error"]["type"] == "not_found"
    assert states(handbook) == {64: "active"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "line 1"),
        ("[]", "an object"),
        ('{"document": "a.txt"}', "query"),
        ('{"query": "q"}', "document or chunk"),
        ('{"query": "q", "document": 7}', "document or chunk"),
        ("", "no questions"),
    ],
)
def test_a_question_file_that_is_wrong_says_where(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(InvalidRequestError, match=reason):
        load_questions(path, "base", str)


def test_a_question_names_its_knowledge_base_and_everything_that_it_should_find(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(
        '{"query": "q", "knowledge_base": "b", "document": ["x.txt", "y.txt"], "chunk": "c"}\n\n'
        '{"query": "问", "document": "z.txt"}\n',
        encoding="utf-8",
    )
    first, second = load_questions(path, "a", str.upper)
    assert (first.knowledge_base_id, first.expected) == ("B", {"x.txt", "y.txt", "c"})
    assert (second.query, second.knowledge_base_id) == ("问", "A")
    with pytest.raises(InvalidRequestError, match="line 3: knowledge_base"):
        load_questions(path, None, str)
