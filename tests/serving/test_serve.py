"""The real Ray Serve application over real HTTP: one deployment of it for this module."""

from __future__ import annotations

import concurrent.futures
import http.client
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import ray
from ray import serve

from rag_cluster.cli.demo import free_port
from rag_cluster.domain.access import AccessAttributes
from rag_cluster.ingestion.pipeline import IngestionOptions, run_ingestion
from rag_cluster.serving import app as serving_app
from rag_cluster.serving.bulk import ServedWritePathFactory
from rag_cluster.settings import Settings
from rag_cluster.stores.embedded import EmbeddedStores
from rag_cluster.wiring import ServiceFactory

pytestmark = pytest.mark.ray

TEXT = "The ferry to Langya Island leaves at 07:45 every morning. 前往琅琊岛的渡轮每天早上七点四十五分开船。\n".encode()


@pytest.fixture(scope="module")
def settings() -> Iterator[Settings]:
    home = Path(tempfile.mkdtemp(prefix="rag-serve-"))
    yield Settings(
        data_dir=home,
        embedder="hash:64",
        generator="tests.serving.generators:Paced",
        ocr="off",
        port=free_port(),
        claim_lease=4,
        request_timeout=5,
        max_ongoing_requests=8,
        max_queued_requests=8,  # Serve counts a burst as queued until each request has found its replica
    )
    EmbeddedStores(home).down()
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def endpoint(ray_cluster: None, settings: Settings) -> Iterator[str]:
    yield serving_app.start(settings)
    serve.shutdown()


