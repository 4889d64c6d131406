"""Jobs: what is submitted, once, and never a secret with it. The dashboard is a recorder; test_ray_job has a Ray."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr

from rag_cluster.client.ingest import Ingestion
from rag_cluster.client.jobs import Cluster, last_object, submission_stem
from rag_cluster.client.secrets import SETTINGS, refuse_secrets, settings_secrets
from rag_cluster.errors import InvalidRequestError, SourceUnavailableError
from rag_cluster.settings import Settings


class Dashboard:
    """Keeps what is submitted."""

    def __init__(self) -> None:
        self.jobs: dict[str, str] = {}
        self.entrypoints: list[str] = []
        self.failures: list[str] = []

    def list_jobs(self) -> list[Any]:
        return [SimpleNamespace(submission_id=i, status=SimpleNamespace(value=s)) for i, s in self.jobs.items()]

    def submit_job(self, *, entrypoint: str, submission_id: str, **_: Any) -> None:
        if self.failures:
            raise RuntimeError(self.failures.pop())
        self.entrypoints.append(entrypoint)
        self.jobs[submission_id] = "RUNNING"


@pytest.fixture
def dashboard() -> Dashboard:
    return Dashboard()


@pytest.fixture
def cluster(dashboard: Dashboard) -> Cluster:
    cluster = Cluster("http://head:8265", secrets=["my-dsn-password"])
    cluster._connected = dashboard  # type: ignore[assignment]
    return cluster


def test_the_same_submit_follows_the_job_under_way_and_another_one_starts(
    cluster: Cluster, dashboard: Dashboard
) -> None:
    first = cluster.submit(["ingest", "a"])
    assert cluster.submit(["ingest", "a", "--json"]).submission_id == first.submission_id
    others = {cluster.submit(["ingest", "b"]).submission_id, cluster.submit(["ingest", "a"], key="k").submission_id}
    assert first.submission_id not in others and len(dashboard.entrypoints) == 3


def test_a_ray_that_has_just_started_is_asked_again_and_one_that_was_faster_is_followed(
    cluster: Cluster, dashboard: Dashboard
) -> None:
    dashboard.failures = [
        "Request failed with status code 500: No available agent to submit job, please try again later"
    ]
    assert cluster.submit(["fsck"]).submission_id in dashboard.jobs
    dashboard.failures = ["Request failed with status code 500: Job with submission_id x already exists."]
    assert cluster.submit(["delete"]).submission_id.startswith("rag-delete-") and len(dashboard.entrypoints) == 1


def test_what_has_ended_is_submitted_again(cluster: Cluster, dashboard: Dashboard) -> None:
    first = cluster.submit(["ingest", "a"])
    for end in ("SUCCEEDED", "FAILED", "STOPPED"):
        dashboard.jobs[first.submission_id] = end
        second = cluster.submit(["ingest", "a"])
        assert second.submission_id != first.submission_id and second.run_id != first.run_id
        first = second


def test_a_key_that_succeeded_is_not_done_again_but_one_that_failed_is(cluster: Cluster, dashboard: Dashboard) -> None:
    first = cluster.submit(["ingest", "a"], key="nightly")
    dashboard.jobs[first.submission_id] = "FAILED"
    second = cluster.submit(["ingest", "a"], key="nightly")
    assert second.submission_id != first.submission_id
    dashboard.jobs[second.submission_id] = "SUCCEEDED"
    assert cluster.submit(["ingest", "a"], key="nightly").submission_id == second.submission_id


def test_a_command_line_is_quoted_for_the_shell(cluster: Cluster, dashboard: Dashboard) -> None:
    arguments = Ingestion("a; rm -rf ~", ("/data/it's here",), acl=("$HOME",)).arguments()
    cluster.submit(arguments, run_id=True)
    assert "'--knowledge-base=a; rm -rf ~'" in dashboard.entrypoints[0]
    assert "'--acl=$HOME'" in dashboard.entrypoints[0] and "--run-id" in dashboard.entrypoints[0]


def test_submission_ids_hold_nothing_of_what_they_stand_for() -> None:
    assert submission_stem(["ingest", "/data/private"]).startswith("rag-ingest-")
    assert "private" not in submission_stem(["ingest", "/data/private"])


@pytest.mark.parametrize(
    ("arguments", "runtime_env", "metadata"),
    [
        (["ingest", "s3://key:secret@bucket/prefix"], {}, {}),
        (["ingest", "https://host/file?X-Amz-Signature=abc"], {}, {}),
        (["ingest", "--department=my-dsn-password"], {}, {}),
        ([], {"env_vars": {"RAG_POSTGRES_DSN": "x"}}, {}),
        ([], {"env_vars": {"AWS_SECRET_ACCESS_KEY": "x"}}, {}),
        ([], {"env_vars": {"HF_TOKEN": "x"}}, {}),
        ([], {"env_vars": {"INNOCENT": "postgresql://user:word@host/db"}}, {}),
        ([], {"working_dir": "https://token:x@host/repo.zip"}, {}),
        ([], {}, {"api_key": "x"}),
        ([], {}, {"note": "it is my-dsn-password"}),
    ],
)
def test_what_would_show_a_secret_on_the_dashboard_is_refused_without_repeating_it(
    cluster: Cluster, dashboard: Dashboard, arguments: list[str], runtime_env: dict[str, Any], metadata: dict[str, str]
) -> None:
    with pytest.raises(InvalidRequestError, match="environment") as refusal:
        cluster.submit(arguments, runtime_env=runtime_env, metadata=metadata)
    assert "secret@" not in refusal.value.message and "my-dsn-password" not in refusal.value.message
    assert not dashboard.entrypoints


def test_a_command_that_prints_a_new_key_is_no_job(cluster: Cluster) -> None:
    with pytest.raises(InvalidRequestError, match="log"):
        cluster.submit(["keys", "create", "reader"])


def test_what_is_no_secret_passes() -> None:
    refuse_secrets(
        ["ingest", "s3://bucket/prefix", "https://host/a?page=2", "--acl=a:b@c", "--knowledge-base=token economy"],
        {"env_vars": {"RAG_OCR": "off", "TOKENIZERS_PARALLELISM": "false"}, "pip": ["x"]},
        {"owner": "team"},
        ["", "short"],
    )


def test_every_secret_setting_is_known() -> None:
    assert {"RAG_POSTGRES_DSN", "RAG_MILVUS_TOKEN", "RAG_S3_SECRET_KEY"} <= SETTINGS
    settings = Settings(postgres_dsn=SecretStr("a-dsn"), milvus_token=SecretStr("a-token"))
    assert {"a-dsn", "a-token"} <= set(settings_secrets(settings))


def test_the_result_is_the_last_object_of_a_log() -> None:
    assert last_object('noise\n{"a": 1}\n{"b": 2}\n3\nnull\n(pid) more') == {"b": 2}
    assert last_object("nothing here") is None


def test_an_address_that_takes_no_jobs_is_told() -> None:
    with pytest.raises(InvalidRequestError, match="dashboard"):
        Cluster("ray://head:10001")
    with pytest.raises(SourceUnavailableError, match=r"127\.0\.0\.1:1"):
        Cluster("http://127.0.0.1:1").submit(["fsck"])


def test_a_client_and_a_run_in_this_process_mean_the_same_options() -> None:
    ingestion = Ingestion("base", ("/x",), acl=(), security_level=2, include=("*.md",), sync=True, ocr="off")
    options = ingestion.options(progress=False)
    assert options.access is not None and options.access.acl == () and options.access.security_level == 2
    assert {"--open", "--security-level=2", "--include=*.md", "--sync", "--ocr=off"} <= set(ingestion.arguments())
    assert Ingestion("base", ("/x",)).options(progress=False).access is None
    for wrong in ({"ocr": "maybe"}, {"security_level": 10}, {"inputs": ()}):
        with pytest.raises(InvalidRequestError):
            Ingestion(**{"knowledge_base": "base", "inputs": ("/x",), **wrong})  # type: ignore[arg-type]
