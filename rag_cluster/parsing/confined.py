"""Runs another program with less than we may do: `python -m rag_cluster.parsing.confined OWNER MEMORY FILE CPU -- ...`.

It dies with its owner, sees no network where the kernel lets us take it away (user namespaces), and gets limits of
memory, of the size of a file and of processor time. A program of its own, because code between fork and exec is unsafe
in a process that has threads.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000


def without_network() -> bool:
    """Move this process into an empty network namespace; False where that is not permitted."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) == 0:
        return True
    user, group = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
        return False
    # Without a map the program would find itself to be nobody.
    with contextlib.suppress(OSError):
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    return True


def main(arguments: list[str]) -> None:
    """Confine this process, then become PROGRAM. Exit code 127 when there is no such program."""
    owner, memory, file_size, seconds = map(int, arguments[:4])
    without_network()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != owner:
            # It died before the line above.
            os._exit(1)
    limits = (
        (resource.RLIMIT_DATA, memory),
        (resource.RLIMIT_FSIZE, file_size),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_CORE, 0),
    )
    for kind, limit in limits:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (limit, limit))
    program = arguments[5:]
    try:
        os.execv(program[0], program)  # noqa: S606 - that is what this is for
    except OSError as error:
        print(error, file=sys.stderr)
        os._exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
