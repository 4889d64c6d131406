"""The embedded Milvus Lite: one process for all workers, on a Unix socket in a 0700 directory (it has no login)."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import time
from pathlib import Path

import psutil

from rag_cluster.errors import MissingDependencyError, StoreUnavailableError
from rag_cluster.stores.processes import (
    ServerRecord,
    find_server,
    has_ended,
    log_tail,
    private_directory,
    spawn_detached,
    stop_process,
)

_START_SECONDS = 90.0  # rows that were not flushed are read back from the write-ahead log
_SOCKET = "m:1"  # gRPC takes the port as part of a Unix socket's name


class EmbeddedMilvus:
    """One Milvus Lite database in one directory. Callers hold the lock of `EmbeddedStores`."""

    name = "milvus"

    def __init__(self, directory: Path, log: Path) -> None:
        self._directory = directory
        self._log = log

    def address(self, record: ServerRecord) -> str:
        """The URI of a running server."""
        return f"unix:{record.socket}"

    def find(self) -> psutil.Process | None:
        """A running server of this directory, known by its command line."""
        return find_server(["--data-dir", str(self._directory)])

    def start(self, socket_directory: Path) -> ServerRecord:
        """Start the server and wait until it answers."""
        missing = [name for name in ("milvus_lite", "jieba") if importlib.util.find_spec(name) is None]
        if missing:
            raise MissingDependencyError(
                f"The embedded Milvus needs {' and '.join(missing)}: pip install 'rag-cluster[local]', or set "
                "RAG_MILVUS_URI to a server of your own"
            )
        for directory in (self._log.parent, self._directory, socket_directory):
            private_directory(directory)
        socket_path = socket_directory / _SOCKET
        socket_path.unlink(missing_ok=True)
        process = spawn_detached(
            [
                sys.executable,
                "-m",
                "rag_cluster.stores.milvus_lite_server",
                "--data-dir",
                str(self._directory),
                "--address",
                f"unix:{socket_path}",
            ],
            log=self._log,
            # Ray gives its workers one OpenMP thread; a server that one of them happens to start serves everybody.
            environment={"OMP_NUM_THREADS": str(min(4, os.cpu_count() or 1)), "PYTHONUNBUFFERED": "1"},
        )
        record = ServerRecord(process.pid, process.create_time(), str(socket_path))
        self._wait_until_ready(record, process)
        return record

    def stop(self, process: psutil.Process) -> None:
        """Ask the server to drain and close its files; kill it when it does not."""
        stop_process(process, [(signal.SIGTERM, 20.0)])

    def _wait_until_ready(self, record: ServerRecord, process: psutil.Process) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if record.reachable:
                return
            if has_ended(process):
                raise StoreUnavailableError(f"Milvus Lite ended while starting:\n{log_tail(self._log)}")
            time.sleep(0.05)
        self.stop(process)
        raise StoreUnavailableError(f"Milvus Lite did not answer after {_START_SECONDS:.0f} s:\n{log_tail(self._log)}")
