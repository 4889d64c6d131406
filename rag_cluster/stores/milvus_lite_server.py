"""The Milvus Lite process: `python -m rag_cluster.stores.milvus_lite_server --data-dir D --address unix:/DIR/m:1`.

It runs Milvus Lite's own service, without four traits of its own command: it answers SIGTERM, not only SIGINT; writes
of several clients are taken one at a time (the engine is written for a single writer); clients that ping an idle
connection, as pymilvus does, get no GOAWAY; and jieba's dictionary cache, which is unmarshalled, is not taken from the
shared temporary directory, where another user may have put it.
"""

from __future__ import annotations

import argparse
import logging
import signal
import threading
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import Any

_MAX_MESSAGE_BYTES = 256 * 1024 * 1024  # what a Milvus server takes
_WORKERS = 32  # more than writers that may wait for each other, so that searches still find one
_DRAIN_SECONDS = 5
_WRITES = (
    "CreateCollection",
    "DropCollection",
    "TruncateCollection",
    "CreateIndex",
    "Insert",
    "Upsert",
    "Delete",
    "Flush",
    "ManualCompaction",
)


def serve(data_dir: Path, address: str) -> None:
    """Serve data_dir at a gRPC address until SIGTERM or SIGINT; then drain, close the files and return."""
    import grpc
    from milvus_lite.adapter.grpc.servicer import MilvusServicer
    from milvus_lite.db import MilvusLite
    from pymilvus.grpc_gen import milvus_pb2_grpc

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    database = MilvusLite(str(data_dir))
    _prepare_jieba(data_dir)
    server = grpc.server(
        futures.ThreadPoolExecutor(max_workers=_WORKERS),
        options=[
            ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", 1000),
            ("grpc.http2.max_ping_strikes", 0),
        ],
    )
    milvus_pb2_grpc.add_MilvusServiceServicer_to_server(_one_writer(MilvusServicer(database)), server)
    server.add_insecure_port(address)
    server.start()
    stop.wait()
    server.stop(grace=_DRAIN_SECONDS).wait()
    database.close()


def _one_writer(servicer: Any) -> Any:
    """The servicer with its writing calls under one lock."""
    lock = threading.Lock()

    def locked(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(request: Any, context: Any) -> Any:
            with lock:
                return call(request, context)

        return run

    for name in _WRITES:
        setattr(servicer, name, locked(getattr(servicer, name)))
    return servicer


def _prepare_jieba(data_dir: Path) -> None:
    """Load the dictionary before the first request, quietly, from a cache that only we can write."""
    import jieba

    jieba.setLogLevel(logging.CRITICAL)
    jieba.dt.tmp_dir = str(data_dir)
    jieba.initialize()


def main() -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(prog="milvus_lite_server")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--address", required=True)
    arguments = parser.parse_args()
    serve(arguments.data_dir, arguments.address)


if __name__ == "__main__":
    main()
