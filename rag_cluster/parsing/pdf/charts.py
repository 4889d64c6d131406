"""Drawn figures: what stands above (or below) a caption "Figure 1 ..." is one picture, with the words inside it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rag_cluster.domain.blocks import BBox
from rag_cluster.parsing.pdf.geometry import area, overlap, union
from rag_cluster.parsing.pdf.lines import Segment
from rag_cluster.parsing.pdf.rules import find_grids
from rag_cluster.parsing.pdf.shapes import Shapes

CAPTION = re.compile(
    r"^(?:figure|fig\.|chart|abbildung|abb\.|FIGURE|Figure|FIG\.|Fig\.|Chart|Abbildung|Abb\.)"
    r"\s*[A-Z]{0,3}[-.]?\d[\d.\-a-z]*(?:[.:|—–]|\s*$|\s+[^a-z\s])|^[图図]\s*\d"
)
"""Not "Figure 2 shows ...", which is a sentence."""
REACH = 45.0
"""Points between a caption and its drawing."""
MAX_MARKS = 4000
"""Of one page; more are a map or a plan, which is not taken apart."""


def captioned(pieces: Sequence[Segment], shapes: Shapes, page: tuple[float, float]) -> list[BBox]:
    """Boxes (frame coordinates) of drawings that have a caption. page: width and height of the frame."""
    captions = [p for p in pieces if p.words[0].text[:1] in "FfCcAa图図" and CAPTION.match(p.text)]
    if not captions:
        return []
    marks = _marks(shapes, page)
    if not 3 <= len(marks) <= MAX_MARKS:
        return []
    clusters = [c for c in _clusters(marks) if c[2] - c[0] > 60 and c[3] - c[1] > 40]
    out: list[BBox] = []
    for caption in captions:
        best = min(clusters, key=lambda box: _distance(caption, box), default=None)
        if best is not None and _distance(caption, best) < REACH and best not in out:
            grown = _with_labels(best, pieces, caption.size)
            if not _holds_prose(grown, pieces, caption.size) and not _is_table(grown, pieces, shapes):
                out.append(grown)
    return out


def _marks(shapes: Shapes, page: tuple[float, float]) -> list[BBox]:
    whole = page[0] * page[1]
    marks = [*shapes.drawings, *(p.box for p in shapes.pictures), *(b for b, color in shapes.fills if color < 0xF0F0F0)]
    marks += [(r.start, r.at - 0.5, r.end, r.at + 0.5) for r in shapes.horizontal]
    marks += [(r.at - 0.5, r.start, r.at + 0.5, r.end) for r in shapes.vertical]
    return [m for m in marks if area(m) < 0.6 * whole]


def _clusters(marks: Sequence[BBox]) -> list[BBox]:
    """Boxes of marks that lie within a few points of each other, by a sweep from top to bottom."""
    open_boxes: list[BBox] = []
    closed: list[BBox] = []
    for mark in sorted(marks, key=lambda m: m[1]):
        closed += [b for b in open_boxes if b[3] < mark[1] - 12]
        open_boxes = [b for b in open_boxes if b[3] >= mark[1] - 12]
        box = mark
        touching = True
        while touching:
            near = [b for b in open_boxes if b[0] - 12 <= box[2] and b[2] + 12 >= box[0] and b[3] + 12 >= box[1]]
            touching = bool(near)
            if near:
                open_boxes = [b for b in open_boxes if b not in near]
                box = union([box, *near])
        open_boxes.append(box)
    return closed + open_boxes


def _distance(caption: Segment, box: BBox) -> float:
    """Gap between a caption and a box above it, or (less likely) below; infinity when they share no width."""
    if min(caption.x1, box[2]) - max(caption.x0, box[0]) < 0.3 * min(caption.x1 - caption.x0, box[2] - box[0]):
        return float("inf")
    above, below = caption.y0 - box[3], box[1] - caption.y1
    if above >= -4:
        return max(above, 0.0)
    return below + 8 if below >= -4 else float("inf")


def _with_labels(box: BBox, pieces: Sequence[Segment], size: float) -> BBox:
    """With the axis labels right beside it."""
    near = (box[0] - 2.5 * size, box[1] - 1.5 * size, box[2] + 2.5 * size, box[3] + 1.5 * size)
    labels = [p.box for p in pieces if p.chars <= 24 and not CAPTION.match(p.text) and _within(p.box, near)]
    return union([box, *labels])


def _within(inner: BBox, outer: BBox) -> bool:
    return overlap(inner, outer) > 0.7 * area(inner)


def _is_table(box: BBox, pieces: Sequence[Segment], shapes: Shapes) -> bool:
    """Whether a grid fills the box and words fill the grid."""
    for grid in find_grids(shapes):
        cells = (len(grid.xs) - 1) * (len(grid.ys) - 1)
        inside = sum(_within(p.box, grid.box) for p in pieces)
        if cells >= 6 and overlap(grid.box, box) > 0.6 * area(box) and inside > 0.6 * cells:
            return True
    return False


def _holds_prose(box: BBox, pieces: Sequence[Segment], size: float) -> bool:
    inside = [p for p in pieces if _within(p.box, box)]
    long = sum(p.chars for p in inside if p.chars > 40 and p.size > 0.85 * size)
    return long > 0.4 * sum(p.chars for p in inside) or any(CAPTION.match(p.text) for p in inside)


def contents(box: BBox, pieces: Sequence[Segment]) -> tuple[list[Segment], list[Segment]]:
    """(segments inside, the others)"""
    inside = [p for p in pieces if _within(p.box, box)]
    taken = {id(p) for p in inside}
    return inside, [p for p in pieces if id(p) not in taken]
