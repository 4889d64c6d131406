"""Server processes that outlive whoever started them: started detached, known again later, stopped by pid.

A pid alone proves nothing after a reboot or in a small container, so a server is known by (pid, start time) and by its
command line, which names its data directory.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from rag_cluster.errors import StoreUnavailableError

MAX_LOG_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """A running server, as written down by whoever started it."""

    pid: int
    started: float
    """The process's start time, seconds since the epoch, as psutil tells it."""
    socket: str
    """Path of its Unix socket."""

    @classmethod
    def read(cls, path: Path) -> ServerRecord | None:
        """The record in a file; None when there is none that can be read."""
        try:
            return cls(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, path: Path) -> None:
        """Replace the file in one step: readers see the old record or the new one."""
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps(asdict(self)))
        temporary.replace(path)

    @property
    def reachable(self) -> bool:
        """Whether something listens on the socket. Well under a millisecond."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(self.socket)
            except (BlockingIOError, TimeoutError):
                return True  # it listens, but has more callers than it has yet greeted
            except OSError:
                return False
        return True

    def process(self) -> psutil.Process | None:
        """The process, if this pid is still the one that was started."""
        try:
            process = psutil.Process(self.pid)
        except psutil.NoSuchProcess:
            return None
        same = abs(process.create_time() - self.started) < 1.0
        return process if same and not has_ended(process) else None


def spawn_detached(
    command: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str] | None = None,
    user: tuple[int, int] | None = None,
) -> psutil.Process:
    """Start a server in its own session, as nobody's child, with output appended to log; its process.

    StoreUnavailableError, with the end of the log, when it has ended by then.

    An intermediate shell makes it an orphan at once: Ray kills the children of a worker that ends. Arguments are passed
    as such, never as shell text. user: (uid, gid) to run as, when we are root.
    """
    done = subprocess.run(
        ["/bin/sh", "-c", 'umask 077; "$@" </dev/null >>"$SERVER_LOG" 2>&1 & echo $!', "sh", *command],
        env={**os.environ, **(environment or {}), "SERVER_LOG": str(log)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=30,
        cwd=log.parent,
        start_new_session=True,
        user=user[0] if user else None,
        group=user[1] if user else None,
        extra_groups=[] if user else None,
    )
    try:
        return psutil.Process(int(done.stdout))
    except psutil.NoSuchProcess:
        raise StoreUnavailableError(f"{Path(command[0]).name} ended at once:\n{log_tail(log)}") from None


def has_ended(process: psutil.Process) -> bool:
    """Whether a process is gone. Where nobody reaps orphans, it stays in the table as a zombie."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def find_server(arguments: Sequence[str]) -> psutil.Process | None:
    """A running process whose command line holds these consecutive arguments: a server whose record was lost."""
    wanted = list(arguments)
    for process in psutil.process_iter(["cmdline", "status"]):
        line = process.info["cmdline"] or []
        if process.info["status"] == psutil.STATUS_ZOMBIE:
            continue
        if any(line[i : i + len(wanted)] == wanted for i in range(len(line))):
            return process
    return None


def stop_process(process: psutil.Process, signals: Sequence[tuple[int, float]]) -> None:
    """Send each (signal, seconds to wait) in turn until the process is gone, at last SIGKILL."""
    try:
        for number, seconds in signals:
            process.send_signal(number)
            if _gone(process, seconds):
                return
        process.kill()
        _gone(process, 10.0)
    except psutil.NoSuchProcess:
        return


def _gone(process: psutil.Process, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if has_ended(process):
            return True
        time.sleep(0.02)
    return False


def bound_log(path: Path) -> None:
    """Keep a log below `MAX_LOG_BYTES`: the last megabyte moves to `.1`, the rest goes, while its writer appends."""
    try:
        size = path.stat().st_size
        if size <= MAX_LOG_BYTES:
            return
        with path.open("rb") as log:
            log.seek(size - 1024 * 1024)
            path.with_name(f"{path.name}.1").write_bytes(log.read())
        os.truncate(path, 0)
    except FileNotFoundError:
        return


def log_tail(path: Path, lines: int = 12) -> str:
    """The last lines of a log, for an error message; "" without one."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - 8192))
            text = log.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def private_directory(path: Path, owner: tuple[int, int] | None = None) -> Path:
    """Make a directory that only its owner may enter, or check that it is one: another user's is refused."""
    uid = owner[0] if owner else os.getuid()
    try:
        path.mkdir(mode=0o700, parents=True)
        if owner:
            os.chown(path, *owner)
    except FileExistsError:
        found = path.lstat()
        if path.is_symlink() or not path.is_dir() or found.st_uid not in (uid, os.getuid()):
            raise PermissionError(f"{path} exists and does not belong to user id {uid}") from None
        if found.st_uid != uid and owner:
            os.chown(path, *owner)
    path.chmod(0o700)
    return path


def runtime_directory() -> Path:
    """Where short-lived sockets of this user may lie when the data directory's path is too long for one."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir() and os.access(runtime, os.W_OK) and len(runtime) < 40:
        return Path(runtime)
    return Path(tempfile.gettempdir())
