from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from rag_cluster.chunking.registry import CHUNKERS, create_chunker
from rag_cluster.domain.blocks import BlockType, ParsedDocument
from rag_cluster.engines.hashing import HashEmbedder
from rag_cluster.engines.tokenizers import RegexTokenizer
from rag_cluster.errors import InvalidSettingError
from tests.chunking.documents import builder, documents, is_subsequence, visible, words_of

TOKENIZER = RegexTokenizer()
FLAT = sorted(set(CHUNKERS) - {"structured"})


def contents(name: str, document: ParsedDocument, **parameters: float) -> list[str]:
    chunker = create_chunker(name, parameters, TOKENIZER, HashEmbedder())
    return [c.content for c in chunker.split(document, knowledge_base_id="kb", fingerprint="fp").chunks]


def text_document(text: str) -> ParsedDocument:
    parts = builder()
    parts.add(BlockType.TEXT, text)
    return parts.build()


@pytest.mark.parametrize("name", FLAT)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(document=documents())
def test_no_text_is_lost(name: str, document: ParsedDocument) -> None:
    everything = visible("".join(contents(name, document)))
    assert is_subsequence("".join(words_of(b) for b in document.blocks), everything)


@pytest.mark.parametrize("name", FLAT)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(document=documents())
def test_no_chunk_is_larger_than_the_size(name: str, document: ParsedDocument) -> None:
    size = {"max_size": 100, "min_size": 20} if name == "semantic" else {"size": 100}
    assert all(len(content) <= 100 for content in contents(name, document, **size))


def test_fixed_size_windows_overlap_by_the_given_characters() -> None:
    found = contents("fixed_size", text_document("0123456789" * 3), size=12, overlap=2)
    assert found == ["012345678901", "012345678901", "0123456789"]


def test_sentences_are_whole_and_limited_in_number() -> None:
    text = "第一句。第二句。第三句。The fourth one. The fifth."
    assert contents("sentence", text_document(text), max_sentences=3) == [
        "第一句。第二句。第三句。",
        "The fourth one. The fifth.",
    ]


def test_paragraphs_are_whole_and_limited_in_number() -> None:
    text = "One.\n\nTwo.\n\nThree."
    assert contents("paragraph", text_document(text), max_paragraphs=2) == ["One.\n\nTwo.", "Three."]


def test_recursive_keeps_paragraphs_then_sentences_and_repeats_what_fits_the_overlap() -> None:
    text = "Aa bb. Cc dd. Ee ff.\n\nGg hh. Ii jj."
    assert contents("recursive", text_document(text), size=16, overlap=8) == [
        "Aa bb. Cc dd.",
        "Cc dd. Ee ff.",
        "Gg hh. Ii jj.",
    ]


def test_semantic_cuts_where_the_subject_changes() -> None:
    text = "Cats eat fish. Cats like fish. Ships carry cargo. Ships move cargo."
    assert contents("semantic", text_document(text), threshold=0.3, min_size=10, max_size=200) == [
        "Cats eat fish. Cats like fish.",
        "Ships carry cargo. Ships move cargo.",
    ]


def test_a_strategys_own_class_is_accepted_by_name() -> None:
    chunker = create_chunker("tests.chunking.test_strategies:OwnChunker", {"size": 3}, TOKENIZER)
    assert (chunker.name, chunker.parameters) == ("own", {"size": 3})


class OwnChunker:
    name = "own"

    def __init__(self, tokenizer: object, embedder: object, parameters: dict[str, int]) -> None:
        self.parameters = parameters


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InvalidSettingError, match=r"structured, recursive, .*module:Class"):
        create_chunker("clever", {}, TOKENIZER)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("recursive", {"size": 10, "overlap": 10}),
        ("recursive", {"colour": 3}),
        ("sentence", {"size": 0}),
        ("semantic", {}),
    ],
)
def test_impossible_parameters_are_refused(name: str, parameters: dict[str, int]) -> None:
    with pytest.raises(InvalidSettingError):
        create_chunker(name, parameters, TOKENIZER)
