"""Every distinct text is embedded once: within a run in memory, between runs in a file."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rag_cluster.domain.ports import Embedder

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Matrix

BUSY_SECONDS = 60.0
BATCH = 256
"""Texts between two commits: what an interrupted run has embedded is not embedded again."""


class CachedEmbedder:
    """An `Embedder` that remembers. Counts what it really embedded, in texts and seconds. Thread-safe."""

    def __init__(self, embedder: Embedder, folder: Path | None = None) -> None:
        """folder: where vectors are kept, in one SQLite file an embedder; None keeps them in memory."""
        self._embedder = embedder
        self.dimension = embedder.dimension
        self.max_tokens = embedder.max_tokens
        self.fingerprint = embedder.fingerprint
        self.tokenizer = embedder.tokenizer
        self.seconds = 0.0
        self.embedded: list[str] = []
        """The texts that had to be embedded."""
        self._lock = threading.Lock()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        file = ":memory:" if folder is None else str(folder / f"{embedder.fingerprint}.sqlite")
        self._file = sqlite3.connect(file, timeout=BUSY_SECONDS, check_same_thread=False)
        self._file.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB NOT NULL)")

    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """As the embedder does."""
        return self._embed("d", texts, self._embedder.embed_documents)

    def embed_queries(self, texts: Sequence[str]) -> Matrix:
        """As the embedder does."""
        return self._embed("q", texts, self._embedder.embed_queries)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    def _embed(self, kind: str, texts: Sequence[str], embed: Callable[[Sequence[str]], Matrix]) -> Matrix:
        keys = [hashlib.sha256(f"{kind}\x00{text}".encode("utf-8", "surrogatepass")).digest() for text in texts]
        with self._lock:
            known = {key: vector for key in dict.fromkeys(keys) if (vector := self._stored(key)) is not None}
            missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
            waiting = list(missing.items())
            for start in range(0, len(waiting), BATCH):
                batch = waiting[start : start + BATCH]
                known.update(zip((key for key, _ in batch), self._computed(batch, embed), strict=True))
        if not keys:
            return np.empty((0, self.dimension), np.float32)
        return np.stack([known[key] for key in keys])

    def _computed(self, batch: Sequence[tuple[bytes, str]], embed: Callable[[Sequence[str]], Matrix]) -> Matrix:
        started = time.perf_counter()
        vectors = embed([text for _, text in batch])
        self.seconds += time.perf_counter() - started
        self.embedded.extend(text for _, text in batch)
        rows = [(key, vector.astype(np.float32).tobytes()) for (key, _), vector in zip(batch, vectors, strict=True)]
        with self._file:
            self._file.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)
        return vectors

    def _stored(self, key: bytes) -> Matrix | None:
        found = self._file.execute("SELECT vector FROM vectors WHERE key = ?", (key,)).fetchone()
        if found is None or len(found[0]) != 4 * self.dimension:
            return None
        return np.frombuffer(found[0], np.float32)
