"""Cutting what is too long: at sentences, then near the middle at clauses, words and, at last, characters."""

from __future__ import annotations

import re

from rag_cluster.chunking.boundaries import sentences
from rag_cluster.domain.ports import Tokenizer

_CLAUSE = re.compile(r"(?<=[，、：:；;,)）】」』”])\s*|\s+(?=[(（【「『“])|\n\s*")
_BLANK = re.compile(r"\s+")
# A token is hardly ever longer on average; text beyond this is cut without being counted first.
_CHARS_PER_TOKEN = 16


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Spans of the sentences with the blanks after them: together, the text from its first visible character on."""
    starts = [start for start, _ in sentences(text)]
    return list(zip(starts, [*starts[1:], len(text)], strict=True)) if starts else []


def sentence_pieces(text: str) -> list[str]:
    """The text cut between sentences; joined, the pieces are the text again but for blanks before it."""
    return [text[start:end] for start, end in sentence_spans(text)]


def fit(text: str, tokens: int, budget: int, tokenizer: Tokenizer) -> list[tuple[str, int]]:
    """Cut one text of `tokens` tokens into (piece, tokens) of at most `budget`, by halving at the best place."""
    todo = [(text, tokens)]
    done: list[tuple[str, int]] = []
    while todo:
        piece, size = todo.pop()
        if size <= budget or len(piece) < 2:
            done.append((piece, size))
            continue
        cut = _cut(piece)
        halves = [half for half in (piece[:cut], piece[cut:]) if half]
        if len(halves) < 2:
            done.append((piece, size))
            continue
        for half in reversed(halves):
            uncounted = len(half) > budget * _CHARS_PER_TOKEN
            todo.append((half, budget + 1 if uncounted else tokenizer.count(half)))
    return done


def _cut(text: str) -> int:
    """Where to halve: the clause end nearest to the middle in the middle half, else a blank there, else the middle."""
    middle = len(text) // 2
    reach = max(1, len(text) // 4)
    # Of a very long text only the surroundings of its middle are searched.
    low, high = max(1, middle - min(reach, 2000)), min(len(text) - 1, middle + min(reach, 2000))
    for boundary in (_CLAUSE, _BLANK):
        ends = [match.end() for match in boundary.finditer(text, low, high) if low <= match.end() <= high]
        if ends:
            return min(ends, key=lambda end: abs(end - middle))
    return middle
