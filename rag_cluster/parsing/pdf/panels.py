"""Panels: drawn boxes side by side that each hold a text of their own (posters, slides, manuals with frames).

Text in a panel is read together, however it lines up with the text of the next one.
"""

from __future__ import annotations

from collections.abc import Sequence

from rag_cluster.domain.blocks import BBox
from rag_cluster.parsing.pdf.geometry import area, overlap, union
from rag_cluster.parsing.pdf.layout import Obstacle
from rag_cluster.parsing.pdf.lines import Segment
from rag_cluster.parsing.pdf.shapes import Shapes

SMALLEST, LARGEST = 0.008, 0.45
"""Shares of the page's area."""
MIN_WIDTH = 0.12
"""Share of the page's width."""
MIN_HEIGHT = 36.0
"""Points: a bar behind one line is no panel."""
MAX_CANDIDATES = 300
_SLACK = 2.0
"""Points by which text may reach over an edge."""


def find(pieces: Sequence[Segment], shapes: Shapes, page: tuple[float, float]) -> list[BBox]:
    """Boxes that hold a text each, none inside of another; [] unless some stand side by side and they hold most of the
    text. page: width and height of the frame."""
    candidates = _candidates(shapes, page)
    if len(candidates) < 2 or not pieces:
        return []
    chosen: list[BBox] = []
    held = 0
    for box in candidates:
        if any(overlap(box, other) > 0 for other in chosen):
            continue
        inside = _held(box, pieces)
        if inside is not None and len(inside) >= 2:
            chosen.append(box)
            held += sum(piece.chars for piece in inside)
    beside = any(_beside(a, b) for i, a in enumerate(chosen) for b in chosen[:i])
    return chosen if beside and held > 0.5 * sum(piece.chars for piece in pieces) else []


def _candidates(shapes: Shapes, page: tuple[float, float]) -> list[BBox]:
    """Large boxes, the largest first."""
    whole = page[0] * page[1]
    boxes = {
        box
        for box in (*(box for box, _ in shapes.fills), *shapes.drawings)
        if box[2] - box[0] >= MIN_WIDTH * page[0]
        and box[3] - box[1] >= MIN_HEIGHT
        and SMALLEST * whole <= area(box) <= LARGEST * whole
    }
    return sorted(boxes, key=lambda box: (-area(box), box))[:MAX_CANDIDATES]


def _held(box: BBox, pieces: Sequence[Segment]) -> list[Segment] | None:
    """The pieces inside; None when one crosses an edge."""
    x0, y0, x1, y1 = box[0] - _SLACK, box[1] - _SLACK, box[2] + _SLACK, box[3] + _SLACK
    out = []
    for piece in pieces:
        if piece.x1 <= box[0] or piece.x0 >= box[2] or piece.y1 <= y0 + 2 * _SLACK or piece.y0 >= y1 - 2 * _SLACK:
            continue
        if piece.x0 < x0 or piece.x1 > x1 or piece.y0 < y0 or piece.y1 > y1:
            return None
        out.append(piece)
    return out


def _beside(a: BBox, b: BBox) -> bool:
    """Whether one stands next to the other."""
    shared = min(a[3], b[3]) - max(a[1], b[1])
    return (a[2] <= b[0] + 1 or b[2] <= a[0] + 1) and shared > 0.3 * min(a[3] - a[1], b[3] - b[1])


def merged(inner: Sequence[Obstacle], pieces: Sequence[Segment]) -> list[Obstacle]:
    """Panels of the same height beside each other, as cards are, in one: they are read row by row. pieces: the text
    outside of panels, which must not stand between."""
    out: list[Obstacle] = []
    for panel in sorted(inner, key=lambda o: (round(o.y0 / 8), o.x0)):
        last = out[-1] if out else None
        if last is not None and abs(last.y0 - panel.y0) < 4 and abs(last.y1 - panel.y1) < 4 and last.x1 < panel.x0 + 1:
            box = union([(last.x0, last.y0, last.x1, last.y1), (panel.x0, panel.y0, panel.x1, panel.y1)])
            if not any(overlap(box, piece.box) > 0 for piece in pieces):
                out[-1] = Obstacle(box, [*_items(last), *_items(panel)])
                continue
        out.append(panel)
    return out


def _items(panel: Obstacle) -> list[object]:
    return panel.content if isinstance(panel.content, list) else []


def holds(box: BBox, place: BBox) -> bool:
    """Whether the middle of a place lies in a box."""
    x, y = (place[0] + place[2]) / 2, (place[1] + place[3]) / 2
    return box[0] - _SLACK <= x <= box[2] + _SLACK and box[1] - _SLACK <= y <= box[3] + _SLACK
