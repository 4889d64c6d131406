"""What a page draws besides text: rules (thin lines and the edges of rectangles), filled boxes, pictures, curves."""

from __future__ import annotations

import ctypes
import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pypdfium2.raw as pdfium_c

from rag_cluster.domain.blocks import BBox
from rag_cluster.parsing.pdf import native
from rag_cluster.parsing.pdf.geometry import Array, Frame, PageSpace

MAX_OBJECTS = 60_000
"""Of one page; what lies behind is ignored, so that a page of millions of strokes costs seconds, not hours."""
MAX_SEGMENTS = 600
"""Of one path; longer ones are drawings, not rules."""
THIN = 3.2
"""Points up to which a filled rectangle is a rule."""

_Matrix = tuple[float, float, float, float, float, float]
_IDENTITY: _Matrix = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)
_CONTENT = frozenset({pdfium_c.FPDF_PAGEOBJ_IMAGE, pdfium_c.FPDF_PAGEOBJ_FORM})


@dataclass(slots=True)
class Rule:
    """A straight line: at `at`, from `start` to `end` along the other axis."""

    at: float
    start: float
    end: float


@dataclass(slots=True)
class Picture:
    """A raster image on the page. handle: its page object, valid while the page is open."""

    box: BBox
    handle: int
    nested: bool


@dataclass(slots=True)
class Shapes:
    """Displayed coordinates."""

    horizontal: list[Rule] = field(default_factory=list)
    vertical: list[Rule] = field(default_factory=list)
    fills: list[tuple[BBox, int]] = field(default_factory=list)
    """Filled rectangles that are no rules, with 0xRRGGBB, in drawing order."""
    pictures: list[Picture] = field(default_factory=list)
    drawings: list[BBox] = field(default_factory=list)
    """Boxes of curved or many-cornered paths: parts of charts, logos, maps."""

    def outside(self, box: BBox) -> Shapes:
        """Without the rules inside a box."""
        x0, y0, x1, y1 = box
        return replace(
            self,
            horizontal=[r for r in self.horizontal if not (y0 <= r.at <= y1 and r.start >= x0 - 2 and r.end <= x1 + 2)],
            vertical=[r for r in self.vertical if not (x0 <= r.at <= x1 and r.start >= y0 - 2 and r.end <= y1 + 2)],
        )

    def within(self, frame: Frame) -> Shapes:
        """The rules in a frame's coordinates (boxes too, handles kept)."""
        if frame.turn == 0:
            return self
        out = Shapes(fills=[(frame.enter(box), color) for box, color in self.fills])
        out.drawings = [frame.enter(box) for box in self.drawings]
        out.pictures = [Picture(frame.enter(p.box), p.handle, p.nested) for p in self.pictures]
        for rule, horizontal in [(r, True) for r in self.horizontal] + [(r, False) for r in self.vertical]:
            box = (rule.start, rule.at, rule.end, rule.at) if horizontal else (rule.at, rule.start, rule.at, rule.end)
            x0, y0, x1, y1 = frame.enter(box)
            if x1 - x0 >= y1 - y0:
                out.horizontal.append(Rule(y0, x0, x1))
            else:
                out.vertical.append(Rule(x0, y0, y1))
        return out


def read_shapes(page: object, space: PageSpace) -> Shapes:
    """All paths and pictures of an open page, those inside form objects too."""
    reader = _Reader(space)
    handle = native.address(page)
    count = min(max(native.page_object_count(handle), 0), MAX_OBJECTS)
    handles = native.page_objects(handle, count)
    kinds = list(map(native.object_type, handles))
    if set(kinds) <= {pdfium_c.FPDF_PAGEOBJ_TEXT}:
        return reader.shapes
    paths = [h for h, kind in zip(handles, kinds, strict=True) if kind == pdfium_c.FPDF_PAGEOBJ_PATH]
    others = [(h, kind) for h, kind in zip(handles, kinds, strict=True) if kind in _CONTENT]
    if paths:
        reader.paths(paths)
    if others:
        boxes, seen = reader.boxes([h for h, _ in others])
        for (h, kind), box, visible in zip(others, boxes.tolist(), seen.tolist(), strict=True):
            reader.object(h, kind, tuple(box) if visible else None, _IDENTITY, 0)
    return reader.shapes


