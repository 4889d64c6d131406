"""Joining or starting Ray: what keeps it from coming up is said in one sentence."""

from __future__ import annotations

import pytest
import ray

from rag_cluster.errors import SourceUnavailableError
from rag_cluster.ingestion.ray_connection import connect


def test_a_ray_that_does_not_come_up_on_a_busy_machine_says_what_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    def times_out(*arguments: object, **options: object) -> None:
        raise Exception("The current node timed out during startup.")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "init", times_out)
    with pytest.raises(SourceUnavailableError, match=r"timed out during startup.*--address"):
        connect(None, 1)


def test_an_address_where_nobody_listens_is_named() -> None:
    with pytest.raises(SourceUnavailableError, match=r"No Ray answers at 127\.0\.0\.1:9"):
        connect("127.0.0.1:9", 1)
