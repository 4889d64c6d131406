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
_TITLE = r"(?:[\s　:：、](?P<title>.{0,40}))?"
_GLUED = r"(?P<glued>[^\s，。；：！？、,;:.!?“”\"（）()]{1,16})"
"""A title right behind its number: short, and without anything that a sentence has."""
_CHAPTER = re.compile(rf"第{_NUMBER}[章篇卷部编編回]{_TITLE}|第{_NUMBER}(?:章|编|編|回(?!合)){_GLUED}")
_SECTION = re.compile(rf"第{_NUMBER}[节節]{_TITLE}|第{_NUMBER}[节節]{_GLUED}")
_KOREAN = re.compile(rf"제\s*\d+\s*(?P<kind>[편장절]){_TITLE}")
_ENGLISH = re.compile(
    r"(?:Chapter|CHAPTER|Part|PART|Appendix|APPENDIX)\s+(?:\d+|[IVXLC]+|[A-Z]|One|Two|Three|Four|Five|Six|Seven|Eight|Nine|Ten)"
    r"(?:\s*[.:–—-]\s*(?P<title>\S.{0,60})|\s+(?P<glued>[A-Z\"'“].{0,60}))?"
)
_APPENDIX = re.compile(rf"(?:附录|附錄|附件)\s*[A-Z\d一二三四五六七八九十]{{0,3}}{_TITLE}")
_OPENING = re.compile(
    "(?:自?序|序言|前言|引言|导言|導言|导读|绪论|緒論|绪言|楔子|引子|尾声|尾聲|结语|結語|后记|後記|跋|はじめに|おわりに|まえがき|あとがき)"
)
_UNDERLINE = re.compile(r"(={3,}|-{3,})")
_SENTENCE_END = re.compile(r"[。！？；，,;.…]$|\.{3,}|\s\d+$")


class TextParser:
    """TXT in any encoding. TEXT blocks with line_start and line_end; line breaks inside a paragraph stay."""

    name = "text"
    version = "4"
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
    """(number of the first line, lines) of every run of lines that neither a blank one nor a page break parts."""
    run: list[str] = []
    size = first = 0
    for number, line in enumerate(split_lines(text), 1):
        for index, piece in enumerate(line.split("\f")):
            blank = not piece.strip()
            if run and (blank or index or size + len(piece) > MAX_BLOCK_CHARS or _opens_chapter(run[-1], piece)):
                yield first, run
                run, size = [], 0
            if not blank:
                first = first if run else number
                run.append(piece.rstrip())
                size += len(piece)
    if run:
        yield first, run


def _opens_chapter(above: str, line: str) -> bool:
    """Whether a chapter begins although no blank line stands before it, as in many Chinese books."""
    ends = above.rstrip()[-1:] in "。！？”」』…" or _level(above.strip()) is not None
    return line.strip()[:1] == "第" and ends and _level(line.strip()) is not None


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
    level = _level(line)
    return None if level is None else (level, 1)


def _level(line: str) -> int | None:
    """1 for a chapter's line, 2 for a section's, None for any other."""
    if len(line) > 80:
        return None
    if _OPENING.fullmatch(re.sub(r"\s", "", line)):
        return 1
    for pattern, level in ((_CHAPTER, 1), (_SECTION, 2), (_APPENDIX, 1), (_ENGLISH, 1), (_KOREAN, 1)):
        if found := pattern.fullmatch(line):
            # A number alone ends like a line of a table of contents, but is none.
            titled = any(found.groupdict().get(name) for name in ("title", "glued"))
            if titled and _SENTENCE_END.search(line):
                return None
            return 2 if found.groupdict().get("kind") == "절" else level
    return None
