"""PostgreSQL, the index and the object store side by side, for one document: pure functions from facts to findings.

PostgreSQL is the truth. Work in progress is no fault: what an unfinished version wrote is neither missing nor left
over, and a document that somebody works on, or to which effects are owed, is not judged at all (`unsettled`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rag_cluster.domain import keys
from rag_cluster.domain.documents import DocumentStatus
from rag_cluster.domain.inventory import DocumentFacts, Fault, Finding, StoredObject, StoredRow, VersionFacts

POSTGRES, OBJECTS, SOURCE = "postgres", "objects", "source"
"""Of a finding. SOURCE: the place that an original was ingested from and is referenced at."""
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class View:
    """What all stores hold of one document, as it was read."""

    facts: DocumentFacts
    rows: Mapping[str, Sequence[StoredRow]]
    """collection -> rows of the document in its knowledge base's partition."""
    objects: Sequence[StoredObject]
    content_faults: Sequence[Finding] = field(default=())
    """What reading the snapshot, and with deep the original and assets, showed."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the comparison needs to know besides the document."""

    active: str | None
    """Collection of the active index. Another one may lack what PostgreSQL does not say that it holds."""
    written_before: datetime
    """Younger objects may belong to work whose facts are not committed yet: they are never left over."""
    claim_seconds: float
    """A claim that lapsed longer ago is stuck."""


def unsettled(facts: DocumentFacts) -> str | None:
    """Why a document is not judged now: busy or owed. None: judge it."""
    if facts.live:
        return "busy"
    return "owed" if facts.owed else None


def compare(view: View, rules: Rules) -> list[Finding]:
    """Every fault of a settled document."""
    facts = view.facts
    if facts.deleted:
        return [*_left_of_deleted(view, rules)]
    found = [*_counts(facts), *_unversioned(facts), *_claims(facts, rules), *view.content_faults]
    if not any(finding.fault is Fault.COUNT_MISMATCH for finding in found):
        # Rows and objects are judged by what PostgreSQL says of the version: where that is not whole, it comes first.
        for collection, rows in view.rows.items():
            complete = collection == rules.active or collection in facts.held_by
            found += _rows(facts, collection, rows, complete=complete)
        found += _objects(view, rules)
    return [finding for finding in found if (finding.version, finding.fault, finding.subject) not in facts.losses]


def finding(
    facts: DocumentFacts, fault: Fault, subject: str, store: str, *, version: int = 0, detail: str = ""
) -> Finding:
    """A finding on a document."""
    return Finding(fault, facts.knowledge_base_id, facts.id, version, subject, store, detail[:_SHOWN])


def snapshot_fault(facts: DocumentFacts, fault: Fault, version: int, detail: str) -> Finding:
    """A finding on a version's snapshot."""
    subject = keys.snapshot_prefix(facts.knowledge_base_id, facts.id, version)
    return finding(facts, fault, subject, OBJECTS, version=version, detail=detail)


# -- PostgreSQL alone ------------------------------------------------------------------------------------------------


def _counts(facts: DocumentFacts) -> Iterable[Finding]:
    if facts.published_version is None:
        return
    reason = _disagreement(facts, facts.published)
    if reason:
        version = facts.published_version
        yield finding(facts, Fault.COUNT_MISMATCH, str(version), POSTGRES, version=version, detail=reason)


def _disagreement(facts: DocumentFacts, version: VersionFacts | None) -> str:
    if version is None:
        return "the published version has no row"
    if version.status is not DocumentStatus.READY:
        return f"the published version is {version.status}"
    if version.parts_total != len(version.parts):
        return f"{len(version.parts)} parts of {version.parts_total}"
    if version.parts_done < len(version.parts):
        return f"{version.parts_done} parts done of {len(version.parts)}"
    expected = max((part.end for part in version.parts), default=0)
    if len(facts.chunk_ids) != expected:
        return f"{len(facts.chunk_ids)} chunks of {expected}"
    return f"{facts.parentless} chunks without their parent" if facts.parentless else ""


def _unversioned(facts: DocumentFacts) -> Iterable[Finding]:
    for version, count in facts.content.items():
        if _over(facts, version):
            detail = f"{count} rows of a version that is over or not there"
            yield finding(facts, Fault.UNVERSIONED_CHUNKS, str(version), POSTGRES, version=version, detail=detail)


def _over(facts: DocumentFacts, version: int) -> bool:
    """Whether nothing of the version may remain but its row."""
    if facts.deleted:
        return True
    if version == facts.published_version:
        return False
    known = facts.versions.get(version)
    return known is None or version < (facts.published_version or 0) or not known.resumable


def _claims(facts: DocumentFacts, rules: Rules) -> Iterable[Finding]:
    for version in facts.versions.values():
        lapsed = version.lapsed_seconds
        if lapsed is not None and lapsed > rules.claim_seconds:
            detail = f"lapsed {lapsed:.0f} s ago while {version.status}"
            yield finding(
                facts, Fault.STUCK_CLAIM, str(version.version), POSTGRES, version=version.version, detail=detail
            )


