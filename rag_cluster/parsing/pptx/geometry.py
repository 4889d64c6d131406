"""Where shapes lie on a slide: boxes in EMU, through scaled, mirrored and turned groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rag_cluster.parsing.ooxml import find

Box = tuple[float, float, float, float]
"""x0, y0, x1, y1."""
TURN = 21_600_000
"""A whole turn in the unit of a:xfrm/@rot."""


@dataclass(frozen=True, slots=True)
class Transform:
    """x' = a x + c y + e, y' = b x + d y + f: from a group's inner coordinates to the slide's."""

    a: float = 1.0
    b: float = 0.0
    c: float = 0.0
    d: float = 1.0
    e: float = 0.0
    f: float = 0.0

    def point(self, x: float, y: float) -> tuple[float, float]:
        """A point of the inner coordinates on the slide."""
        return self.a * x + self.c * y + self.e, self.b * x + self.d * y + self.f

    def after(self, inner: Transform) -> Transform:
        """First `inner`, then this one."""
        e, f = self.point(inner.e, inner.f)
        return Transform(
            self.a * inner.a + self.c * inner.b,
            self.b * inner.a + self.d * inner.b,
            self.a * inner.c + self.c * inner.d,
            self.b * inner.c + self.d * inner.d,
            e,
            f,
        )


SAME = Transform()


def box_of(xfrm: Any, transform: Transform) -> Box | None:
    """The box of an a:xfrm or p:xfrm on the slide; None where it states no place."""
    frame = _frame(xfrm, "a:off", "a:ext")
    if frame is None:
        return None
    x, y, width, height = frame
    if 0.125 < _turn(xfrm) % 0.5 < 0.375:
        # Turned by about a quarter: its width and height change places around its middle.
        x, y, width, height = x + (width - height) / 2, y + (height - width) / 2, height, width
    corners = [transform.point(cx, cy) for cx in (x, x + width) for cy in (y, y + height)]
    xs, ys = [corner[0] for corner in corners], [corner[1] for corner in corners]
    return min(xs), min(ys), max(xs), max(ys)


def group_transform(xfrm: Any, outer: Transform) -> Transform:
    """How the children of a group with this a:xfrm come to lie on the slide."""
    inner, place = _frame(xfrm, "a:chOff", "a:chExt"), _frame(xfrm, "a:off", "a:ext")
    if inner is None or place is None:
        return outer
    x, y, width, height = place
    scaled = _scaled(inner, place)
    flip_x, flip_y = (-1.0 if xfrm.get(name) in ("1", "true") else 1.0 for name in ("flipH", "flipV"))
    turn = _turn(xfrm) * 2 * math.pi
    cos, sin = math.cos(turn), math.sin(turn)
    cx, cy = x + width / 2, y + height / 2
    turned = Transform(cos * flip_x, sin * flip_x, -sin * flip_y, cos * flip_y)
    back = turned.point(cx, cy)
    around_middle = Transform(turned.a, turned.b, turned.c, turned.d, cx - back[0], cy - back[1])
    return outer.after(around_middle.after(scaled))


def _scaled(inner: Box, place: Box) -> Transform:
    sx, sy = place[2] / (inner[2] or 1.0), place[3] / (inner[3] or 1.0)
    return Transform(a=sx, d=sy, e=place[0] - inner[0] * sx, f=place[1] - inner[1] * sy)


def around(boxes: Sequence[Box]) -> Box:
    """The box that holds all boxes."""
    if not boxes:
        return (0.0, 0.0, 0.0, 0.0)
    x0, y0, x1, y1 = zip(*boxes, strict=True)
    return min(x0), min(y0), max(x1), max(y1)


def number_of(element: Any, name: str) -> float:
    """An attribute as a number; 0 where it is none."""
    try:
        value = float(element.get(name, "0"))
    except ValueError:
        return 0.0
    return value if math.isfinite(value) else 0.0


def _frame(xfrm: Any, offset: str, extent: str) -> Box | None:
    """(x, y, width, height)."""
    place, size = find(xfrm, offset), find(xfrm, extent)
    if place is None or size is None:
        return None
    return number_of(place, "x"), number_of(place, "y"), number_of(size, "cx"), number_of(size, "cy")


def _turn(xfrm: Any) -> float:
    """Clockwise, in whole turns."""
    return number_of(xfrm, "rot") / TURN
