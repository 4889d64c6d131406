"""Content put back: chunks from the snapshot, the snapshot from the original or the chunks, objects from a source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rag_cluster.domain.chunks import ChunkedDocument, PartContent, Snapshot
from rag_cluster.domain.documents import DocumentAsset, OutboxKind
from rag_cluster.domain.inventory import Finding
from rag_cluster.domain.ports import Inventory
from rag_cluster.errors import CorruptSnapshotError, NotFoundError
from rag_cluster.ingestion.write_path import WritePath
from rag_cluster.lifecycle.comparison import View
from rag_cluster.lifecycle.sources import Lost, Reparsed, fetch_again, parse_again


class Rebuilder:
    """Repairs of what the published version is made of. Raises `Lost` where nothing is left to make it from."""

    def __init__(self, write_path: WritePath, inventory: Inventory) -> None:
        self._write_path = write_path
        self._inventory = inventory

    def content(self, view: View, findings: Sequence[Finding]) -> None:
        """Chunks, parents and parts from the snapshot, or where that is unusable from the original."""
        facts, version = view.facts, findings[0].version
        snapshot = self._stored(view, version)
        if snapshot is None:
            snapshot = self._parse_again(view).snapshot
            self._write_path.snapshots.save(snapshot)
        if not facts.chunk_ids <= {chunk.id for chunk in snapshot.chunked.chunks}:
            raise Lost("the snapshot is of other chunks than PostgreSQL's: ingest the document again")
        self._inventory.restore_content(
            facts.id,
            version,
            _contents(snapshot),
            sha256=snapshot.sha256,
            content_fingerprint=snapshot.content_fingerprint,
        )
        if facts.published is None:
            self._asset_rows(view, version)

    def snapshot(self, view: View, finding: Finding) -> None:
        """From the original, whole; where that does not give the same chunks, from PostgreSQL, without blocks."""
        facts = view.facts
        try:
            snapshot = self._parse_again(view).snapshot
            if {chunk.id for chunk in snapshot.chunked.chunks} != facts.chunk_ids:
                raise Lost("parsing again gives other chunks")
        except Lost as error:
            snapshot = self._from_postgres(view, error.message)
        self._write_path.snapshots.save(snapshot)
        self._unless_replaced(view, finding.version)

    def originals(self, view: View, findings: Sequence[Finding]) -> None:
        """From where the document was ingested."""
        version = view.facts.published
        if version is not None:
            for finding in findings[:1]:  # one original, whatever is wrong with it
                fetch_again(self._write_path, view.facts, version, finding.subject)
            self._unless_replaced(view, version.version)

    def assets(self, view: View, findings: Sequence[Finding]) -> None:
        """From the original. One that cannot be had again is forgotten: nothing may point at what is not there."""
        facts, reason = view.facts, "the original shows no such image any more"
        try:
            images = {asset.id: asset.content for asset in self._parse_again(view).parsed.assets}
        except Lost as error:
            images, reason = {}, error.message
        stored = {asset.id: asset for asset in facts.assets if asset.version == facts.published_version}
        lost = []
        for finding in findings:
            content = images.get(finding.subject)
            if content is not None:
                self._write_path.objects.put(stored[finding.subject].object_key, content)
            else:
                self._inventory.drop_asset(facts.id, finding.version, finding.subject)
                lost.append(finding)
        if facts.published_version is not None:
            self._unless_replaced(view, facts.published_version)
        if lost:
            raise Lost(f"{reason}; its row was removed", lost)

    def _asset_rows(self, view: View, version: int) -> None:
        """The rows of a version's images, which went with its own row; without the original they cannot be had."""
        facts = self._inventory.document(view.facts.id)
        if facts is None or facts.published_version != version:
            return
        try:
            parsed = self._parse_again(replace(view, facts=facts)).parsed
        except Lost:
            return  # the objects are stray now: nothing tells what they show
        base = facts.knowledge_base_id
        assets = [DocumentAsset.of(asset, base, facts.id, version) for asset in parsed.assets]
        self._write_path.catalog.add_assets(assets)

    def _stored(self, view: View, version: int) -> Snapshot | None:
        facts, snapshots = view.facts, self._write_path.snapshots
        try:
            snapshots.verify(facts.knowledge_base_id, facts.id, version)
            return snapshots.load(facts.knowledge_base_id, facts.id, version)
        except (NotFoundError, CorruptSnapshotError):
            return None

    def _parse_again(self, view: View) -> Reparsed:
        return parse_again(self._write_path, view, self._strategy(view))

    def _strategy(self, view: View) -> str | None:
        """By which the surviving chunks were made; None: the configured one."""
        version = view.facts.published_version
        if version is None:
            return None
        for content in self._inventory.contents(view.facts.id, version):
            for chunk in content.chunks:
                return str(chunk.metadata.get("chunking_strategy") or "") or None
        return None

    def _from_postgres(self, view: View, reason: str) -> Snapshot:
        facts, version = view.facts, view.facts.published
        contents = [] if version is None else list(self._inventory.contents(facts.id, version.version))
        chunks = tuple(chunk for content in contents for chunk in content.chunks)
        if version is None or not chunks or len(chunks) != max(part.end for part in version.parts):
            raise Lost(f"{reason}, and PostgreSQL's chunks are not whole")
        parents = {parent.id: parent for content in contents for parent in content.parents}
        ordered = tuple(sorted(parents.values(), key=lambda parent: parent.index))
        return Snapshot(
            knowledge_base_id=facts.knowledge_base_id,
            document_id=facts.id,
            version=version.version,
            filename=facts.filename,
            sha256=version.sha256 or "",
            content_fingerprint=version.content_fingerprint,
            parser_name="",
            parser_version="",
            chunking_strategy=str(chunks[0].metadata.get("chunking_strategy", "")),
            blocks=(),
            chunked=ChunkedDocument(chunks, ordered),
            parts=version.parts,
            warnings=(f"rebuilt from PostgreSQL, without blocks: {reason}",),
        )

    def _unless_replaced(self, view: View, version: int) -> None:
        """What was written for a version that was replaced or deleted meanwhile is owed to be removed again."""
        facts = view.facts
        after = self._inventory.document(facts.id)
        if after is None or after.deleted or after.published_version != version:
            payload = {"version": version}
            self._write_path.outbox.add(OutboxKind.PURGE_VERSION, facts.id, facts.knowledge_base_id, payload)


def _contents(snapshot: Snapshot) -> list[PartContent]:
    parents = {parent.id: parent for parent in snapshot.chunked.parents}
    found = []
    for part in snapshot.parts:
        chunks = snapshot.chunked.chunks[part.start : part.end]
        named = dict.fromkeys(chunk.parent_id for chunk in chunks if chunk.parent_id)
        found.append(PartContent(part, chunks, tuple(parents[name] for name in named if name in parents)))
    return found