# -- index -----------------------------------------------------------------------------------------------------------


def _rows(facts: DocumentFacts, collection: str, rows: Iterable[StoredRow], *, complete: bool) -> Iterable[Finding]:
    published, seen = facts.published_version, set[str]()
    for row in rows:
        if row.version == published:
            if row.id not in facts.chunk_ids or row.id in seen:
                detail = "the version has no such chunk"
                yield finding(facts, Fault.DUPLICATE_ROW, row.id, collection, version=row.version, detail=detail)
                continue
            seen.add(row.id)
            wrong = _wrong_fields(facts, row)
            if wrong:
                yield finding(facts, Fault.WRONG_FIELDS, row.id, collection, version=row.version, detail=wrong)
        elif _over(facts, row.version):
            detail = f"version {row.version}, published is {published}"
            yield finding(facts, Fault.STALE_ROW, row.id, collection, version=row.version, detail=detail)
    if complete and published is not None:
        for chunk_id in sorted(facts.chunk_ids - seen):
            yield finding(facts, Fault.MISSING_ROW, chunk_id, collection, version=published)


def _wrong_fields(facts: DocumentFacts, row: StoredRow) -> str:
    wrong = []
    if row.access_key != facts.access_key:
        wrong.append(f"access_key {row.access_key} instead of {facts.access_key}")
    if row.source_id != facts.source_id:
        wrong.append("source_id")
    if dict(row.metadata) != dict(facts.metadata):
        wrong.append("metadata")
    return ", ".join(wrong)


# -- objects ---------------------------------------------------------------------------------------------------------


def _objects(view: View, rules: Rules) -> Iterable[Finding]:
    facts = view.facts
    prefix = keys.document_prefix(facts.knowledge_base_id, facts.id)
    yield from _expected(facts, {entry.key: entry.size for entry in view.objects})
    assets = {asset.object_key for asset in facts.assets if asset.version == facts.published_version}
    for entry in view.objects:
        number, _, rest = entry.key[len(prefix) :].partition("/")
        version = int(number) if number.isdecimal() else -1
        if entry.modified_at > rules.written_before:
            continue
        if version == facts.published_version:
            if rest.startswith("assets/") and entry.key not in assets:
                yield finding(facts, Fault.STRAY_ASSET, entry.key, OBJECTS, version=version)
            elif not rest.startswith(("assets/", "snapshot/", "source")):
                yield finding(facts, Fault.ORPHAN_OBJECT, entry.key, OBJECTS, version=version)
        elif version not in facts.versions or version < (facts.published_version or 0):
            detail = "its version is over or not there"
            yield finding(facts, Fault.ORPHAN_OBJECT, entry.key, OBJECTS, version=max(version, 0), detail=detail)


def _expected(facts: DocumentFacts, sizes: Mapping[str, int]) -> Iterable[Finding]:
    published = facts.published
    if published is None:
        return
    version = published.version
    if not published.referenced:  # otherwise `View.content_faults` has what its place says
        yield from _original(facts, published, sizes)
    for asset in facts.assets:
        if asset.version == version and sizes.get(asset.object_key) != asset.size:
            detail = "not there" if asset.object_key not in sizes else f"{sizes[asset.object_key]} bytes"
            yield finding(facts, Fault.ASSET_LOST, asset.id, OBJECTS, version=version, detail=detail)


def _original(facts: DocumentFacts, published: VersionFacts, sizes: Mapping[str, int]) -> Iterable[Finding]:
    version = published.version
    source = keys.source_key(facts.knowledge_base_id, facts.id, version, facts.filename)
    present = [key for key in sizes if key.startswith(keys.source_prefix(facts.knowledge_base_id, facts.id, version))]
    if not present:
        yield finding(facts, Fault.ORIGINAL_LOST, source, OBJECTS, version=version, detail="not there")
    elif published.size and sizes[present[0]] != published.size:
        detail = f"{sizes[present[0]]} bytes instead of {published.size}"
        yield finding(facts, Fault.ORIGINAL_LOST, present[0], OBJECTS, version=version, detail=detail)


# -- deleted ---------------------------------------------------------------------------------------------------------


def _left_of_deleted(view: View, rules: Rules) -> Iterable[Finding]:
    facts = view.facts
    if not facts.purged:
        detail = "deleted, and nobody owes the rest of it"
        yield finding(facts, Fault.UNFINISHED_DELETE, facts.id, POSTGRES, detail=detail)
    for collection, rows in view.rows.items():
        for row in rows:
            yield finding(facts, Fault.ORPHAN_ROW, row.id, collection, version=row.version, detail="deleted document")
    for entry in view.objects:
        if entry.modified_at <= rules.written_before:
            yield finding(facts, Fault.ORPHAN_OBJECT, entry.key, OBJECTS, detail="deleted document")
    yield from _unversioned(facts)
