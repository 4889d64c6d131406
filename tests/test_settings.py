"""Settings: every one has a default, is documented, and contradictions are refused."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from rag_cluster.settings import Settings

ROOT = Path(__file__).parents[1]


def test_the_example_file_names_every_setting_and_nothing_else() -> None:
    text = (ROOT / ".env.example").read_text(encoding="utf-8")
    named = set(re.findall(r"^#? ?RAG_([A-Z0-9_]+)=", text, re.MULTILINE))
    assert named == {name.upper() for name in Settings.model_fields}


def test_the_example_file_as_it_stands_is_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = (ROOT / ".env.example").read_text(encoding="utf-8")
    (tmp_path / ".env").write_text(re.sub(r"^# ?(RAG_)", r"\1", text, flags=re.MULTILINE), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert Settings() == Settings(_env_file=None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"child_tokens": 2000, "parent_tokens": 1000},
        {"chunk_overlap": 512, "chunk_size": 512},
        {"retry_min_wait": 20, "retry_max_wait": 10},
        {"top_k": 0},
    ],
)
def test_contradictions_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        Settings(**wrong)


def test_arguments_win_over_environment_and_environment_over_yaml(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "rag.yaml"
    config.write_text("top_k: 3\ncandidate_k: 11\nport: 7001\n")
    monkeypatch.setenv("RAG_CONFIG", str(config))
    monkeypatch.setenv("RAG_CANDIDATE_K", "12")
    monkeypatch.setenv("RAG_PORT", "7002")
    settings = Settings(port=7003)
    assert (settings.top_k, settings.candidate_k, settings.port) == (3, 12, 7003)


def test_settings_travel_to_actors_and_hide_their_secrets() -> None:
    settings = Settings(postgres_dsn="postgresql://user:hunter2@host/db")
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert "hunter2" not in repr(settings)
