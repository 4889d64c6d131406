"""Jobs on a Ray cluster: submitted once whatever is repeated, followed, stopped; from notebook and terminal.

A job is a `rag-cluster` command line, as `ray job submit -- python -m rag_cluster.cli ...` would run it on the cluster.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from rag_cluster.client.secrets import refuse_secrets
from rag_cluster.domain import ids
from rag_cluster.errors import (
    AuthenticationError,
    InvalidRequestError,
    JobFailedError,
    NotFoundError,
    SourceUnavailableError,
    error_types,
)

if TYPE_CHECKING:
    from ray.job_submission import JobDetails, JobSubmissionClient

Result = TypeVar("Result")

FINISHED = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})
TIMEOUT = (10.0, 60.0)
"""Seconds to connect and for an answer of the dashboard."""
POLL_SECONDS = 1.0
_ATTEMPTS = 5
_MODULE = ("python", "-m", "rag_cluster.cli")
_PRESENTATION = ("--json",)
"""Arguments that change what a job prints, not what it does."""


class Cluster:
    """A Ray dashboard that takes jobs, http://HEAD:8265. Connects at the first call.

    token: of the cluster, where its RAY_AUTH_MODE is `token`; None: the one that Ray's own environment variables name.
    SourceUnavailableError when nothing answers there, AuthenticationError when the token is missing or wrong.
    """

    def __init__(self, address: str, *, token: str | None = None, secrets: Sequence[str] = ()) -> None:
        if not address.startswith(("http://", "https://")):
            raise InvalidRequestError(f"Jobs are submitted to a Ray dashboard, http://HEAD:8265, not to {address!r}.")
        self.address = address
        self._headers = {"Authorization": f"Bearer {token}"} if token else None
        self._secrets = (*secrets, *([token] if token else []))
        """Of this process: no job may carry them."""
        self._connected: JobSubmissionClient | None = None

    def submit(
        self,
        arguments: Sequence[str],
        *,
        key: str | None = None,
        runtime_env: Mapping[str, Any] | None = None,
        metadata: Mapping[str, str] | None = None,
        run_id: bool = False,
    ) -> Job:
        """Submit a `rag-cluster` command, or find the job that is it already.

        The submission id comes from arguments and key, so that a second submit follows the job that is under way. What
        has ended is submitted again, unless a `key` names it and it succeeded: the same key never does a thing twice.
        run_id: pass `--run-id`, from the submission id, so that the job's run can be watched. InvalidRequestError for
        anything secret (`secrets`).
        """
        refuse_secrets(arguments, runtime_env or {}, metadata or {}, self._secrets)
        submission_id = self.ask(lambda client: _submitted(client, arguments, key, run_id, runtime_env, metadata))
        return Job(self, submission_id)

    def job(self, submission_id: str) -> Job:
        """A job that was submitted before, from anywhere."""
        return Job(self, submission_id)

    def ask(self, question: Callable[[JobSubmissionClient], Result]) -> Result:
        """The dashboard's answer. One that answered before is asked again, as a Ray that just started wants it too."""
        again = Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, SourceUnavailableError) and self._is_there),
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_exponential(1, max=10),
            reraise=True,
        )
        answer: Result = again(self._ask_once, question)
        return answer

    def _ask_once(self, question: Callable[[JobSubmissionClient], Result]) -> Result:
        with self.answering() as client:
            return question(client)

    @property
    def _is_there(self) -> bool:
        return self._connected is not None

    @contextlib.contextmanager
    def answering(self) -> Iterator[JobSubmissionClient]:
        """The dashboard's client, its failures as SourceUnavailableError."""
        import requests
        from ray.exceptions import AuthenticationError as RayAuthenticationError

        try:
            if self._connected is None:
                self._connected = _client_class()(self.address, headers=self._headers)
            yield self._connected
        except RayAuthenticationError:
            raise AuthenticationError(
                f"The Ray at {self.address} wants its token: pass ray_token, or set RAY_AUTH_MODE=token and "
                "RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH."
            ) from None
        except (ConnectionError, RuntimeError, requests.RequestException) as error:
            if "does not exist" in str(error):
                raise NotFoundError(f"There is no such job at {self.address}.") from None
            raise SourceUnavailableError(f"No Ray dashboard takes jobs at {self.address}: {error}") from None


