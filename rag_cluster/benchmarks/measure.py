"""How benchmarks measure: CPU time, the best of alternating rounds, peak memory of a process of its own."""

from __future__ import annotations

import gc
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

CHILD_TIMEOUT = 300.0


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of this process for one call: what a core would take, however busy the machine is."""
    gc.collect()
    started = time.process_time()
    work()
    return time.process_time() - started


def best_of(contenders: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Least CPU seconds of each, taken in turns, so that a slow minute of the machine hits all alike."""
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds):
        for name, work in contenders.items():
            best[name] = min(best[name], cpu_seconds(work))
    return best


def peak_bytes() -> int:
    """The most memory that this process ever occupied.

    On Linux VmHWM: ru_maxrss also knows what the process that started this one occupied.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def in_child(module: str, arguments: Sequence[str], timeout: float = CHILD_TIMEOUT) -> dict[str, Any]:
    """The JSON object that `python -m module arguments` prints as its last line. CalledProcessError when it fails."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], check=True, stdout=subprocess.PIPE, timeout=timeout, text=True
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def tell(line: str) -> None:
    """How far a long measurement is: a line on standard error, with the time."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on standard output; numbers to the right."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    Console(width=max(Console().width, 110)).print(table)
