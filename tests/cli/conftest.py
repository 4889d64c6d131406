"""The command line in this process, on real PostgreSQL and Milvus Lite."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rag_cluster.cli.main import app
from rag_cluster.domain.access import AccessAttributes
from rag_cluster.domain.documents import PlannedFile, SourceKind
from rag_cluster.ingestion import steps
from rag_cluster.ingestion.plan import PlanOptions, plan
from rag_cluster.settings import get_settings
from rag_cluster.stores.embedded import EmbeddedStores
from rag_cluster.wiring import ServiceFactory


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The last line of standard output."""
        return json.loads(self.stdout.splitlines()[-1])

    @property
    def rows(self) -> list[list[str]]:
        """The lines of a table that is not on a terminal, without the columns' names."""
        return [line.split("\t") for line in self.stdout.splitlines()[1:]]


class CommandLine:
    """Runs commands as `rag-cluster` does."""

    def __call__(self, *arguments: str, stdin: str | None = None) -> Outcome:
        result = CliRunner().invoke(app, list(arguments), input=stdin, catch_exceptions=False)
        return Outcome(result.exit_code, result.stdout, result.stderr)


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No setting of the developer's, an empty working directory, and loggers as they were."""
    logger = logging.getLogger("rag_cluster")
    before = logger.level, logger.propagate, list(logger.handlers)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("RAG_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()
    logger.level, logger.propagate, logger.handlers = before


@pytest.fixture
def offline() -> CommandLine:
    """Commands that must not reach any store."""
    return CommandLine()


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, postgres_dsn: str, milvus_stores: EmbeddedStores) -> Iterator[CommandLine]:
    """Commands on empty stores."""
    monkeypatch.setenv("RAG_POSTGRES_DSN", postgres_dsn)
    monkeypatch.setenv("RAG_MILVUS_URI", milvus_stores.ensure_milvus())
    monkeypatch.setenv("RAG_EMBEDDER", "hash:64")
    monkeypatch.setenv("RAG_OCR", "off")
    yield CommandLine()
    ServiceFactory(get_settings())().database.close()


def ingest(base: str, *files: Path) -> list[str]:
    """What `rag-cluster ingest --open` does, without Ray; the documents' ids in the files' order."""
    write_path = ServiceFactory(get_settings())().write_path()
    base_id = write_path.catalog.knowledge_base(base).id
    source = write_path.catalog.ensure_source(base_id, SourceKind.BULK, "bulk")
    inputs = [str(file) for file in files]
    documents: dict[str, str] = {}
    for item in plan(write_path, base_id, inputs, PlanOptions(access=AccessAttributes(()))):
        assert isinstance(item, PlannedFile), item
        work = steps.Work(base_id, source.id, item.document_id, item.file, item.content_fingerprint)
        prepared = steps.prepare(write_path, work, owner="test")
        if isinstance(prepared, list):
            steps.index(write_path, steps.open_index(write_path), prepared)
        documents[item.file.filename] = item.document_id
    write_path.parser().close()  # type: ignore[attr-defined]
    return [documents[file.name] for file in files]
