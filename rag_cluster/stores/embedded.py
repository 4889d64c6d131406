"""The embedded default: PostgreSQL and Milvus Lite as detached servers, everything below one data directory.

    home/                 0700 (0711 as root, so that the user `pgserver` can pass through)
      postgres/           the cluster            milvus/    the index
      logs/postgres/server.log, logs/milvus/server.log      kept below a few megabytes
      run/                records of what runs, the lock, and Milvus's socket where the path is short enough

Whoever needs a store calls `ensure_postgres` or `ensure_milvus`: a running server costs a fraction of a millisecond, a
missing one is started under a file lock, so any number of processes may find it gone at once.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil
from filelock import FileLock, Timeout

from rag_cluster.errors import StoreUnavailableError
from rag_cluster.stores.embedded_milvus import EmbeddedMilvus
from rag_cluster.stores.embedded_postgres import EmbeddedPostgres
from rag_cluster.stores.processes import ServerRecord, bound_log, private_directory, runtime_directory

_LOCK_SECONDS = 180.0
_MAX_SOCKET_DIRECTORY = 80  # a Unix socket's whole path has 107 bytes on Linux, 103 elsewhere
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./+-]+")  # what neither a gRPC address nor a DSN needs to escape


class _Server(Protocol):
    name: str

    def address(self, record: ServerRecord) -> str: ...

    def find(self) -> psutil.Process | None: ...

    def start(self, socket_directory: Path) -> ServerRecord: ...

    def stop(self, process: psutil.Process) -> None: ...


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """What a person wants to know of one embedded server."""

    name: str
    reachable: bool
    address: str
    """DSN or URI; "" when it does not run."""
    pid: int | None
    uptime_seconds: float | None
    memory_bytes: int | None
    data_bytes: int
    log: str


@dataclass(frozen=True, slots=True)
class EmbeddedStatus:
    """Both servers and the objects."""

    home: str
    servers: tuple[ServerStatus, ...]
    object_bytes: int

    @property
    def running(self) -> bool:
        """Whether both servers can be reached."""
        return all(server.reachable for server in self.servers)


class EmbeddedStores:
    """Starts, finds and stops the servers of one data directory. Picklable; holds nothing open."""

    def __init__(self, home: Path) -> None:
        self.home = home.expanduser().absolute()

    def ensure_postgres(self) -> str:
        """The DSN of the running PostgreSQL, started when it is gone. StoreUnavailableError, MissingDependencyError."""
        return self._ensure(self._postgres)

    def ensure_milvus(self) -> str:
        """The URI of the running Milvus Lite, started when it is gone. Errors as above."""
        return self._ensure(self._milvus)

    def up(self) -> EmbeddedStatus:
        """Start what does not run."""
        self.ensure_postgres()
        self.ensure_milvus()
        return self.status()

    def down(self, *, keep: Collection[str] = ()) -> EmbeddedStatus:
        """Stop the servers, but those named in `keep`, and wait until they are gone. Stopping what does not run is no
        error."""
        if self._run.exists():
            with self._lock():
                for server in reversed(self._servers):
                    if server.name not in keep:
                        self._stop(server)
        return self.status()

    def running(self) -> frozenset[str]:
        """Names of the servers that can be reached."""
        records = {server.name: ServerRecord.read(self._record_file(server)) for server in self._servers}
        return frozenset(name for name, record in records.items() if record is not None and record.reachable)

    def status(self) -> EmbeddedStatus:
        """A look from outside; starts and stops nothing."""
        servers = tuple(self._server_status(server) for server in self._servers)
        return EmbeddedStatus(str(self.home), servers, _size(self.home / "objects"))

    @property
    def _run(self) -> Path:
        return self.home / "run"

    @property
    def _servers(self) -> tuple[_Server, _Server]:
        return self._postgres, self._milvus

    @property
    def _postgres(self) -> EmbeddedPostgres:
        return EmbeddedPostgres(self.home / "postgres", self._log("postgres"))

    @property
    def _milvus(self) -> EmbeddedMilvus:
        return EmbeddedMilvus(self.home / "milvus", self._log("milvus"))

    def _log(self, name: str) -> Path:
        return self.home / "logs" / name / "server.log"

    def _record_file(self, server: _Server) -> Path:
        return self._run / f"{server.name}.json"

    def _lock(self) -> FileLock:
        return FileLock(self._run / "lock", timeout=_LOCK_SECONDS)

    def _ensure(self, server: _Server) -> str:
        record = ServerRecord.read(self._record_file(server))
        if record is not None and record.reachable:
            return server.address(record)
        self._make_directories()
        try:
            with self._lock():
                record = ServerRecord.read(self._record_file(server))
                if record is None or not record.reachable:
                    self._stop(server)
                    bound_log(self._log(server.name))
                    record = server.start(self._socket_directory(server))
                    record.write(self._record_file(server))
                return server.address(record)
        except Timeout as error:
            raise StoreUnavailableError(
                f"{server.name}: another process has held {self._run / 'lock'} for {_LOCK_SECONDS:.0f} s"
            ) from error

    def _stop(self, server: _Server) -> None:
        """Stop what runs for this directory, whether its record is there or was lost."""
        record = ServerRecord.read(self._record_file(server))
        process = (record.process() if record else None) or server.find()
        # Nobody may take a server for running that is being stopped or still starts.
        self._record_file(server).unlink(missing_ok=True)
        if process is not None:
            server.stop(process)
        sockets = self._socket_directory(server)
        if self.home not in sockets.parents:
            shutil.rmtree(sockets, ignore_errors=True)

    def _make_directories(self) -> None:
        if not self.home.exists():
            self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (self.home / "objects", self._run):
            private_directory(path)
        (self.home / "logs").mkdir(mode=0o711, exist_ok=True)

    def _socket_directory(self, server: _Server) -> Path:
        """A private directory whose path fits into a socket's name: below home, or below the runtime directory."""
        inside = self.home / "postgres" if server.name == "postgres" else self._run
        if len(str(inside)) <= _MAX_SOCKET_DIRECTORY and _PLAIN_PATH.fullmatch(str(inside)):
            return inside
        digest = hashlib.sha256(str(self.home).encode()).hexdigest()[:12]
        return runtime_directory() / f"rag-{os.getuid()}-{digest}-{server.name}"

    def _server_status(self, server: _Server) -> ServerStatus:
        record = ServerRecord.read(self._record_file(server))
        process = record.process() if record else None
        reachable = record is not None and record.reachable
        log = self._log(server.name)
        bound_log(log)
        return ServerStatus(
            name=server.name,
            reachable=reachable,
            address=server.address(record) if record and reachable else "",
            pid=process.pid if process else None,
            uptime_seconds=time.time() - process.create_time() if process else None,
            memory_bytes=_memory(process) if process else None,
            data_bytes=_size(self.home / server.name),
            log=str(log),
        )


def _memory(process: psutil.Process) -> int:
    """Resident bytes of a server and its children; shared pages count in each."""
    total = 0
    for member in (process, *process.children(recursive=True)):
        try:
            total += member.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def _size(directory: Path) -> int:
    """Bytes of the files below a directory; 0 when it is not there. Files may come and go meanwhile."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += (Path(folder) / name).lstat().st_size
            except FileNotFoundError:
                continue
    return total
