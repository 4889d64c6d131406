"""Ingestion runs in a data directory of their own, undisturbed or under fire, until there is nothing left to do."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from rag_cluster.benchmarks.kills_corpus import PARSERS
from rag_cluster.benchmarks.kills_state import EMBEDDER
from rag_cluster.benchmarks.kills_targets import Killer, Target, family, living
from rag_cluster.benchmarks.measure import tell
from rag_cluster.ingestion.run import LOST_LEASES
from rag_cluster.settings import Settings
from rag_cluster.stores.embedded import EmbeddedStores
from rag_cluster.stores.processes import has_ended
from rag_cluster.wiring import Services, local_services

KNOWLEDGE_BASE = "kills"
BATCH_PARTS = 4
CLAIM_LEASE = 6.0
RUN_TIMEOUT = 900.0
"""Seconds after which a run counts as hanging."""
POLL_SECONDS = 0.2
CLEAR_SECONDS = 20.0
PATIENCE = 3.0
"""Pauses after which a kind that does not appear is given up for another."""
TAIL_LINES = 15
SETTINGS: Mapping[str, Any] = {
    "embedder": EMBEDDER,
    "parsers": PARSERS,
    "parent_tokens": 60,  # small chunks: a long document has several parts
    "child_tokens": 20,
    "index_batch_parts": BATCH_PARTS,
    "claim_lease": CLAIM_LEASE,
    "ocr_threads": 1,
}


@dataclass(frozen=True, slots=True)
class RunResult:
    """How one `rag-cluster ingest` ended."""

    code: int
    """Exit status; negative: killed by that signal."""
    seconds: float
    report: Mapping[str, Any] | None
    """None when it died before its report."""
    kills: tuple[Target, ...]
    log: str
    """The end of its log."""

    @property
    def idle(self) -> bool:
        """Whether there was nothing left to do."""
        if self.report is None or self.report["status"] != "SUCCEEDED":
            return False
        outcomes = self.report["outcomes"]
        return not any(outcomes[name] for name in ("ready", "failed", "busy"))

    @property
    def failures(self) -> Counter[str]:
        """By error type, of documents that this run reported as failed."""
        return Counter(self.report["failures"] if self.report else {})


@dataclass
class Ingestion:
    """One data directory, fed from one folder."""

    home: Path
    corpus: Path
    killer: Killer | None = None
    wanted: int = 0
    """Stop killing when the killer has done so many."""
    pause: float = 1.0
    """Seconds between two kills, on average."""
    runs: list[RunResult] = field(default_factory=list)
    _started: dict[int, psutil.Process] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        """Of the runs; nothing comes from this process's environment that matters to them."""
        return Settings(
            data_dir=self.home, postgres_dsn="", milvus_uri="", object_url="", ocr="auto", _env_file=None, **SETTINGS
        )

    @property
    def environment(self) -> dict[str, str]:
        """The same for a process, which leaves nothing outside of the data directory's parent when it is killed."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("RAG_", "RAY_"))}
        temporary = self.home.parent / "tmp"
        temporary.mkdir(exist_ok=True)
        stated = {
            f"RAG_{name.upper()}": value if isinstance(value, str) else json.dumps(value)
            for name, value in SETTINGS.items()
        }
        places = {"RAG_DATA_DIR": str(self.home), "TMPDIR": str(temporary), "RAY_TMPDIR": str(temporary)}
        return own | stated | places

    def finish(self, most: int) -> None:
        """Run until there is nothing left to do, `most` times at most. Nothing that these runs started outlives them,
        but the two servers: `services_of` works with them."""
        self.home.mkdir(parents=True, exist_ok=True)
        try:
            lost_at = 0.0
            while len(self.runs) < most and not (self.runs and self.runs[-1].idle):
                self.runs.append(self._run())
                if self.runs[-1].report is None:
                    lost_at = time.monotonic()
            if lost_at:
                # Runs that lost their drivers are ended by one that begins a while later.
                time.sleep(max(0.0, lost_at + 1.2 * LOST_LEASES * CLAIM_LEASE - time.monotonic()))
                self.killer = None
                self.runs.append(self._run())
        finally:
            self._clear()

    def _run(self) -> RunResult:
        out, log = self.home / "report.json", self.home / f"run{len(self.runs) + 1}.log"
        command = [sys.executable, "-m", "rag_cluster.cli", "ingest", str(self.corpus), "-k", KNOWLEDGE_BASE, "--json"]
        started = time.monotonic()
        with out.open("wb") as report, log.open("wb") as errors:
            process = subprocess.Popen(
                command, env=self.environment, cwd=self.home.parent, stdout=report, stderr=errors
            )
            kills = tuple(self._watch(process))
        result = RunResult(process.returncode, time.monotonic() - started, _last_object(out), kills, _tail(log))
        self._tell(result)
        return result

    def _tell(self, result: RunResult) -> None:
        done = f"{self.killer.kills.total()} of {self.wanted} kills" if self.killer else "undisturbed"
        killed = f", killed: {', '.join(result.kills)}" if result.kills else ""
        tell(f"{self.home.name}, run {len(self.runs) + 1}: {result.seconds:.0f} s{killed} ({done})")

    def _watch(self, process: subprocess.Popen[bytes]) -> Iterator[Target]:
        """Until the driver has ended: the kills. Each is of a kind that is drawn, a while after there is one of it."""
        driver, stores = psutil.Process(process.pid), EmbeddedStores(self.home)
        deadline = time.monotonic() + RUN_TIMEOUT
        aim: Target | None = None
        due = patience = 0.0
        while process.poll() is None:
            time.sleep(POLL_SECONDS)
            now = time.monotonic()
            if now > deadline:
                process.kill()
            if self.killer is None or self.killer.kills.total() >= self.wanted:
                continue
            self._started.update((one.pid, one) for one in family(driver))
            alive = living(driver, stores)
            if aim is None:
                aim, due, patience = self.killer.draw(), 0.0, now + PATIENCE * self.pause
            if not due:
                if aim in alive:
                    due = now + self.killer.random.uniform(0, 2 * self.pause)
                elif now > patience:
                    aim = None  # this run may never have one of it: what is done already needs no parser
            elif now >= due:
                if self.killer.strike(aim, alive.get(aim, ())):
                    yield aim
                aim = None

    def _clear(self) -> None:
        """Ray's processes end soon after their driver. Those that do not are killed."""
        servers = [server.pid for server in EmbeddedStores(self.home).status().servers if server.pid]
        spared = {one.pid for pid in servers for one in family(psutil.Process(pid))}
        left = [one for one in self._started.values() if one.pid not in spared]
        deadline = time.monotonic() + CLEAR_SECONDS
        while (left := [one for one in left if not has_ended(one)]) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        for one in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()


@contextlib.contextmanager
def services_of(ingestion: Ingestion) -> Iterator[Services]:
    """Services in this process, over the data directory."""
    services = local_services(ingestion.settings)
    try:
        yield services
    finally:
        services.database.close()


def _last_object(path: Path) -> dict[str, Any] | None:
    for line in reversed(path.read_text(errors="replace").splitlines()):
        with contextlib.suppress(ValueError):
            found = json.loads(line)
            return found if isinstance(found, dict) and "outcomes" in found else None
    return None


def _tail(path: Path) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-TAIL_LINES:])
