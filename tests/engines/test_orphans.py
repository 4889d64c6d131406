"""What an owner leaves behind when it is killed is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil

OWNER = """
import subprocess, sys, time
from rag_cluster.engines.orphans import owned
sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
code = f"import subprocess, time; print(subprocess.Popen({sleeper!r}).pid, flush=True); time.sleep(600)"
starter = [sys.executable, "-c", code]
with owned():
    child = subprocess.Popen(starter)
print(child.pid, subprocess.Popen(sleeper).pid, flush=True)
time.sleep(600)
"""


def test_children_and_their_children_end_with_a_killed_owner_and_others_go_on() -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pids = [int(pid) for _ in range(2) for pid in owner.stdout.readline().split()]
    processes = {pid: psutil.Process(pid) for pid in pids}
    outside = next(process for process in processes.values() if "RAG_CLUSTER_OWNER" not in process.environ())
    try:
        for child in psutil.Process(owner.pid).children():  # as a Ray worker does when it exits
            if child != outside:
                child.kill()
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
        deadline = time.monotonic() + 60
        while any(_alive(process) for process in processes.values() if process != outside):
            assert time.monotonic() < deadline, "they outlive their owner"
            time.sleep(0.05)
        assert _alive(outside)
    finally:
        outside.kill()


def _alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
