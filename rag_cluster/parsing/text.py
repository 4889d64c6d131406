"""Plain text: paragraphs between blank lines, chapters where they are unmistakable."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rag_cluster.domain.blocks import BlockType, DocumentSource, ParsedDocument, SourceLocator
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.encoding import decode_text
from rag_cluster.parsing.limits import ParseLimits

MAX_BLOCK_CHARS = 4000
"""A longer run of lines without a blank one (a log, a dump) is cut between lines."""

_NUMBER = "[一二三四五六七八九十百千零〇两\\d]+"
_CHAPTER = re.compile(
    rf"第{_NUMBER}[章篇卷部](?:[\s　:：、].{{0,40}})?|(?:Chapter|CHAPTER)\s+(?:\d+|[IVXLC]+)\b.{{0,60}}"
)
_SECTION = re.compile(rf"第{_NUMBER}节(?:[\s　:：、].{{0,40}})?")
_UNDERLINE = re.compile(r"(={3,}|-{3,})")
_SENTENCE_END = re.compile(r"[。！？；，,;.…]$|\.{3,}|\s\d+$")


class TextParser:
    """TXT in any encoding. TEXT blocks with line_start and line_end; line breaks inside a paragraph stay."""

    name = "text"
    version = "1"
    extensions = frozenset({".txt", ".text", ".log"})

    def __init__(self, *, limits: ParseLimits = ParseLimits()) -> None:
        self._limits = limits

    def parse(self, source: DocumentSource) -> ParsedDocument:
        """EmptyDocumentError when there is only white space."""
        text, encoding = decode_text(Path(source.path).read_bytes())
        builder = BlockBuilder(source)
        for first, lines in _paragraphs(text):
            _add(builder, first, lines)
        return builder.build({"encoding": encoding})


def split_lines(text: str) -> list[str]:
    """Physical lines (\\n, \\r\\n, \\r), without NUL characters, so that line numbers are those of an editor."""
    return text.replace("\x00", "").replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _paragraphs(text: str) -> Iterator[tuple[int, list[str]]]:
    """(number of the first line, lines) of every run of lines that are not blank."""
    run: list[str] = []
    size = 0
    number = 0
    for number, line in enumerate(split_lines(text), 1):
        blank = not line.strip()
        if run and (blank or size + len(line) > MAX_BLOCK_CHARS):
            yield number - len(run), run
            run, size = [], 0
        if not blank:
            run.append(line.rstrip())
            size += len(line)
    if run:
        yield number + 1 - len(run), run


def _add(builder: BlockBuilder, first: int, lines: list[str]) -> None:
    """A paragraph; headings can only stand at its beginning."""
    while lines and (found := _heading(lines)) is not None:
        level, height = found
        builder.heading(lines[0], level, SourceLocator(line_start=first, line_end=first + height - 1))
        first, lines = first + height, lines[height:]
    if lines:
        locator = SourceLocator(line_start=first, line_end=first + len(lines) - 1)
        builder.add(BlockType.TEXT, "\n".join(lines), locator)


def _heading(lines: list[str]) -> tuple[int, int] | None:
    """(level, lines that it takes) when the first line is a chapter, a section or underlined."""
    line = lines[0].strip()
    if len(lines) > 1 and (rule := _UNDERLINE.fullmatch(lines[1].strip())) and len(line) <= 80:
        return (1 if rule[0][0] == "=" else 2), 2
    if _SENTENCE_END.search(line):
        return None
    if _CHAPTER.fullmatch(line):
        return 1, 1
    return (2, 1) if _SECTION.fullmatch(line) else None
