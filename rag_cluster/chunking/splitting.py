"""Cutting what is too long: at sentences, then evenly at clauses, words and, at last, characters."""

from __future__ import annotations

import itertools
import math
import re

from rag_cluster.chunking.boundaries import sentences
from rag_cluster.domain.ports import Tokenizer

_CLAUSE = re.compile(r"(?<=[，、：:；;,)）】」』”])\s*|(?<!\s)\s+(?=[(（【「『“])|\n\s*")
_BLANK = re.compile(r"\s+")


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Spans of the sentences with the blanks after them: together, the text from its first visible character on."""
    starts = [start for start, _ in sentences(text)]
    return list(zip(starts, [*starts[1:], len(text)], strict=True)) if starts else []


def sentence_pieces(text: str) -> list[str]:
    """The text cut between sentences; joined, the pieces are the text again but for blanks before it."""
    return [text[start:end] for start, end in sentence_spans(text)]


def fit(text: str, tokens: int, budget: int, tokenizer: Tokenizer) -> list[tuple[str, int]]:
    """Cut one text of `tokens` tokens into (piece, tokens), none over `budget` unless it is a single character.

    Pieces aim at a quarter of the budget, so that hardly one is counted twice and chunks still fill well.
    """
    todo = [(text, tokens)]
    done: list[tuple[str, int]] = []
    while todo:
        piece, size = todo.pop()
        if size <= budget or len(piece) < 2:
            done.append((piece, size))
            continue
        parts = _parts(piece, min(len(piece), math.ceil(4 * size / budget)))
        todo.extend(reversed(list(zip(parts, tokenizer.count_many(parts), strict=True))))
    return done


def _parts(text: str, number: int) -> list[str]:
    """The text in about `number` parts of about the same length, cut at the best places near to even ones."""
    width = len(text) / number
    cuts = [0]
    for ordinal in range(1, number):
        aim = round(ordinal * width)
        low, high = max(cuts[-1] + 1, aim - int(width / 2)), min(len(text) - 1, aim + int(width / 2))
        if low <= high:
            cuts.append(_cut(text, low, min(max(aim, low), high), high))
    return [text[start:end] for start, end in itertools.pairwise([*cuts, len(text)])]


def _cut(text: str, low: int, aim: int, high: int) -> int:
    """Where to cut in low..high: the clause end nearest to the aim, else the nearest blank, else the aim itself."""
    for boundary in (_CLAUSE, _BLANK):
        ends = [match.end() for match in boundary.finditer(text, low - 1, high) if low <= match.end() <= high]
        if ends:
            return min(ends, key=lambda end: abs(end - aim))
    return aim
