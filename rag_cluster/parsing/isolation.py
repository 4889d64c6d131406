"""Parsing in a process of its own, so that no document can take the worker down, hang it or eat its memory.

    IsolatedParser.parse -> frame -> child (limits, detection, registry, parser) -> Outcome -> ParsedDocument | error

The child serves many documents and is replaced after a timeout, a death, exhausted memory or growth. A death is tried
again, because the machine may be at fault; the third one on the same input is the content's. Then `salvage` looks for
the page that does it.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Mapping
from functools import partial

from rag_cluster.domain.blocks import DocumentSource, ParsedDocument
from rag_cluster.errors import (
    CorruptDocumentError,
    DocumentTooLargeError,
    InternalError,
    ParseCrashError,
    ParseTimeoutError,
)
from rag_cluster.parsing.child_process import ChildDied, ChildTimedOut, page_seconds
from rag_cluster.parsing.children import Place, Places
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
PATIENCE = 10.0
"""Seconds after which a document is slow, and is overtaken where there may be several children."""


class IsolatedParser:
    """DocumentParser for all formats, running in a child process. One document at a time; threads wait.

    children: with more than one, whoever waits for a document that takes longer than `patience` seconds is parsed by
    another child meanwhile. Picklable: a copy starts its own child at its first use. Close it, or let its owner die.
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
        children: int = 1,
        patience: float = PATIENCE,
    ) -> None:
        self.registry = ParserRegistry(
            dict(parsers or {}), limits, OcrMode(ocr), ocr_threads, ocr_gpu, postpone_ocr, libreoffice
        )
        self._concurrency = (children, patience)
        self._places = Places(children, patience)

    def __getstate__(self) -> tuple[ParserRegistry, tuple[int, float]]:
        return self.registry, self._concurrency

    def __setstate__(self, state: tuple[ParserRegistry, tuple[int, float]]) -> None:
        self.registry, self._concurrency = state
        self._places = Places(*self._concurrency)

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
        with self._places.turn() as place:
            return Salvage(partial(self._attempt, place), source, self.registry.limits.timeout).run()

    @property
    def child_pid(self) -> int | None:
        """The child that stands ready, for watching it; None while there is none."""
        return self._places.pid

    def close(self) -> None:
        """End the child. The parser can be used again afterwards."""
        self._places.close()

    def __del__(self) -> None:
        places = getattr(self, "_places", None)
        # When the interpreter ends, its modules are gone already, and the child dies with its parent.
        if places is not None and sys is not None and not sys.is_finalizing():
            places.kill()

    def __enter__(self) -> IsolatedParser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _attempt(self, place: Place, source: DocumentSource) -> ParsedDocument | Failure:
        """One parse, begun again after a death or a timeout until it is clear that the content is at fault."""
        died: list[PageMark | None] = []
        ends: Counter[str] = Counter()
        timed_out: list[PageMark | None] = []
        while True:
            child = place.running(self.registry)
            try:
                outcome = child.ask(source, self.registry.limits)
            except ChildTimedOut as timeout:
                timed_out.append(child.mark)
                _replace(place, source, "Parsing timed out", "a page" if timeout.of_page else "the document")
                if len(timed_out) >= TIMEOUTS:
                    return self._timeout(source, timed_out, of_page=timeout.of_page)
            except ChildDied as death:
                died.append(child.mark)
                ends[str(death)] += 1
                _replace(place, source, "The parser process died", str(death))
                if len(died) >= DEATHS:
                    # What the content does repeats; one of the deaths may be the machine's.
                    how = ends.most_common(1)[0][0]
                    error = ParseCrashError(f"The parser process died on {source.filename!r} ({how})")
                    return Failure(error, f"the parser process died on it ({how})", _known(died))
            else:
                if outcome.exhausted or outcome.resident_bytes > self.registry.limits.memory_bytes // 2:
                    place.discard()
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


def _replace(place: Place, source: DocumentSource, message: str, reason: str) -> None:
    mark = place.child.mark if place.child is not None else None
    place.discard()
    page = mark.number if mark else 0
    logger.warning(message, extra={"file": source.filename, "page": page, "reason": reason})


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
