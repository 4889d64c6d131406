"""Reading order: a page's segments -> regions (columns and bands), by XY cuts that look for gutters between prose.

A gutter is a vertical gap with text to read on both sides. Where things span it (a heading over two columns, a wide
table), they cut the page into bands; the bands keep the gutter. Columns of a table are no prose and are not cut.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from rag_cluster.domain.blocks import BBox
from rag_cluster.parsing.pdf.lines import Segment, rows, typical_size

MAX_DEPTH = 12


class Obstacle:
    """A table, a figure, or a panel (its items in order) that takes part in the reading order as one thing."""

    __slots__ = ("content", "x0", "x1", "y0", "y1")

    def __init__(self, box: BBox, content: object) -> None:
        self.x0, self.y0, self.x1, self.y1 = box
        self.content = content


Item = Segment | Obstacle


@dataclass(slots=True)
class Region:
    """Items of one column in one band, in no order."""

    items: list[Item]


def regions(items: Sequence[Item]) -> list[Region]:
    """Regions in reading order; together they hold every item once."""
    if not items:
        return []
    size = typical_size([i for i in items if isinstance(i, Segment)])
    return [Region(part) for part in _split(list(items), size, (), 0)]


def _split(items: list[Item], size: float, known: tuple[float, ...], depth: int) -> list[list[Item]]:
    if len(items) < 2 or depth > MAX_DEPTH:
        return [items] if items else []
    gutter = _clear_gutter(items, size, known)
    if gutter is not None:
        left = [i for i in items if (i.x0 + i.x1) / 2 < gutter]
        right = [i for i in items if (i.x0 + i.x1) / 2 >= gutter]
        return _split(left, size, known, depth + 1) + _split(right, size, known, depth + 1)
    crossed = _crossed_gutter(items, size, known)
    if crossed is None:
        return [items]
    known = (*known, crossed)
    out: list[list[Item]] = []
    for band, spans in _bands(items, crossed):
        out += _split(band, size, known, depth + 1) if not spans or len(band) < len(items) else [band]
    return out


def _clear_gutter(items: list[Item], size: float, known: tuple[float, ...]) -> float | None:
    """Middle of the widest vertical gap that nothing crosses and that separates columns of prose."""
    ordered = sorted(items, key=lambda i: i.x0)
    gaps: list[tuple[float, float]] = []
    end = ordered[0].x1
    for item in ordered[1:]:
        if item.x0 - end > 0.6 * size:
            gaps.append((end, item.x0))
        end = max(end, item.x1)
    for left, right in sorted(gaps, key=lambda gap: gap[0] - gap[1]):
        middle = (left + right) / 2
        if any(left - 1 <= gutter <= right + 1 for gutter in known) and not _rowwise(items, middle):
            return middle
        if _separates(items, middle, size) or _beside_notes(items, middle, size):
            return middle
    return None


def _crossed_gutter(items: list[Item], size: float, known: tuple[float, ...]) -> float | None:
    """Where most rows have a gap although some items cross, when what does not cross is prose on both sides."""
    votes: list[tuple[float, float]] = []
    panels = [i for i in items if isinstance(i, Obstacle) and isinstance(i.content, list)]
    row: Sequence[Item]
    for row in rows([i for i in items if isinstance(i, Segment)]):
        if panels:
            row = _with_panels(row, panels)
        end = row[0].x1
        for piece in row[1:]:
            if piece.x0 - end > 0.6 * size:
                votes.append((end, piece.x0))
            end = max(end, piece.x1)
    candidates: dict[int, tuple[int, float]] = {}
    lefts, rights = sorted(left for left, _ in votes), sorted(right for _, right in votes)
    for start in sorted({round(right, 0) for right in rights}):
        position = start - 0.35 * size
        # Gaps that begin before the position, without those that also end before it.
        count = bisect_left(lefts, position) - bisect_right(rights, position)
        candidates[round(position / 3)] = max(candidates.get(round(position / 3), (0, 0.0)), (count, position))
    for count, position in sorted(candidates.values(), reverse=True)[:8]:
        if count < 3:
            return None
        if any(abs(position - gutter) < size for gutter in known):
            continue
        free = [i for i in items if not _crosses(i, position)]
        if len(free) < len(items) and _separates(free, position, size):
            return position
    return None


def _with_panels(row: Sequence[Item], panels: Sequence[Obstacle]) -> list[Item]:
    """A row with the panels that it passes."""
    middle = (row[0].y0 + row[0].y1) / 2
    return sorted([*row, *(p for p in panels if p.y0 < middle < p.y1)], key=lambda item: item.x0)


def _crosses(item: Item, x: float) -> bool:
    return item.x0 < x - 0.5 and item.x1 > x + 0.5


def _bands(items: list[Item], gutter: float) -> list[tuple[list[Item], bool]]:
    """(items, whether they span the gutter) from top to bottom. What stands beside a spanning item spans with it."""
    spans = sorted(((i.y0, i.y1) for i in items if _crosses(i, gutter)), key=lambda s: s[0])
    out: list[tuple[list[Item], bool]] = []
    for item in sorted(items, key=lambda i: i.y0 + i.y1):
        middle = (item.y0 + item.y1) / 2
        spanning = any(top <= middle <= bottom for top, bottom in spans)
        if out and out[-1][1] == spanning:
            out[-1][0].append(item)
        else:
            out.append(([item], spanning))
    return out


def _separates(items: Sequence[Item], x: float, size: float) -> bool:
    left = [i for i in items if (i.x0 + i.x1) / 2 < x]
    right = [i for i in items if (i.x0 + i.x1) / 2 >= x]
    return (_prose(left, size, 3) and _prose(right, size, 2)) or (_prose(left, size, 2) and _prose(right, size, 3))


def _beside_notes(items: Sequence[Item], x: float, size: float) -> bool:
    """Whether small print stands beside running text: narrow lines in another size, on baselines of their own."""
    pieces = [i for i in items if isinstance(i, Segment)]
    left = [p for p in pieces if (p.x0 + p.x1) / 2 < x]
    right = [p for p in pieces if (p.x0 + p.x1) / 2 >= x]
    notes, text = (left, right) if len(left) < len(right) else (right, left)
    if len(notes) < 2 or not _prose(text, size, 5) or median(p.size for p in notes) > 0.9 * size:
        return False
    baselines = sorted(p.y1 for p in text)
    own = sum(not _near(baselines, p.y1, 0.12 * size) for p in notes)
    return own > 0.6 * len(notes)


def _near(values: Sequence[float], value: float, reach: float) -> bool:
    """Whether one of sorted values lies within reach."""
    at = bisect_left(values, value - reach)
    return at < len(values) and values[at] <= value + reach


def _prose(items: Sequence[Item], size: float, lines: int) -> bool:
    """Several lines of running text, or a table or figure, make a column."""
    if not items:
        return False
    long = total = count = 0
    for item in items:
        if isinstance(item, Obstacle):
            if item.x1 - item.x0 > 10 * size and item.y1 - item.y0 > 4 * size:
                return True
            continue
        total += item.chars
        if item.x1 - item.x0 > 8 * size and item.chars > 12:
            long += item.chars
            count += 1
    return count >= lines and long > 0.6 * total


def _rowwise(items: Sequence[Item], x: float) -> bool:
    """Whether the two sides are read across: short pieces that stand on common lines, as labels and values do."""
    pieces = [i for i in items if isinstance(i, Segment)]
    pairs = [row for row in rows(pieces) if row[0].x0 < x <= row[-1].x0]
    return len(pairs) >= 2 and sum(p.chars for row in pairs for p in row) < 24 * len(pairs)
