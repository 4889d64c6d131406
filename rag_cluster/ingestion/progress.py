"""How a person follows a run: a bar on a terminal, structured lines otherwise, and the run row in PostgreSQL."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

log = logging.getLogger("rag_cluster.ingestion.progress")
LINE_SECONDS = 10.0
ROW_SECONDS = 2.0


def _recognition(counts: Mapping[str, int]) -> str:
    """Scans are a matter of their own: they come after the text."""
    done, awaiting = counts.get("ocr_pages", 0), counts.get("ocr_pages_awaiting", 0)
    return f", OCR {done} of {done + awaiting} pages" if done or awaiting else ""


class RunProgress:
    """Shows counters as they grow. `store` gets them every 2 s at most, for whoever watches from another machine."""

    def __init__(self, label: str, store: Callable[[Mapping[str, int]], None], *, terminal: bool | None = None) -> None:
        self._store = store
        self._label = label
        self._terminal = sys.stderr.isatty() if terminal is None else terminal
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._stored = self._logged = time.monotonic()

    def __enter__(self) -> Self:
        if self._terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
                TimeElapsedColumn(),
            )
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self._label, total=None, note="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, line: str) -> None:
        """One line, above the bar or in the log."""
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            log.info("%s", line)

    def update(self, counts: Mapping[str, int], total: int | None) -> None:
        """New counters; total is the number of inputs, once it is known."""
        now = time.monotonic()
        if self._bar is not None and self._task is not None:
            note = f"{counts['embedded_chunks']} chunks, {counts['failed']} failed{_recognition(counts)}"
            self._bar.update(self._task, completed=counts["listed"], total=total, note=note)
        elif now - self._logged >= LINE_SECONDS:
            self._logged = now
            log.info("%s", self._label, extra={"counts": dict(counts), "total": total})
        if now - self._stored >= ROW_SECONDS:
            self._stored = now
            self._store(counts)
