"""Recognised lines -> paragraphs in the order in which a person reads them.

    pieces -> straightened -> XY cuts (columns, then rows) -> rows -> tables -> paragraphs of the other rows

Heights and gaps are measured in units of the line height, so that the resolution does not matter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from statistics import median

from rag_cluster.domain.blocks import BBox
from rag_cluster.domain.ports import RecognizedLine
from rag_cluster.parsing.scan_tables import find_tables

CJK = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u303f\U00020000-\U0003ffff"
LEVEL = 0.25
"""Degrees of skew below which a page is straight."""
_ENDS_CJK = re.compile(f"[{CJK}]$")
_STARTS_CJK = re.compile(f"^[{CJK}]")
_SENTENCE_END = re.compile(r"[.!?。！？；;:：][\"'”’)）」』]?$")
_ITEM = re.compile(r"^(?:[-•·●○▪◦*–—]\s|\(?\d{1,3}[.)、．]|[（(]?[一二三四五六七八九十]{1,3}[)）、]|[a-z][.)]\s)")


@dataclass(frozen=True, slots=True)
class OcrParagraph:
    """Recognised text that belongs together. bbox in pixels of the given image, top-left origin; confidence 0-1.

    Lines of one paragraph are joined (no blank between Chinese characters, hyphenation undone); rows of a table, or of
    something like one, stay on lines of their own.
    """

    text: str
    bbox: BBox
    confidence: float
    lines: tuple[RecognizedLine, ...]
    rotation: int = 0
    """Degrees clockwise by which the page had to be turned to read it: 0, 90, 180 or 270."""
    rows: tuple[tuple[str, ...], ...] = ()
    """The grid of a table, rows of equal length; empty when it is none."""


def paragraphs(lines: Iterable[RecognizedLine]) -> list[OcrParagraph]:
    """Group lines, in any order, of one upright page."""
    given = [line for line in lines if line.text.strip()]
    upright = [line for line in given if not _runs_down(line)]
    # Notes in the margin that run up or down belong to no row; they follow what is read from left to right.
    beside = sorted((line for line in given if _runs_down(line)), key=lambda line: line.bbox[0])
    return [*_in_order(upright), *(_paragraph([[line]]) for line in beside)]


def _in_order(given: list[RecognizedLine]) -> list[OcrParagraph]:
    if not given:
        return []
    pieces, as_given = _straightened(given)
    unit = median(_height(piece) for piece in pieces)
    found = (paragraph for flow in _flows(_regions(pieces, unit), unit) for paragraph in _read_flow(flow))
    return [_as_given(paragraph, as_given) for paragraph in found] if as_given else list(found)


def _runs_down(line: RecognizedLine) -> bool:
    return len(line.text.strip()) > 2 and line.bbox[3] - line.bbox[1] > 1.5 * (line.bbox[2] - line.bbox[0])


def _straightened(lines: list[RecognizedLine]) -> tuple[list[RecognizedLine], dict[RecognizedLine, RecognizedLine]]:
    """(lines with boxes of the page turned straight, straight line -> line); the lines and {} on a straight page."""
    skew = _skew(lines)
    if abs(skew) < LEVEL:
        return lines, {}
    cos, sin = math.cos(math.radians(skew)), math.sin(math.radians(skew))
    as_given = {}
    for line in lines:
        x0, y0, x1, y1 = line.bbox
        x, y = (x0 + x1) / 2, (y0 + y1) / 2
        x, y = x * cos + y * sin, y * cos - x * sin
        width, height = _upright_size(x1 - x0, y1 - y0, line.angle)
        as_given[replace(line, bbox=(x - width / 2, y - height / 2, x + width / 2, y + height / 2))] = line
    return list(as_given), as_given


def _skew(lines: list[RecognizedLine]) -> float:
    """Degrees by which the page falls to the right: the median over the length of its long lines."""
    long = sorted((line.angle, _width(line)) for line in lines if _width(line) > 5 * _height(line) or line.angle)
    half = sum(width for _, width in long) / 2
    for angle, width in long:
        half -= width
        if half <= 0:
            return angle
    return 0.0


def _upright_size(width: float, height: float, angle: float) -> tuple[float, float]:
    """Width and height of a line from those of the upright box around it."""
    cos, sin = math.cos(math.radians(angle)), abs(math.sin(math.radians(angle)))
    spread = cos * cos - sin * sin
    if spread < 0.1:
        return width, height
    return max((width * cos - height * sin) / spread, 1.0), max((height * cos - width * sin) / spread, 1.0)


def _as_given(paragraph: OcrParagraph, lines: dict[RecognizedLine, RecognizedLine]) -> OcrParagraph:
    given = tuple(lines[line] for line in paragraph.lines)
    return replace(paragraph, lines=given, bbox=_around(given))


_Rows = list[list[RecognizedLine]]


def _flows(regions: list[list[RecognizedLine]], unit: float) -> list[list[_Rows]]:
    """Regions, as rows, that stand one below the other: a table may have been cut into several of them."""
    out: list[list[_Rows]] = []
    bottom = 0.0
    for region in regions:
        if not out or min(piece.bbox[1] for piece in region) < bottom - 0.5 * unit:
            out.append([])
        out[-1].append(_rows(region))
        bottom = max(piece.bbox[3] for piece in region)
    return out


def _read_flow(flow: list[_Rows]) -> list[OcrParagraph]:
    """Tables, and the paragraphs of the rows between them, each within its region."""
    rows = [row for region in flow for row in region]
    regions = [index for index, region in enumerate(flow) for _ in region]
    out: list[OcrParagraph] = []

    def text(start: int, end: int) -> None:
        for _, members in groupby(range(start, end), key=regions.__getitem__):
            out.extend(_paragraph(group) for group in _groups([rows[i] for i in members]))

    done = 0
    for table in find_tables(rows):
        text(done, table.start)
        grid = tuple(tuple(join_lines(cell) for cell in cells) for cells in table.cells)
        out.append(replace(_paragraph(rows[table.start : table.end]), rows=grid))
        done = table.end
    text(done, len(rows))
    return out


def join_lines(texts: Sequence[str]) -> str:
    """Lines of one paragraph as running text: no blank where Chinese meets Chinese, English hyphenation undone."""
    out = ""
    for text in texts:
        text = text.strip()
        if not out or not text or (_ENDS_CJK.search(out) and _STARTS_CJK.search(text)):
            out += text
        elif re.search(r"[a-zäöüß]-$", out) and re.match(r"[a-zäöüß]", text):
            out = out[:-1] + text
        else:
            out += " " + text
    return out


def _height(line: RecognizedLine) -> float:
    return max(line.bbox[3] - line.bbox[1], 1.0)


def _middle(line: RecognizedLine) -> float:
    return (line.bbox[1] + line.bbox[3]) / 2


def _covers(line: RecognizedLine, y: float) -> bool:
    return line.bbox[1] < y < line.bbox[3]


def _width(line: RecognizedLine) -> float:
    return line.bbox[2] - line.bbox[0]


def _regions(pieces: list[RecognizedLine], unit: float) -> list[list[RecognizedLine]]:
    """Cut recursively: columns of prose side by side, else bands below each other; [] never comes back."""
    if len(pieces) < 2:
        return [pieces]
    columns = _text_columns(pieces, unit)
    if len(columns) > 1:
        return [region for column in columns for region in _regions(column, unit)]
    bands = _cut(pieces, 1, unit * 0.1)
    if len(bands) > 1:
        return _merge_bands(bands, unit)
    return [pieces]


def _merge_bands(bands: list[list[RecognizedLine]], unit: float) -> list[list[RecognizedLine]]:
    """Neighbouring bands that have the same columns of prose are cut as one; those without columns are one region."""
    out: list[list[RecognizedLine]] = []
    run: list[RecognizedLine] = []
    joins = False
    for band in bands:
        together = run + band
        several = len(_cut(band, 0, unit * 0.8)) > 1
        if several and (not run or len(_cut(together, 0, unit * 0.8)) > 1):
            run = together
            continue
        joins = _add_columns(out, run, joins, unit)
        run = band if several else []
        if not several:
            joins = _add(out, band, joins)
    _add_columns(out, run, joins, unit)
    return out


def _add_columns(out: list[list[RecognizedLine]], run: list[RecognizedLine], joins: bool, unit: float) -> bool:
    """Add the columns of a run, or all of it; whether what follows may be one region with the last of them."""
    if not run:
        return joins
    columns = _text_columns(run, unit)
    if len(columns) == 1:
        rows = len(_rows(run))
        return _add(out, run, joins and rows == 1) and rows == 1
    out.extend(columns)
    return False


def _add(out: list[list[RecognizedLine]], region: list[RecognizedLine], joins: bool) -> bool:
    """Add a region, to the last one if it joins, so that their lines can form paragraphs."""
    if joins:
        out[-1] = out[-1] + region
    else:
        out.append(region)
    return True


def _text_columns(pieces: list[RecognizedLine], unit: float) -> list[list[RecognizedLine]]:
    """The columns of text set in columns, else all pieces as one: all of prose, or prose beside a figure's labels."""
    columns: list[list[RecognizedLine]] = []
    prose: list[bool] = []
    for column in _cut(pieces, 0, unit * 0.8):
        is_prose = _is_prose(column, unit)
        if prose and not is_prose and not prose[-1]:
            columns[-1] = columns[-1] + column
        else:
            columns.append(column)
            prose.append(is_prose)
    if all(prose):
        return columns
    text = [column for column, is_prose in zip(columns, prose, strict=True) if is_prose]
    labels = [column for column, is_prose in zip(columns, prose, strict=True) if not is_prose]
    if not text:
        return [pieces]
    # Labels are about as wide together as a column, and few: in a table, they would stand in most rows.
    wide = all(_extent(column) > 0.75 * min(map(_extent, text)) for column in labels)
    few = all(len(_rows(column)) <= 0.5 * max(len(_rows(prose)) for prose in text) for column in labels)
    return columns if wide and few else [pieces]


