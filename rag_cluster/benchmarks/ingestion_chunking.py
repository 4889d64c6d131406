"""How fast the chunking strategies are: characters against seed 002's times, tokens against the bare tokenizer."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rag_cluster.benchmarks.ingestion_corpus import paragraph_texts
from rag_cluster.benchmarks.measure import best_of
from rag_cluster.chunking.registry import create_chunker
from rag_cluster.domain.blocks import Block, BlockType, ParsedDocument
from rag_cluster.domain.ports import Tokenizer
from rag_cluster.engines.registry import create_embedder
from rag_cluster.engines.tokenizers import RegexTokenizer

CHARACTERS = 10_000
PUBLISHED = {"fixed_size": 10.0, "paragraph": 20.0, "sentence": 50.0, "recursive": 100.0}
"""Milliseconds of seed 002 for `CHARACTERS`; ours must take a tenth."""
TIMES_FASTER = 10
MOST_TOKENISING = 1.5
REPEATS = 10


@dataclass(frozen=True, slots=True)
class ChunkSpeed:
    """One strategy on one language, in CPU milliseconds for 10,000 characters."""

    strategy: str
    language: str
    milliseconds: float
    target: float
    reference: str
    chunks: int

    @property
    def ok(self) -> bool:
        """Whether it is within its target."""
        return self.milliseconds <= self.target


def measure(rounds: int, embedder: str) -> list[ChunkSpeed]:
    """Every strategy, English and Chinese. Token mode counts with the tokenizer of `embedder`."""
    speeds: list[ChunkSpeed] = []
    counter = create_embedder(embedder).tokenizer
    for language in ("English", "Chinese"):
        document = _document(language)
        for strategy, published in PUBLISHED.items():
            target = published / TIMES_FASTER
            speeds.append(_character_mode(strategy, language, document, target, rounds))
        speeds.append(_token_mode(language, document, counter, rounds))
    return speeds


def _character_mode(strategy: str, language: str, document: ParsedDocument, target: float, rounds: int) -> ChunkSpeed:
    chunker = create_chunker(strategy, {}, RegexTokenizer())
    split = partial(chunker.split, document, knowledge_base_id="kb", fingerprint="f")
    best = best_of({"split": _repeated(split)}, rounds)["split"] / REPEATS
    return ChunkSpeed(strategy, language, best * 1000, target, f"seed 002 / {TIMES_FASTER}", len(split().chunks))


def _token_mode(language: str, document: ParsedDocument, tokenizer: Tokenizer, rounds: int) -> ChunkSpeed:
    chunker = create_chunker("structured", {}, tokenizer)
    texts = [block.content for block in document.blocks]
    tokenizer.count_many(texts[:1])
    split = partial(chunker.split, document, knowledge_base_id="kb", fingerprint="f")
    count: Callable[[], object] = partial(tokenizer.count_many, texts)
    best = best_of({"split": _repeated(split), "count": _repeated(count)}, rounds)
    target = MOST_TOKENISING * best["count"] / REPEATS
    reference = f"{MOST_TOKENISING} x {tokenizer.name} counting the same blocks"
    milliseconds = best["split"] / REPEATS * 1000
    return ChunkSpeed("structured (tokens)", language, milliseconds, target * 1000, reference, len(split().chunks))


def _repeated(work: Callable[[], object]) -> Callable[[], None]:
    def repeat() -> None:
        for _ in range(REPEATS):
            work()

    return repeat


def _document(language: str) -> ParsedDocument:
    source = random.Random(language)  # noqa: S311 - texts, not secrets
    texts = paragraph_texts(source, CHARACTERS, chinese=language == "Chinese")
    blocks = [Block(f"00000000-0000-5000-8000-{n:012}", BlockType.TEXT, text) for n, text in enumerate(texts)]
    return ParsedDocument("00000000-0000-5000-8000-000000000000", 1, tuple(blocks))
