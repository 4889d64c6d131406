"""Generators by their names in the settings, before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rag_cluster.chunking.boundaries import sentences
from rag_cluster.domain.ports import Generator
from rag_cluster.engines.chat_generator import OpenAIGenerator
from rag_cluster.engines.echo import EchoGenerator
from rag_cluster.engines.extractive import ExtractiveGenerator
from rag_cluster.engines.generators import create_generator, create_hosted_generator, is_hosted
from rag_cluster.engines.hashing import HashEmbedder
from rag_cluster.engines.threaded import ThreadedEmbedder
from rag_cluster.engines.vllm import VllmGenerator
from rag_cluster.errors import InvalidSettingError, MissingDependencyError, ModelUnavailableError
from rag_cluster.settings import Settings
from rag_cluster.telemetry import NullMetrics
from rag_cluster.wiring import Services
from tests.contracts.test_generator import request
from tests.fixtures.vllm import HAS_VLLM


def create(**settings: Any) -> Generator:
    return create_generator(Settings(**settings), ThreadedEmbedder(HashEmbedder(8)), sentences, NullMetrics())


@pytest.mark.parametrize(
    ("settings", "kind", "name", "hosted"),
    [
        ({}, ExtractiveGenerator, "extractive", False),
        ({"generator": "openai:qwen:7b", "generator_url": "http://127.0.0.1:9/v1"}, OpenAIGenerator, "qwen:7b", False),
        ({"generator": "vllm:/models/smol"}, VllmGenerator, "smol", True),
        ({"generator": "rag_cluster.engines.echo:EchoGenerator"}, EchoGenerator, "echo", False),
    ],
)
def test_a_name_gives_its_engine(settings: dict[str, Any], kind: type[Generator], name: str, hosted: bool) -> None:
    generator = create(**settings)
    assert (type(generator), generator.name, is_hosted(Settings(**settings))) == (kind, name, hosted)


@pytest.mark.parametrize("name", ["gpt", "vllm", "vllm:", "nowhere:Nothing", ""])
def test_a_name_of_none_is_refused(name: str) -> None:
    with pytest.raises(InvalidSettingError):
        create(generator=name)
    with pytest.raises(InvalidSettingError):
        create_hosted_generator(Settings(generator=name), NullMetrics())


def test_a_remote_model_needs_an_address() -> None:
    with pytest.raises(ValidationError, match="RAG_GENERATOR_URL"):
        Settings(generator="openai:qwen")


async def test_a_folder_that_is_not_there_and_vllm_that_is_not_installed_are_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingError, match="nowhere"):
        await VllmGenerator(str(tmp_path / "nowhere")).start()
    if not HAS_VLLM:
        with pytest.raises(MissingDependencyError, match=r"rag-cluster\[vllm\]"):
            await anext(VllmGenerator(str(tmp_path)).stream(request()))


@pytest.mark.parametrize(
    ("template", "error"), [(None, InvalidSettingError), ("{{ messages }}", ModelUnavailableError)]
)
async def test_an_engine_that_turns_out_to_be_of_no_use_is_ended(
    template: str | None, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = []

    class Engine:
        chat_template = template
        running = True

        def __init__(self, *_: object) -> None:
            engines.append(self)

        def get_tokenizer(self) -> Engine:
            return self

        def shutdown(self) -> None:
            self.running = False

    async def fails(generator: VllmGenerator, engine: Engine) -> None:
        raise ModelUnavailableError("out of memory")

    monkeypatch.setattr("rag_cluster.engines.vllm._engine", Engine)
    monkeypatch.setattr(VllmGenerator, "_warm_up", fails)
    generator = VllmGenerator("org/model")
    for _ in range(2):
        with pytest.raises(error):
            await generator.start()
    assert [engine.running for engine in engines] == [False, False]


@pytest.mark.parametrize(("window", "planned"), [(0, 6000), (100_000, 6000), (4096, 2304), (1000, 562)])
def test_sources_are_chosen_for_what_the_model_reads_and_leave_room_for_rules_and_answer(
    window: int, planned: int
) -> None:
    services = Services(Settings(generator_context_tokens=window))
    assert services._context_tokens == planned
