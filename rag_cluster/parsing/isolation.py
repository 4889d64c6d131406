"""Parsing in a process of its own, so that no document can take the worker down, hang it or eat its memory.

    IsolatedParser.parse -> frame -> child (limits, detection, registry, parser) -> Outcome -> ParsedDocument | error

The child serves many documents and is replaced after a timeout, a death, exhausted memory or growth. A death is tried
again, because the machine may be at fault; the third one on the same input is the content's.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from rag_cluster.domain.blocks import DocumentSource, ParsedDocument
from rag_cluster.errors import InternalError, ParseCrashError, ParseTimeoutError
from rag_cluster.parsing.frames import LENGTH, Outcome
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.parsing.ocr import OcrMode
from rag_cluster.parsing.registry import ParserInfo, ParserRegistry

logger = logging.getLogger(__name__)

DEATHS = 3
"""Deaths on the same input after which the content is at fault."""
TIMEOUTS = 2
"""Timeouts on the same input; each costs the whole limit, so fewer than deaths."""
STDERR_LINES = 50
START_TIMEOUT = 60.0


class _ChildDied(Exception):
    """The child is gone; the message says how."""


class _ChildTimedOut(Exception):
    """The child did not answer in time and was killed."""


class IsolatedParser:
    """DocumentParser for all formats, running in a child process. One document at a time; threads wait.

    Picklable: a copy starts its own child at its first use. Close it, or let its owner die.
    """

    name = "isolated"
    version = "1"

    def __init__(
        self,
        limits: ParseLimits = ParseLimits(),
        *,
        ocr: OcrMode = OcrMode.AUTO,
        parsers: Mapping[str, str] | None = None,
        ocr_threads: int = 2,
        ocr_gpu: bool = False,
    ) -> None:
        self.registry = ParserRegistry(dict(parsers or {}), limits, OcrMode(ocr), ocr_threads, ocr_gpu)
        self._lock = threading.Lock()
        self._child: _Child | None = None

    def __getstate__(self) -> ParserRegistry:
        return self.registry

    def __setstate__(self, registry: ParserRegistry) -> None:
        self.registry = registry
        self._lock = threading.Lock()
        self._child = None

    @property
    def extensions(self) -> frozenset[str]:
        """All that can be parsed."""
        return self.registry.extensions

    def info(self, filename: str) -> ParserInfo:
        """Name and version of the parser for a file name, for the content fingerprint."""
        return self.registry.info(filename)

    def parse(self, source: DocumentSource) -> ParsedDocument:
        """Parse a local file. DocumentErrors as the parser raised them; ParseTimeoutError, ParseCrashError."""
        with self._lock:
            outcome = self._outcome(source)
        if outcome.trace:
            logger.error(
                "A parser failed unexpectedly",
                extra={"document": source.document_id, "file": source.filename, "trace": outcome.trace},
            )
        if outcome.error is not None:
            raise outcome.error
        if outcome.document is None:
            raise InternalError(f"The parser process answered nothing for {source.filename!r}")
        return outcome.document

    def close(self) -> None:
        """End the child. The parser can be used again afterwards."""
        with self._lock:
            self._discard()

    def __del__(self) -> None:
        child = getattr(self, "_child", None)
        if child is not None:
            child.kill()

    def __enter__(self) -> IsolatedParser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _outcome(self, source: DocumentSource) -> Outcome:
        deaths = timeouts = 0
        while True:
            try:
                outcome = self._running().ask(source, self.registry.limits.timeout)
            except _ChildTimedOut:
                timeouts += 1
                self._discard()
                logger.warning("Parsing timed out", extra={"file": source.filename, "attempt": timeouts})
                if timeouts >= TIMEOUTS:
                    limit = self.registry.limits.timeout
                    raise ParseTimeoutError(f"Parsing {source.filename!r} took more than {limit:g} s") from None
            except _ChildDied as death:
                deaths += 1
                self._discard()
                logger.warning(
                    "The parser process died", extra={"file": source.filename, "attempt": deaths, "reason": str(death)}
                )
                if deaths >= DEATHS:
                    raise ParseCrashError(f"The parser process died on {source.filename!r} ({death})") from None
            else:
                if outcome.exhausted or outcome.resident_bytes > self.registry.limits.memory_bytes // 2:
                    self._discard()
                return outcome

    def _running(self) -> _Child:
        if self._child is None:
            self._child = _Child(self.registry)
        return self._child

    def _discard(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None


class _Child:
    """One process. A thread of its own starts it and drains its standard error as long as it lives.

    The thread matters: Linux sends the parent-death signal when the *thread* that started the child ends, and callers
    may be short-lived threads.
    """

    def __init__(self, registry: ParserRegistry) -> None:
        self._stderr: collections.deque[str] = collections.deque(maxlen=STDERR_LINES)
        self._process: subprocess.Popen[bytes] | None = None
        self._failure: OSError | None = None
        started = threading.Event()
        self._environment = _environment(registry.ocr_threads, registry.ocr_gpu)
        threading.Thread(target=self._run, args=(started,), name="parse-child", daemon=True).start()
        started.wait(START_TIMEOUT)
        if self._process is None:
            raise InternalError(f"The parser process could not be started: {self._failure}")
        # Starting (importing, on a busy machine) is not the first document's time, nor its fault.
        deadline = time.monotonic() + START_TIMEOUT
        try:
            self._send((registry, os.getpid()), deadline)
            self._answer(deadline)
        except (_ChildDied, _ChildTimedOut) as failure:
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

    def ask(self, source: DocumentSource, timeout: float) -> Outcome:
        """The child's answer. _ChildTimedOut, _ChildDied."""
        deadline = time.monotonic() + timeout
        self._send(source, deadline)
        outcome = self._answer(deadline)
        if not isinstance(outcome, Outcome):
            raise _ChildDied("it answered something else")
        return outcome

    def _answer(self, deadline: float) -> Any:
        (size,) = LENGTH.unpack(self._receive(LENGTH.size, deadline))
        return pickle.loads(self._receive(size, deadline))  # noqa: S301 - our own process

    def kill(self) -> None:
        """End the process and everything that it started."""
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
                raise _ChildDied(self._reason()) from None

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
                raise _ChildDied(self._reason())
            received += chunk
        return received

    def _wait(self, descriptor: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise _ChildTimedOut

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
