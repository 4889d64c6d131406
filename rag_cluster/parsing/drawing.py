"""DrawingML shared by the office formats: charts as grids, SmartArt as nested lines, pictures as assets."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image, UnidentifiedImageError

from rag_cluster.domain.blocks import BlockType, SourceLocator
from rag_cluster.errors import CorruptDocumentError, EncryptedDocumentError
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.equations import equation_text
from rag_cluster.parsing.limits import MIB, SMALL_PIXELS
from rag_cluster.parsing.number_format import NumberFormat
from rag_cluster.parsing.ooxml import Package, alternatives, find, local_name, qn
from rag_cluster.parsing.superscripts import superscript

_RUN, _TEXT, _RUN_PROPERTIES = qn("a:r"), qn("a:t"), qn("a:rPr")
MAX_CHART_ROWS = 500
MAX_PICTURE_BYTES = 32 * MIB
_MEDIA_TYPES = {
    ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".jpe": "image/jpeg", ".gif": "image/gif",
    ".bmp": "image/bmp", ".tif": "image/tiff", ".tiff": "image/tiff", ".webp": "image/webp", ".svg": "image/svg+xml",
    ".emf": "image/emf", ".wmf": "image/wmf", ".jfif": "image/jpeg",
}  # fmt: skip
_FILE_NAME = re.compile(r"[^\n]*\.(?:png|jpe?g|gif|bmp|tiff?|emf|wmf|svg|webp)", re.IGNORECASE)
_GENERATED = ("description automatically generated", "ai-generated content may be incorrect", "自动生成")


def paragraph_text(paragraph: Any) -> str:
    """Text of an a:p with its line breaks and equations."""
    return "".join(_run_text(child) if child.tag == _RUN else _inline_text(child) for child in paragraph)


def _run_text(run: Any) -> str:
    raised, parts = False, []
    for child in run:
        if child.tag == _TEXT:
            parts.append(child.text or "")
        elif child.tag == _RUN_PROPERTIES:
            baseline = child.get("baseline", "").rstrip("%")
            raised = baseline.isdecimal() and int(baseline) > 0
        else:
            parts.append(_inline_text(child))
    text = "".join(parts)
    return superscript(text) if raised else text


def _inline_text(node: Any) -> str:
    name = local_name(node)
    if name == "t":
        return node.text or ""
    if name == "r" and node.tag == _RUN:
        return _run_text(node)
    if name == "br":
        return "\n"
    if name == "AlternateContent":
        return next(filter(None, ("".join(map(_inline_text, branch)) for branch in alternatives(node))), "")
    if name in ("oMath", "oMathPara"):
        return equation_text(node)
    # The slide's own number is decoration wherever it stands.
    if name in ("pPr", "rPr", "endParaRPr") or (name == "fld" and node.get("type") == "slidenum"):
        return ""
    return "".join(map(_inline_text, node))


def rich_text(element: Any) -> str:
    """All paragraphs below an element, one a line."""
    return "\n".join(filter(None, (paragraph_text(p).strip() for p in element.iter(qn("a:p")))))


@dataclass(frozen=True, slots=True)
class Chart:
    """What a chart says: titles (of the chart, then of its axes) and its data with series as columns."""

    titles: tuple[str, ...]
    series: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def read_chart(root: Any) -> Chart:
    """A c:chartSpace or cx:chartSpace."""
    if root.tag == qn("cx:chartSpace"):
        return _read_extended_chart(root)
    titles = [_title(title) for title in root.iter(qn("c:title"))]
    columns: list[tuple[str, dict[int, str]]] = []
    categories: dict[int, str] = {}
    for series in root.iter(qn("c:ser")):
        name = " ".join(_cached(find(series, "c:tx")).values()) or f"{len(columns) + 1}"
        for tag in ("c:cat", "c:xVal"):
            categories = {**_cached(find(series, tag)), **categories}
        values = _cached(find(series, "c:val")) or _cached(find(series, "c:yVal"))
        columns.append((name, values))
        if sizes := _cached(find(series, "c:bubbleSize")):
            columns.append((f"{name} (size)", sizes))
    return _grid(titles, columns, categories)


def _grid(titles: Sequence[str], columns: Sequence[tuple[str, dict[int, str]]], categories: dict[int, str]) -> Chart:
    keys = sorted(set(categories).union(*(values for _, values in columns)))[:MAX_CHART_ROWS]
    rows = [("", *(name for name, _ in columns))]
    rows += [(categories.get(key, str(key + 1)), *(values.get(key, "") for _, values in columns)) for key in keys]
    shown = tuple(dict.fromkeys(filter(None, titles)))
    return Chart(shown, tuple(name for name, _ in columns), tuple(rows) if keys else ())


def _title(title: Any) -> str:
    rich = find(title, "c:tx/c:rich")
    return rich_text(rich).replace("\n", " ") if rich is not None else " ".join(_cached(find(title, "c:tx")).values())


def _cached(element: Any) -> dict[int, str]:
    """Index -> displayed value of a data reference. Levels of a multi-level category are joined, outermost first."""
    if element is None:
        return {}
    levels = list(element.iter(qn("c:lvl")))
    if levels:
        return _joined_levels(levels)
    code = next(element.iter(qn("c:formatCode")), None)
    number = NumberFormat(code.text or "General") if code is not None else None
    found: dict[int, str] = {}
    for point in element.iter(qn("c:pt")):
        text = "".join(v.text or "" for v in point.iter(qn("c:v")))
        own = point.get("formatCode")
        shown = NumberFormat(own) if own else number
        found[_index(point)] = shown.display(text) if shown else text
    direct = find(element, "c:v")
    return found or ({0: direct.text or ""} if direct is not None else {})


def _index(point: Any) -> int:
    text = point.get("idx", "0")
    return int(text) if text.isdecimal() else 0


def _joined_levels(levels: Sequence[Any]) -> dict[int, str]:
    tables = [{_index(pt): "".join(v.text or "" for v in pt.iter(qn("c:v"))) for pt in level} for level in levels]
    joined: dict[int, str] = {}
    for key in tables[0]:
        # An outer label stands once, at the first of the points that it covers.
        outer = [table[max(k for k in table if k <= key)] for table in tables[:0:-1] if any(k <= key for k in table)]
        joined[key] = " / ".join(filter(None, [*outer, tables[0][key]]))
    return joined


def _read_extended_chart(root: Any) -> Chart:
    titles = [rich_text(title).replace("\n", " ") for title in root.iter(qn("cx:title"))]
    categories: dict[int, str] = {}
    columns: list[tuple[str, dict[int, str]]] = []
    names = ["".join(v.text or "" for v in tx.iter(qn("cx:v"))) for tx in root.iter(qn("cx:tx"))]
    for data in root.iter(qn("cx:data")):
        for dimension in data:
            points = {_index(pt): pt.text or "" for pt in dimension.iter(qn("cx:pt"))}
            if local_name(dimension) == "strDim":
                categories = {**points, **categories}
            else:
                columns.append((names[len(columns)] if len(columns) < len(names) else "", points))
    return _grid(titles, columns, categories)


def add_chart(builder: BlockBuilder, root: Any, locator: SourceLocator, *, data: bool = True) -> None:
    """A chart's titles as TEXT and its data as TABLE; without data the series' names join the titles."""
    chart = read_chart(root)
    titles = list(chart.titles) + ([] if data else [name for name in chart.series if not name.isdecimal()])
    if titles:
        builder.add(BlockType.TEXT, "\n".join(titles), locator, {"role": "chart"})
    if data and chart.rows:
        caption = chart.titles[0] if chart.titles else ""
        builder.table(chart.rows, 1, locator, chart=True, **({"caption": caption} if caption else {}))


def diagram_lines(root: Any) -> list[tuple[int, str]]:
    """(level, text) of a SmartArt's data model, in its order."""
    points = {point.get("modelId"): point for point in root.iter(qn("dgm:pt"))}
    children: dict[str, list[tuple[int, str]]] = {}
    for link in root.iter(qn("dgm:cxn")):
        if link.get("type", "parOf") == "parOf":
            order = link.get("srcOrd", "0")
            children.setdefault(link.get("srcId"), []).append(
                (int(order) if order.isdecimal() else 0, link.get("destId"))
            )
    lines: list[tuple[int, str]] = []
    seen: set[str] = set()
    stack = [(key, -1) for key, point in points.items() if point.get("type") == "doc"][::-1]
    while stack:
        key, level = stack.pop()
        if key in seen or key not in points:
            continue
        seen.add(key)
        lines += [(max(level, 0), text) for text in [_point_text(points[key])] if text]
        stack += [(child, level + 1) for _, child in sorted(children.get(key, []), reverse=True)]
    loose = (
        point for key, point in points.items() if key not in seen and point.get("type", "node") in ("node", "asst")
    )
    return lines + [(0, text) for text in map(_point_text, loose) if text]


