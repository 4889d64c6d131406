"""Reading what the stores hold: of one document, and the object listing in step with PostgreSQL's pages."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

from rag_cluster.domain import keys
from rag_cluster.domain.inventory import DocumentFacts, Fault, Finding, StoredObject, StoredRow, VersionFacts
from rag_cluster.domain.ports import Inventory, ObjectStore
from rag_cluster.errors import CorruptSnapshotError, NotFoundError, OriginalChangedError, OriginalGoneError
from rag_cluster.ingestion.originals import fetch_referenced, referenced_file
from rag_cluster.ingestion.write_path import WritePath
from rag_cluster.lifecycle.comparison import OBJECTS, SOURCE, View, finding, snapshot_fault

_READ_BYTES = 1024 * 1024
Owner = tuple[str, str]
"""(knowledge base, document)."""


class Viewer:
    """Reads documents from all stores. deep: hashes originals and assets too."""

    def __init__(self, write_path: WritePath, inventory: Inventory, collections: Sequence[str], *, deep: bool) -> None:
        self._write_path = write_path
        self._inventory = inventory
        self._collections = collections
        self._deep = deep

    def document(self, document_id: str) -> View | None:
        """The document as it is now: PostgreSQL first, so that what is written meanwhile is never taken for missing.

        None when PostgreSQL does not know it.
        """
        facts = self._inventory.document(document_id)
        if facts is None:
            return None
        base = facts.knowledge_base_id
        rows: dict[str, list[StoredRow]] = {
            collection: list(self._write_path.index.rows(collection, base, document_id=document_id))
            for collection in self._collections
        }
        objects = list(self._write_path.objects.entries(keys.document_prefix(base, document_id)))
        return View(facts, rows, objects, self.content_faults(facts, objects))

    def content_faults(self, facts: DocumentFacts, objects: Sequence[StoredObject]) -> list[Finding]:
        """What reading snapshots, and with deep originals and assets, shows."""
        if facts.deleted or facts.live:
            return []
        found = [
            fault
            for version in facts.versions.values()
            if version.version == facts.published_version or (version.resumable and version.parts_total is not None)
            for fault in self._snapshot(facts, version)
        ]
        if facts.published is not None and facts.published.referenced:
            found += self._referenced(facts, facts.published)
        if self._deep and facts.published is not None:
            found += self._hashes(facts, facts.published, {entry.key for entry in objects})
        return found

    def _snapshot(self, facts: DocumentFacts, version: VersionFacts) -> Iterator[Finding]:
        try:
            ids = self._write_path.snapshots.verify(facts.knowledge_base_id, facts.id, version.version)
        except NotFoundError:
            yield snapshot_fault(facts, Fault.SNAPSHOT_LOST, version.version, "not there")
            return
        except CorruptSnapshotError as error:
            yield snapshot_fault(facts, Fault.SNAPSHOT_CORRUPT, version.version, error.message)
            return
        expected = max((part.end for part in version.parts), default=0)
        if version.version != facts.published_version:
            same = len(ids) == expected
        else:  # chunks that PostgreSQL lacks are a fault of its own
            same = len(ids) != len(set(ids)) or facts.chunk_ids <= set(ids)
        if not same:
            yield snapshot_fault(facts, Fault.SNAPSHOT_CORRUPT, version.version, "it holds other chunks")

    def _referenced(self, facts: DocumentFacts, version: VersionFacts) -> Iterator[Finding]:
        """What the place of an original that was not copied says. An outage there is raised: it is no fault."""
        inputs = self._write_path.inputs
        try:
            size = referenced_file(inputs, facts.uri).size
            if self._deep:
                with TemporaryDirectory(prefix="rag-cluster-") as folder:
                    fetch_referenced(inputs, facts.uri, version.sha256, str(Path(folder) / "source"))
        except (OriginalGoneError, OriginalChangedError) as error:
            detail = "not there" if isinstance(error, OriginalGoneError) else "other content"
            yield finding(facts, Fault.ORIGINAL_LOST, facts.uri, SOURCE, version=version.version, detail=detail)
            return
        if size != version.size:
            detail = f"{size} bytes instead of {version.size}"
            yield finding(facts, Fault.ORIGINAL_LOST, facts.uri, SOURCE, version=version.version, detail=detail)

    def _hashes(self, facts: DocumentFacts, version: VersionFacts, present: set[str]) -> Iterator[Finding]:
        objects, number = self._write_path.objects, version.version
        prefix = keys.source_prefix(facts.knowledge_base_id, facts.id, number)
        for key in sorted(present):
            if key.startswith(prefix) and version.sha256 and _sha256(objects, key) != version.sha256:
                yield finding(facts, Fault.ORIGINAL_LOST, key, OBJECTS, version=number, detail="other content")
        for asset in facts.assets:
            here = asset.version == number and asset.object_key in present
            if here and _sha256(objects, asset.object_key) != asset.sha256:
                yield finding(facts, Fault.ASSET_LOST, asset.id, OBJECTS, version=number, detail="other content")


def _sha256(objects: ObjectStore, key: str) -> str:
    digest = hashlib.sha256()
    try:
        with objects.open(key) as stream:
            while block := stream.read(_READ_BYTES):
                digest.update(block)
    except NotFoundError:
        return ""
    return digest.hexdigest()


class OwnedObjects:
    """One listing of the object store, cut into what each document owns, taken in step with PostgreSQL's pages."""

    def __init__(self, entries: Iterator[StoredObject]) -> None:
        self.seen = 0
        self.foreign = 0
        """Objects under no document's prefix: not ours to judge."""
        self._groups = groupby(self._owned(entries), key=lambda entry: keys.owner_of(entry.key))
        self._next: tuple[Owner, list[StoredObject]] | None = None

    def until(self, last: Owner) -> Iterator[tuple[Owner, list[StoredObject]]]:
        """Groups up to and including this owner that were not taken before."""
        while True:
            if self._next is None:
                owner, group = next(self._groups, (None, iter(())))
                if owner is None:
                    return
                self._next = owner, list(group)
            if self._next[0] > last:
                return
            taken, self._next = self._next, None
            yield taken

    def _owned(self, entries: Iterator[StoredObject]) -> Iterator[StoredObject]:
        for entry in entries:
            self.seen += 1
            if keys.owner_of(entry.key) is None:
                self.foreign += 1
            else:
                yield entry