def _extent(column: list[RecognizedLine]) -> float:
    return max(p.bbox[2] for p in column) - min(p.bbox[0] for p in column)


def _is_prose(column: list[RecognizedLine], unit: float) -> bool:
    """Columns of text have several long lines; columns of a table have short ones."""
    rows = _rows(column)
    return len(rows) >= 3 and median(sum(_width(piece) for piece in row) for row in rows) >= 8 * unit


def _cut(pieces: list[RecognizedLine], axis: int, gap: float) -> list[list[RecognizedLine]]:
    """Split where the projection on an axis (0: x, 1: y) leaves at least `gap` free."""
    ordered = sorted(pieces, key=lambda piece: piece.bbox[axis])
    out = [[ordered[0]]]
    end = ordered[0].bbox[axis + 2]
    for piece in ordered[1:]:
        if piece.bbox[axis] - end >= gap:
            out.append([])
        out[-1].append(piece)
        end = max(end, piece.bbox[axis + 2])
    return out


def _rows(pieces: list[RecognizedLine]) -> list[list[RecognizedLine]]:
    """Pieces at the same height, left to right; rows from top to bottom."""
    rows: list[list[RecognizedLine]] = []
    for piece in sorted(pieces, key=_middle):
        # A mark that is small and stands high is of the line that it stands beside.
        if rows and (_covers(rows[-1][-1], _middle(piece)) or _covers(piece, _middle(rows[-1][-1]))):
            rows[-1].append(piece)
        else:
            rows.append([piece])
    return [sorted(row, key=lambda piece: piece.bbox[0]) for row in rows]


