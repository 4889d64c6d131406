"""Repairing one document from what is left of it. PostgreSQL decides; the index and the objects follow.

Each repair is idempotent and tried again after an outage, and the document is looked at afresh after each round: what
counts as repaired is what is not found any more.
"""

from __future__ import annotations

import logging
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from rag_cluster.domain.documents import IndexRecord, OutboxKind
from rag_cluster.domain.inventory import DocumentFacts, Fault, Finding, Outcome
from rag_cluster.domain.ports import Inventory
from rag_cluster.errors import RagClusterError
from rag_cluster.ingestion.write_path import WritePath
from rag_cluster.lifecycle.comparison import Rules, View, compare, unsettled
from rag_cluster.lifecycle.outbox import drain
from rag_cluster.lifecycle.rebuilding import Rebuilder
from rag_cluster.lifecycle.reindexing import Reindexer
from rag_cluster.lifecycle.sources import Lost
from rag_cluster.lifecycle.stores import Stores
from rag_cluster.lifecycle.views import Viewer

log = logging.getLogger("rag_cluster.lifecycle")

ROUNDS = 3
"""Repairing chunks uncovers what the index lacks of them, and removing a double what lay beneath it."""

Identity = tuple[Fault, str, str, int, str]


class Repairer:
    """Repairs documents one after the other."""

    def __init__(
        self,
        write_path: WritePath,
        inventory: Inventory,
        stores: Stores,
        viewer: Viewer,
        rules: Rules,
        indexes: Sequence[IndexRecord],
    ) -> None:
        self._write_path = write_path
        self._inventory = inventory
        self._stores = stores
        self._viewer = viewer
        self._rules = rules
        self._owner = f"fsck-{uuid.uuid4()}"
        self._reindexer = Reindexer(write_path, inventory, indexes)
        self._rebuilder = Rebuilder(write_path, inventory)
        self._handlers: Mapping[Fault, Callable[[View, Sequence[Finding]], None]] = {
            # In this order: facts, then the snapshot that may be rebuilt from them, then what is derived.
            Fault.STUCK_CLAIM: self._release_claims,
            Fault.COUNT_MISMATCH: self._rebuilder.content,
            Fault.UNVERSIONED_CHUNKS: self._drop_content,
            Fault.SNAPSHOT_LOST: self._snapshots,
            Fault.SNAPSHOT_CORRUPT: self._snapshots,
            Fault.ORIGINAL_LOST: self._rebuilder.originals,
            Fault.ASSET_LOST: self._rebuilder.assets,
            Fault.DUPLICATE_ROW: self._delete_rows,
            Fault.STALE_ROW: self._delete_rows,
            Fault.WRONG_FIELDS: self._reindexer.fields,
            Fault.MISSING_ROW: self._reindexer.rows,
            Fault.ORPHAN_OBJECT: self._delete_objects,
            Fault.STRAY_ASSET: self._delete_objects,
        }

    def repair(self, view: View, found: Sequence[Finding]) -> list[tuple[Finding, Outcome, str]]:
        """What became of each finding, and of those that repairing uncovered."""
        seen: dict[Identity, Finding] = {}
        failed: dict[Identity, str] = {}
        lost: dict[Identity, str] = {}
        left: list[Finding] = list(found)
        for _ in range(ROUNDS):
            seen = {finding.identity: finding for finding in left} | seen
            reasons, gone = self._round(view, left)
            failed |= reasons
            lost |= gone
            again = self._write_path.retry.call(partial(self._viewer.document, view.facts.id))
            if again is None or unsettled(again.facts):
                left = []  # taken up or deleted by somebody else: theirs now
                break
            view, left = again, compare(again, self._rules)
            if {finding.identity for finding in left} <= reasons.keys():
                break
        open_ = {finding.identity for finding in left}
        return [(finding, *_outcome(finding, failed, lost, open_)) for finding in seen.values()]

    def close(self) -> None:
        """Make rewritten rows fast to search."""
        self._reindexer.close()

    def _round(self, view: View, findings: Sequence[Finding]) -> tuple[dict[Identity, str], dict[Identity, str]]:
        """(findings whose repair failed, findings that are lost), with the reasons."""
        if view.facts.deleted:
            return self._attempt(self._purge, view, findings), {}
        by_fault: dict[Fault, list[Finding]] = defaultdict(list)
        for finding in findings:
            by_fault[finding.fault].append(finding)
        failed: dict[Identity, str] = {}
        lost: dict[Identity, str] = {}
        for fault, handler in self._handlers.items():
            if group := by_fault.get(fault):
                try:
                    failed |= self._attempt(handler, view, group)
                except Lost as error:
                    for finding in error.findings or group:
                        lost[finding.identity] = error.message
                        self._note(finding, error.message)
        return failed, lost

    def _attempt(
        self, handler: Callable[[View, Sequence[Finding]], None], view: View, findings: Sequence[Finding]
    ) -> dict[Identity, str]:
        try:
            self._write_path.retry.call(lambda: handler(view, findings))
        except Lost:
            raise
        except Exception as error:  # becomes the outcome of the findings
            message = error.message if isinstance(error, RagClusterError) else f"{type(error).__name__}: {error}"
            expected = isinstance(error, RagClusterError)
            fields = {"document_id": view.facts.id, "fault": findings[0].fault.value}
            log.warning("not repaired: %s", message, extra=fields, exc_info=not expected)
            return {finding.identity: message for finding in findings}
        return {}

    def _note(self, finding: Finding, message: str) -> None:
        note = self._inventory.note_loss
        self._write_path.retry.call(
            lambda: note(finding.document_id, finding.version, finding.fault, finding.subject, message)
        )

    # -- repairs without a source ------------------------------------------------------------------------------------

    def _purge(self, view: View, findings: Sequence[Finding]) -> None:
        """All of a deleted document goes, by the same steps as a delete; then what those do not know of."""
        facts = view.facts
        payload = {"max_version": facts.next_version - 1}
        self._stores.outbox.add(OutboxKind.PURGE_DOCUMENT, facts.id, facts.knowledge_base_id, payload)
        drain(self._stores, document_id=facts.id)
        self._delete_rows(view, [finding for finding in findings if finding.fault is Fault.ORPHAN_ROW])
        self._delete_objects(view, [finding for finding in findings if finding.fault is Fault.ORPHAN_OBJECT])

    def _delete_rows(self, view: View, findings: Sequence[Finding]) -> None:
        by_collection: dict[str, list[str]] = defaultdict(list)
        for finding in findings:
            by_collection[finding.store].append(finding.subject)
        for collection, ids in by_collection.items():
            self._write_path.index.delete_rows(collection, view.facts.knowledge_base_id, ids)

    def _delete_objects(self, view: View, findings: Sequence[Finding]) -> None:
        for finding in findings:
            self._write_path.objects.delete(finding.subject)

    def _drop_content(self, view: View, findings: Sequence[Finding]) -> None:
        for finding in findings:
            self._inventory.drop_content(view.facts.id, finding.version)

    def _release_claims(self, view: View, findings: Sequence[Finding]) -> None:
        for finding in findings:
            token = view.facts.versions[finding.version].claim_token
            self._inventory.release_claim(view.facts.id, finding.version, token)

    def _snapshots(self, view: View, findings: Sequence[Finding]) -> None:
        for finding in findings:
            if finding.version == view.facts.published_version:
                self._rebuilder.snapshot(view, finding)
            else:
                self._prepare_again(view.facts, finding.version)

    def _prepare_again(self, facts: DocumentFacts, version: int) -> None:
        """An unfinished version without its snapshot cannot be resumed: the next run or worker prepares it anew. Its
        rows leave the index first, for the new ones may have other ids; under a claim, so that none come meanwhile."""
        ledger, lease = self._write_path.ledger, self._write_path.lease_seconds
        claim = ledger.claim_version(facts.id, version, owner=self._owner, lease_seconds=lease)
        if claim is None:
            return  # somebody took it up meanwhile
        try:
            for record in self._write_path.catalog.indexes():
                self._write_path.index.delete(record.collection, facts.id, version=version)
            self._write_path.snapshots.delete(facts.knowledge_base_id, facts.id, version)
            self._inventory.reset_version(facts.id, version, claim.token)
        finally:
            ledger.release(self._owner)


def _outcome(
    finding: Finding, failed: Mapping[Identity, str], lost: Mapping[Identity, str], open_: set[Identity]
) -> tuple[Outcome, str]:
    if finding.identity in lost:
        return Outcome.LOST, lost[finding.identity]
    if finding.identity in open_:
        return Outcome.FAILED, failed.get(finding.identity, "it is still found after the repair")
    return Outcome.REPAIRED, ""