def _point_text(point: Any) -> str:
    properties = find(point, "dgm:prSet")
    if properties is not None and properties.get("phldr") == "1" and point.get("type", "node") != "doc":
        return ""  # the prompt "[Text]" of a place that nobody filled
    text = find(point, "dgm:t")
    return "" if text is None else rich_text(text).replace("\n", " ")


def add_diagram(builder: BlockBuilder, root: Any, locator: SourceLocator) -> None:
    """SmartArt as LIST items."""
    for level, text in diagram_lines(root):
        builder.add(BlockType.LIST, text, locator, {"level": level, "marker": "•", "diagram": True})


def alt_text(properties: Any) -> str:
    """Alternative text of a cNvPr or docPr: the description, without what a program appended or put in its place."""
    if properties is None:
        return ""
    lines = (properties.get("descr") or "").splitlines()
    kept = [line for line in lines if not any(mark in line.lower() for mark in _GENERATED)]
    text = " ".join(" ".join(kept).split())
    # Programs put the name of the file there.
    return ("" if _FILE_NAME.fullmatch(text) else text) or " ".join((properties.get("title") or "").split())


def is_decorative(properties: Any) -> bool:
    """Whether the author marked the object as decoration."""
    mark = None if properties is None else next(properties.iter(qn("adec:decorative")), None)
    return mark is not None and mark.get("val") in ("1", "true")


