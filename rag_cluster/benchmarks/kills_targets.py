"""Who may be killed: the driver that this program started, its descendants, and the servers of its data directory."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import psutil

from rag_cluster.stores.embedded import EmbeddedStores


class Target(StrEnum):
    """Kinds of processes."""

    DRIVER = "driver"
    PARSE_CHILD = "parse child"
    PREPARE = "prepare actor"
    INDEX = "index actor"
    OCR = "OCR actor"
    WORKER = "other Ray worker"
    RAYLET = "raylet"
    MILVUS = "Milvus Lite"
    POSTGRES = "PostgreSQL"


_MARKS = (
    ("rag_cluster.parsing.child", Target.PARSE_CHILD),
    ("PrepareActor", Target.PREPARE),
    ("IndexActor", Target.INDEX),
    ("RecognizeActor", Target.OCR),
    ("ray::", Target.WORKER),
    ("/raylet/raylet", Target.RAYLET),
)
"""What a command line holds, the first that fits."""


def living(driver: psutil.Process, stores: EmbeddedStores) -> dict[Target, list[psutil.Process]]:
    """Processes of each kind that can be killed now. Nothing but ours: by parents from the driver, by the servers'
    records in the data directory."""
    found: dict[Target, list[psutil.Process]] = {}
    for process in _family(driver):
        with contextlib.suppress(psutil.Error):
            kind = _kind(" ".join(process.cmdline())) if process.pid != driver.pid else Target.DRIVER
            if kind is not None:
                found.setdefault(kind, []).append(process)
    for server in stores.status().servers:
        kind = Target.MILVUS if server.name == "milvus" else Target.POSTGRES
        if server.pid is not None:
            with contextlib.suppress(psutil.Error):
                found[kind] = list(_family(psutil.Process(server.pid)))
    return found


def family(process: psutil.Process) -> list[psutil.Process]:
    """A process and its descendants, as far as they live."""
    return list(_family(process))


def _family(process: psutil.Process) -> Iterator[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            yield process
            yield from process.children(recursive=True)


def _kind(line: str) -> Target | None:
    return next((kind for mark, kind in _MARKS if mark in line), None)


SERVER_ITSELF = 0.5
"""Of the kills of a server: its own process, and not one of its children, which are many."""


@dataclass
class Killer:
    """Draws whom to kill: kinds that had fewer kills come first, most of the time."""

    random: random.Random
    kills: Counter[Target] = field(default_factory=Counter)

    def draw(self) -> Target:
        """A kind, whether there is one of it or not: a run that starts is its driver alone for long."""
        kinds = list(Target)
        (kind,) = self.random.choices(kinds, [1.0 / (1 + self.kills[kind]) ** 2 for kind in kinds])
        return kind

    def strike(self, kind: Target, processes: Sequence[psutil.Process]) -> bool:
        """SIGKILL to one of the processes. False when it was gone already."""
        if not processes:
            return False
        victims = sorted(processes, key=lambda process: process.pid)
        itself = kind in _SERVERS and self.random.random() < SERVER_ITSELF
        victim = victims[0] if itself else self.random.choice(victims)
        try:
            victim.kill()  # psutil has looked whether the pid is still this process
        except psutil.NoSuchProcess:
            return False
        self.kills[kind] += 1
        return True


_SERVERS = (Target.MILVUS, Target.POSTGRES)
