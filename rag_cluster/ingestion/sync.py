"""`--sync`: documents that a run's inputs cover and no longer hold are deleted, as a person would delete them.

Better too few than too many: what could not be listed keeps its documents, what a pattern leaves out counts as there,
and a location that would lose everything (a disk not mounted, a wrong bucket) is refused.
"""

from __future__ import annotations

import uuid
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from rag_cluster.domain import ids
from rag_cluster.domain.documents import PlannedFile, Receipt
from rag_cluster.errors import DocumentBusyError, NotFoundError
from rag_cluster.ingestion.write_path import WritePath

REFUSED = "sync_refused"
_IF_MEANT = "If they are meant to go: `rag-cluster delete`"
PAGE = 1000
_KEPT_PREFIXES = 10_000


@dataclass(slots=True)
class _Scope:
    """One location, and what the ledger knows below it."""

    location: str
    covers: Callable[[str], bool]
    there: int = 0
    gone: int = 0

    @property
    def emptied(self) -> bool:
        return self.gone > 0 and not self.there


class Sync:
    """Notes what a plan lists; then removes what is missing. Memory: 8 bytes per listed file.

    run_id: the run that listed. What others began to ingest since it began counts as there: its list is older.
    """

    def __init__(
        self,
        write_path: WritePath,
        knowledge_base_id: str,
        source_id: str,
        locations: Sequence[str],
        manifests: Sequence[str] = (),
        *,
        run_id: str | None = None,
        dry_run: bool = False,
    ) -> None:
        self._write_path = write_path
        self._run_id = run_id
        self._dry_run = dry_run
        self._knowledge_base_id, self._source_id = knowledge_base_id, source_id
        self._scopes = {location: _Scope(location, write_path.inputs.covers(location)) for location in locations}
        # Manifests together are the truth about the whole source.
        self._manifests = tuple(manifests)
        if manifests:
            self._scopes[manifests[0]] = _Scope(", ".join(manifests), lambda uri: True)
        self._seen = array("Q")
        self._unlisted: list[str] = []
        """URIs of files and folders that could not be listed."""

    def note(self, item: PlannedFile | Receipt) -> None:
        """One row of the plan."""
        uri = item.uri if isinstance(item, Receipt) else item.file.uri
        self._seen.append(_short(ids.bulk_document_id(self._knowledge_base_id, uri)))
        if isinstance(item, Receipt) and item.stage == "list" and item.outcome == "failed":
            self._not_listed(uri)

    def _not_listed(self, uri: str) -> None:
        for location in [uri, *(manifest for manifest in self._manifests if uri.startswith(f"{manifest}#"))]:
            if location in self._manifests:
                self._scopes.pop(self._manifests[0], None)
            self._scopes.pop(location, None)
        if len(self._unlisted) >= _KEPT_PREFIXES:
            self._scopes.clear()  # too much is unknown to remove anything
        self._unlisted.append(uri)

    def remove(self) -> Iterator[Receipt]:
        """Tombstone what is missing: a `removed` or `busy` receipt each; `failed` for a location that is refused.

        In a dry run nothing is tombstoned, and what a run holds at this moment counts as `removed`.
        """
        if not self._scopes:
            return
        seen = np.sort(np.frombuffer(self._seen, np.uint64)) if self._seen else np.empty(0, np.uint64)
        for _, uri, there in self._known(seen):
            for scope in self._scopes.values():
                if scope.covers(uri):
                    scope.there += there
                    scope.gone += not there
        for scope in [scope for scope in self._scopes.values() if scope.emptied]:
            message = f"None of its {scope.gone} documents is there any more: nothing was removed. " + _IF_MEANT
            yield Receipt(scope.location, "", "failed", stage="sync", error_type=REFUSED, message=message)
        scopes = [scope for scope in self._scopes.values() if scope.gone and not scope.emptied]
        for document_id, uri, there in self._known(seen) if scopes else ():
            if not there and any(scope.covers(uri) for scope in scopes):
                receipt = self._tombstone(document_id, uri)
                if receipt is not None:
                    yield receipt

    def _known(self, seen: npt.NDArray[np.uint64]) -> Iterator[tuple[str, str, bool]]:
        """(document id, URI, still there) of the source's live documents."""
        ledger, retry = self._write_path.ledger, self._write_path.retry
        after: str | None = None
        read = partial(ledger.live_uris, self._knowledge_base_id, self._source_id, run_id=self._run_id)
        while page := retry.call(partial(read, after, PAGE)):
            after = page[-1][0]
            keys = np.array([_short(document_id) for document_id, _, _ in page], np.uint64)
            listed = np.searchsorted(seen, keys, "right") > np.searchsorted(seen, keys, "left")
            for (document_id, uri, begun), there in zip(page, listed.tolist(), strict=True):
                yield document_id, uri, there or begun or self._is_unlisted(uri)

    def _is_unlisted(self, uri: str) -> bool:
        return any(uri == prefix or uri.startswith(prefix.rstrip("/") + "/") for prefix in self._unlisted)

    def _tombstone(self, document_id: str, uri: str) -> Receipt | None:
        if self._dry_run:
            return Receipt(uri, document_id, "removed", stage="sync")
        catalog = self._write_path.catalog
        try:
            self._write_path.retry.call(lambda: catalog.tombstone(document_id))
        except DocumentBusyError as error:
            return Receipt(uri, document_id, "busy", stage="sync", error_type=error.type, message=error.message)
        except NotFoundError:
            return None  # somebody else deleted it meanwhile
        return Receipt(uri, document_id, "removed", stage="sync")


def _short(document_id: str) -> int:
    """Half of an id: two of a million listed files share it with a chance of 1 in 40 million; then one stays."""
    return uuid.UUID(document_id).int >> 64
