"""How often a query asks PostgreSQL: a fixed number of statements, however many hits, documents and pictures it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import psycopg
import pytest

from rag_cluster.domain.access import LOCAL
from rag_cluster.wiring import Services

Counted = Callable[[], list[str]]
FACTS = ["WITH b AS MATERIALIZED", "WITH c AS MATERIALIZED"]
AUDIT = "WITH unhurried AS MATERIALIZED"


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The first words of every statement, in order; what sets up a new connection is left out."""
    seen: list[str] = []

    def note(query: Any) -> None:
        words = " ".join(str(query).split()[:4])
        if not words.startswith("SET "):
            seen.append(words)

    plain, awaitable = psycopg.Cursor.execute, psycopg.AsyncCursor.execute

    def execute(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        note(query)
        return plain(self, query, *args, **options)

    async def async_execute(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        note(query)
        return await awaitable(self, query, *args, **options)

    monkeypatch.setattr(psycopg.Cursor, "execute", execute)
    monkeypatch.setattr(psycopg.AsyncCursor, "execute", async_execute)
    return seen


@pytest.fixture
async def filled(services: Services, base: dict[str, Any], upload: Any, work: Callable[[], int]) -> str:
    for number in range(12):
        text = "\n\n".join(f"# Part {part}\n\nCrane {number} lifts {part} tonnes." for part in range(4))
        await upload(f"crane{number}.md", text.encode())
    assert work() == 12
    return services.catalog.create_api_key("reader", LOCAL)


@pytest.mark.parametrize("top_k", [1, 50])
async def test_retrieval_asks_for_scope_and_facts_once_and_writes_one_row(
    api: httpx.AsyncClient, filled: str, statements: list[str], base: dict[str, Any], top_k: int
) -> None:
    body = {
        "knowledge_base": base["id"],
        "query": "crane lifts tonnes",
        "options": {"top_k": top_k, "candidate_k": 100},
    }
    headers = {"Authorization": f"Bearer {filled}"}
    for _ in range(2):
        statements.clear()
        found = (await api.post("/v1/retrieve", json=body, headers=headers)).json()
        assert len(found["results"]) == min(top_k, 12)
    # Before these the key and the knowledge base, by its name or id, together.
    assert len(statements) == 4 and [one[: len(FACTS[0])] for one in statements[1:3]] == FACTS, statements
    assert statements[3] == AUDIT


async def test_an_answer_adds_its_session_and_two_messages(
    api: httpx.AsyncClient, filled: str, statements: list[str], base: dict[str, Any]
) -> None:
    body = {"knowledge_base": base["id"], "question": "How many tonnes does crane 7 lift?"}
    headers = {"Authorization": f"Bearer {filled}"}
    for _ in range(2):
        statements.clear()
        assert (await api.post("/v1/answer", json=body, headers=headers)).status_code == 200
    added = [one for one in statements[3:] if one.startswith(("INSERT INTO", "SELECT 1"))]
    assert [one.split()[2] for one in added if one.startswith("INSERT")] == [
        "chat_sessions",
        "chat_messages",
        "chat_messages",
    ]
    assert len(statements) == 3 + len(added) + 1 and len(added) == 4, statements
