"""Parsing in a process of its own, so that no document can take the worker down, hang it or eat its memory.

    IsolatedParser.parse -> frame -> child (limits, detection, registry, parser) -> Outcome -> ParsedDocument | error

The child serves many documents and is replaced after a timeout, a death, exhausted memory or growth. A death is tried
again, because the machine may be at fault; the third one on the same input is the content's. Then `salvage` looks for
the page that does it.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Mapping

from rag_cluster.domain.blocks import DocumentSource, ParsedDocument
from rag_cluster.errors import (
    CorruptDocumentError,
    DocumentTooLargeError,
    InternalError,
    ParseCrashError,
    ParseTimeoutError,
)
from rag_cluster.parsing.child_process import ChildDied, ChildProcess, ChildTimedOut, page_seconds
from rag_cluster.parsing.frames import Outcome
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.parsing.ocr import OcrMode
from rag_cluster.parsing.pages import PageMark
from rag_cluster.parsing.registry import ParserInfo, ParserRegistry
from rag_cluster.parsing.salvage import Failure, Salvage

logger = logging.getLogger(__name__)

DEATHS = 3
"""Deaths on the same input after which the content is at fault."""
TIMEOUTS = 2
"""Timeouts on the same input; each costs the whole limit, so fewer than deaths."""


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
        postpone_ocr: bool = False,
        libreoffice: str = "",
    ) -> None:
        self.registry = ParserRegistry(
            dict(parsers or {}), limits, OcrMode(ocr), ocr_threads, ocr_gpu, postpone_ocr, libreoffice
        )
        self._lock = threading.Lock()
        self._child: ChildProcess | None = None

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
        """Parse a local file. DocumentErrors as the parser raised them; ParseTimeoutError, ParseCrashError.

        Pages on which that happens are left out of a longer document, with a warning each; metadata["pages_left_out"].
        """
        with self._lock:
            return Salvage(self._attempt, source, self.registry.limits.timeout).run()

    @property
    def child_pid(self) -> int | None:
        """The child that stands ready, for watching it; None while there is none."""
        return None if self._child is None else self._child.pid

    def close(self) -> None:
        """End the child. The parser can be used again afterwards."""
        with self._lock:
            self._discard()

    def __del__(self) -> None:
        child = getattr(self, "_child", None)
        # When the interpreter ends, its modules are gone already, and the child dies with its parent.
        if child is not None and sys is not None and not sys.is_finalizing():
            child.kill()

    def __enter__(self) -> IsolatedParser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _attempt(self, source: DocumentSource) -> ParsedDocument | Failure:
        """One parse, begun again after a death or a timeout until it is clear that the content is at fault."""
        died: list[PageMark | None] = []
        timed_out: list[PageMark | None] = []
        while True:
            child = self._running()
            try:
                outcome = child.ask(source, self.registry.limits)
            except ChildTimedOut as timeout:
                timed_out.append(child.mark)
                self._replace(source, "Parsing timed out", child, "a page" if timeout.of_page else "the document")
                if len(timed_out) >= TIMEOUTS:
                    return self._timeout(source, timed_out, of_page=timeout.of_page)
            except ChildDied as death:
                died.append(child.mark)
                self._replace(source, "The parser process died", child, str(death))
                if len(died) >= DEATHS:
                    error = ParseCrashError(f"The parser process died on {source.filename!r} ({death})")
                    return Failure(error, f"the parser process died on it ({death})", _known(died))
            else:
                if outcome.exhausted or outcome.resident_bytes > self.registry.limits.memory_bytes // 2:
                    self._discard()
                return _result(source, outcome, child.mark)

    def _timeout(self, source: DocumentSource, marks: list[PageMark | None], *, of_page: bool) -> Failure:
        limits = self.registry.limits
        seconds = page_seconds(limits) if of_page else limits.timeout
        what = f"A page of {source.filename!r}" if of_page else f"Parsing {source.filename!r}"
        error = ParseTimeoutError(f"{what} took more than {seconds:g} s")
        known = _known(marks)
        # A document whose time ran out while its pages went on is long, and no single page of it is at fault.
        blamed = known if of_page or not any(mark.number for mark in known) else ()
        return Failure(error, f"it took more than {seconds:g} s", blamed)

    def _replace(self, source: DocumentSource, message: str, child: ChildProcess, reason: str) -> None:
        self._discard()
        page = child.mark.number if child.mark else 0
        logger.warning(message, extra={"file": source.filename, "page": page, "reason": reason})

    def _running(self) -> ChildProcess:
        if self._child is None:
            self._child = ChildProcess(self.registry)
        return self._child

    def _discard(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None


def _result(source: DocumentSource, outcome: Outcome, mark: PageMark | None) -> ParsedDocument | Failure:
    if outcome.trace:
        logger.error(
            "A parser failed unexpectedly",
            extra={"document": source.document_id, "file": source.filename, "trace": outcome.trace},
        )
    if outcome.document is not None:
        return outcome.document
    error = outcome.error or InternalError(f"The parser process answered nothing for {source.filename!r}")
    blamed = mark is not None and (mark.number > 0 or outcome.exhausted)
    if mark is None or not blamed or not isinstance(error, CorruptDocumentError | DocumentTooLargeError):
        return Failure(error, error.message)
    reason = "it needs more memory than RAG_PARSE_MEMORY_BYTES allows" if outcome.exhausted else error.message
    return Failure(error, reason, (mark,), adds_up=outcome.exhausted)


def _known(marks: list[PageMark | None]) -> tuple[PageMark, ...]:
    """Where the tries stood; nothing when one of them had not come to the pages."""
    known = tuple(mark for mark in marks if mark is not None)
    return known if len(known) == len(marks) else ()
