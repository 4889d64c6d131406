"""Strategies by name. A new one is one module and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from rag_cluster.chunking.fixed_size import FixedSizeChunker
from rag_cluster.chunking.paragraph import ParagraphChunker
from rag_cluster.chunking.recursive import RecursiveChunker
from rag_cluster.chunking.semantic import SemanticChunker
from rag_cluster.chunking.sentence import SentenceChunker
from rag_cluster.chunking.structured import StructuredChunker
from rag_cluster.domain.ports import Chunker, Embedder, Tokenizer
from rag_cluster.errors import InvalidSettingError
from rag_cluster.settings import load_reference


def _structured(parameters: Mapping[str, Any], tokenizer: Tokenizer, embedder: Embedder | None) -> Chunker:
    limit = {"max_tokens": embedder.max_tokens} if embedder else {}
    return StructuredChunker(tokenizer, **{**limit, **parameters})


def _semantic(parameters: Mapping[str, Any], tokenizer: Tokenizer, embedder: Embedder | None) -> Chunker:
    if embedder is None:
        raise InvalidSettingError("Chunking strategy 'semantic' needs an embedder")
    return SemanticChunker(tokenizer, embedder, **parameters)


Factory = Callable[[Mapping[str, Any], Tokenizer, Embedder | None], Chunker]
CHUNKERS: dict[str, Factory] = {
    "structured": _structured,
    "recursive": lambda parameters, tokenizer, _: RecursiveChunker(tokenizer, **parameters),
    "fixed_size": lambda parameters, tokenizer, _: FixedSizeChunker(tokenizer, **parameters),
    "sentence": lambda parameters, tokenizer, _: SentenceChunker(tokenizer, **parameters),
    "paragraph": lambda parameters, tokenizer, _: ParagraphChunker(tokenizer, **parameters),
    "semantic": _semantic,
}


def create_chunker(
    name: str, parameters: Mapping[str, Any], tokenizer: Tokenizer, embedder: Embedder | None = None
) -> Chunker:
    """The strategy of that name, or Class(tokenizer, embedder, parameters) of a "module:Class".

    Parameters that are not given have their defaults. InvalidSettingError for an unknown name, which lists the known
    ones, and for parameters that the strategy does not have or that contradict each other.
    """
    if factory := CHUNKERS.get(name):
        try:
            return factory(parameters, tokenizer, embedder)
        except TypeError as error:
            raise InvalidSettingError(f"Chunking strategy {name!r}: {error}") from error
    if ":" in name:
        return cast("Chunker", load_reference(name)(tokenizer, embedder, parameters))
    raise InvalidSettingError(f"Unknown chunking strategy {name!r}: one of {', '.join(CHUNKERS)}, or module:Class")
