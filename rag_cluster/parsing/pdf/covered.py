"""Text that was painted over (redactions, replaced words) or is white on white: in the file, and no person sees it.

A word is suspected when an opaque area was drawn later than its text and over all of it. Clipping and blending can make
such an area harmless, so that a picture of the page has the last word: where it shows one colour alone, nobody reads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pypdfium2.raw as pdfium_c

from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.parsing.pdf import figures, native
from rag_cluster.parsing.pdf.geometry import Array, PageSpace
from rag_cluster.parsing.pdf.shapes import MAX_OBJECTS, Shapes
from rag_cluster.parsing.pdf.text import TextLayer, Word

_OPAQUE = 250
"""Least alpha of an area that hides what lies below it."""
_PLAIN = 12
"""Levels of grey, of 256, by which a picture of one colour may differ."""
_WHITE = 0xF8
"""Level of grey from which paper is white."""
_SCALE = 1.5
"""Pixels per point of the picture."""
_EDGE = 0.25
"""Share of its height by which a font's box reaches beyond its ink, above and below."""
_Flags = npt.NDArray[np.bool_]


def without_covered(
    page: Any, textpage: Any, layer: TextLayer, words: list[Word], shapes: Shapes, space: PageSpace
) -> list[Word]:
    """The words that are not painted over, runs split where a part of them is. page, textpage: open."""
    if not shapes.fills or not words:
        return words
    places = _boxes(words)
    touched = np.flatnonzero(_touch(places, np.array([box for box, _ in shapes.fills])).any(1))
    if not len(touched):
        return words
    order = _order(page)
    texts = native.char_objects(native.address(textpage), [words[i].order for i in touched.tolist()])
    drawn = np.array([order.get(text, MAX_OBJECTS) for text in texts])
    covers, later = _covers(order, int(drawn.min()), space)
    suspects: dict[int, list[tuple[Word, bool]]] = {}
    for i, at in zip(touched.tolist(), drawn.tolist(), strict=True):
        above = covers[later > at]
        if len(above) and _touch(places[i : i + 1], above).any():
            pieces = layer.split(words[i])
            lost = np.any(_inside(_boxes(pieces), above), axis=1)
            if lost.any():
                suspects[i] = list(zip(pieces, lost.tolist(), strict=True))
    return _seen(page, words, suspects, space) if suspects else words


def _boxes(words: Sequence[Word]) -> Array:
    return np.array([(w.x0, w.y0, w.x1, w.y1) for w in words])


def _touch(places: Array, areas: Array) -> _Flags:
    """Whether areas cover the height of places, and some of their width; shape (places, areas)."""
    x0, _, x1, _ = (places[:, k][:, None] for k in range(4))
    return (areas[:, 0] < x1) & (x0 < areas[:, 2]) & _high(places, areas)


def _inside(places: Array, areas: Array) -> _Flags:
    """Whether places lie in areas, shape (places, areas)."""
    slack = (0.1 * (places[:, 3] - places[:, 1]))[:, None]
    x0, _, x1, _ = (places[:, k][:, None] for k in range(4))
    return (areas[:, 0] <= x0 + slack) & (x1 - slack <= areas[:, 2]) & _high(places, areas)


def _high(places: Array, areas: Array) -> _Flags:
    slack = (_EDGE * (places[:, 3] - places[:, 1]))[:, None]
    return (areas[:, 1] <= places[:, 1][:, None] + slack) & (places[:, 3][:, None] - slack <= areas[:, 3])


def _order(page: Any) -> dict[int, int]:
    """Addresses of the page's objects -> their places in the order of drawing."""
    handle = native.address(page)
    count = min(max(native.page_object_count(handle), 0), MAX_OBJECTS)
    return {found: at for at, found in enumerate(native.page_objects(handle, count))}


def _covers(order: dict[int, int], first: int, space: PageSpace) -> tuple[Array, npt.NDArray[np.int64]]:
    """(displayed boxes of opaque areas drawn after `first`, their places in the order of drawing)"""
    bounds, mode, rgba = native.Floats(4), native.Floats(2, ctypes.c_int), native.Floats(4, ctypes.c_uint)
    boxes, places = [], []
    for handle, at in order.items():
        if at <= first or native.object_type(handle) != pdfium_c.FPDF_PAGEOBJ_PATH:
            continue
        native.path_draw_mode(handle, *mode.addresses)
        native.object_fill(handle, *rgba.addresses)
        if mode.values[0] and rgba.values[3] >= _OPAQUE and native.object_bounds(handle, *bounds.addresses):
            left, bottom, right, top = bounds.values
            boxes.append(space.box(left, bottom, right, top))
            places.append(at)
    return np.array(boxes).reshape(-1, 4), np.array(places, np.int64)


def on_colour(page: Any, words: Sequence[Word], space: PageSpace) -> list[Word]:
    """Of white words, those that a picture of the page shows on anything but white: ink fills less than half a box."""
    shown = _shown(page, space)
    if shown is None:
        return list(words)
    scale = shown.shape[1] / space.width
    parts = [(word, _part(shown, word, scale, 0.0)) for word in words]
    return [word for word, part in parts if part.size and float(np.median(part)) < _WHITE]


def _shown(page: Any, space: PageSpace) -> npt.NDArray[np.uint8] | None:
    picture = figures.render(page, space, _SCALE, ParseLimits(), grey=True)
    return None if picture is None else np.asarray(picture.convert("L"))


def _seen(
    page: Any, words: Sequence[Word], suspects: dict[int, list[tuple[Word, bool]]], space: PageSpace
) -> list[Word]:
    shown = _shown(page, space)
    if shown is None:
        return list(words)
    scale = shown.shape[1] / space.width
    out: list[Word] = []
    for i, word in enumerate(words):
        pieces = suspects.get(i, [])
        kept = [piece for piece, lost in pieces if not (lost and _plain(shown, piece, scale))]
        out += [word] if len(kept) == len(pieces) else kept
    return out


def _plain(picture: npt.NDArray[np.uint8], word: Word, scale: float) -> bool:
    """Whether the picture shows one colour in the place of a word."""
    part = _part(picture, word, scale, _EDGE)
    return part.size > 0 and int(part.max()) - int(part.min()) < _PLAIN


def _part(picture: npt.NDArray[np.uint8], word: Word, scale: float, edge: float) -> npt.NDArray[np.uint8]:
    """What the picture shows in the place of a word. edge: share of its height to leave out above and below."""
    edge *= word.y1 - word.y0
    top, bottom = max(word.y0 + edge, 0.0), max(word.y1 - edge, 0.0)
    return picture[
        round(top * scale) : round(bottom * scale), round(max(word.x0, 0.0) * scale) : round(word.x1 * scale)
    ]
