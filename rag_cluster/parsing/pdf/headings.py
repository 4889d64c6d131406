"""Headings and their levels: structure tags, then the outline, then typography and numbering of the document."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from rag_cluster.domain.blocks import BlockType
from rag_cluster.parsing.pdf.lines import body_style
from rag_cluster.parsing.pdf.paragraphs import Paragraph, join_texts

CAPTION = re.compile(
    r"^(?:table|tab\.|figure|fig\.|exhibit|chart|listing|algorithm|tabelle|abbildung|abb\.|tableau|scheme|box)\s*[A-Z]{0,3}[-.]?\d"
    r"|^(?:[图表]|附表|附图|図)\s*[A-Z]?\d",
    re.IGNORECASE,
)
_NUMBERED = re.compile(
    r"^(?:(?:section|chapter|part|appendix)\s+)?(\d{1,2}(?:\.\d{1,2}){0,4})\.?[\s\u3000]+(?=[^\d\s.,%])", re.I
)
_CHINESE = re.compile(r"^第[一二三四五六七八九十百\d]+([章节篇部条])")
_LEADERS = re.compile(r"(?:[.·…]\s*){4,}\s*\S{0,6}$")
_LETTER = re.compile(r"[^\W\d_]")
_CJK = re.compile("[\u3400-\u9fff]")


def mark(
    paragraphs: Sequence[Paragraph],
    outline: Mapping[tuple[int, str], int],
    tags: Mapping[int, Mapping[int, int]],
    settled: Mapping[int, Collection[int]] = MappingProxyType({}),
) -> None:
    """Turn paragraphs into headings, in place.

    outline: (page, squeezed title) -> level; tags: page -> marked content id -> level; settled: page -> ids that
    tags say to be something else, whatever they look like.
    """
    body, body_bold = body_style([line for paragraph in paragraphs for line in paragraph.lines])
    styles: Counter[tuple[float, bool]] = Counter()
    found: list[Paragraph] = []
    explicit: dict[int, int] = {}
    for index, paragraph in enumerate(paragraphs):
        level = _explicit_level(paragraph, outline, tags)
        if level is None and (
            paragraph.first.mcid in settled.get(paragraph.pages[0], ())
            or not _looks_like_heading(paragraph, body, body_bold, paragraphs, index)
        ):
            continue
        if level is not None:
            explicit[id(paragraph)] = level
        found.append(paragraph)
        styles[_style(paragraph)] += 1
    ranks = {style: rank for rank, style in enumerate(sorted(styles, reverse=True), 1)}
    base = min((ranks[_style(p)] for p in found if numbering_depth(full_text(p)) == 1), default=1)
    for paragraph in found:
        depth = numbering_depth(full_text(paragraph))
        level = explicit.get(id(paragraph)) or (base + depth - 1 if depth else ranks[_style(paragraph)])
        paragraph.text = full_text(paragraph)
        paragraph.kind, paragraph.level, paragraph.marker = BlockType.HEADING, min(max(level, 1), 6), ""


def full_text(paragraph: Paragraph) -> str:
    """Text with its list marker: "2. Scope" is a numbered heading, once it is known to be one."""
    return join_texts((paragraph.marker, paragraph.text))


def squeeze(text: str) -> str:
    """For comparing titles: letters and digits only, lower case."""
    return re.sub(r"[\W_]+", "", text).lower()


def numbering_depth(text: str) -> int:
    """1 for "2 Scope", 2 for "2.1 Terms"; 0 without a number."""
    match = _NUMBERED.match(text)
    if match is None:
        return 0
    return match[1].count(".") + 1


def _style(paragraph: Paragraph) -> tuple[float, bool]:
    return (round(paragraph.first.size), paragraph.first.bold)


def _explicit_level(
    paragraph: Paragraph, outline: Mapping[tuple[int, str], int], tags: Mapping[int, Mapping[int, int]]
) -> int | None:
    page = paragraph.pages[0]
    level = tags.get(page, {}).get(paragraph.first.mcid) if paragraph.first.mcid >= 0 else None
    if level is not None and len(paragraph.text) > 300:
        return None
    if level is not None or len(paragraph.lines) > 4 or paragraph.kind not in (BlockType.TEXT, BlockType.LIST):
        return level
    if not outline:
        return None
    text = squeeze(full_text(paragraph))
    level = outline.get((page, text))
    if level is None:
        level = outline.get((page, re.sub(r"^\d+", "", text))) if numbering_depth(full_text(paragraph)) else None
    return level


def _looks_like_heading(
    paragraph: Paragraph, body: float, body_bold: bool, paragraphs: Sequence[Paragraph], index: int
) -> bool:
    text, first = full_text(paragraph), paragraph.first
    if (
        paragraph.kind not in (BlockType.TEXT, BlockType.LIST)
        or len(paragraph.lines) > 4
        or paragraph.metadata
        or first.mono
    ):
        return False
    if len(text) > 160:
        return False
    letters = len(_LETTER.findall(text))
    limit = 60 if len(_CJK.findall(text)) > 0.3 * len(text) else 160
    if (
        letters < 2
        or len(text) > limit
        or CAPTION.match(text)
        or _LEADERS.search(text)
        or letters < 0.4 * len(text.replace(" ", ""))
    ):
        return False
    if paragraph.kind is BlockType.LIST and not (
        numbering_depth(text) or re.match(r"^[\dA-Z一二三四五六七八九十（(]", text)
    ):
        return False
    if index + 1 == len(paragraphs) and len(paragraphs) > 3:
        return False
    return _typography(text, first.size / body, first.bold and not body_bold, first.italic, paragraph)


def _typography(text: str, ratio: float, bold: bool, italic: bool, paragraph: Paragraph) -> bool:
    numbered = numbering_depth(text) > 0 or _CHINESE.match(text) is not None
    ends = text.rstrip().endswith((".", "。", ",", "，", ";", "；"))
    if ratio >= 1.15:
        return not (ends and len(text) > 90)
    if ratio < (0.85 if bold and numbered else 0.94):
        return False
    if bold:
        return not ends or numbered or (len(text) < 80 and len(paragraph.lines) == 1 and text[-1] == ".")
    caps = text.isupper() and len(text) > 3 and len(paragraph.lines) <= 2
    if numbered and not ends:
        return ratio >= 1.04 or italic or caps
    return caps and not ends and not paragraph.marker
