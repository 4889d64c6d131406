"""The OCR stage as the driver sees it: documents that await recognition lie on disk, are recognised beside the text
where the cluster has room for both, and after it otherwise. Knows no Ray.

    prepare hands a document on -> add -> (beside: a thread; after: finish) -> work, a batch of documents at a time
"""

from __future__ import annotations

import contextvars
import json
import tempfile
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rag_cluster.domain.documents import PlannedFile
from rag_cluster.ingestion import manifest

BATCH = 1000
"""Documents of one execution; what the driver keeps of those that wait."""
GATHER_SECONDS = 2.0
"""Starting the OCR actors takes seconds: wait for more documents before starting them for one."""
POLL_SECONDS = 0.2
STOP_SECONDS = 2.0

Work = Callable[[list[PlannedFile], bool], list[PlannedFile]]
"""(documents, whether it is their last chance) -> those that it could not settle yet."""


class Recognition:
    """Documents on their way through the OCR stage. Memory: one batch of ids, whatever waits behind it.

    beside: whether there is room for recognition while the text is worked on; asked again as long as there is not.
    """

    def __init__(self, work: Work, beside: Callable[[], bool]) -> None:
        self._work = work
        self._room_beside = beside
        self._file = tempfile.TemporaryFile(prefix="rag-cluster-ocr-")  # noqa: SIM115 - closed by __exit__
        self._read_at = 0
        self._lock = threading.Lock()
        self._waiting = 0
        self._pages = 0
        self._in_hand: dict[str, int] = {}
        self._left: list[PlannedFile] = []
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._text_is_through = threading.Event()
        self._stop = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._text_is_through.set()
        if self._thread is not None:
            # What it waits for ends soon: the actors see that the run is over.
            self._thread.join(STOP_SECONDS)
        with self._lock:
            self._file.close()

    @property
    def stopped(self) -> bool:
        """Whether the run is over, so that nothing that still comes counts."""
        return self._stop.is_set()

    def counts(self) -> dict[str, int]:
        """Documents, and their pages and pictures, that wait or are being recognised."""
        with self._lock:
            documents = self._waiting + len(self._in_hand)
            return {"ocr_documents_awaiting": documents, "ocr_pages_awaiting": self._pages}

    def add(self, item: PlannedFile, pages: int = 1) -> None:
        """A document that awaits recognition; pages and pictures, 1 where their number is not known."""
        line = json.dumps([pages, manifest.to_row(item)], ensure_ascii=False).encode(errors="surrogatepass") + b"\n"
        with self._lock:
            self._file.seek(0, 2)
            self._file.write(line)
            self._waiting += 1
            self._pages += pages

    def done(self, document_id: str) -> None:
        """The document left the stage, whatever became of it."""
        with self._lock:
            self._pages -= self._in_hand.pop(document_id, 0)

    def poll(self) -> None:
        """Start working beside the text once there is something to do and room for it. Raises what went wrong there."""
        self._check()
        if self._thread is None and self._waiting and self._room_beside():
            run = contextvars.copy_context().run
            self._thread = threading.Thread(target=run, args=(self._beside,), name="recognition", daemon=True)
            self._thread.start()

    def finish(self, *, last: bool = False) -> list[PlannedFile]:
        """The text is through: recognise all that waits; the documents that could not be settled yet."""
        if self._thread is not None:
            self._text_is_through.set()
            while self._thread.is_alive():
                self._thread.join(POLL_SECONDS)
            self._thread = None
            self._text_is_through.clear()
        self._check()
        while batch := self._take():
            self._left += self._work_on(batch, last=last)
        left, self._left = self._left, []
        return left

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _beside(self) -> None:
        try:
            while not self._stop.is_set():
                through = self._text_is_through.wait(GATHER_SECONDS)
                batch = self._take()
                if batch:
                    self._left += self._work_on(batch, last=False)
                elif through:
                    return
        except BaseException as error:  # raised by the next `poll`, in the driver's own thread
            self._error = error

    def _work_on(self, batch: list[PlannedFile], *, last: bool) -> list[PlannedFile]:
        left = self._work(batch, last)
        with self._lock:
            self._pages -= sum(self._in_hand.values())
            self._in_hand.clear()
        return left

    def _take(self) -> list[PlannedFile]:
        batch: list[PlannedFile] = []
        with self._lock:
            if self._stop.is_set():
                return batch
            self._file.seek(self._read_at)
            while len(batch) < BATCH and self._waiting:
                pages, row = json.loads(self._file.readline().decode(errors="surrogatepass"))
                item = manifest.from_row(row)
                batch.append(item)
                self._in_hand[item.document_id] = self._in_hand.get(item.document_id, 0) + pages
                self._waiting -= 1
            self._read_at = self._file.tell()
        return batch
