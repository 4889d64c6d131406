"""Comparing PostgreSQL, the index and the object store, and repairing from PostgreSQL's truth.

Knowledge base by knowledge base, PostgreSQL's documents are read in pages by id; the index rows of the page's id range
and one listing of the object store are walked in step, so that memory is a page's, on all sides. What lies between the
ids of a page belongs to no document. Whatever looks wrong is looked at a second time, freshly, before it counts; what
was written after the scan began or belongs to unfinished work never does.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from rag_cluster.domain.documents import RunStatus
from rag_cluster.domain.inventory import DocumentFacts, Fault, Finding, Outcome, StoredObject, StoredRow
from rag_cluster.domain.ports import Inventory
from rag_cluster.ingestion.write_path import WritePath
from rag_cluster.lifecycle.comparison import OBJECTS, POSTGRES, Rules, View, compare, unsettled
from rag_cluster.lifecycle.outbox import drain
from rag_cluster.lifecycle.repair import Repairer
from rag_cluster.lifecycle.report import Entry, FsckReport
from rag_cluster.lifecycle.stores import Stores
from rag_cluster.lifecycle.views import OwnedObjects, Viewer

log = logging.getLogger("rag_cluster.lifecycle")

STUCK_ATTEMPTS = 10
"""Times that an outbox entry failed after which it is reported; with growing delays that takes a quarter of an hour."""
_STRAYS = 1000  # rows of unknown documents that are settled at once
_AFTER_ALL = "\uffff"  # sorts behind every id


@dataclass(frozen=True, slots=True)
class FsckOptions:
    """A run's choices."""

    repair: bool = False
    deep: bool = False
    """Hash originals and assets too; otherwise their presence and size are compared. Snapshots are always read."""
    knowledge_base_id: str | None = None
    """Only this one; None: all, and what belongs to none."""
    grace_seconds: float = 3600.0
    """Objects younger than this may be of an upload under way; claims, effects and runs are stuck after it."""


def fsck(
    write_path: WritePath,
    inventory: Inventory,
    options: FsckOptions,
    listener: Callable[[Entry], None] | None = None,
) -> FsckReport:
    """Compare everything, and repair where told to. An outage that outlasts the retries is raised.

    listener: told each finding when it is settled. Without repair nothing is changed anywhere.
    """
    return _Scan(write_path, inventory, options, listener).run()