class _Reader:
    def __init__(self, space: PageSpace) -> None:
        self.shapes = Shapes()
        self._space = space
        self._seen = 0

    # Most pages draw nothing and need no buffers.
    _bounds = cached_property(lambda _: native.Floats(4))
    _matrix = cached_property(lambda _: native.Floats(6))
    _mode = cached_property(lambda _: native.Floats(2, ctypes.c_int))
    _rgba = cached_property(lambda _: native.Floats(4, ctypes.c_uint))
    _xy = cached_property(lambda _: native.Floats(2))

    def paths(self, handles: Sequence[int]) -> None:
        """Sort top-level paths in: most are thin, and rules by their boxes alone."""
        boxes, seen = self.boxes(handles)
        sides = boxes[:, 2:] - boxes[:, :2]
        thin = (sides <= THIN).any(1)
        lying = sides[:, 0] >= sides[:, 1]
        for x0, y0, x1, y1 in boxes[seen & thin & lying & (sides[:, 0] > 1.0)].tolist():
            self.shapes.horizontal.append(Rule((y0 + y1) / 2, x0, x1))
        for x0, y0, x1, y1 in boxes[seen & thin & ~lying & (sides[:, 1] > 1.0)].tolist():
            self.shapes.vertical.append(Rule((x0 + x1) / 2, y0, y1))
        wide = np.flatnonzero(seen & ~thin)
        large = [handles[index] for index in wide.tolist()]
        flat = _rectangles(large)
        for handle, box, rectangle in zip(large, boxes[wide].tolist(), flat, strict=True):
            self._path(handle, tuple(box), _IDENTITY, rectangle)
        self._seen += len(handles)

    def boxes(self, handles: Sequence[int]) -> tuple[Array, npt.NDArray[np.bool_]]:
        """(displayed boxes of top-level objects, cut at the page's edges, shape (n, 4); whether they can be seen)"""
        count = len(handles)
        edges = np.zeros((count, 4), np.float32)
        at = edges.ctypes.data
        places = (range(at + 4 * k, at + 4 * k + 16 * count, 16) for k in range(4))
        deque(map(native.object_bounds, handles, *places), maxlen=0)
        left, bottom, right, top = edges.astype(float).T
        found = self._space.boxes(left, bottom, right, top)
        low, high = np.zeros(2), np.array([self._space.width, self._space.height])
        first, last = np.maximum(found[:, :2], low), np.minimum(found[:, 2:], high)
        return np.hstack([first, last]), (last >= first).all(1)

    def object(self, handle: int, kind: int, box: BBox | None, matrix: _Matrix, depth: int) -> None:
        """Sort one object in; `box` is None when it cannot be seen."""
        self._seen += 1
        if self._seen > MAX_OBJECTS or not handle:
            return
        if kind == pdfium_c.FPDF_PAGEOBJ_PATH and box is not None:
            self._path(handle, box, matrix)
        elif kind == pdfium_c.FPDF_PAGEOBJ_IMAGE and box is not None:
            self.shapes.pictures.append(Picture(box, handle, depth > 0))
        elif kind == pdfium_c.FPDF_PAGEOBJ_FORM and depth < 6:
            native.object_matrix(handle, self._matrix.address)
            inner = _multiply(tuple(self._matrix.values), matrix)
            for i in range(max(native.form_object_count(handle), 0)):
                child = native.form_object(handle, i)
                child_kind = native.object_type(child)
                if child_kind != pdfium_c.FPDF_PAGEOBJ_TEXT:
                    self.object(child, child_kind, self._box(child, inner), inner, depth + 1)

    def _box(self, handle: int, matrix: _Matrix) -> BBox | None:
        """Displayed box of an object inside a form, cut at the page's edges; None outside."""
        if not native.object_bounds(handle, *self._bounds.addresses):
            return None
        left, bottom, right, top = self._bounds.values
        corners = [_apply(matrix, x, y) for x in (left, right) for y in (bottom, top)]
        left, right = min(c[0] for c in corners), max(c[0] for c in corners)
        bottom, top = min(c[1] for c in corners), max(c[1] for c in corners)
        return self._cut(self._space.box(left, bottom, right, top))

    def _cut(self, box: BBox) -> BBox | None:
        x0, y0, x1, y1 = box
        x0, y0 = max(x0, 0.0), max(y0, 0.0)
        x1, y1 = min(x1, self._space.width), min(y1, self._space.height)
        return (x0, y0, x1, y1) if x1 >= x0 and y1 >= y0 else None

    def _path(self, handle: int, box: BBox, matrix: _Matrix, rectangle: bool | None = None) -> None:
        if box[2] - box[0] <= THIN or box[3] - box[1] <= THIN:
            self._add_rule(box)
            return
        native.path_draw_mode(handle, *self._mode.addresses)
        filled, stroked = self._mode.values
        if not filled and not stroked:
            return
        if rectangle is None:
            rectangle = _rectangles([handle])[0]
        if rectangle:
            self._rectangle(handle, box, bool(filled), bool(stroked))
            return
        count = native.path_segment_count(handle)
        if count <= MAX_SEGMENTS:
            self._segments(handle, count, matrix, box, bool(stroked))
        else:
            self.shapes.drawings.append(box)

    def _add_rule(self, box: BBox) -> None:
        x0, y0, x1, y1 = box
        if x1 - x0 >= y1 - y0:
            if x1 - x0 > 1.0:
                self.shapes.horizontal.append(Rule((y0 + y1) / 2, x0, x1))
        elif y1 - y0 > 1.0:
            self.shapes.vertical.append(Rule((x0 + x1) / 2, y0, y1))

    def _rectangle(self, handle: int, box: BBox, filled: bool, stroked: bool) -> None:
        color = 0xFFFFFF
        if filled:
            native.object_fill(handle, *self._rgba.addresses)
            r, g, b, alpha = self._rgba.values
            if alpha > 30:
                color = r << 16 | g << 8 | b
                self.shapes.fills.append((box, color))
        if stroked:
            self._edges(box)

    def _edges(self, box: BBox) -> None:
        x0, y0, x1, y1 = box
        self.shapes.horizontal += [Rule(y0, x0, x1), Rule(y1, x0, x1)]
        self.shapes.vertical += [Rule(x0, y0, y1), Rule(x1, y0, y1)]

    def _points(self, handle: int, count: int) -> list[tuple[int, float, float]] | None:
        """(segment type, x, y) in the object's own space; None when the path has curves."""
        out = []
        x, y = self._xy.addresses
        for i in range(count):
            segment = native.path_segment(handle, i)
            kind = native.segment_type(segment)
            if kind == pdfium_c.FPDF_SEGMENT_BEZIERTO:
                return None
            native.segment_point(segment, x, y)
            out.append((kind, self._xy.values[0], self._xy.values[1]))
        return out

    def _segments(self, handle: int, count: int, matrix: _Matrix, box: BBox, stroked: bool) -> None:
        """Axis-parallel pieces of a stroked path are rules; anything else makes it a drawing."""
        points = self._points(handle, count)
        if points is None or not stroked:
            self.shapes.drawings.append(box)
            return
        native.object_matrix(handle, self._matrix.address)
        full = _multiply(tuple(self._matrix.values), matrix)
        placed = [(kind, *_apply(full, x, y)) for kind, x, y in points]
        rules: list[BBox] = []
        for before, point in itertools.pairwise(placed):
            if point[0] == pdfium_c.FPDF_SEGMENT_MOVETO:
                continue
            x0, y0, x1, y1 = self._space.box(
                min(before[1], point[1]), min(before[2], point[2]), max(before[1], point[1]), max(before[2], point[2])
            )
            if x1 - x0 > THIN and y1 - y0 > THIN:
                self.shapes.drawings.append(box)
                return
            rules.append((x0, y0, x1, y1))
        for rule in rules:
            if (visible := self._cut(rule)) is not None:
                self._add_rule(visible)


