"""Cuts evidence into the smallest pieces that can be quoted: sentences, list items, table rows, pieces of code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rag_cluster.domain.answers import ContextSource
from rag_cluster.domain.marks import without_marks

Sentences = Callable[[str], list[tuple[int, int]]]
"""text -> spans (start, end) of its sentences; `chunking.boundaries.sentences`."""

MAX_UNIT_CHARS = 600
_FENCE = re.compile(r"^\s*(```|~~~)")
_TABLE_LINE = re.compile(r"^\s*\|.*\|\s*$")
_TABLE_RULE = re.compile(r"^\s*\|(?:\s*:?-{1,}:?\s*\|)+\s*$")
_LIST_ITEM = re.compile(r"^\s*(?:[-*+•·]|\d+[.)、]|[(（]\d+[)）]|[a-zA-Z][.)])\s+")
_CELL = re.compile(r"(?<!\\)\|")
_SOFT_BREAK = re.compile(r"[,，;；、:：\s]")


@dataclass(frozen=True, slots=True)
class Unit:
    """A quotable piece of one source."""

    source: int
    """Number of its source (1-based)."""
    chunk: int
    """Position of its matched chunk inside the source."""
    position: int
    """Order inside the chunk."""
    block: int
    """Which paragraph, list item, table or code of the chunk it is from."""
    quote: str
    """Literal text; for a table row the row alone."""
    meaning: str
    """What is compared with the question: for a table row "header: cell; header: cell"."""
    heading: str = ""
    header: str = ""
    """Table header lines with the rule below them; "" for everything else."""

    @property
    def is_item(self) -> bool:
        """Whether it begins a list item."""
        return _LIST_ITEM.match(self.quote) is not None

    @property
    def is_row(self) -> bool:
        """Whether it is a table row."""
        return bool(self.header)


def units_of(sources: Sequence[ContextSource], sentences: Sentences) -> list[Unit]:
    """Units of the matched chunks (not of whole parents) in source order, the same text once."""
    found: list[Unit] = []
    seen: set[tuple[str, str]] = set()
    for source in sources:
        texts = [(chunk.text, chunk.content[: chunk.prefix_length]) for chunk in source.result.matches]
        for at, (text, heading) in enumerate(texts or [(source.text, "")]):
            for position, (block, quote, meaning, header) in enumerate(_pieces(text, sentences)):
                if (header, quote) not in seen:
                    seen.add((header, quote))
                    found.append(Unit(source.number, at, position, block, quote, meaning, heading, header))
    return found


def _pieces(text: str, sentences: Sentences) -> Iterator[tuple[int, str, str, str]]:
    """(block, quote, meaning, header) of each piece.

    A document's own citation marks are none any more: they are not ours.
    """
    for at, (kind, block) in enumerate(_blocks(without_marks(text))):
        if kind == "table":
            for quote, meaning, header in _rows(block):
                yield at, quote, meaning, header
        elif kind == "code":
            for piece in re.split(r"\n\s*\n", "\n".join(block)):
                for part in _cut(piece.strip("\n"), "\n"):
                    yield at, part, part, ""
        else:
            paragraph = "\n".join(block)
            for start, end in sentences(paragraph):
                for part in _cut(paragraph[start:end].strip(), ""):
                    yield at, part, part, ""


def _blocks(text: str) -> Iterator[tuple[str, list[str]]]:
    """("table" | "code" | "text", lines): runs of table lines, fenced code, list items and paragraphs."""
    kind, block = "text", list[str]()
    for line in text.split("\n"):
        if kind == "code":
            if _FENCE.match(line):
                yield kind, block
                kind, block = "text", []
            else:
                block.append(line)
            continue
        fence, row = _FENCE.match(line), _TABLE_LINE.match(line)
        new_kind = "code" if fence else "table" if row else "text"
        starts = new_kind != kind or not line.strip() or (new_kind == "text" and _LIST_ITEM.match(line))
        if starts and block:
            yield kind, block
            block = []
        kind = new_kind
        if line.strip() and not fence:
            block.append(line)
    if block:
        yield kind, block


def _rows(lines: list[str]) -> Iterator[tuple[str, str, str]]:
    rule = next((i for i, line in enumerate(lines) if _TABLE_RULE.match(line)), None)
    header = lines[: rule + 1] if rule is not None else []
    names = _cells(header[-2]) if len(header) > 1 else []
    rows = lines[len(header) :]
    for row in rows or header[:-1]:
        cells = _cells(row)
        named = [
            f"{names[i]}: {cell}" if i < len(names) and names[i] and names[i] != cell else cell
            for i, cell in enumerate(cells)
            if cell
        ]
        if named:
            yield row.strip(), "; ".join(named), "\n".join(line.strip() for line in header) if rows else ""


def _cells(row: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in _CELL.split(row.strip().strip("|"))]


def _cut(text: str, line_break: str) -> Iterator[str]:
    """Pieces of at most MAX_UNIT_CHARS, cut at line breaks, clauses or spaces where there are any."""
    while len(text) > MAX_UNIT_CHARS:
        window = text[:MAX_UNIT_CHARS]
        at = window.rfind(line_break) if line_break else -1
        if at <= MAX_UNIT_CHARS // 2:
            breaks = [match.end() for match in _SOFT_BREAK.finditer(window) if match.end() > MAX_UNIT_CHARS // 2]
            at = breaks[-1] if breaks else MAX_UNIT_CHARS
        yield text[:at].strip()
        text = text[at:].strip()
    if text:
        yield text
