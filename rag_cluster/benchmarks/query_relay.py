"""Reads what PostgreSQL sends as soon as it is there, in a process of its own, and keeps it until somebody wants it.

A server that has more to send than a socket holds waits for its reader, and by its own clock that is part of the
statement. In the query benchmark the reader is a loop with many queries at work. Behind this relay the server waits for
nobody but the relay, which does nothing else: at most for as long as that one waits for a CPU.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

AT_ONCE = 1 << 18
"""Bytes of one read."""


@contextmanager
def relayed(dsn: str) -> Iterator[tuple[str, int]]:
    """(DSN, process) of a relay before the server of a DSN on a Unix socket; it ends with the block."""
    given = conninfo_to_dict(dsn)
    name = f".s.PGSQL.{given.get('port') or 5432}"
    with tempfile.TemporaryDirectory(prefix="rag-relay-") as folder:  # nobody else's: 0700
        command = [sys.executable, "-m", __spec__.name, str(Path(folder) / name), str(Path(str(given["host"])) / name)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin and process.stdout
            process.stdout.readline()  # it listens
            try:
                yield make_conninfo(dsn, host=folder), process.pid
            finally:
                process.stdin.close()


async def relay(here: str, there: str) -> None:
    """Listen on one Unix socket for connections to another, until standard input ends."""
    connections = set[asyncio.Task[None]]()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(asyncio.create_task(_connect(reader, writer, there)))

    server = await asyncio.start_unix_server(connected, here)
    print("listening", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


async def _connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, there: str) -> None:
    from_server, to_server = await asyncio.open_unix_connection(there)
    await asyncio.gather(_forward(reader, to_server), _forward(from_server, writer))


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(AT_ONCE):
            writer.write(data)  # and no drain: what is not wanted yet is kept here
    except ConnectionError:  # one side is gone, which the other is told by the end of its stream
        pass
    finally:
        writer.close()


if __name__ == "__main__":
    asyncio.run(relay(*sys.argv[1:]))
