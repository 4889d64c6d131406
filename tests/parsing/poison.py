"""Parsers that break on certain pages, and the real ones with one page made poisonous. They run in the child only."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rag_cluster.domain.blocks import BlockType, DocumentSource, ParsedDocument, SourceLocator
from rag_cluster.parsing import images, pptx
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.images import ImageParser
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.parsing.pages import each_page
from rag_cluster.parsing.pdf import parser as pdf_parser
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


@contextmanager
def page_three_poisoned(module: Any) -> Iterator[None]:
    """RAG_TEST_POISON is what happens when the module's parser comes to page 3."""
    each = module.each_page

    def poisoned(*arguments: Any) -> Iterator[int]:
        for number in each(*arguments):
            if number == 3:
                misbehave(os.environ["RAG_TEST_POISON"])
            yield number

    module.each_page = poisoned
    try:
        yield
    finally:
        module.each_page = each


class PoisonedPdf(PdfParser):
    def parse(self, source: DocumentSource) -> ParsedDocument:
        with page_three_poisoned(pdf_parser):
            return super().parse(source)


class PoisonedPptx(PptxParser):
    def parse(self, source: DocumentSource) -> ParsedDocument:
        with page_three_poisoned(pptx):
            return super().parse(source)


class PoisonedTiff(ImageParser):
    """Its text needs no models."""

    def __init__(self, limits: ParseLimits) -> None:
        super().__init__(limits=limits, recognizer=OneLine())

    def parse(self, source: DocumentSource) -> ParsedDocument:
        with page_three_poisoned(images):
            return super().parse(source)