class _Scan:
    def __init__(
        self,
        write_path: WritePath,
        inventory: Inventory,
        options: FsckOptions,
        listener: Callable[[Entry], None] | None,
    ) -> None:
        self._started = time.perf_counter()
        self._write_path, self._inventory, self._options = write_path, inventory, options
        self._retry = write_path.retry.call
        self._report = FsckReport(options.repair, listener)
        self._stores = Stores(
            write_path.catalog, write_path.outbox, write_path.index, write_path.snapshots, write_path.objects
        )
        # What is being dropped goes as a whole.
        indexes = [record for record in self._retry(write_path.catalog.indexes) if record.state != "dropping"]
        active = next((record for record in indexes if record.state == "active"), None)
        self._collections = [record.collection for record in indexes]
        self._rules = Rules(
            active.collection if active else None,
            datetime.now(UTC) - timedelta(seconds=options.grace_seconds),
            options.grace_seconds,
        )
        self._viewer = Viewer(write_path, inventory, self._collections, deep=options.deep)
        self._repairer = Repairer(write_path, inventory, self._stores, self._viewer, self._rules, indexes)

    def run(self) -> FsckReport:
        options, objects = self._options, self._write_path.objects
        self._stuck_entries()
        self._stuck_runs()
        if options.repair:
            self._retry(self._inventory.make_due)
            drain(self._stores)
        bases = self._retry(self._inventory.knowledge_base_ids)
        only = options.knowledge_base_id
        owned = OwnedObjects(objects.entries(f"{only}/" if only else ""))
        for base in [only] if only else bases:
            self._knowledge_base(base, owned)
        if only is None:
            self._unowned(owned.until((_AFTER_ALL, _AFTER_ALL)), known={})
            for collection in self._collections:
                self._foreign_rows(collection, self._write_path.index.foreign_rows(collection, bases))
        self._report.scanned.update(objects=owned.seen, foreign_objects=owned.foreign)
        if options.repair:
            self._repairer.close()
            drain(self._stores)
        self._report.seconds = time.perf_counter() - self._started
        return self._report

    def _knowledge_base(self, base: str, owned: OwnedObjects) -> None:
        self._report.scanned["knowledge_bases"] += 1
        after: str | None = None
        while page := self._retry(partial(self._inventory.documents, base, after)):
            self._page(base, page, after or "", page[-1].id, owned)
            after = page[-1].id
        self._page(base, [], after or "", None, owned)  # what lies behind the last document

    def _page(
        self, base: str, page: Sequence[DocumentFacts], after: str, last: str | None, owned: OwnedObjects
    ) -> None:
        known = {facts.id: facts for facts in page}
        rows: dict[str, dict[str, list[StoredRow]]] = {}
        for collection in self._collections:
            found = self._write_path.index.rows(collection, base, after=after, last=last)
            rows[collection] = self._own_rows(base, collection, found, known)
        objects = self._unowned(owned.until((base, last or _AFTER_ALL)), known)
        for facts in page:
            own = {collection: rows[collection].get(facts.id, []) for collection in self._collections}
            self._document(facts, own, objects.get(facts.id, []))

    # -- documents ---------------------------------------------------------------------------------------------------

    def _document(
        self, facts: DocumentFacts, rows: dict[str, list[StoredRow]], objects: Sequence[StoredObject]
    ) -> None:
        self._report.scanned["documents"] += 1
        if reason := unsettled(facts):
            self._report.scanned[reason] += 1
            return
        faults = self._retry(partial(self._viewer.content_faults, facts, objects))
        first = {finding.identity for finding in compare(View(facts, rows, objects, faults), self._rules)}
        if not first:
            return
        again = self._retry(partial(self._viewer.document, facts.id))
        if again is None:
            return
        if reason := unsettled(again.facts):
            self._report.scanned[reason] += 1
            return
        found = [finding for finding in compare(again, self._rules) if finding.identity in first]
        if not found:
            return
        if self._options.repair:
            for finding, outcome, message in self._repairer.repair(again, found):
                self._report.add(finding, outcome, message)
        else:
            for finding in found:
                self._report.add(finding, Outcome.FOUND)

    # -- what no document owns ---------------------------------------------------------------------------------------

    def _own_rows(
        self, base: str, collection: str, rows: Iterable[StoredRow], known: dict[str, DocumentFacts]
    ) -> dict[str, list[StoredRow]]:
        own: dict[str, list[StoredRow]] = defaultdict(list)
        strays: list[StoredRow] = []
        for row in rows:
            self._report.scanned["rows"] += 1
            if row.document_id in known:
                own[row.document_id].append(row)
                continue
            strays.append(row)
            if len(strays) == _STRAYS:
                self._strays(base, collection, strays)
                strays = []
        self._strays(base, collection, strays)
        return own

    def _foreign_rows(self, collection: str, rows: Iterable[StoredRow]) -> None:
        strays: dict[str, list[StoredRow]] = defaultdict(list)
        for row in rows:
            self._report.scanned["rows"] += 1
            strays[row.knowledge_base_id].append(row)
            if len(strays[row.knowledge_base_id]) == _STRAYS or len(strays) == _STRAYS:
                for base, found in strays.items():
                    self._strays(base, collection, found)
                strays.clear()
        for base, found in strays.items():
            self._strays(base, collection, found)

    def _strays(self, base: str, collection: str, rows: Sequence[StoredRow]) -> None:
        """Rows of documents that the page did not hold. A document's row is there before its first index row."""
        facts = {name: self._retry(partial(self._inventory.document, name)) for name in {r.document_id for r in rows}}
        found: list[Finding] = []
        for row in rows:
            owner = facts[row.document_id]
            if owner is not None and owner.knowledge_base_id == base:
                continue  # registered since
            fault, detail = Fault.ORPHAN_ROW, "no such document"
            if owner is not None:
                fault, detail = Fault.DUPLICATE_ROW, f"its document belongs to {owner.knowledge_base_id}"
            found.append(Finding(fault, base, row.document_id, row.version, row.id, collection, detail))
        index, ids = self._write_path.index, [finding.subject for finding in found]
        self._settle(found, lambda: index.delete_rows(collection, base, ids))

    def _unowned(
        self, groups: Iterable[tuple[tuple[str, str], list[StoredObject]]], known: dict[str, DocumentFacts]
    ) -> dict[str, list[StoredObject]]:
        """The objects of known documents, by document; the others are settled."""
        own: dict[str, list[StoredObject]] = {}
        for (base, document_id), entries in groups:
            if document_id in known and known[document_id].knowledge_base_id == base:
                own[document_id] = entries
                continue
            old = [entry for entry in entries if entry.modified_at <= self._rules.written_before]
            owner = self._retry(partial(self._inventory.document, document_id)) if old else None
            if not old or (owner is not None and owner.knowledge_base_id == base):
                continue
            detail = "no such document"
            found = [Finding(Fault.ORPHAN_OBJECT, base, document_id, 0, e.key, OBJECTS, detail) for e in old]
            self._settle(found, partial(self._delete_objects, [entry.key for entry in old]))
        return own

    def _delete_objects(self, names: Sequence[str]) -> None:
        for name in names:
            self._write_path.objects.delete(name)

    def _settle(self, found: Sequence[Finding], repair: Callable[[], None]) -> None:
        if not found:
            return
        if self._options.repair:
            self._retry(repair)
        for finding in found:
            self._report.add(finding, Outcome.REPAIRED if self._options.repair else Outcome.FOUND)

    # -- what is stuck -----------------------------------------------------------------------------------------------

    def _stuck_entries(self) -> None:
        grace, outbox = self._options.grace_seconds, self._write_path.outbox
        for entry in self._retry(partial(self._inventory.stuck_entries, grace, STUCK_ATTEMPTS)):
            if self._options.knowledge_base_id not in (None, entry.knowledge_base_id):
                continue
            detail = f"{entry.kind}, tried {entry.attempts} times: {entry.message}"[:200]
            finding = Finding(
                Fault.STUCK_OUTBOX, entry.knowledge_base_id, entry.document_id, 0, str(entry.id), POSTGRES, detail
            )
            if not self._options.repair:
                self._report.add(finding, Outcome.FOUND)
                continue
            self._retry(partial(self._inventory.make_due, entry.id))
            drain(self._stores, document_id=entry.document_id)
            owed = self._retry(partial(outbox.pending, entry.document_id))
            outcome, message = (Outcome.FAILED, "it failed again; see the log") if owed else (Outcome.REPAIRED, "")
            self._report.add(finding, outcome, message)

    def _stuck_runs(self) -> None:
        ledger, only = self._write_path.ledger, self._options.knowledge_base_id
        for run in self._retry(partial(self._inventory.stuck_runs, self._options.grace_seconds)):
            if only not in (None, run.knowledge_base_id):
                continue
            finding = Finding(Fault.STUCK_RUN, run.knowledge_base_id, "", 0, run.id, POSTGRES, "no sign of life")
            if self._options.repair:
                self._retry(partial(ledger.release, run.id))
                message = "no sign of life; ended by fsck"
                self._retry(partial(ledger.finish_run, run.id, RunStatus.FAILED, run.counts, message))
            self._report.add(finding, Outcome.REPAIRED if self._options.repair else Outcome.FOUND)
