"""The isolated process that parses: `python -m rag_cluster.parsing.child`. Started by `isolation`, not by people.

Frames on standard input and output: first the ParserRegistry and the owner's pid, answered by "ready"; then a
DocumentSource each, answered by a PageMark for every page begun and an Outcome at last. It ends when its input ends or
its owner dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
import traceback
from typing import BinaryIO

from rag_cluster.domain.blocks import DocumentSource, ParsedDocument
from rag_cluster.errors import (
    CorruptDocumentError,
    DocumentTooLargeError,
    InternalError,
    NotFoundError,
    RagClusterError,
)
from rag_cluster.parsing.detection import check_content
from rag_cluster.parsing.frames import Outcome, read_frame, write_frame
from rag_cluster.parsing.pages import watched
from rag_cluster.parsing.registry import ParserRegistry

PR_SET_PDEATHSIG = 1
RECURSION = 20_000


def parse_source(source: DocumentSource, registry: ParserRegistry) -> ParsedDocument:
    """Detect, choose and parse, in this process. Raises DocumentError subclasses or whatever a parser raised."""
    registry.target(source.filename)
    check_content(source.path, source.filename, registry.limits)
    try:
        parser = registry.parser_for(source.filename)
    except RagClusterError:
        raise
    except Exception as error:
        # A parser that cannot even be made is our fault or the settings', never the document's.
        raise InternalError(f"The parser for {source.filename!r} cannot be made: {error!r}") from error
    return parser.parse(source)


def parse_outcome(source: DocumentSource, registry: ParserRegistry) -> Outcome:
    """`parse_source` with every exception turned into data."""
    try:
        return Outcome(parse_source(source, registry), None, "", resident_bytes())
    except RagClusterError as error:
        return Outcome(None, error, "", resident_bytes())
    except MemoryError:
        return exhausted_outcome(source, registry)
    except FileNotFoundError:
        return Outcome(None, NotFoundError(f"There is no file {source.path!r}"), "", resident_bytes())
    except OSError as error:
        unread = InternalError(f"{source.filename!r} could not be read: {error}")
        return Outcome(None, unread, traceback.format_exc(limit=40), resident_bytes())
    except Exception as error:
        # A parser met something that its author did not expect. The document is at fault until somebody looks.
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        corrupt = CorruptDocumentError(f"{source.filename!r} could not be parsed ({reason})")
        return Outcome(None, corrupt, traceback.format_exc(limit=40), resident_bytes())


def exhausted_outcome(source: DocumentSource, registry: ParserRegistry) -> Outcome:
    """The document needs more memory than this process may have."""
    limit = registry.limits.memory_bytes
    too_large = DocumentTooLargeError(f"Parsing {source.filename!r} needs more than {limit} bytes of memory")
    return Outcome(None, too_large, "", resident_bytes(), exhausted=True)


def answer(stream: BinaryIO, source: DocumentSource, registry: ParserRegistry) -> None:
    """Parse, and send what became of it; a document that can be held but not sent is too large as well."""
    with watched(lambda mark: write_frame(stream, mark)):
        outcome = parse_outcome(source, registry)
    try:
        write_frame(stream, outcome)
    except MemoryError:
        write_frame(stream, exhausted_outcome(source, registry))


def resident_bytes() -> int:
    """Memory that this process occupies now."""
    with contextlib.suppress(OSError), open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - Path costs more than the read
        return int(file.read().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def confine(memory_bytes: int, owner: int) -> None:
    """Die with the owner, and never allocate more than memory_bytes."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != owner:
            # It died before the line above.
            os._exit(1)
    # RLIMIT_DATA counts what is really private; RLIMIT_AS would count the mapped models and thread stacks too.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """Serve one owner until it is gone."""
    requests = sys.stdin.buffer
    # Libraries that print would break the frames: keep the pipe, and let print go to standard error.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Real pages nest elements deeper than the default allows; Python frames do not use the C stack.
    sys.setrecursionlimit(RECURSION)
    try:
        registry, owner = read_frame(requests)
        confine(registry.limits.memory_bytes, owner)
        write_frame(answers, "ready")
        while True:
            answer(answers, read_frame(requests), registry)
    except (EOFError, BrokenPipeError):
        return


if __name__ == "__main__":
    main()
