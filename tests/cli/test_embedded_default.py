"""The embedded default as a newcomer meets it: separate processes, nothing configured but a data directory."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rag_cluster.stores.embedded import EmbeddedStores

pytestmark = pytest.mark.ray


class Terminal:
    """Runs `rag-cluster` in a process of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        own = {"RAG_DATA_DIR": str(home), "RAG_EMBEDDER": "hash:64", "RAG_OCR": "off", "RAG_LOG_LEVEL": "WARNING"}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RAG_", "RAY_"))}
        self.environment = inherited | own

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "rag_cluster.cli", *arguments],
            env=self.environment,
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        """(stdout, stderr)."""
        process = self.start(*arguments)
        stdout, stderr = process.communicate(timeout=120)
        assert process.returncode == code, stdout + stderr
        return stdout, stderr


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    home = Path(tempfile.mkdtemp(prefix="rag-cli-"))
    yield Terminal(home)
    EmbeddedStores(home).down()
    shutil.rmtree(home, ignore_errors=True)


def _mine(home: Path) -> list[str]:
    """Command lines of the processes that name the data directory: the stores."""
    return [
        " ".join(process.info["cmdline"])
        for process in psutil.process_iter(["cmdline", "status"])
        if process.info["status"] != psutil.STATUS_ZOMBIE and any(str(home) in a for a in process.info["cmdline"] or ())
    ]


def test_up_ingest_ask_ingest_again_down_and_nothing_is_left_running(terminal: Terminal) -> None:
    files = terminal.home / "files"
    files.mkdir()
    (files / "岸桥 [red]说明.md").write_text("# 岸桥\n\n制动器间隙的标准值是 1.2 毫米。\n", encoding="utf-8")
    (files / "crane limit.txt").write_text("The crane wind limit is 20 m/s.\n")
    (files / "gate.html").write_text("<h1>Gate</h1><p>The gate opens at 06:00 every day.</p>")
    assert json.loads(terminal("up", "--json")[0])["running"] is True

    ingestion = terminal.start("ingest", str(files), "-k", "harbour", "--open", "--json")
    started: set[psutil.Process] = set()
    while ingestion.poll() is None:
        started.update(psutil.Process(ingestion.pid).children(recursive=True))
        time.sleep(0.2)
    stdout, stderr = ingestion.communicate()
    assert ingestion.returncode == 0, stdout + stderr
    assert json.loads(stdout)["outcomes"]["ready"] == 3
    assert stderr == ""  # Ray's own log lines are for its log files
    assert len(started) > 3  # Ray's servers and workers, which end with the command
    assert psutil.wait_procs(started, timeout=5)[1] == []

    answer = json.loads(terminal("ask", "What is the crane wind limit?", "-k", "harbour", "--json")[0])
    assert answer["citations"][0]["filename"] == "crane limit.txt"

    again = terminal("ingest", str(files), "-k", "harbour", "--open")[0]
    assert again.startswith("nothing to do: 3 listed, 0 bytes read, 0 chunks embedded")

    assert len(_mine(terminal.home)) >= 2
    assert terminal("down")[0] == "stopped\n"
    assert _mine(terminal.home) == []


def test_a_server_says_where_it_listens_answers_and_stops_with_all_that_it_started(terminal: Terminal) -> None:
    terminal("kb", "create", "harbour", "--open")
    server = terminal.start("serve", "--port", "0", "--json")
    assert server.stdout is not None
    endpoint = json.loads(server.stdout.readline())["endpoint"]
    started = psutil.Process(server.pid).children(recursive=True)
    answer = json.loads(terminal("ask", "Anything?", "-k", "harbour", "--url", endpoint, "--json")[0])
    assert answer["refused"] is True
    server.send_signal(signal.SIGTERM)
    stdout, stderr = server.communicate(timeout=60)
    assert (server.returncode, stdout, stderr) == (0, "", "")
    assert psutil.wait_procs(started, timeout=5)[1] == []


def test_a_reader_that_has_enough_is_no_reason_for_a_trace(terminal: Terminal) -> None:
    (terminal.home / "long.txt").write_text("A sentence of many.\n\n" * 5000)
    listing = terminal.start("parse", "long.txt", "--format", "json")
    assert listing.stdout is not None
    listing.stdout.close()
    listing.wait(timeout=60)
    assert listing.stderr is not None
    assert "Traceback" not in listing.stderr.read()
