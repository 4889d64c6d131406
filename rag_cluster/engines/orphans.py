"""Processes that end with their owner, even when that is killed: an engine that outlives it keeps a GPU's memory.

    python -m rag_cluster.engines.orphans TOKEN

waits for the end of its standard input, whose other end the owner holds, and kills every process with that token in
its environment.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator

import psutil

VARIABLE = "RAG_CLUSTER_OWNER"
START_SECONDS = 300.0
_guards: list[subprocess.Popen[bytes]] = []
"""Held, since with them their pipes would be closed."""


@contextlib.contextmanager
def owned() -> Iterator[None]:
    """What this process starts inside the block, and what that starts, is killed soon after this process is gone."""
    token = uuid.uuid4().hex
    # Its end of the pipe is this process's alone: Python gives none of its descriptors to other children.
    guard = subprocess.Popen(
        [sys.executable, "-m", __name__, token],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    _guards.append(guard)
    guard.wait(START_SECONDS)
    os.environ[VARIABLE] = token
    try:
        yield
    finally:
        del os.environ[VARIABLE]


def end(token: str) -> int:
    """Kill the processes that carry a token; how many."""
    ended = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # gone meanwhile, or another user's
            if process.environ().get(VARIABLE) == token:
                process.kill()
                ended += 1
    return ended


if __name__ == "__main__":
    # Whoever waits here is nobody's child: a Ray worker that exits kills its own, but not what those have started.
    if os.fork():
        os._exit(0)
    sys.stdin.buffer.read()
    # Another round for what one of them started at the last moment.
    while end(sys.argv[1]):
        time.sleep(0.2)