def _rectangles(handles: Sequence[int]) -> list[bool]:
    """Which paths are axis-parallel rectangles in their own space: at most six points, on two values of x and of y."""
    counts = list(map(native.path_segment_count, handles))
    owners = [h for h, count in zip(handles, counts, strict=True) if 4 <= count <= 6 for _ in range(count)]
    steps = [i for count in counts if 4 <= count <= 6 for i in range(count)]
    segments = list(map(native.path_segment, owners, steps))
    kinds = list(map(native.segment_type, segments))
    points = np.zeros((len(segments), 2), np.float32)
    at = points.ctypes.data
    end = at + 8 * len(segments)
    deque(map(native.segment_point, segments, range(at, end, 8), range(at + 4, end + 4, 8)), maxlen=0)
    places = np.round(points, 1).tolist()
    out, first = [], 0
    for count in counts:
        if not 4 <= count <= 6:
            out.append(False)
            continue
        last = first + count
        corners = places[first:last]
        straight = pdfium_c.FPDF_SEGMENT_BEZIERTO not in kinds[first:last]
        out.append(straight and len({x for x, _ in corners}) == 2 and len({y for _, y in corners}) == 2)
        first = last
    return out


def _multiply(a: _Matrix, b: _Matrix) -> _Matrix:
    """First a, then b."""
    return (
        a[0] * b[0] + a[1] * b[2],
        a[0] * b[1] + a[1] * b[3],
        a[2] * b[0] + a[3] * b[2],
        a[2] * b[1] + a[3] * b[3],
        a[4] * b[0] + a[5] * b[2] + b[4],
        a[4] * b[1] + a[5] * b[3] + b[5],
    )


def _apply(m: _Matrix, x: float, y: float) -> tuple[float, float]:
    return (m[0] * x + m[2] * y + m[4], m[1] * x + m[3] * y + m[5])
