"""Documents that change all the time, and what a query may see of them at any moment."""

from __future__ import annotations

import random
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rag_cluster.domain.documents import PlannedFile, SourceKind
from rag_cluster.domain.ids import bulk_document_id
from rag_cluster.domain.retrieval import RetrievalRun
from rag_cluster.ingestion import steps
from rag_cluster.ingestion.plan import plan
from rag_cluster.ingestion.write_path import WritePath
from rag_cluster.lifecycle.delete import delete_document
from rag_cluster.lifecycle.stores import Stores

SENTENCES = 12
_STATED = re.compile(r"berth(\d+) in revision (\d+)")


def text(number: int, revision: int) -> str:
    """A document of several chunks and parts, each of which says what it is of."""
    return "\n\n".join(
        f"Sentence {n} of berth{number} in revision {revision} tells how deep it is." for n in range(SENTENCES)
    )


@dataclass(frozen=True)
class Visible:
    """What holds of one document at one moment."""

    least: int = 1
    """A query that starts now may see no older revision."""
    most: int = 0
    """A query that ends now may see no newer revision."""
    present: bool = False
    """Published, and no delete has begun."""
    deletes: int = 0
    """That have begun."""


class Truth:
    """Every document's `Visible`, told by the writers before and after what they do."""

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._documents = [Visible()] * count

    def now(self) -> list[Visible]:
        with self._lock:
            return list(self._documents)

    def tell(self, number: int, **values: int | bool) -> None:
        with self._lock:
            self._documents[number] = replace(self._documents[number], **values)  # type: ignore[arg-type]


def violations(
    run: RetrievalRun, before: Sequence[Visible], after: Sequence[Visible], asked: int | None
) -> Iterator[str]:
    """What is wrong with an answer, by what held before its query started and after it ended.

    asked: the document that the query was about; None: any.
    """
    seen: dict[int, set[int]] = defaultdict(set)
    for result in run.results:
        for number, revision in _STATED.findall(f"{result.content} {result.matched_content}"):
            seen[int(number)].add(int(revision))
    for number, revisions in seen.items():
        if len(revisions) > 1:
            yield f"document {number}: revisions {sorted(revisions)} in one answer"
        if min(revisions) < before[number].least:
            yield f"document {number}: revision {min(revisions)} came back, {before[number].least} is the least"
        if max(revisions) > after[number].most:
            yield f"document {number}: revision {max(revisions)} is not there yet"
    if asked is None or asked in seen:
        return
    if before[asked].present and before[asked].deletes == after[asked].deletes:
        yield f"document {asked} disappeared: {before[asked]}, {after[asked]}, {run.trace}"


class Writer:
    """Changes its documents one after the other, in a thread of its own with a write path of its own."""

    def __init__(self, write_path: WritePath, knowledge_base_id: str, folder: Path, truth: Truth, seed: int) -> None:
        self.did: Counter[str] = Counter()
        self._path, self._base, self._folder, self._truth = write_path, knowledge_base_id, folder, truth
        self._source = write_path.catalog.ensure_source(knowledge_base_id, SourceKind.BULK, "bulk").id
        self._record = steps.open_index(write_path)
        self._random = random.Random(seed)
        self._revisions: Counter[int] = Counter()

    def document_id(self, number: int) -> str:
        return bulk_document_id(self._base, self._file(number).as_uri())

    def publish(self, number: int) -> None:
        """The next revision, whether the document was deleted before or not."""
        revision = self._next(number, text(number, self._revisions[number] + 1))
        self._truth.tell(number, most=revision)
        assert self._ingest(number) == "ready"
        self._truth.tell(number, least=revision, present=True)
        self.did["published"] += 1

    def fail(self, number: int, content: str) -> None:
        """A next revision that does not get through."""
        self._next(number, content)
        assert self._ingest(number) == "failed"
        self.did["failed"] += 1

    def delete(self, number: int) -> None:
        """Gone for every query that starts when this has returned."""
        deletes = self._truth.now()[number].deletes + 1
        self._truth.tell(number, present=False, deletes=deletes)
        path = self._path
        delete_document(
            Stores(path.catalog, path.outbox, path.index, path.snapshots, path.objects), self.document_id(number)
        )
        self._truth.tell(number, least=self._revisions[number] + 1)
        self.did["deleted"] += 1

    def change(self, number: int) -> None:
        """One of all that can happen to a document."""
        what = self._random.random()
        if what < 0.55:
            self.publish(number)
        elif what < 0.7:
            self.fail(number, text(number, self._revisions[number] + 1) + "\n\nPOISON")
        elif what < 0.8:
            self.fail(number, "")
        else:
            self.delete(number)
            self.publish(number)

    def _file(self, number: int) -> Path:
        return self._folder / f"{number:04}.txt"

    def _next(self, number: int, content: str) -> int:
        self._revisions[number] += 1
        self._file(number).write_text(content, encoding="utf-8")
        return self._revisions[number]

    def _ingest(self, number: int) -> str:
        """As the actors do it, batch after batch; how it ended."""
        (item,) = plan(self._path, self._base, [str(self._file(number))])
        assert isinstance(item, PlannedFile), item
        work = steps.Work(self._base, self._source, item.document_id, item.file, item.content_fingerprint)
        prepared = steps.prepare(self._path, work, owner=f"writer-{id(self)}")
        if not isinstance(prepared, list):
            return str(getattr(prepared, "outcome", prepared))
        assert len(prepared) > 1, "a document has several parts"
        ends = [row for part in prepared for row in steps.index(self._path, self._record, [part])]
        self._path.ledger.release(f"writer-{id(self)}")
        (outcome,) = {str(row.outcome) for row in ends if hasattr(row, "outcome")}
        return outcome
