"""What reads documents' text outside the parsers' children takes time in proportion to its length, whatever it says."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from rag_cluster.answering.claims import check_claims
from rag_cluster.answering.context import escape
from rag_cluster.chunking.boundaries import sentences
from rag_cluster.chunking.registry import create_chunker
from rag_cluster.chunking.splitting import fit
from rag_cluster.domain.blocks import BlockType, DocumentSource
from rag_cluster.domain.numerals import numbers
from rag_cluster.domain.terms import terms
from rag_cluster.engines.tokenizers import RegexTokenizer
from rag_cluster.parsing.base import BlockBuilder

TOKENIZER = RegexTokenizer()
UNITS = (" ", "\n", " \n", "\u3000", ".", "!)", "A. ", "[", "1,", "| - ", "，", "中", "Inc. (", "【来源1、")
LONGER = 20
AT_MOST = 60
"""Times as long for a text LONGER times as long; squares of it would be 400 times."""
SHORTEST = 0.002
"""Seconds of processor time below which nothing is measured."""


def chunked(strategy: str) -> Callable[[str], object]:
    chunker = create_chunker(strategy, {}, TOKENIZER)

    def run(text: str) -> object:
        parts = BlockBuilder(DocumentSource("doc", 1, "f.txt", "f.txt"))
        parts.add(BlockType.TEXT, text)
        parts.table([["a", "b"], [text, "c"]], 1)
        return chunker.split(parts.build(), knowledge_base_id="kb", fingerprint="f")

    return run


READERS: dict[str, Callable[[str], object]] = {
    "sentences": sentences,
    "fit": lambda text: fit(text, 40, 32, TOKENIZER),
    "claims": lambda text: check_claims(text, []),
    "context": escape,
    "terms": terms,
    "numbers": lambda text: list(numbers(text)),
    **{name: chunked(name) for name in ("structured", "recursive", "sentence", "paragraph", "fixed_size")},
}


def seconds(read: Callable[[str], object], text: str) -> float:
    start = time.thread_time()
    read(text)
    return time.thread_time() - start


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", READERS)
def test_a_text_of_one_thing_repeated_is_read_in_linear_time(name: str, unit: str) -> None:
    read = READERS[name]
    repeated = unit * (1000 // len(unit))
    short, long = f"Ab {repeated} cd.", f"Ab {repeated * LONGER} cd."
    read(short)
    allowed = AT_MOST * max(SHORTEST, seconds(read, short))
    assert any(seconds(read, long) < allowed for _ in range(3))
