"""pdfium functions that are called once per word, object or path, bound so that a call costs 0.2-0.3 microseconds.

pypdfium2's own bindings build typed pointer objects at every call, which is two to three times slower. These prototypes
take and give plain addresses (int, 0 for none), never own anything, and must not outlive the page that they read. They
keep the interpreter's lock (PYFUNCTYPE): every call is far shorter than letting it go and taking it back.

What is asked of hundreds of characters of a page goes through `char_boxes` and the like: with arguments that are ready
as C values the same call costs a third less.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pypdfium2.raw as pdfium_c

_P, _I, _F = ctypes.c_void_p, ctypes.c_int, ctypes.c_float
_H = ctypes.c_size_t
"""A handle as a result: unlike c_void_p, NULL comes as 0."""


def _bind(function: Any, result: Any, *arguments: Any) -> Callable[..., Any]:
    """With argument types plain numbers are taken; without them only ints that fit C's and ready C values are."""
    return ctypes.PYFUNCTYPE(result, *arguments)(ctypes.cast(function, ctypes.c_void_p).value or 0)


def address(handle: Any) -> int:
    """The address behind a pypdfium2 handle or raw pointer."""
    return ctypes.cast(getattr(handle, "raw", handle), ctypes.c_void_p).value or 0


loose_box = _bind(pdfium_c.FPDFText_GetLooseCharBox, _I, _P, _I, _P)
char_unicode = _bind(pdfium_c.FPDFText_GetUnicode, ctypes.c_uint, _P, _I)
char_count = _bind(pdfium_c.FPDFText_CountChars, _I, _P)
char_text = _bind(pdfium_c.FPDFText_GetText, _I, _P, _I, _I, _P)
text_font = _bind(pdfium_c.FPDFTextObj_GetFont, _H, _P)
text_render_mode = _bind(pdfium_c.FPDFTextObj_GetTextRenderMode, _I, _P)
object_type = _bind(pdfium_c.FPDFPageObj_GetType, _I, _P)
object_bounds = _bind(pdfium_c.FPDFPageObj_GetBounds, _I, _P, _P, _P, _P, _P)
object_matrix = _bind(pdfium_c.FPDFPageObj_GetMatrix, _I, _P, _P)
object_fill = _bind(pdfium_c.FPDFPageObj_GetFillColor, _I, _P, _P, _P, _P, _P)
object_mcid = _bind(pdfium_c.FPDFPageObj_GetMarkedContentID, _I, _P)
page_object_count = _bind(pdfium_c.FPDFPage_CountObjects, _I, _P)
form_object_count = _bind(pdfium_c.FPDFFormObj_CountObjects, _I, _P)
form_object = _bind(pdfium_c.FPDFFormObj_GetObject, _H, _P, ctypes.c_ulong)
path_draw_mode = _bind(pdfium_c.FPDFPath_GetDrawMode, _I, _P, _P, _P)
path_segment_count = _bind(pdfium_c.FPDFPath_CountSegments, _I, _P)
path_segment = _bind(pdfium_c.FPDFPath_GetPathSegment, _H, _P, _I)
segment_point = _bind(pdfium_c.FPDFPathSegment_GetPoint, _I, _P, _P, _P)
segment_type = _bind(pdfium_c.FPDFPathSegment_GetType, _I, _P)
font_name = _bind(pdfium_c.FPDFFont_GetBaseFontName, ctypes.c_size_t, _P, _P, ctypes.c_size_t)
font_flags = _bind(pdfium_c.FPDFFont_GetFlags, _I, _P)
glyph_width = _bind(pdfium_c.FPDFFont_GetGlyphWidth, _I, _P, ctypes.c_uint, _F, _P)
font_ascent = _bind(pdfium_c.FPDFFont_GetAscent, _I, _P, _F, _P)
font_descent = _bind(pdfium_c.FPDFFont_GetDescent, _I, _P, _F, _P)
tag_child_count = _bind(pdfium_c.FPDF_StructElement_CountChildren, _I, _P)
tag_child = _bind(pdfium_c.FPDF_StructElement_GetChildAtIndex, _H, _P, _I)
tag_child_mcid = _bind(pdfium_c.FPDF_StructElement_GetChildMarkedContentID, _I, _P, _I)
tag_type = _bind(pdfium_c.FPDF_StructElement_GetType, ctypes.c_ulong, _P, _P, ctypes.c_ulong)


