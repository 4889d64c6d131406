"""The builder that Serve calls with `args:` of serve_config.yaml."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from pydantic import ValidationError

from rag_cluster.serving.app import AppConfig, build
from rag_cluster.settings import Settings


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ({"settings": {"tpo_k": 3}}, "did you mean 'top_k'"),
        ({"settings": {"top_k": "many"}}, "top_k"),
        ({"settings": {"child_tokens": 500, "parent_tokens": 100}}, "RAG_CHILD_TOKENS"),
        ({"setings": {}}, "setings"),
        ({"settings": [1]}, "settings"),
    ],
)
def test_wrong_args_are_refused_by_name(args: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        AppConfig(**args)


def test_serve_sees_the_builders_annotation_and_so_validates_args() -> None:
    (parameter,) = inspect.signature(build).parameters.values()
    assert parameter.annotation is AppConfig


def test_args_stand_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_TOP_K", "7")
    monkeypatch.setenv("RAG_CANDIDATE_K", "9")
    settings = Settings(**AppConfig(settings={"top_k": 3}).settings)
    assert (settings.top_k, settings.candidate_k) == (3, 9)


def test_over_capacity_is_429() -> None:
    application = build(AppConfig(settings={"max_queued_requests": 2, "max_ongoing_requests": 1}))
    ingress = application._bound_deployment
    assert ingress._deployment_config.backpressure_config.status_code == 429
    assert (ingress.max_ongoing_requests, ingress.max_queued_requests) == (1, 2)
