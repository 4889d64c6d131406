"""Page space: PDF user space -> the page as a viewer shows it (points, top-left origin), and upright frames.

A frame is the displayed page turned so that a group of words reads from left to right, top to bottom; layout works in
frames and its boxes are turned back at the end.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pypdfium2.raw as pdfium_c

from rag_cluster.domain.blocks import BBox

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PageSpace:
    """The visible box (CropBox within MediaBox) in user space and how it is turned for display."""

    left: float
    bottom: float
    right: float
    top: float
    rotation: int = 0
    """Quarter turns clockwise (/Rotate / 90)."""
    unit: float = 1.0
    """UserUnit: points per user space unit."""

    @property
    def width(self) -> float:
        """Of the page as displayed, in points."""
        return self.unit * ((self.top - self.bottom) if self.rotation % 2 else (self.right - self.left))

    @property
    def height(self) -> float:
        """Of the page as displayed, in points."""
        return self.unit * ((self.right - self.left) if self.rotation % 2 else (self.top - self.bottom))

    def boxes(self, left: Array, bottom: Array, right: Array, top: Array) -> Array:
        """`box` for arrays of n; shape (n, 4)."""
        return np.stack(self.box(left, bottom, right, top), axis=1)  # type: ignore[arg-type]

    def box(self, left: float, bottom: float, right: float, top: float) -> BBox:
        """A user space rectangle as (x0, y0, x1, y1) of the displayed page."""
        k = self.unit
        if self.rotation == 0:
            return ((left - self.left) * k, (self.top - top) * k, (right - self.left) * k, (self.top - bottom) * k)
        if self.rotation == 1:
            return (
                (bottom - self.bottom) * k,
                (left - self.left) * k,
                (top - self.bottom) * k,
                (right - self.left) * k,
            )
        if self.rotation == 2:
            return (
                (self.right - right) * k,
                (bottom - self.bottom) * k,
                (self.right - left) * k,
                (top - self.bottom) * k,
            )
        return ((self.top - top) * k, (self.right - right) * k, (self.top - bottom) * k, (self.right - left) * k)


def page_space(page: Any, unit: float = 1.0) -> PageSpace:
    """The space of a pypdfium2 page; letter paper where the page states no usable box."""
    rect = pdfium_c.FS_RECTF()
    pdfium_c.FPDF_GetPageBoundingBox(page, ctypes.byref(rect))
    rotation = max(pdfium_c.FPDFPage_GetRotation(page), 0) % 4
    if rect.right - rect.left < 1 or rect.top - rect.bottom < 1:
        return PageSpace(0, 0, 612, 792, rotation, unit)
    return PageSpace(rect.left, rect.bottom, rect.right, rect.top, rotation, unit)


@dataclass(frozen=True, slots=True)
class Frame:
    """The displayed page, `turn` quarter turns clockwise, so that text of that `Style.turn` is upright."""

    turn: int
    width: float
    height: float
    """Of the displayed page, not of the frame."""

    def enter(self, box: BBox) -> BBox:
        """Displayed -> frame."""
        if self.turn == 0:
            return box
        x0, y0, x1, y1 = box
        if self.turn == 1:
            return (self.height - y1, x0, self.height - y0, x1)
        if self.turn == 2:
            return (self.width - x1, self.height - y1, self.width - x0, self.height - y0)
        return (y0, self.width - x1, y1, self.width - x0)

    def leave(self, box: BBox) -> BBox:
        """Frame -> displayed."""
        if self.turn == 0:
            return box
        x0, y0, x1, y1 = box
        if self.turn == 1:
            return (y0, self.height - x1, y1, self.height - x0)
        if self.turn == 2:
            return (self.width - x1, self.height - y1, self.width - x0, self.height - y0)
        return (self.width - y1, x0, self.width - y0, x1)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of the frame."""
        return (self.height, self.width) if self.turn % 2 else (self.width, self.height)


def union(boxes: Iterable[BBox]) -> BBox:
    """The smallest box around all; at least one is needed."""
    x0s, y0s, x1s, y1s = zip(*boxes, strict=True)
    return (min(x0s), min(y0s), max(x1s), max(y1s))


def area(box: BBox) -> float:
    """In square points; 0 for an empty box."""
    return max(box[2] - box[0], 0.0) * max(box[3] - box[1], 0.0)


def overlap(a: BBox, b: BBox) -> float:
    """Area that two boxes share."""
    return area((max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])))
