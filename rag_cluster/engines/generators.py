"""Generators by name. A new one is one module and one line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from rag_cluster.domain.ports import AsyncEmbedder, Generator, HostedGenerator, MetricSink
from rag_cluster.engines.chat_completions import ChatCompletions
from rag_cluster.engines.chat_generator import OpenAIGenerator, Patience
from rag_cluster.engines.extractive import ExtractiveGenerator
from rag_cluster.engines.extractive_units import Sentences
from rag_cluster.engines.options import Endpoint
from rag_cluster.engines.vllm import VllmGenerator
from rag_cluster.errors import InvalidSettingError
from rag_cluster.settings import Settings, load_reference


def _openai(model: str, settings: Settings, metrics: MetricSink) -> OpenAIGenerator:
    endpoint = Endpoint.of(settings, settings.generator_url, settings.generator_api_key, settings.first_token_timeout)
    patience = Patience(settings.first_token_timeout, settings.generator_timeout)
    return OpenAIGenerator(
        ChatCompletions(endpoint, model), patience=patience, stop=settings.generator_stop, metrics=metrics
    )


def _vllm(model: str, settings: Settings, metrics: MetricSink) -> VllmGenerator:
    return VllmGenerator(
        model,
        context_tokens=settings.generator_context_tokens,
        stop=settings.generator_stop,
        options=settings.vllm_options,
        load_timeout=settings.model_load_timeout,
        stall_timeout=settings.first_token_timeout,
        metrics=metrics,
    )


HOSTED: dict[str, Callable[[str, Settings, MetricSink], HostedGenerator]] = {"vllm": _vllm}
LANGUAGE_MODELS: dict[str, Callable[[str, Settings, MetricSink], Generator]] = {"openai": _openai, **HOSTED}
"""name -> factory(model, settings, metrics)."""


def create_generator(
    settings: Settings, embedder: AsyncEmbedder, sentences: Sentences, metrics: MetricSink
) -> Generator:
    """The generator that RAG_GENERATOR names: "extractive", "openai:MODEL", "vllm:PATH" or "module:Class".

    Nothing is loaded or connected before its first answer. A class of one's own is called without arguments.
    InvalidSettingError for a name that is none of these.
    """
    kind, colon, argument = settings.generator.partition(":")
    if settings.generator == ExtractiveGenerator.name:
        return ExtractiveGenerator(embedder, sentences)
    if factory := LANGUAGE_MODELS.get(kind):
        if not argument:
            raise InvalidSettingError(f"RAG_GENERATOR={kind} needs a model: {kind}:MODEL")
        return factory(argument, settings, metrics)
    if colon:
        return cast("Generator", load_reference(settings.generator)())
    raise InvalidSettingError(
        f"Unknown generator {settings.generator!r}: extractive, openai:MODEL, vllm:PATH or module:Class"
    )


def is_hosted(settings: Settings) -> bool:
    """Whether the generator loads a model, so that Serve gives it a deployment of its own."""
    return settings.generator.partition(":")[0] in HOSTED


def create_hosted_generator(settings: Settings, metrics: MetricSink) -> HostedGenerator:
    """The generator that loads a model. InvalidSettingError where RAG_GENERATOR names another kind."""
    kind, _, model = settings.generator.partition(":")
    if not model or kind not in HOSTED:
        raise InvalidSettingError(f"RAG_GENERATOR={settings.generator} names no model to load: vllm:PATH does")
    return HOSTED[kind](model, settings, metrics)
