"""What is there and can be deleted, as the server lists it: documents, knowledge bases, runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rag_cluster.client import http
from rag_cluster.client.bulk import BulkRuns
from rag_cluster.client.ingest import groups, is_frame
from rag_cluster.client.reports import ReportView
from rag_cluster.client.uploads import UploadsView
from rag_cluster.client.views import DeletionsView, DocumentsView, KnowledgeBasesView, RunsView
from rag_cluster.errors import InvalidRequestError
from rag_cluster.serving.schemas import DeleteResponse, KnowledgeBaseDeleteResponse, KnowledgeBaseResponse, RunResponse

if TYPE_CHECKING:
    import pandas as pd


class CatalogCalls(ABC):
    """The part of `RagCluster` that lists, creates and deletes."""

    _api: http.Api
    _runs: BulkRuns

    @abstractmethod
    def _base(self, given: str | None) -> str:
        """The knowledge base of a call."""

    def documents(
        self, *, knowledge_base: str | None = None, status: str | None = None, limit: int = 1000
    ) -> DocumentsView:
        """Documents that the caller may read, `limit` at most. status: READY, FAILED ..."""
        path = f"/v1/knowledge-bases/{http.segment(self._base(knowledge_base))}/documents"
        return self._api.listed(path, DocumentsView, limit, status=status)

    def knowledge_bases(self, *, limit: int = 1000) -> KnowledgeBasesView:
        """Knowledge bases that the caller may use."""
        return self._api.listed("/v1/knowledge-bases", KnowledgeBasesView, limit)

    def create_knowledge_base(
        self, name: str, *, description: str = "", default_acl: str | Sequence[str] | None = None
    ) -> KnowledgeBaseResponse:
        """default_acl: groups that read documents without acl; []: everyone with the base; None: closed."""
        body = {"name": name, "description": description, "default_acl": groups(default_acl)}
        return self._api.post("/v1/knowledge-bases", KnowledgeBaseResponse, body)

    def delete(self, documents: str | Iterable[str] | pd.DataFrame | DocumentsView | UploadsView) -> DeletionsView:
        """Delete documents everywhere, by id or by a DataFrame's column `id` or `document_id`."""
        paths = (f"/v1/documents/{http.segment(identity)}" for identity in _document_ids(documents))
        return DeletionsView([self._api.delete(path, DeleteResponse) for path in paths])

    def delete_knowledge_base(self, knowledge_base: str) -> DeletionsView:
        """Delete a knowledge base, which must be named, with all its documents."""
        path = f"/v1/knowledge-bases/{http.segment(knowledge_base)}"
        return DeletionsView(self._api.delete(path, KnowledgeBaseDeleteResponse).documents)

    def runs(self, *, limit: int = 50) -> RunsView:
        """Bulk runs, newest first."""
        return self._api.listed("/v1/runs", RunsView, limit)

    def run(self, run_id: str) -> ReportView:
        """One run as its row tells it, under way or ended."""
        return self._runs.report(run_id)

    def cancel(self, run_id: str) -> RunResponse:
        """Ask a run to end within seconds, from any machine; the next run goes on where it stopped."""
        return self._api.post(f"/v1/runs/{http.segment(run_id)}/cancel", RunResponse)


def _document_ids(documents: Any) -> list[str]:
    if isinstance(documents, str):
        return [documents]
    if isinstance(documents, DocumentsView):
        return [item.id for item in documents.items]
    if isinstance(documents, UploadsView):
        return documents.document_ids
    if is_frame(documents):
        column = next((name for name in ("document_id", "id") if name in documents.columns), None)
        if column is None:
            raise InvalidRequestError("The DataFrame has no column document_id or id.")
        return [str(value) for value in documents[column].dropna()]
    return list(documents)
