"""The second check: PostgreSQL decides which hits of an index may be shown, whatever the index still holds."""

from __future__ import annotations

from collections.abc import Iterable

from rag_cluster.domain.access import Principal
from rag_cluster.domain.ports import Evidence
from rag_cluster.domain.retrieval import EvidenceRow, Hit, RetrievalOptions
from rag_cluster.retrieval.diversity import paragraph, without_copies


class SecondCheck:
    """Remembers its verdicts, so that a channel which searches deeper asks only about new hits."""

    def __init__(
        self,
        evidence: Evidence,
        principal: Principal,
        knowledge_base_id: str,
        options: RetrievalOptions,
        taken: str,
    ) -> None:
        self._evidence = evidence
        self._principal = principal
        self._knowledge_base_id = knowledge_base_id
        self._options = options
        self._rows: dict[str, EvidenceRow] = {}
        self._checked: dict[str, str] = {}
        """Chunk id -> document id."""
        self._versions: dict[str, int] = {}
        """Document id -> the one version of it that is shown."""
        self._taken = taken
        self._sealed = False
        self._copy_keys: dict[str, str] = {}

    async def admit(self, hits: Iterable[Hit]) -> None:
        """One statement for all hits not seen before; none when there are none."""
        unseen = {hit.chunk_id: hit for hit in hits if hit.chunk_id not in self._checked}
        if not unseen:
            return
        rows = await self._evidence.rows(self._principal, self._knowledge_base_id, list(unseen.values()), self._options)
        self._checked.update((chunk_id, hit.document_id) for chunk_id, hit in unseen.items())
        for chunk_id, row in rows.items():
            hit = unseen.get(chunk_id)
            # A row of another version than the hit's means that the index and the facts disagree: drop it.
            same = hit is not None and row.chunk.version == hit.version and row.chunk.document_id == hit.document_id
            if same and self._may_show(row):
                self._rows[chunk_id] = row
                self._copy_keys[chunk_id] = paragraph(row.chunk.text)

    def _may_show(self, row: EvidenceRow) -> bool:
        """Of one document only one version: a newer one that a later round finds takes the place of the older one,
        unless results were made of that already."""
        document_id, version = row.chunk.document_id, row.chunk.version
        shown = self._versions.get(document_id, version)
        if version < shown or (self._sealed and version != shown):
            return False
        if version > shown:
            self._rows = {key: one for key, one in self._rows.items() if one.chunk.document_id != document_id}
        self._versions[document_id] = version
        return True

    def seal(self) -> None:
        """From now on no document changes its version."""
        self._sealed = True

    async def overtaken(self) -> bool:
        """Whether a document of a refused hit was published or deleted since the query began, or since this was asked
        last: then nothing counts as checked any more."""
        refused = {document for chunk_id, document in self._checked.items() if chunk_id not in self._rows}
        if not refused:
            return False
        now = await self._evidence.changed_since(self._taken, sorted(refused))
        if now is None:
            return False
        self._taken = now
        for facts in (self._checked, self._rows, self._versions):
            facts.clear()
        return True

    def survivors(self, hits: Iterable[Hit]) -> list[Hit]:
        """The admitted hits, in order."""
        return [hit for hit in hits if hit.chunk_id in self._rows]

    def distinct(self, hits: Iterable[Hit]) -> int:
        """How many hits are left without third copies."""
        return len(without_copies(hits, lambda hit: self._copy_keys[hit.chunk_id]))

    def copy_key(self, chunk_id: str) -> str:
        """What the copies of an admitted hit's text have in common with it."""
        return self._copy_keys[chunk_id]

    def row(self, chunk_id: str) -> EvidenceRow:
        """The facts of an admitted hit."""
        return self._rows[chunk_id]

    @property
    def hides_nothing(self) -> bool:
        """Whether the caller may read every document of the knowledge base."""
        return self._principal.unrestricted

    @property
    def checked(self) -> int:
        """How many distinct hits were looked at."""
        return len(self._checked)

    @property
    def dropped(self) -> int:
        """How many distinct hits were refused."""
        return len(self._checked) - len(self._rows)
