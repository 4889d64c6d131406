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
from rag_cluster.serving import app as serving_app
from rag_cluster.settings import Settings
from rag_cluster.stores.embedded import EmbeddedStores
from rag_cluster.wiring import ServiceFactory

pytestmark = pytest.mark.ray

TEXT = "The ferry to Langya Island leaves at 07:45 every morning. 前往琅琊岛的渡轮每天早上七点四十五分开船。\n".encode()


@pytest.fixture(scope="module")
def settings() -> Iterator[Settings]:
    home = Path(tempfile.mkdtemp(prefix="rag-serve-"))
    yield Settings(data_dir=home, embedder="hash:64", ocr="off", port=free_port(), claim_lease=4)
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
    _answers(client)


def test_server_sent_events_arrive_unbuffered_and_end_once(client: httpx.Client, document: str) -> None:
    body = {"knowledge_base": "port", "question": "渡轮什么时候开船？", "stream": True}
    with client.stream("POST", "/v1/answer", json=body) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.iter_lines() if line.startswith("event: ")]
    assert lines[0] == "event: meta" and lines[-1] == "event: done"
    assert sum(line in ("event: done", "event: refuse", "event: error") for line in lines) == 1


def test_concurrent_requests_get_their_own_answers_and_request_ids(client: httpx.Client, document: str) -> None:
    def ask(number: int) -> bool:
        identity = f"request-{number}"
        response = client.post(
            "/v1/retrieve", json={"knowledge_base": "port", "query": "ferry"}, headers={"X-Request-ID": identity}
        )
        return response.json()["request_id"] == identity

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
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
