"""The checkpoint's own tokenizer: ids for the encoder, counts and offsets for the chunker."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rag_cluster.errors import InvalidSettingError

if TYPE_CHECKING:
    from rag_cluster.engines.encoder.checkpoint import Checkpoint

Ids = npt.NDArray[np.int32]

_lock = threading.Lock()


class EncoderTokenizer:
    """`Tokenizer`. Picklable: the file is read once per process, when first needed.

    lower_case: sentence-transformers' `do_lower_case`, before the tokenizer's own normalisation.
    """

    def __init__(self, folder: Path, name: str, *, lower_case: bool = False) -> None:
        self.name = name
        self._folder = folder
        self._lower_case = lower_case

    def count(self, text: str) -> int:
        """Number of tokens, without special tokens and prefix."""
        return len(_plain(self._folder).encode(self.cleaned(text), add_special_tokens=False).ids)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """`count` of each text, in one call."""
        encodings = _plain(self._folder).encode_batch_fast(
            [self.cleaned(text) for text in texts], add_special_tokens=False
        )
        return [len(encoding.ids) for encoding in encodings]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Character span of every token. Tokens of nothing (a word's mark alone) have an empty span."""
        spans: list[tuple[int, int]] = []
        end = 0
        for start, stop in _plain(self._folder).encode(self.cleaned(text), add_special_tokens=False).offsets:
            # SentencePiece gives "▁" and the word after it the same place.
            end, start = max(end, stop), max(end, start)
            spans.append((min(start, end), end))
        return spans

    def encode(self, texts: Sequence[str], max_tokens: int) -> list[Ids]:
        """Ids of each text with special tokens, cut to max_tokens."""
        encodings = _cutting(self._folder, max_tokens).encode_batch_fast([self.cleaned(text) for text in texts])
        return [np.asarray(encoding.ids, dtype=np.int32) for encoding in encodings]

    def encode_pairs(self, query: str, texts: Sequence[str], max_tokens: int) -> tuple[list[Ids], list[Ids]]:
        """(ids, token types) of each pair with special tokens; of query and text the longer one is cut."""
        query = self.cleaned(query)
        pairs = [(query, self.cleaned(text)) for text in texts]
        encodings = _cutting(self._folder, max_tokens).encode_batch_fast(pairs)
        return (
            [np.asarray(encoding.ids, dtype=np.int32) for encoding in encodings],
            [np.asarray(encoding.type_ids, dtype=np.int32) for encoding in encodings],
        )

    def cleaned(self, text: str) -> str:
        """As the tokenizer takes it."""
        text = without_surrogates(text)
        return text.lower() if self._lower_case else text


def without_surrogates(text: str) -> str:
    """Lone surrogates, which tokenizers refuse, as question marks."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def tokenizer_of(checkpoint: Checkpoint) -> EncoderTokenizer:
    """The checkpoint's tokenizer."""
    return EncoderTokenizer(checkpoint.transformer, checkpoint.name, lower_case=checkpoint.lower_case)


def _plain(folder: Path) -> Any:
    with _lock:
        return _loaded(folder, 0)


def _cutting(folder: Path, max_tokens: int) -> Any:
    with _lock:
        return _loaded(folder, max_tokens)


@lru_cache(maxsize=16)
def _loaded(folder: Path, max_tokens: int) -> Any:
    """A `tokenizers.Tokenizer`: cutting and padding are its state, so that each limit has one of its own."""
    from tokenizers import Tokenizer

    file = folder / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(file)) if file.is_file() else _converted(folder)
    except Exception as error:  # the library raises bare Exception
        raise InvalidSettingError(f"The tokenizer of {folder} cannot be loaded: {error}") from error
    tokenizer.no_padding()
    if max_tokens:
        tokenizer.enable_truncation(max_tokens, strategy="longest_first")
    else:
        tokenizer.no_truncation()
    return tokenizer


def _converted(folder: Path) -> Any:
    """From SentencePiece's or WordPiece's own files."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, use_fast=True).backend_tokenizer
