"""Text bodies of a slide: paragraphs with their list levels, bullets inherited from layout and master."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rag_cluster.domain.blocks import BlockType, SourceLocator
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.counters import format_number
from rag_cluster.parsing.drawing import paragraph_text
from rag_cluster.parsing.ooxml import find, local_name, qn

_MASTER_STYLE = {"title": "p:titleStyle", "ctrTitle": "p:titleStyle", "body": "p:bodyStyle", "obj": "p:bodyStyle",
                 "subTitle": "p:bodyStyle", "": "p:bodyStyle"}  # fmt: skip
_NUMBERS = {"alphaLc": "lowerLetter", "alphaUc": "upperLetter", "romanLc": "lowerRoman", "romanUc": "upperRoman",
            "arabic": "decimal", "ea1ChsPeriod": "chineseCounting", "ea1ChsPlain": "chineseCounting",
            "ea1ChtPeriod": "chineseCounting", "ea1ChtPlain": "chineseCounting", "ea1JpnKorPlain": "chineseCounting",
            "ea1JpnChsDbPeriod": "chineseCounting", "circleNumDbPlain": "decimalEnclosedCircle",
            "circleNumWdWhitePlain": "decimalEnclosedCircle"}  # fmt: skip
_ENDS = {"ParenBoth": "({})", "ParenR": "{})", "Period": "{}.", "Plain": "{}", "Minus": "- {} -"}


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One paragraph; marker is "" where no bullet or number is drawn."""

    text: str
    level: int
    marker: str


def read_paragraphs(body: Any, inherited: Sequence[Any]) -> list[Paragraph]:
    """Paragraphs of a p:txBody. inherited: list styles that apply after the body's own, nearest first."""
    styles = [find(body, "a:lstStyle"), *inherited]
    counters: dict[tuple[int, str], int] = {}
    found: list[Paragraph] = []
    for element in body.findall(qn("a:p")):
        text = paragraph_text(element).strip()
        properties = find(element, "a:pPr")
        level = _level(properties)
        if text:
            marker = _marker(_bullet(properties, level, styles), level, counters)
            found.append(Paragraph(text, level, marker))
    return found


def add_paragraphs(
    builder: BlockBuilder, paragraphs: Sequence[Paragraph], locator: SourceLocator, **metadata: Any
) -> None:
    """Bulleted paragraphs as LIST items, the others of one box joined into TEXT."""
    plain: list[str] = []
    for paragraph in paragraphs:
        if not paragraph.marker:
            plain.append(paragraph.text)
            continue
        builder.add(BlockType.TEXT, "\n".join(plain), locator, metadata)
        plain = []
        marked = {"level": paragraph.level, "marker": paragraph.marker, **metadata}
        builder.add(BlockType.LIST, paragraph.text, locator, marked)
    builder.add(BlockType.TEXT, "\n".join(plain), locator, metadata)


def list_styles(kind: str, layout_shape: Any, master_shape: Any, master: Any) -> list[Any]:
    """List styles that a placeholder inherits: of its layout, of its master, of the master's text styles."""
    styles = [find(other, "p:txBody/a:lstStyle") for other in (layout_shape, master_shape)]
    if kind in _MASTER_STYLE:
        styles.append(find(master, f"p:txStyles/{_MASTER_STYLE[kind]}"))
    return [style for style in styles if style is not None]


def _level(properties: Any) -> int:
    text = "0" if properties is None else properties.get("lvl", "0")
    return min(int(text), 8) if text.isdecimal() else 0


def _bullet(properties: Any, level: int, styles: Sequence[Any]) -> Any:
    """The bu... element that applies, or None."""
    for source in (properties, *(find(style, f"a:lvl{level + 1}pPr") for style in styles)):
        for child in () if source is None else source:
            if local_name(child) in ("buNone", "buChar", "buAutoNum", "buBlip"):
                return child
    return None


def _marker(bullet: Any, level: int, counters: dict[tuple[int, str], int]) -> str:
    for key in [key for key in counters if key[0] > level]:
        del counters[key]
    name = "" if bullet is None else local_name(bullet)
    if name != "buAutoNum":
        for key in [key for key in counters if key[0] == level]:
            del counters[key]
    if name == "buChar":
        char = bullet.get("char", "•")
        return "•" if not char.strip() or "\ue000" <= char[0] <= "\uf8ff" or char in "§ØüvqlnuwÄ" else char
    if name == "buBlip":
        return "•"
    if name != "buAutoNum":
        return ""
    scheme = bullet.get("type", "arabicPeriod")
    start = bullet.get("startAt", "1")
    key = (level, scheme)
    counters[key] = counters.get(key, (int(start) if start.isdecimal() else 1) - 1) + 1
    return _numbered(scheme, counters[key])


def _numbered(scheme: str, value: int) -> str:
    end = next((end for end in _ENDS if scheme.endswith(end)), "Plain")
    stem = scheme if scheme in _NUMBERS else scheme.removesuffix(end)
    return _ENDS[end].format(format_number(value, _NUMBERS.get(stem, "decimal")))
