"""Parsers that misbehave, for the isolation tests. They run in the child only."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from rag_cluster.domain.blocks import BlockType, DocumentSource, ParsedDocument
from rag_cluster.parsing.base import BlockBuilder


class Hostile:
    """Does what the file says: crash, hang, hog, print, raise, pid, crash-once, crash-and-be-killed."""

    name = "hostile"
    version = "7"
    extensions = frozenset({".bad"})

    def parse(self, source: DocumentSource) -> ParsedDocument:
        word = Path(source.path).read_text().split()
        match word[0]:
            case "crash":
                self._count(word)
                os.kill(os.getpid(), signal.SIGSEGV)
            case "crash-once":
                if self._count(word) == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
            case "crash-and-be-killed":
                os.kill(os.getpid(), signal.SIGKILL if self._count(word) == 3 else signal.SIGSEGV)
            case "hang":
                self._count(word)
                time.sleep(60)
            case "hog":
                bytearray(8 << 30)
            case "exit":
                os._exit(3)
            case "print":
                print("noise on standard output", flush=True)
                sys.stderr.write("noise\n" * 10_000)
            case "raise":
                raise KeyError("unexpected")
            case "fork":
                os.system("sleep 300 & echo $! > " + word[1])
                time.sleep(60)
        builder = BlockBuilder(source)
        builder.add(BlockType.TEXT, f"pid {os.getpid()} cuda={os.environ.get('CUDA_VISIBLE_DEVICES')!r}")
        return builder.build()

    @staticmethod
    def _count(word: list[str]) -> int:
        log = Path(word[1])
        log.write_text((log.read_text() if log.exists() else "") + "x")
        return len(log.read_text())
