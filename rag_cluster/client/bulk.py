"""Bulk ingestion from a notebook: as a job of the cluster, or here, with a bar, and the report at the end."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rag_cluster.client import http
from rag_cluster.client.ingest import Ingestion
from rag_cluster.client.jobs import Cluster, Job
from rag_cluster.client.progress import in_notebook, polled, shown
from rag_cluster.client.reports import ReportView
from rag_cluster.errors import InvalidRequestError, JobFailedError, RagClusterError
from rag_cluster.serving.schemas import RunDetail

if TYPE_CHECKING:
    from rag_cluster.client.embedded import Embedded


class BulkRuns:
    """Starts runs, follows them, tells how they went. cluster takes jobs, embedded runs here; either may be None."""

    def __init__(self, api: http.Api, cluster: Cluster | None, embedded: Embedded | None) -> None:
        self._api = api
        self._cluster = cluster
        self._embedded = embedded

    def report(self, run_id: str) -> ReportView:
        """One run as its row tells it, under way or ended."""
        return ReportView.of_run(self._api.get(f"/v1/runs/{http.segment(run_id)}", RunDetail))

    def ingest(
        self, ingestion: Ingestion, key: str | None, runtime_env: Mapping[str, Any] | None, *, progress: bool
    ) -> ReportView:
        """A run to its end. key, runtime_env: of a job. InvalidRequestError where runs can be started neither way."""
        if self._cluster is not None:
            job = self._cluster.submit(ingestion.arguments(), key=key, runtime_env=runtime_env, run_id=True)
            return self._followed(job, progress)
        if self._embedded is None:
            raise InvalidRequestError(
                "ingest runs as a job: give RagCluster a ray_address, as http://HEAD:8265. upload() sends files of "
                "this machine through the server."
            )
        return self._ingest_here(ingestion, self._embedded, progress)

    def _ingest_here(self, ingestion: Ingestion, embedded: Embedded, progress: bool) -> ReportView:
        run_id = str(uuid.uuid4())
        options = ingestion.options(progress=progress and not in_notebook())
        with shown("ingesting", wanted=progress and in_notebook()) as show, polled(lambda: self._seen(run_id), show):
            report = embedded.ingest(
                ingestion.knowledge_base, ingestion.inputs, options, ocr=ingestion.ocr, run_id=run_id
            )
        return ReportView.of(report)

    def _followed(self, job: Job, progress: bool) -> ReportView:
        with shown("ingesting", wanted=progress) as show:
            job.follow(on_poll=lambda status: show(status, self._seen(job.run_id)))
        try:
            return ReportView.from_dict(job.result())
        except (JobFailedError, KeyError):
            if self._seen(job.run_id) is None:
                raise
            return self.report(job.run_id)

    def _seen(self, run_id: str) -> RunDetail | None:
        """A run as far as it can be seen from here: following it must not fail where the run does not."""
        try:
            return self._api.get(f"/v1/runs/{http.segment(run_id)}", RunDetail)
        except RagClusterError:  # shows as no progress; the job's or run's own end is what counts
            return None
