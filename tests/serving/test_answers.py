"""Answers over HTTP, as JSON and as Server-Sent Events."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

TEXT = """# Reservoir

The dam of Linhe reservoir is 120 metres high.

## 管理

水库由王建军负责管理，电话是六二一五。
""".encode()
QUESTION = "How high is the dam of Linhe reservoir?"


def events(text: str) -> list[tuple[str, Any]]:
    found = []
    for block in text.strip().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines())
        found.append((lines["event"], json.loads(lines["data"])))
    return found


@pytest.fixture
async def document(upload: Any, work: Any) -> str:
    body = (await upload("reservoir.md", TEXT)).json()
    work()
    identity: str = body["document_id"]
    return identity


async def test_an_answer_quotes_its_source_and_says_where_it_stands(api: httpx.AsyncClient, document: str) -> None:
    response = await api.post("/v1/answer", json={"knowledge_base": "handbook", "question": QUESTION})
    answer = response.json()
    assert response.status_code == 200 and answer["refused"] is False
    assert "120 metres" in answer["answer"] and "(citation://1)" in answer["answer"]
    citation = answer["citations"][0]
    assert citation["document_id"] == document and "120 metres" in citation["quote"]
    assert citation["locator"]["heading_path"] == ["Reservoir"]
    assert answer["request_id"] == response.headers["x-request-id"]


async def test_a_chinese_question_gets_a_chinese_mark(api: httpx.AsyncClient, document: str) -> None:
    answer = (
        await api.post("/v1/answer", json={"knowledge_base": "handbook", "question": "水库由谁负责管理？"})
    ).json()
    assert "王建军" in answer["answer"] and "[来源 1](citation://1)" in answer["answer"]


async def test_what_the_documents_do_not_tell_is_refused_without_citations(
    api: httpx.AsyncClient, document: str
) -> None:
    answer = (
        await api.post("/v1/answer", json={"knowledge_base": "handbook", "question": "Who painted the Mona Lisa?"})
    ).json()
    assert answer["refused"] is True and answer["citations"] == []


@pytest.mark.parametrize("how", [{"stream": True}, {}])
async def test_streamed_events_come_in_order_and_end_once(
    api: httpx.AsyncClient, document: str, how: dict[str, Any]
) -> None:
    headers = {} if how else {"Accept": "text/event-stream"}
    body = {"knowledge_base": "handbook", "question": QUESTION, **how}
    response = await api.post("/v1/answer", json=body, headers=headers)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-accel-buffering"] == "no"
    names = [name for name, _ in events(response.text)]
    assert names[0] == "meta" and names[-1] == "done"
    assert names == sorted(names, key=["meta", "delta", "citation", "done"].index)
    said = "".join(data["text"] for name, data in events(response.text) if name == "delta")
    done = events(response.text)[-1][1]
    assert said.strip() == done["answer"].strip()
    cited = [data for name, data in events(response.text) if name == "citation"]
    assert [one["number"] for one in cited] == [one["number"] for one in done["citations"]]


async def test_a_streamed_refusal_ends_with_refuse(api: httpx.AsyncClient, document: str) -> None:
    body = {"knowledge_base": "handbook", "question": "Who painted the Mona Lisa?", "stream": True}
    names = [name for name, _ in events((await api.post("/v1/answer", json=body)).text)]
    assert names == ["meta", "refuse"]


async def test_a_trace_tells_the_stages_and_that_nothing_reranked(api: httpx.AsyncClient, document: str) -> None:
    found = (await api.post("/v1/retrieve", json={"knowledge_base": "handbook", "query": QUESTION})).json()
    assert {stage["name"] for stage in found["trace"]["stages"]} >= {"scope"}
    assert any(text.startswith("rerank") for text in found["trace"]["degradations"])
