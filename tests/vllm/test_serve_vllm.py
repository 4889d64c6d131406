"""A real language model in vLLM behind the real Serve application, over real HTTP: one deployment for this module."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from ray import serve

from rag_cluster.cli.serve import free_port
from rag_cluster.domain.numerals import numbers
from rag_cluster.serving import app as serving_app
from rag_cluster.settings import Settings
from rag_cluster.stores.embedded import EmbeddedStores
from tests.fixtures.vllm import CONTEXT_TOKENS, HAS_VLLM, VLLM_OPTIONS, WHY_NOT

PATIENCE = 1500
"""Seconds for what takes half a minute on a machine that has nothing else to do."""

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(PATIENCE),
    pytest.mark.skipif(not HAS_VLLM, reason=WHY_NOT),
]

FERRY = "The ferry to Langya Island leaves at 07:45 every morning. It carries 120 passengers."
LOG = "\n\n".join(
    f"On day {day} of the voyage the ferry carried {day * 7} passengers to Langya." for day in range(1, 90)
)
ASKED = "When does the ferry to Langya Island leave?"
AT_LENGTH = "List, day by day, how many passengers the ferry carried on the voyage to Langya."


@pytest.fixture(scope="module")
def settings(smollm2: Path) -> Iterator[Settings]:
    home = Path(tempfile.mkdtemp(prefix="rag-vllm-"))
    yield Settings(
        data_dir=home,
        embedder="hash:64",
        generator=f"vllm:{smollm2}",
        # Not RAG_GENERATOR_CONTEXT_TOKENS, by which sources would be chosen to fit from the beginning.
        vllm_options={**VLLM_OPTIONS, "max_model_len": CONTEXT_TOKENS},
        max_answer_tokens=256,
        temperature=0.0,
        ocr="off",
        port=free_port(),
        request_timeout=600,
        model_load_timeout=PATIENCE,
        first_token_timeout=300,
    )
    EmbeddedStores(home).down()
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def client(ray_cluster: None, settings: Settings) -> Iterator[httpx.Client]:
    endpoint = serving_app.start(settings)
    with httpx.Client(base_url=endpoint, timeout=600) as client:
        for base, text in (("port", FERRY), ("voyage", LOG)):
            assert client.post("/v1/knowledge-bases", json={"name": base, "default_acl": []}).status_code == 201
            file = (f"{base}.txt", text.encode())
            job = client.post(f"/v1/knowledge-bases/{base}/documents", files={"file": file}).json()
            _eventually(lambda job=job: client.get(f"/v1/jobs/{job['job_id']}").json()["status"] == "SUCCEEDED")
        yield client
    serve.shutdown()


def _eventually(holds: Callable[[], bool], seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come to hold"
        time.sleep(0.3)


def _counters(client: httpx.Client) -> dict[str, float]:
    """Of the one replica, as the administrator's route tells them."""
    models = client.get("/v1/models").json()["models"]
    (replica,) = next(model for model in models if model["role"] == "generator")["replicas"]
    counters: dict[str, float] = replica
    return counters


@contextmanager
def _stream(
    client: httpx.Client, base: str, question: str, **body: Any
) -> Iterator[Iterator[tuple[str, dict[str, Any]]]]:
    """(event, data) as they come."""
    asked = {"knowledge_base": base, "question": question, "stream": True, **body}
    with client.stream("POST", "/v1/answer", json=asked) as response:
        assert response.status_code == 200, response.read()
        yield _events(response.iter_lines())


def _events(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    name = ""
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)


def _until_delta(events: Iterator[tuple[str, dict[str, Any]]]) -> str:
    return next(data["text"] for name, data in events if name == "delta")


def _engine() -> psutil.Process:
    """The engine's process, a descendant of the Ray that this session has started."""
    found = [child for child in psutil.Process().children(recursive=True) if "EngineCore" in child.name()]
    assert len(found) == 1, found
    return found[0]


def test_an_answer_is_streamed_and_its_citations_are_checked(client: httpx.Client) -> None:
    with _stream(client, "port", ASKED) as events:
        told = list(events)
    names = [name for name, _ in told]
    assert names[0] == "meta" and names.count("delta") > 3 and names[-1] == "done"
    done = told[-1][1]
    text = "".join(data["text"] for name, data in told if name == "delta")
    assert text.strip() and text.strip() == done["answer"]
    assert [citation["filename"] for citation in done["citations"]] == ["port.txt"]
    assert [source["number"] for source in told[0][1]["sources"]] == [1]
    # What this little model says is not to be relied on; that what it makes up is told is.
    without_marks = text.replace("[Source 1](citation://1)", "")
    known = {number.value for number in numbers(FERRY)}
    made_up = [number.written for number in numbers(without_marks) if number.certain and number.value not in known]
    warnings = "\n".join(done["warnings"])
    assert all(number in warnings for number in made_up), (text, warnings)
    assert "[Source 1](citation://1)" in text or "the answer carries no citation mark" in warnings


def test_a_client_that_leaves_ends_the_generation_in_the_engine(client: httpx.Client) -> None:
    before = _counters(client)
    with _stream(client, "voyage", AT_LENGTH) as events:
        _until_delta(events)
    _eventually(lambda: _counters(client)["aborted"] == before["aborted"] + 1)
    _eventually(lambda: _counters(client)["vllm:num_requests_running"] == 0)
    after = _counters(client)
    assert after["completion_tokens"] - before["completion_tokens"] < 256
    assert after["completed"] == before["completed"] and after["running"] == 0


def test_two_answers_are_written_at_the_same_time(client: httpx.Client) -> None:
    with _stream(client, "voyage", AT_LENGTH) as one, _stream(client, "voyage", AT_LENGTH + " Please.") as other:
        _until_delta(one), _until_delta(other)
        assert _counters(client)["vllm:num_requests_running"] == 2
    _eventually(lambda: _counters(client)["vllm:num_requests_running"] == 0)


def test_sources_that_the_model_cannot_read_are_left_out(client: httpx.Client) -> None:
    before = _counters(client)
    with _stream(client, "voyage", AT_LENGTH, options={"top_k": 20}) as events:
        assert _until_delta(events)
    assert _counters(client)["rejected"] > before["rejected"], "the model was offered more than it reads"


def test_a_question_that_the_model_cannot_read_is_the_callers_to_shorten(client: httpx.Client) -> None:
    question = ASKED + " 渡轮什么时候开？" * 400
    answer = client.post("/v1/answer", json={"knowledge_base": "port", "question": question})
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "context_overflow"), answer.text


def test_a_killed_engine_is_noticed_and_its_replica_replaced(client: httpx.Client) -> None:
    engine = _engine()
    with _stream(client, "voyage", AT_LENGTH) as events:
        _until_delta(events)
        engine.kill()
        name, data = list(events)[-1]
    assert (name, data["error"]["type"]) == ("error", "model_unavailable")

    def answers() -> bool:
        answer = client.post("/v1/answer", json={"knowledge_base": "port", "question": ASKED})
        assert answer.status_code in (200, 502), answer.text
        return answer.status_code == 200 and bool(answer.json()["answer"])

    _eventually(answers, PATIENCE - 100)
    assert _engine().pid != engine.pid