@pytest.fixture(scope="module")
def client(endpoint: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=endpoint, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def document(client: httpx.Client) -> str:
    assert client.post("/v1/knowledge-bases", json={"name": "port", "default_acl": []}).status_code == 201
    accepted = client.post("/v1/knowledge-bases/port/documents", files={"file": ("ferry.txt", TEXT)}).json()
    assert _finished(client, accepted["job_id"])["status"] == "SUCCEEDED"
    identity: str = accepted["document_id"]
    return identity


def _finished(client: httpx.Client, job_id: str, seconds: float = 60) -> dict[str, Any]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        job: dict[str, Any] = client.get(f"/v1/jobs/{job_id}").json()
        if job["status"] in ("SUCCEEDED", "FAILED"):
            return job
        time.sleep(0.1)
    raise AssertionError(f"the job did not end: {job}")


def _eventually(check: Any, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            check()
            return
        except (AssertionError, httpx.HTTPError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.3)


def _answers(client: httpx.Client) -> None:
    response = client.post("/v1/answer", json={"knowledge_base": "port", "question": "When does the ferry leave?"})
    assert response.status_code == 200, response.text
    assert "07:45" in response.json()["answer"]


def test_an_uploaded_document_is_answered_from(client: httpx.Client, document: str) -> None:
    _eventually(lambda: _answers(client))


def test_a_correction_is_embedded_by_the_deployment_and_found_by_the_next_query(
    client: httpx.Client, document: str
) -> None:
    body = {"knowledge_base": "port", "question": "When does the lighthouse open?", "answer": "At nine."}
    written = client.post("/v1/corrections", json=body)
    assert written.status_code == 201, written.text
    found = client.post("/v1/retrieve", json={"knowledge_base": "port", "query": "lighthouse open"}).json()["results"]
    assert found[0]["document_id"] == written.json()["document_id"]
    client.delete(f"/v1/corrections/{written.json()['document_id']}").raise_for_status()


def test_a_job_embeds_through_the_application_that_serves(
    client: httpx.Client, document: str, settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "gauge.txt").write_text("The tide gauge stands on pier 9.", encoding="utf-8")
    options = IngestionOptions(AccessAttributes(()), progress=False)
    report = run_ingestion(ServedWritePathFactory(settings), "port", [str(tmp_path)], options)
    assert report.outcomes["ready"] == 1
    found = client.post("/v1/retrieve", json={"knowledge_base": "port", "query": "tide gauge"}).json()["results"]
    assert "pier 9" in found[0]["content"]
    embedder = client.get("/v1/models").json()["models"][0]
    assert embedder["role"] == "embedder" and embedder["replicas"][0]["lanes"]["bulk"]["texts"] >= 1


def test_server_sent_events_arrive_unbuffered_and_end_once(client: httpx.Client, document: str) -> None:
    body = {"knowledge_base": "port", "question": "渡轮什么时候开船？", "stream": True}
    with client.stream("POST", "/v1/answer", json=body) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.iter_lines() if line.startswith("event: ")]
    assert lines[0] == "event: meta" and lines[-1] == "event: done"
    assert sum(line in ("event: done", "event: refuse", "event: error") for line in lines) == 1


SLOW = {"knowledge_base": "port", "question": "When, slowly, does the ferry leave?"}


def _outcome(settings: Settings, request_id: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    def look() -> None:
        with ServiceFactory(settings)().database.connection() as connection:
            found[:] = connection.execute(
                "SELECT outcome, milliseconds, metadata FROM retrieval_records WHERE request_id = %s", (request_id,)
            ).fetchall()
        assert found

    _eventually(look, 10)
    return found[0]


def test_a_client_that_leaves_in_the_middle_of_a_stream_stops_the_work(
    client: httpx.Client, document: str, settings: Settings
) -> None:
    started = time.monotonic()
    with client.stream("POST", "/v1/answer", json={**SLOW, "stream": True}, headers={"X-Request-ID": "left"}) as answer:
        for line in answer.iter_lines():
            if "word3" in line:
                break
    assert time.monotonic() - started < 6, "the first words came before the last were written"
    record = _outcome(settings, "left")
    assert record["outcome"] == "disconnected" and record["milliseconds"] < 8000


def test_a_deadline_ends_a_request_as_504_or_as_the_error_event_and_is_recorded_as_a_failure(
    client: httpx.Client, document: str, settings: Settings
) -> None:
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        plain = pool.submit(client.post, "/v1/answer", json=SLOW, headers={"X-Request-ID": "late"})
        body = {**SLOW, "stream": True}
        stream = pool.submit(client.post, "/v1/answer", json=body, headers={"X-Request-ID": "late-stream"})
    assert plain.result().status_code == 504
    assert plain.result().json()["error"]["type"] == "deadline_exceeded"
    last = stream.result().text.strip().split("\n\n")[-1]
    assert last.startswith("event: error\n") and "deadline_exceeded" in last
    for identity in ("late", "late-stream"):
        record = _outcome(settings, identity)
        assert (record["outcome"], record["metadata"]["error_type"]) == ("failed", "deadline_exceeded")


def test_over_capacity_is_429_in_the_documented_form_and_the_rest_is_served(
    client: httpx.Client, document: str
) -> None:
    def ask(_: int) -> httpx.Response:
        with httpx.Client(base_url=client.base_url, timeout=60) as own:
            return own.post("/v1/answer", json=SLOW)

    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(ask, range(24)))
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused and {answer.status_code for answer in answers} <= {200, 429, 504}
    for answer in refused:
        error = answer.json()["error"]
        assert (error["type"], answer.headers["retry-after"]) == ("overloaded", "1")
        assert answer.headers.get_list("x-request-id") == [error["request_id"]]


@pytest.mark.parametrize("path", ["/healthz", "/nowhere", "/v1/answer", "/v1/knowledge-bases"])
def test_every_response_carries_one_request_id(client: httpx.Client, path: str) -> None:
    given = client.get(path, headers={"X-Request-ID": "trace-7", "x-request-timeout-seconds": "0.000001"})
    assert given.status_code < 500 and given.headers.get_list("x-request-id") == ["trace-7"]
    odd = client.get(path, headers=[(b"X-Request-ID", b"\xff<script>")])
    assert odd.status_code < 500 and "<" not in odd.headers["x-request-id"]


def test_a_forwarded_address_takes_the_right_of_a_local_caller_away_and_never_gives_it(client: httpx.Client) -> None:
    # The proxy believes the header only from loopback, as behind a reverse proxy on this machine.
    answer = client.get("/v1/knowledge-bases", headers={"X-Forwarded-For": "203.0.113.9"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (403, "forbidden")


def test_concurrent_requests_get_their_own_answers_and_request_ids(client: httpx.Client, document: str) -> None:
    def ask(number: int) -> bool:
        identity = f"request-{number}"
        response = client.post(
            "/v1/retrieve", json={"knowledge_base": "port", "query": "ferry"}, headers={"X-Request-ID": identity}
        )
        return response.json()["request_id"] == identity

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        assert all(pool.map(ask, range(40)))


def test_an_upload_of_300_megabytes_is_refused_without_being_stored(
    client: httpx.Client, document: str, settings: Settings
) -> None:
    boundary = "frontier"
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="big.txt"\r\n\r\n'.encode()

    def body() -> Iterator[bytes]:
        yield head
        for _ in range(300):
            yield b"x" * 1_000_000
        yield f"\r\n--{boundary}--\r\n".encode()

    before = ServiceFactory(settings)().uploads.backlog()
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    try:
        response = client.post("/v1/knowledge-bases/port/documents", content=body(), headers=headers)
    except (httpx.WriteError, httpx.ReadError):
        pass  # The server closed the connection while we were still sending, which is as clear as TCP gets.
    else:
        assert (response.status_code, response.json()["error"]["type"]) == (413, "document_too_large")
    assert _declared(client.base_url.port or 80, 300_000_000) == (413, "document_too_large")
    assert ServiceFactory(settings)().uploads.backlog() == before


def _declared(port: int, size: int) -> tuple[int, str]:
    """Announce a body of that size without sending it: the answer must not wait for it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.putrequest("POST", "/v1/knowledge-bases/port/documents")
    connection.putheader("Content-Type", "multipart/form-data; boundary=frontier")
    connection.putheader("Content-Length", str(size))
    connection.endheaders()
    response = connection.getresponse()
    return response.status, json.loads(response.read())["error"]["type"]


@pytest.mark.parametrize("name", ["IngressDeployment", "EmbedderDeployment", "UploadWorkerDeployment"])
def test_a_killed_replica_is_replaced_and_nothing_ready_is_lost(client: httpx.Client, document: str, name: str) -> None:
    os.kill(_replica_pid(name), signal.SIGKILL)
    _eventually(lambda: _answers(client))
    accepted = client.post(
        "/v1/knowledge-bases/port/documents", files={"file": (f"{name}.txt", TEXT + name.encode())}
    ).json()
    assert _finished(client, accepted["job_id"], 120)["status"] == "SUCCEEDED"
    assert client.get(f"/v1/documents/{document}").json()["status"] == "READY"


def test_while_the_embedder_hangs_words_alone_find_within_the_deadline(client: httpx.Client, document: str) -> None:
    def ask() -> list[str]:
        response = client.post("/v1/retrieve", json={"knowledge_base": "port", "query": f"ferry {time.monotonic()}"})
        assert response.status_code == 200 and response.json()["results"], response.text
        degradations: list[str] = response.json()["trace"]["degradations"]
        return [one for one in degradations if not one.startswith("rerank")]

    _eventually(lambda: _answers(client))
    embedder = _replica_pid("EmbedderDeployment")
    os.kill(embedder, signal.SIGSTOP)
    try:
        (degradation,) = ask()
    finally:
        os.kill(embedder, signal.SIGCONT)
    assert degradation.startswith("dense: ") and " within 2." in degradation

    def recovered() -> None:
        assert ask() == []

    _eventually(recovered)


@pytest.mark.parametrize("store", ["milvus", "postgres"])
def test_a_killed_store_is_restarted_by_whoever_needs_it_and_nothing_ready_is_lost(
    client: httpx.Client, document: str, settings: Settings, store: str
) -> None:
    server = next(one for one in EmbeddedStores(settings.home).status().servers if one.name == store)
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    _eventually(lambda: _answers(client))
    assert client.get(f"/v1/documents/{document}").json()["status"] == "READY"


def _replica_pid(deployment: str) -> int:
    for named in ray.util.list_named_actors(all_namespaces=True):
        if named["name"].startswith("SERVE_REPLICA") and deployment in named["name"]:
            replica = ray.get_actor(named["name"], namespace=named["namespace"])
            return int(ray.get(replica.__ray_call__.remote(lambda self: os.getpid())))
    raise AssertionError(f"no replica of {deployment}")


def test_the_config_file_names_deployments_that_exist() -> None:
    import yaml

    config = yaml.safe_load((Path(__file__).parents[2] / "serve_config.yaml").read_text(encoding="utf-8"))
    named = {entry["name"] for app in config["applications"] for entry in app["deployments"]}
    assert named == {"IngressDeployment", "EmbedderDeployment", "UploadWorkerDeployment"}
    assert config["http_options"]["host"] == "127.0.0.1"
    assert json.dumps(config["applications"][0]["import_path"]) == '"rag_cluster.serving.app:build"'
