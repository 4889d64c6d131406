"""What crosses the pipe between a worker and its parsing child: an 8-byte length, then a pickle."""

from __future__ import annotations

import pickle
import struct
from dataclasses import dataclass
from typing import Any, BinaryIO

from rag_cluster.domain.blocks import ParsedDocument
from rag_cluster.errors import RagClusterError

LENGTH = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One document's result as it crosses the pipe."""

    document: ParsedDocument | None
    error: RagClusterError | None
    trace: str
    """Stack trace of an exception that no parser meant to raise; for the log."""
    resident_bytes: int
    exhausted: bool = False
    """Memory ran out: this process should not be used again."""


def write_frame(stream: BinaryIO, message: Any) -> None:
    """One message, flushed."""
    payload = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(LENGTH.pack(len(payload)))
    stream.write(payload)
    stream.flush()


def read_frame(stream: BinaryIO) -> Any:
    """One message. EOFError at the end of the stream."""
    header = stream.read(LENGTH.size)
    if len(header) < LENGTH.size:
        raise EOFError
    (size,) = LENGTH.unpack(header)
    payload = stream.read(size)
    if len(payload) < size:
        raise EOFError
    return pickle.loads(payload)  # noqa: S301 - the other end is our own process