class Job:
    """One submitted job."""

    def __init__(self, cluster: Cluster, submission_id: str) -> None:
        self.cluster = cluster
        self.submission_id = submission_id
        self.run_id = run_id_of(submission_id)
        """Id of the ingestion run that an ingest job makes."""

    def __repr__(self) -> str:
        return f"Job({self.submission_id!r} at {self.cluster.address})"

    def status(self) -> str:
        """PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED. A dashboard that does not answer is asked again."""
        return str(self.cluster.ask(lambda client: client.get_job_status(self.submission_id).value))

    def log(self) -> str:
        """Everything that the job has printed."""
        return str(self.cluster.ask(lambda client: client.get_job_logs(self.submission_id)))

    def stop(self) -> bool:
        """Ask the job to end (SIGTERM); what it has finished stays, and the next run goes on. False: it had ended."""
        return bool(self.cluster.ask(lambda client: client.stop_job(self.submission_id)))

    def follow(
        self, *, on_log: Callable[[str], None] | None = None, on_poll: Callable[[str], None] | None = None
    ) -> str:
        """Wait for the job's end; its final status. on_log gets each new piece of the log, on_poll each status.

        An interrupt ends the following and not the job: submit the same again to go on following, or `stop` it.
        """
        seen = 0
        while True:
            status = self.status()
            if on_log:
                log = self.log()
                if len(log) > seen:
                    on_log(log[seen:])
                seen = len(log)
            if on_poll:
                on_poll(status)
            if status in FINISHED:
                return status
            time.sleep(POLL_SECONDS)

    def result(self) -> dict[str, Any]:
        """What an ended job printed with --json; an error is raised. JobFailedError when it printed neither."""
        printed = last_object(log := self.log())
        if printed is None:
            raise JobFailedError(f"job {self.submission_id} ended {self.status()} without a result: {log[-2000:]}")
        error = printed.get("error")
        if isinstance(error, dict):
            kind = error_types().get(str(error.get("type")), JobFailedError)
            raise kind(f"job {self.submission_id}: {error.get('message')}")
        return printed


def submission_stem(arguments: Sequence[str], key: str | None = None) -> str:
    """The beginning of a command's submission ids: the same for the same arguments and key."""
    doing = [argument for argument in arguments if argument not in _PRESENTATION]
    digest = hashlib.sha256(json.dumps([doing, key]).encode()).hexdigest()
    return f"rag-{doing[0] if doing else 'job'}-{digest[:16]}"


def last_object(log: str) -> dict[str, Any] | None:
    """The last JSON object in a log, a line by itself; None when there is none."""
    for line in reversed(log.splitlines()):
        with contextlib.suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict):
                return found
    return None


def _submitted(
    client: JobSubmissionClient,
    arguments: Sequence[str],
    key: str | None,
    run_id: bool,
    runtime_env: Mapping[str, Any] | None,
    metadata: Mapping[str, str] | None,
) -> str:
    """The id of the job that does it, submitted unless it is there."""
    submission_id, there = _place(client.list_jobs(), submission_stem(arguments, key), keep_success=key is not None)
    if there:
        return submission_id
    options = [f"--run-id={run_id_of(submission_id)}"] if run_id else []
    try:
        client.submit_job(
            entrypoint=shlex.join([*_MODULE, *arguments[:1], *options, *arguments[1:]]),
            submission_id=submission_id,
            runtime_env=dict(runtime_env or {}),
            metadata=dict(metadata or {}),
        )
    except RuntimeError as error:
        if "already exists" not in str(error):  # else somebody was faster with the same job
            raise
    return submission_id


def run_id_of(submission_id: str) -> str:
    """Id of the ingestion run that a job makes."""
    return str(uuid.uuid5(ids.NAMESPACE, submission_id))


def _place(jobs: Sequence[JobDetails], stem: str, *, keep_success: bool) -> tuple[str, bool]:
    """(submission id, whether that job is there to be followed): the newest of the stem, or the next free one."""
    ours = {job.submission_id: job.status.value for job in jobs if job.submission_id}
    number = 1
    while (status := ours.get(submission_id := f"{stem}-{number}")) is not None:
        if status not in FINISHED or (keep_success and status == "SUCCEEDED"):
            return submission_id, True
        number += 1
    return submission_id, False


def _client_class() -> type[JobSubmissionClient]:
    from ray.job_submission import JobSubmissionClient

    class TimedClient(JobSubmissionClient):
        """Ray's own waits for ever."""

        def _do_request(self, method: str, endpoint: str, **arguments: Any) -> Any:
            return super()._do_request(method, endpoint, **{"timeout": TIMEOUT, **arguments})

    return TimedClient
