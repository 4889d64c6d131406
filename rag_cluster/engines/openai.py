"""Embeddings and rerank scores from an endpoint: OpenAI's /embeddings, and /rerank as vLLM, Jina and Cohere have it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rag_cluster.domain import ids
from rag_cluster.engines.endpoint import JsonEndpoint
from rag_cluster.engines.options import EngineOptions
from rag_cluster.engines.results import unit_rows
from rag_cluster.engines.tokenizers import RegexTokenizer
from rag_cluster.errors import InvalidSettingError, ModelUnavailableError

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Matrix, Tokenizer

MAX_TOKENS = 512
"""Of a text, unless the settings say more: what every model takes."""
_REQUEST_CHARS = 200_000
"""Of one request, so that none is refused for its size."""


class OpenAIEmbedder:
    """`Embedder`. Thread-safe and picklable; connects at its first call.

    Words and characters stand for the model's tokens, which are not known here: longer texts are cut by them. The
    dimension is asked for at its first use unless the options name it.
    """

    def __init__(self, model: str, options: EngineOptions) -> None:
        if not model:
            raise InvalidSettingError("openai:MODEL needs the model's name at the endpoint")
        if not options.endpoint.url:
            raise InvalidSettingError("The embedder openai needs RAG_EMBEDDER_URL, e.g. http://localhost:8000/v1")
        self.tokenizer: Tokenizer = RegexTokenizer()
        self.max_tokens = options.max_tokens or MAX_TOKENS
        self._model = model
        self._query_prefix, self._document_prefix = options.query_prefix or "", options.document_prefix or ""
        self._batch_size = options.batch_size
        self._given_dimension = options.dimension
        self._endpoint = JsonEndpoint(options.endpoint)

    @cached_property
    def dimension(self) -> int:
        """Numbers in a vector. ModelUnavailableError when it must be asked for and the endpoint fails."""
        return self._given_dimension or len(self._request(["dimension"], None)[0])

    @cached_property
    def fingerprint(self) -> str:
        """Of model name, dimension, prefixes and limit: an endpoint does not tell its model's revision."""
        return ids.fingerprint(
            model=self._model,
            engine="openai",
            dimension=self.dimension,
            max_tokens=self.max_tokens,
            prefixes=[self._query_prefix, self._document_prefix],
            normalisation="l2",
        )

    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """float32 (len(texts), dimension), unit norm."""
        return self._embed(texts, self._document_prefix)

    def embed_queries(self, texts: Sequence[str]) -> Matrix:
        """The same with the query prefix."""
        return self._embed(texts, self._query_prefix)

    def _embed(self, texts: Sequence[str], prefix: str) -> Matrix:
        prepared = [prefix + _sendable(text, self.max_tokens) for text in texts]
        vectors = [
            vector for batch in batches(prepared, self._batch_size) for vector in self._request(batch, self.dimension)
        ]
        return unit_rows(vectors, len(texts), self.dimension, self._model)

    def _request(self, texts: Sequence[str], dimension: int | None) -> list[Any]:
        """The vectors of one batch, in its order; dimension: None where it is not known yet."""
        # An empty input is an error at OpenAI's own endpoint.
        body = {"model": self._model, "input": [text or " " for text in texts], "encoding_format": "float"}
        answer = self._endpoint.post("embeddings", body)
        vectors = in_order(answer, "data", "embedding", len(texts), self._model)
        lengths = {len(vector) if isinstance(vector, list) else 0 for vector in vectors}
        if len(lengths) != 1 or 0 in lengths or (dimension and lengths != {dimension}):
            raise ModelUnavailableError(
                f"{self._model} gave vectors of {sorted(lengths)} numbers, not of {dimension or 'one length'}"
            )
        return vectors


class EndpointReranker:
    """`Reranker` over POST /rerank. Scores are as the endpoint gives them, mostly 0 to 1."""

    def __init__(self, model: str, options: EngineOptions) -> None:
        if not model:
            raise InvalidSettingError("openai:MODEL needs the model's name at the endpoint")
        if not options.endpoint.url:
            raise InvalidSettingError("The reranker openai needs RAG_RERANKER_URL, e.g. http://localhost:8000/v1")
        self.name = f"openai:{model}"
        self._model = model
        self._max_tokens = options.max_tokens or MAX_TOKENS
        self._batch_size = options.batch_size
        self._endpoint = JsonEndpoint(options.endpoint)

    def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """One score per text, same order. ModelUnavailableError."""
        query = _sendable(query, self._max_tokens)
        scores: list[float] = []
        for batch in batches([_sendable(text, self._max_tokens) for text in texts], self._batch_size):
            body = {"model": self._model, "query": query, "documents": [text or " " for text in batch]}
            answer = self._endpoint.post("rerank", body)
            found = np.asarray(in_order(answer, "results", "relevance_score", len(batch), self._model), dtype=object)
            if not all(isinstance(score, int | float) and np.isfinite(score) for score in found):
                raise ModelUnavailableError(f"{self._model} gave a score that is no number")
            scores.extend(float(score) for score in found)
        return scores


def in_order(answer: Any, entries: str, value: str, count: int, model: str) -> list[Any]:
    """answer[entries][i][value] by each entry's index. ModelUnavailableError unless 0..count-1 are there once."""
    try:
        found = {int(entry["index"]): entry[value] for entry in answer[entries]}
        total = len(answer[entries])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelUnavailableError(f"{model} answered in another form than {entries}[].{value}") from error
    if total != count or found.keys() != set(range(count)):
        raise ModelUnavailableError(f"{model} gave {total} results for {count} texts, or not one for each")
    return [found[index] for index in range(count)]


def batches(texts: Sequence[str], size: int) -> list[list[str]]:
    """Texts in order, at most `size` and about `_REQUEST_CHARS` characters in each batch."""
    out: list[list[str]] = []
    chars = 0
    for text in texts:
        if not out or len(out[-1]) >= size or chars + len(text) > _REQUEST_CHARS:
            out.append([])
            chars = 0
        out[-1].append(text)
        chars += len(text)
    return out


def _sendable(text: str, max_tokens: int) -> str:
    """Without lone surrogates and NUL, cut after so many words and CJK characters."""
    text = text.encode("utf-8", "replace").decode("utf-8").replace("\x00", " ")
    if len(text) <= max_tokens:
        return text
    offsets = RegexTokenizer().offsets(text)
    return text if len(offsets) <= max_tokens else text[: offsets[max_tokens - 1][1]]
