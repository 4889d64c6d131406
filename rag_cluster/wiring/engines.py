"""Models: embedder, reranker, generator, and what rewrites and describes. None needs a store."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from rag_cluster.domain.ports import (
    AsyncEmbedder,
    Embedder,
    Generator,
    HostedGenerator,
    QueryRewriter,
    Reranker,
    Tokenizer,
    VisionDescriber,
)
from rag_cluster.settings import Settings
from rag_cluster.wiring.base import Wired

if TYPE_CHECKING:
    from rag_cluster.engines.check import ModelCheck
    from rag_cluster.engines.options import EngineOptions
    from rag_cluster.engines.query_cache import QueryCache
    from rag_cluster.engines.threaded import ThreadedEmbedder, ThreadedReranker


def embedder_options(settings: Settings) -> EngineOptions:
    """What the settings say of the embedder, besides its name."""
    from rag_cluster.engines.options import Endpoint, EngineOptions

    return EngineOptions(
        threads=settings.embedder_threads,
        batch_size=settings.embedder_batch_size,
        device=settings.model_device,
        dtype=settings.model_dtype,
        load_timeout=settings.model_load_timeout,
        max_tokens=settings.embedder_max_tokens,
        dimension=settings.embedder_dimension,
        query_prefix=settings.embedder_query_prefix,
        document_prefix=settings.embedder_document_prefix,
        endpoint=Endpoint.of(settings, settings.embedder_url, settings.embedder_api_key, settings.embedder_timeout),
    )


def reranker_options(settings: Settings) -> EngineOptions:
    """What the settings say of the reranker, besides its name. One attempt: the fused order is there, and waits."""
    from rag_cluster.engines.options import Endpoint, EngineOptions

    return EngineOptions(
        threads=settings.reranker_threads,
        batch_size=settings.reranker_batch_size,
        device=settings.model_device,
        dtype=settings.model_dtype,
        load_timeout=settings.model_load_timeout,
        max_tokens=settings.reranker_max_tokens,
        endpoint=replace(
            Endpoint.of(settings, settings.reranker_url, settings.reranker_api_key, settings.reranker_timeout),
            retries=0,
        ),
    )


class EngineServices(Wired):
    """The models of one process."""

    @cached_property
    def embedder(self) -> Embedder:
        """The engine itself; loaded at its first call."""
        from rag_cluster.engines.registry import create_embedder

        return create_embedder(self.settings.embedder, options=embedder_options(self.settings))

    @cached_property
    def async_embedder(self) -> ThreadedEmbedder:
        """The engine in a thread of this process: of a replica that serves it, and of commands without Serve."""
        from rag_cluster.engines.threaded import ThreadedEmbedder

        settings = self.settings
        return ThreadedEmbedder(
            self.embedder,
            batch_tokens=settings.embedder_batch_tokens,
            query_target=settings.embed_p95_target,
            metrics=self.metrics,
        )

    def remembering(self, embedder: AsyncEmbedder) -> AsyncEmbedder:
        """The same, with the vectors of the questions that this process was asked last."""
        from rag_cluster.engines.query_cache import CachingEmbedder

        return CachingEmbedder(embedder, self._query_cache)

    @cached_property
    def _query_cache(self) -> QueryCache:
        from rag_cluster.engines.query_cache import QueryCache

        return QueryCache(self.settings.query_cache_size)

    @cached_property
    def reranker(self) -> Reranker | None:
        """The engine itself, loaded at its first call; None where the settings name none."""
        from rag_cluster.engines.registry import create_reranker

        return create_reranker(self.settings.reranker, reranker_options(self.settings))

    @cached_property
    def async_reranker(self) -> ThreadedReranker | None:
        """The engine in a thread of this process."""
        from rag_cluster.engines.threaded import ThreadedReranker

        return ThreadedReranker(self.reranker) if self.reranker else None

    @property
    def tokenizer(self) -> Tokenizer:
        """The embedder's own tokenizer."""
        return self.embedder.tokenizer

    def generator(self, embedder: AsyncEmbedder) -> Generator:
        """The generator that the settings name, in this process."""
        from rag_cluster.chunking.boundaries import sentences
        from rag_cluster.engines.generators import create_generator

        return create_generator(self.settings, embedder, sentences, self.metrics)

    @property
    def hosts_generator(self) -> bool:
        """Whether the generator is a model that one process loads for all, which is then a deployment of its own."""
        from rag_cluster.engines.generators import is_hosted

        return is_hosted(self.settings)

    def hosted_generator(self) -> HostedGenerator:
        """That generator. InvalidSettingError where `hosts_generator` is False."""
        from rag_cluster.engines.generators import create_hosted_generator

        return create_hosted_generator(self.settings, self.metrics)

    def rewriter(self, generator: Generator) -> QueryRewriter | None:
        """The endpoint that the settings name, else the generator, if that is a model. None where neither is."""
        from rag_cluster.engines.options import Endpoint
        from rag_cluster.engines.rewriting import GeneratorQueryRewriter, OpenAIQueryRewriter

        settings = self.settings
        if settings.rewrite_url:
            place = Endpoint.of(settings, settings.rewrite_url, settings.rewrite_api_key, settings.rewrite_timeout)
            return OpenAIQueryRewriter(place, settings.rewrite_model)
        return None if settings.generator == "extractive" else GeneratorQueryRewriter(generator)

    @cached_property
    def describer(self) -> VisionDescriber:
        """The vision endpoint that the settings name."""
        from rag_cluster.engines.options import Endpoint
        from rag_cluster.engines.vision import OpenAIVisionDescriber

        settings = self.settings
        place = Endpoint.of(settings, settings.vision_url, settings.vision_api_key, settings.vision_timeout)
        return OpenAIVisionDescriber(place, settings.vision_model)


def check_models(settings: Settings) -> list[ModelCheck]:
    """What the models of the settings are and do on this machine. Needs no store.

    A language model comes first and is given back: it would not share a GPU's memory with the others.
    """
    from rag_cluster.engines.check import check_embedder, check_reranker
    from rag_cluster.engines.check_generator import check_generator

    services = EngineServices(settings)
    checks = []
    if settings.generator != "extractive":
        generator = services.generator(services.async_embedder)
        checks.append(check_generator(settings.generator, generator, settings.generator_context_tokens))
    checks.append(check_embedder(settings.embedder, services.embedder, embedder_options(settings)))
    if services.reranker is not None:
        checks.append(check_reranker(settings.reranker, services.reranker, reranker_options(settings)))
    return checks
