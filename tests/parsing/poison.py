"""Parsers that break on certain pages, and the real ones with one page made poisonous. They run in the child only."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from rag_cluster.domain.blocks import BlockType, DocumentSource, ParsedDocument, SourceLocator
from rag_cluster.parsing import pptx
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.images import ImageParser
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.parsing.pages import each_page
from rag_cluster.parsing.pdf.parser import PdfParser
from rag_cluster.parsing.pptx import PptxParser
from tests.parsing.fuzzing import OneLine


def misbehave(how: str) -> None:
    """crash, abort, exit, hang, recurse, raise, or eat memory: hog (at once), leak (by and by), native (as C does)."""
    match how:
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "abort":
            os.abort()
        case "exit":
            os._exit(3)
        case "native":
            libc = ctypes.CDLL(None)
            libc.malloc.restype = ctypes.c_void_p
            while block := libc.malloc(16 << 20):
                ctypes.memset(block, 1, 16 << 20)
            os.abort()
        case "recurse":
            misbehave(how)
        case "hang":
            while True:
                pass
        case "hog":
            bytearray(8 << 30)
        case "leak":
            kept = []
            while True:
                kept.append(b"x" * 32_000_000)
        case "raise":
            raise KeyError("unexpected")


class Paged:
    """{"pages": 9, "bad": {"3": "crash"}, "late": [5], "log": PATH}; late: crashes after them if all of
    these were read.

    unmarked: pages are not announced. grow: bytes that every page keeps.
    """

    name = "paged"
    version = "1"
    extensions = frozenset({".paged"})

    def parse(self, source: DocumentSource) -> ParsedDocument:
        plan: dict[str, Any] = json.loads(Path(source.path).read_text())
        builder = BlockBuilder(source)
        read, kept = set(), []
        with open(plan["log"], "a") as log:
            log.write("parse\n")
        for number in self._numbers(plan, source):
            time.sleep(plan.get("seconds", 0))
            misbehave(plan.get("bad", {}).get(str(number), ""))
            if number not in plan.get("blank", ()):
                builder.add(BlockType.TEXT, f"text of page {number}", SourceLocator(page=number))
            kept.append(b"x" * plan.get("grow", 0))
            read.add(number)
        if plan.get("late") and read.issuperset(plan["late"]):
            misbehave("crash")
        return builder.build({"pages": plan["pages"]})

    @staticmethod
    def _numbers(plan: dict[str, Any], source: DocumentSource) -> Any:
        return range(1, plan["pages"] + 1) if plan.get("unmarked") else each_page(source, plan["pages"])


class PoisonedPdf(PdfParser):
    """RAG_TEST_POISON is what page 3 does."""

    def _page(self, pdf: Any, page: Any, number: int, scans: Any) -> Any:
        if number == 3:
            misbehave(os.environ["RAG_TEST_POISON"])
        return super()._page(pdf, page, number, scans)


class PoisonedPptx(PptxParser):
    """RAG_TEST_POISON is what slide 3 does."""

    def parse(self, source: DocumentSource) -> ParsedDocument:
        read_slide = pptx._read_slide

        def poisoned(package: Any, part: str, number: int, *rest: Any) -> None:
            if number == 3:
                misbehave(os.environ["RAG_TEST_POISON"])
            read_slide(package, part, number, *rest)

        pptx._read_slide = poisoned  # type: ignore[assignment]
        try:
            return super().parse(source)
        finally:
            pptx._read_slide = read_slide


class PoisonedTiff(ImageParser):
    """RAG_TEST_POISON is what picture 3 does; text needs no models."""

    def __init__(self, limits: ParseLimits) -> None:
        super().__init__(limits=limits, recognizer=OneLine())

    def _page(self, builder: Any, source: Any, frame: Any, page: int | None) -> int:
        if page == 3:
            misbehave(os.environ["RAG_TEST_POISON"])
        return super()._page(builder, source, frame, page)