def add_picture(
    builder: BlockBuilder,
    package: Package,
    part: str,
    *,
    caption: str = "",
    text: str = "",
    locator: SourceLocator = SourceLocator(),
) -> bool:
    """An IMAGE block of a media part; False when it is too small to say anything, too large or unreadable."""
    suffix = "." + part.rpartition(".")[2].lower()
    media_type = _MEDIA_TYPES.get(suffix)
    if media_type is None or not package.has(part):
        return False
    try:
        content = package.read(part)
    except (CorruptDocumentError, EncryptedDocumentError) as error:
        builder.warn(f"A picture was left out: {error}")
        return False
    if len(content) > MAX_PICTURE_BYTES:
        builder.warn(f"A picture of {len(content)} bytes was left out: {part}")
        return False
    size = _pixels(content) if media_type not in ("image/emf", "image/wmf", "image/svg+xml") else None
    if size and size[0] * size[1] > package.limits.max_image_pixels:
        builder.warn(f"A picture of {size[0]} x {size[1]} pixels was left out: {part}")
        return False
    if size and min(size) < SMALL_PIXELS and not caption and not text:
        return False
    width, height = size or (None, None)
    builder.image(content, media_type, caption=caption, text=text, width=width, height=height, locator=locator)
    return True


def _pixels(content: bytes) -> tuple[int, int] | None:
    # Only the header is read here; a bomb is found before it is decoded.
    try:
        with Image.open(io.BytesIO(content)) as image:
            return image.size
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
