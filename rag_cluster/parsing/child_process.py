"""A parsing child as its owner sees it: started, asked, timed, killed.

Linux sends the parent-death signal when the *thread* that started a process ends, and callers may be short-lived
threads: a thread of its own starts each child and drains its standard error as long as it lives.
"""

from __future__ import annotations

import collections
import contextlib
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

from rag_cluster.domain.blocks import DocumentSource
from rag_cluster.errors import InternalError
from rag_cluster.parsing.frames import LENGTH, Outcome
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.parsing.pages import PageMark
from rag_cluster.parsing.registry import ParserRegistry

STDERR_LINES = 50
START_TIMEOUT = 60.0


class ChildDied(Exception):
    """The child is gone; the message says how."""


class ChildTimedOut(Exception):
    """The child did not answer in time. of_page: a page took too long, and not the document as a whole."""

    def __init__(self, of_page: bool = False) -> None:
        super().__init__()
        self.of_page = of_page


def page_seconds(limits: ParseLimits) -> float:
    """What a page may take: half of the document's time at most, so that the other pages have some left."""
    return min(limits.page_timeout, limits.timeout / 2)


class ChildProcess:
    """One process, ready for documents when the constructor returns. InternalError when it cannot be started."""

    def __init__(self, registry: ParserRegistry) -> None:
        self._stderr: collections.deque[str] = collections.deque(maxlen=STDERR_LINES)
        self._process: subprocess.Popen[bytes] | None = None
        self._failure: OSError | None = None
        self.mark: PageMark | None = None
        """The page that the child announced last."""
        started = threading.Event()
        # What a killed process left behind goes with this.
        self._directory = tempfile.TemporaryDirectory(prefix="rag-cluster-parse-", ignore_cleanup_errors=True)
        self._environment = _environment(registry.ocr_threads, registry.ocr_gpu) | {"TMPDIR": self._directory.name}
        threading.Thread(target=self._run, args=(started,), name="parse-child", daemon=True).start()
        started.wait(START_TIMEOUT)
        if self._process is None:
            raise InternalError(f"The parser process could not be started: {self._failure}")
        # Starting (importing, on a busy machine) is not the first document's time, nor its fault.
        deadline = time.monotonic() + START_TIMEOUT
        try:
            self._send((registry, os.getpid()), deadline)
            self._answer(deadline)
        except (ChildDied, ChildTimedOut) as failure:
            self.kill()
            raise InternalError(f"The parser process could not be started: {failure or 'no answer'}") from failure

    def _run(self, started: threading.Event) -> None:
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "rag_cluster.parsing.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:
            self._failure = error
            started.set()
            return
        os.set_blocking(process.stdin.fileno(), False)  # type: ignore[union-attr]
        os.set_blocking(process.stdout.fileno(), False)  # type: ignore[union-attr]
        self._process = process
        started.set()
        with contextlib.suppress(ValueError, OSError):
            while chunk := process.stderr.readline(2000):  # type: ignore[union-attr]
                self._stderr.append(chunk.decode("utf-8", "replace").rstrip())
        process.wait()

    @property
    def pid(self) -> int | None:
        """Of the process; None before it runs."""
        return None if self._process is None else self._process.pid

    def ask(self, source: DocumentSource, limits: ParseLimits) -> Outcome:
        """The child's answer; `mark` says what page it is at or was at. ChildTimedOut, ChildDied.

        limits.timeout is of the document; a page that was announced has page_seconds() until the next sign of life.
        """
        self.mark = None
        deadline = time.monotonic() + limits.timeout
        self._send(source, deadline)
        while True:
            on_page = self.mark is not None and self.mark.number > 0
            patience = min(deadline, time.monotonic() + page_seconds(limits)) if on_page else deadline
            try:
                answer = self._answer(patience)
            except ChildTimedOut:
                raise ChildTimedOut(patience < deadline) from None
            if isinstance(answer, Outcome):
                return answer
            if not isinstance(answer, PageMark):
                raise ChildDied("it answered something else")
            self.mark = answer

    def _answer(self, deadline: float) -> Any:
        (size,) = LENGTH.unpack(self._receive(LENGTH.size, deadline))
        return pickle.loads(self._receive(size, deadline))  # noqa: S301 - our own process

    def kill(self) -> None:
        """End the process and everything that it started; remove its temporary files."""
        self._end()
        self._directory.cleanup()

    def _end(self) -> None:
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]

    def _send(self, message: Any, deadline: float) -> None:
        payload = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        pending = memoryview(LENGTH.pack(len(payload)) + payload)
        descriptor = self._process.stdin.fileno()  # type: ignore[union-attr]
        while pending:
            self._wait(descriptor, select.POLLOUT, deadline)
            try:
                pending = pending[os.write(descriptor, pending) :]
            except BlockingIOError:
                continue
            except OSError:
                raise ChildDied(self._reason()) from None

    def _receive(self, size: int, deadline: float) -> bytearray:
        received = bytearray()
        descriptor = self._process.stdout.fileno()  # type: ignore[union-attr]
        while len(received) < size:
            self._wait(descriptor, select.POLLIN, deadline)
            try:
                chunk = os.read(descriptor, min(size - len(received), 1 << 20))
            except BlockingIOError:
                continue
            if not chunk:
                raise ChildDied(self._reason())
            received += chunk
        return received

    def _wait(self, descriptor: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise ChildTimedOut

    def _reason(self) -> str:
        """How it died, in words."""
        process = self._process
        try:
            code = process.wait(5.0) if process else 0
        except subprocess.TimeoutExpired:
            return "it closed its pipe"
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        last = next((line for line in reversed(self._stderr) if line.strip()), "")
        return f"{how}: {last[:300]}" if last else how


def _environment(threads: int, gpu: bool) -> dict[str, str]:
    """The owner's environment with the same modules importable, explicit thread counts and, unless asked, no GPU."""
    hidden = {} if gpu else {"CUDA_VISIBLE_DEVICES": ""}
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        **hidden,
        "OMP_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        # Each arena reserves address space and keeps freed memory.
        "MALLOC_ARENA_MAX": "2",
    }