class Floats:
    """A small C array of floats or doubles with the addresses of its members, reused for out-parameters."""

    __slots__ = ("address", "addresses", "values")

    def __init__(self, count: int, kind: Any = _F) -> None:
        self.values = (kind * count)()
        self.address = ctypes.addressof(self.values)
        self.addresses = tuple(self.address + i * ctypes.sizeof(kind) for i in range(count))


_loose_box = _bind(pdfium_c.FPDFText_GetLooseCharBox, None)
_matrix = _bind(pdfium_c.FPDFText_GetMatrix, None)
_origin = _bind(pdfium_c.FPDFText_GetCharOrigin, None)
_object = _bind(pdfium_c.FPDFText_GetTextObject, _H)
_page_object = _bind(pdfium_c.FPDFPage_GetObject, _H)
_font_size = _bind(pdfium_c.FPDFText_GetFontSize, ctypes.c_double)
_unmapped = _bind(pdfium_c.FPDFText_HasUnicodeMapError, _I)
Rows = npt.NDArray[np.float32]


def char_objects(textpage: int, indices: Sequence[int]) -> list[int]:
    """Addresses of the text objects that characters belong to."""
    return list(map(_object, repeat(_P(textpage)), indices))


def page_objects(page: int, count: int) -> list[int]:
    """Addresses of a page's first objects."""
    return list(map(_page_object, repeat(_P(page)), range(count)))


def char_font_sizes(textpage: int, indices: Sequence[int]) -> list[float]:
    """Font sizes of characters in text space."""
    return list(map(_font_size, repeat(_P(textpage)), indices))


def chars_unmapped(textpage: int, indices: Sequence[int]) -> list[int]:
    """1 for characters whose font says no Unicode for them."""
    return list(map(_unmapped, repeat(_P(textpage)), indices))


def char_boxes(textpage: int, indices: Sequence[int]) -> Rows:
    """(left, top, right, bottom) of characters in user space, shape (n, 4): advance by ascent and descent."""
    return _buffers.boxes.fill(_loose_box, textpage, indices)


def char_matrices(textpage: int, indices: Sequence[int]) -> Rows:
    """Text matrices (a, b, c, d, e, f) of characters, shape (n, 6)."""
    return _buffers.matrices.fill(_matrix, textpage, indices)


def char_origin(textpage: int, index: int) -> tuple[float, float]:
    """Where a character stands on its baseline, in user space."""
    x, y = ctypes.c_double(), ctypes.c_double()
    _origin(_P(textpage), index, ctypes.byref(x), ctypes.byref(y))
    return x.value, y.value


class _RowBuffer:
    """Out-parameters of one kind of call, a row each, whose addresses are made only once."""

    SIZE = 1024

    def __init__(self, width: int) -> None:
        self._values = np.zeros((self.SIZE, width), np.float32)
        step = self._values.strides[0]
        start = self._values.ctypes.data
        self._places = [_P(start + step * i) for i in range(self.SIZE)]

    def fill(self, function: Callable[..., Any], textpage: int, indices: Sequence[int]) -> Rows:
        """What the function writes for every character, as a copy."""
        out = np.empty((len(indices), self._values.shape[1]), np.float32)
        for at in range(0, len(indices), self.SIZE):
            part = indices[at : at + self.SIZE]
            # deque(maxlen=0) makes the calls without a Python frame each.
            deque(map(function, repeat(_P(textpage)), part, self._places), maxlen=0)
            out[at : at + len(part)] = self._values[: len(part)]
        return out


class _Buffers(threading.local):
    def __init__(self) -> None:
        self.boxes = _RowBuffer(4)
        self.matrices = _RowBuffer(6)


_buffers = _Buffers()
