"""Talking to a cluster from outside it: job submission now, the notebook client on top of it."""

from __future__ import annotations

import time
from collections.abc import Callable

from ray.job_submission import JobStatus, JobSubmissionClient

from rag_cluster.errors import SourceUnavailableError

_FINISHED = {JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.STOPPED}


def submit_and_follow(
    address: str,
    entrypoint: str,
    *,
    on_log: Callable[[str], None] | None = None,
    poll_seconds: float = 1.0,
) -> tuple[str, str, str]:
    """Submit a job to a Ray dashboard and wait for its end: (submission id, final status, whole log).

    on_log gets each new piece of the log. SourceUnavailableError when nothing answers at the address.
    """
    try:
        client = JobSubmissionClient(address)
        submission_id = client.submit_job(entrypoint=entrypoint)
    except (ConnectionError, RuntimeError) as error:
        raise SourceUnavailableError(f"No Ray dashboard takes jobs at {address}: {error}") from None
    seen = 0
    while True:
        status = client.get_job_status(submission_id)
        log = client.get_job_logs(submission_id)
        if on_log and len(log) > seen:
            on_log(log[seen:])
        seen = len(log)
        if status in _FINISHED:
            return submission_id, status.value, log
        time.sleep(poll_seconds)
