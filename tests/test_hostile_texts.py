"""What reads documents' text outside the parsers' children takes time in proportion to its length, whatever it says."""

from __future__ import annotations

import gc
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
MARK = "[Source 1](citation://1)"
SHAPES: dict[str, Callable[[int], str]] = {
    "links in links": lambda size: "[" * size + "x" + "](citation://1)" * size,
    "labels in labels": lambda size: "[" * size + "Source 1" + "]" * size,
    "a tag's beginning": lambda size: "<" + " " * size,
    "blanks behind a mark": lambda size: MARK + " " * size + "x",
    "blanks behind a digit": lambda size: "1" + " " * size + "x",
    "an amount of money": lambda size: "$" + "1," * size,
    "units in brackets": lambda size: "(" + "万" * size,
}
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
    """Of processor time, without what is collected meanwhile of other tests' objects."""
    gc.disable()
    try:
        start = time.thread_time()
        read(text)
        return time.thread_time() - start
    finally:
        gc.enable()


def takes_linear_time(read: Callable[[str], object], short: str, long: str) -> bool:
    read(short)
    allowed = AT_MOST * max(SHORTEST, seconds(read, short))
    return any(seconds(read, long) < allowed for _ in range(3))


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", READERS)
def test_a_text_of_one_thing_repeated_is_read_in_linear_time(name: str, unit: str) -> None:
    repeated = unit * (1000 // len(unit))
    assert takes_linear_time(READERS[name], f"Ab {repeated} cd.", f"Ab {repeated * LONGER} cd.")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["sentences", "claims", "context", "numbers"])
def test_and_so_is_one_that_is_nested_or_never_ends(name: str, shape: str) -> None:
    assert takes_linear_time(READERS[name], SHAPES[shape](1000), SHAPES[shape](1000 * LONGER))
