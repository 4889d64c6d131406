"""Rules -> grids: lines that touch make the boundaries of rows and columns."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rag_cluster.domain.blocks import BBox
from rag_cluster.parsing.pdf.shapes import Rule, Shapes

TOUCH = 3.0
"""Points by which rules may miss each other and still form a corner."""
MAX_RULES = 6000


@dataclass(slots=True)
class Grid:
    """Sorted column and row boundaries with the rules that draw them."""

    xs: list[float]
    ys: list[float]
    horizontal: list[Rule]
    vertical: list[Rule]

    @property
    def box(self) -> BBox:
        """Outer box."""
        return (self.xs[0], self.ys[0], self.xs[-1], self.ys[-1])


def merge_rules(rules: Sequence[Rule], near: float = 1.6, gap: float = 3.0) -> list[Rule]:
    """Collinear rules that touch, as one."""
    out: list[Rule] = []
    tracks: list[list[Rule]] = []
    for rule in sorted(rules, key=lambda r: r.at):
        if tracks and rule.at - tracks[-1][0].at <= near:
            tracks[-1].append(rule)
        else:
            tracks.append([rule])
    for track in tracks:
        track.sort(key=lambda r: r.start)
        current: Rule | None = None
        for rule in track:
            if current is not None and rule.start <= current.end + gap:
                current.end = max(current.end, rule.end)
            else:
                current = Rule(rule.at, rule.start, rule.end)
                out.append(current)
    return out


def find_grids(shapes: Shapes) -> list[Grid]:
    """Grids of at least two cells, from top to bottom; grids inside a cell of another one are left out."""
    if len(shapes.horizontal) + len(shapes.vertical) > MAX_RULES:
        return []
    horizontal = [r for r in merge_rules(shapes.horizontal) if r.end - r.start > 8]
    vertical = [r for r in merge_rules(shapes.vertical) if r.end - r.start > 5]
    grids = [g for hs, vs in _components(horizontal, vertical) if (g := _grid(hs, vs)) is not None]
    return sorted(grids, key=lambda g: (g.ys[0], g.xs[0]))


def _components(horizontal: list[Rule], vertical: list[Rule]) -> list[tuple[list[Rule], list[Rule]]]:
    """Rules that cross or touch, directly or through others."""
    parent = list(range(len(horizontal) + len(vertical)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    if not horizontal or not vertical:
        return [([h], []) for h in horizontal] + [([], [v]) for v in vertical]
    hs = np.array([(h.at, h.start - TOUCH, h.end + TOUCH) for h in horizontal])
    vs = np.array([(v.at, v.start - TOUCH, v.end + TOUCH) for v in vertical])
    level, upright = hs[None, :, 0], vs[:, None, 0]
    meet = (vs[:, None, 1] <= level) & (level <= vs[:, None, 2])
    meet &= (hs[None, :, 1] <= upright) & (upright <= hs[None, :, 2])
    for j, i in np.argwhere(meet).tolist():
        parent[root(i)] = root(j + len(horizontal))
    groups: dict[int, tuple[list[Rule], list[Rule]]] = {}
    for i, h in enumerate(horizontal):
        groups.setdefault(root(i), ([], []))[0].append(h)
    for j, v in enumerate(vertical, len(horizontal)):
        groups.setdefault(root(j), ([], []))[1].append(v)
    return list(groups.values())


def _cluster(values: list[float], near: float = 2.5) -> list[float]:
    out: list[list[float]] = []
    for value in sorted(values):
        if out and value - out[-1][-1] <= near:
            out[-1].append(value)
        else:
            out.append([value])
    return [sum(group) / len(group) for group in out]


def _grid(horizontal: list[Rule], vertical: list[Rule]) -> Grid | None:
    if len(horizontal) < 2 or not vertical:
        return None
    ys = _cluster([r.at for r in horizontal])
    xs = _cluster([r.at for r in vertical])
    # A table may have no outer vertical rules: the horizontal ones then end beyond the outermost vertical ones.
    left, right = min(r.start for r in horizontal), max(r.end for r in horizontal)
    if sum(r.start < xs[0] - 8 for r in horizontal) >= 2:
        xs.insert(0, left)
    if sum(r.end > xs[-1] + 8 for r in horizontal) >= 2:
        xs.append(right)
    if len(xs) < 2 or len(ys) < 2 or (len(xs) - 1) * (len(ys) - 1) < 2:
        return None
    return Grid(xs, ys, horizontal, vertical)


def slot(bounds: Sequence[float], value: float) -> int:
    """Index of the interval between sorted bounds that holds value, -1 outside."""
    index = bisect_right(bounds, value) - 1
    return index if index < len(bounds) - 1 else -1