def _groups(rows: list[list[RecognizedLine]]) -> list[list[list[RecognizedLine]]]:
    """Rows -> paragraphs, each a list of rows."""
    if not rows:
        return []
    left = min(row[0].bbox[0] for row in rows)
    right = max(row[-1].bbox[2] for row in rows)
    groups = [[rows[0]]]
    for above, row in pairwise(rows):
        if _starts_paragraph(above, row, left, right):
            groups.append([row])
        else:
            groups[-1].append(row)
    return groups


def _starts_paragraph(above: list[RecognizedLine], row: list[RecognizedLine], left: float, right: float) -> bool:
    above_height = max(_height(piece) for piece in above)
    height = max(_height(piece) for piece in row)
    unit = min(above_height, height)
    tabular = _tabular(above) and _tabular(row)
    if max(above_height, height) > 1.45 * unit:
        return True
    gap = min(piece.bbox[1] for piece in row) - max(piece.bbox[3] for piece in above)
    if gap > (1.6 if tabular else 0.8) * unit:
        return True
    if tabular:
        return False
    if _tabular(above) != _tabular(row) or _ITEM.match(row[0].text):
        return True
    ended_short = right - above[-1].bbox[2] > 2.5 * unit
    if ended_short and _SENTENCE_END.search(above[-1].text):
        return True
    indented = row[0].bbox[0] - left > 1.2 * unit and above[0].bbox[0] - left < 0.6 * unit
    return indented and (ended_short or _SENTENCE_END.search(above[-1].text) is not None)


def _tabular(row: list[RecognizedLine]) -> bool:
    """Whether wide gaps separate the pieces of a row."""
    return any(b.bbox[0] - a.bbox[2] > 1.5 * _height(a) for a, b in pairwise(row))


def _row_text(row: list[RecognizedLine]) -> str:
    out = row[0].text.strip()
    for a, b in pairwise(row):
        wide = b.bbox[0] - a.bbox[2] > 1.5 * _height(a)
        out = f"{out}  {b.text.strip()}" if wide else join_lines([out, b.text])
    return out


def _paragraph(rows: list[list[RecognizedLine]]) -> OcrParagraph:
    lines = tuple(piece for row in rows for piece in row)
    texts = [_row_text(row) for row in rows]
    tabular = len(rows) > 1 and any(_tabular(row) for row in rows)
    weight = sum(len(line.text) for line in lines)
    return OcrParagraph(
        text="\n".join(texts) if tabular else join_lines(texts),
        bbox=_around(lines),
        confidence=sum(line.confidence * len(line.text) for line in lines) / weight,
        lines=lines,
    )


def _around(lines: Sequence[RecognizedLine]) -> BBox:
    return (
        min(line.bbox[0] for line in lines),
        min(line.bbox[1] for line in lines),
        max(line.bbox[2] for line in lines),
        max(line.bbox[3] for line in lines),
    )
